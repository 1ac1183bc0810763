// Package filters is what a request passes before any stock is asked for: the contract of a filter, the chain that runs them, and
// the rate-limit headers of the answer. The filters themselves are in folders of their own; package builtin holds the one ordered
// list.
//
//	limits (ratelimit)  →  hot-spot lane (lane)  →  pre-deduct (not a filter)
//	429 RATE_LIMITED       429 SKU_LIMITED, 409 SOLD_OUT
//
// # Contract
//
// A filter lets a request pass (Enter returns nil) or refuses it (Enter returns a Refusal). Whatever a filter holds for a request
// it passed, it gives back in Leave.
//
//   - Leave is called exactly once for every Enter that passed, in reverse order, on every way out: answered, refused by a later
//     filter, panicked.
//   - Leave is not called for an Enter that refused or panicked: such an Enter must hold nothing.
//   - Enter may block, but only for a time that its configuration bounds.
//   - A refusal names the key of the limit in the configuration and its value, so that the operator knows what to turn.
//
// Order matters: what is cheap and touches nobody else comes first, what makes a request wait comes last.
//
// # What is given back
//
// Slots come back in Leave. Rate tokens do not: a request that passed the limits has used them, whatever becomes of it later. A
// request that one limit refuses uses no token of any other limit (see package ratelimit).
//
// # Cost
//
// The way through allocates nothing once the structures have grown to their working size: the Request is the caller's, reused
// between requests (Reset), and refusals live in it.
package filters
