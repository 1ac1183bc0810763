// Package stock is the domain: SKUs, reservations, their states, the commands that change them, the facts that the database tells
// about them, and the invariants I1–I10. It does no I/O and reads no clock, so everything here can be tested by itself, and every
// other package may import it.
//
// # A reservation's life
//
//	(none) → held → confirmed → released (refund, cancelled)
//	           └──→ released (never sent, refused, cancelled, expired)  → held again by another try, confirmed by a late confirm
//	(none) → void      this try may never settle (tombstone)
//
// Every arrow is a compare-and-set on (state, try) with a ledger row in the same database transaction; package ledger executes
// them, the rules are here (State.CanBecome).
//
// # Who decides what
//
// Redis turns away whoever cannot win (CacheReply). The database decides (Verdict). What the database last decided about a SKU
// travels as a Fact; a Fact replaces an older one by (Epoch, Ver) and may therefore be repeated, delayed and reordered.
//
// # Units
//
// Quantities are whole units in int64, 0 … MaxQuantity (2^53, the largest number that Lua keeps exact). Moments come in from the
// caller. Ids are drawn or derived, never counted, so that replicas need not agree on anything.
package stock
