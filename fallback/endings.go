package fallback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/stockgate/stockgate/internal/loop"
	"github.com/stockgate/stockgate/stock"
)

// closer tells Redis how entries ended.
type closer interface {
	CloseNow(ctx context.Context, p int, closings []stock.Closing, facts []stock.Fact) (stale bool, err error)
}

// endings are what partitions are to be told of open entries that the database has decided about.
type endings struct {
	partitions int
	claims     func() bool // ids are claimed, also those of orders that wait for their commit
	of         map[int]*told
	won, lost  int
	astray     []stock.ID // sold ahead under ids of other lines: no row can be written for them, so they stay open
}

// told is what a partition is to be told.
type told struct {
	closings []stock.Closing
	facts    []stock.Fact
}

func newEndings(partitions int, claims func() bool) *endings {
	return &endings{partitions: partitions, claims: claims, of: make(map[int]*told)}
}

// sweepOf lets the database decide about an entry by the row of its try. An ahead entry's order may have been forwarded, so without a
// row it is settled, like any that was: first, and whatever the limits say.
func sweepOf(e *stock.OpenEntry, actor string) *stock.Op {
	op := &stock.Op{Kind: stock.OpSweep, Class: stock.ClassPrededuct, Reservation: &e.Reservation, Reason: "swept", Actor: actor}
	if e.Ahead {
		op.Class, op.Ahead, op.Epoch = stock.ClassForwarded, true, e.Epoch
	}
	return op
}

// decide lets the database decide about entries of partition p, and notes what comes of it. failed is how many it could not decide.
func (e *endings) decide(ctx context.Context, worker loop.Worker, p int, entries []stock.OpenEntry, actor string) (failed int, err error) {
	ops := make([]*stock.Op, len(entries))
	for i := range entries {
		ops[i] = sweepOf(&entries[i], actor)
	}
	for i, opErr := range loop.DoAll(ctx, worker, ops) {
		if opErr == nil {
			opErr = e.note(p, &entries[i], &ops[i].Result)
		}
		if opErr != nil {
			failed++
			err = opErr
		}
	}
	return failed, err
}

// note keeps what the sweep of an entry in p decided: the closing for p and every partition that has a line of it, because the entries
// there end alike; that of its claim for the claim's partition; and the facts for their own. No ahead entry is closed before its try has
// a row: it stays open, and with it its units.
func (e *endings) note(p int, entry *stock.OpenEntry, result *stock.Result) error {
	r, row := &entry.Reservation, result.Row
	own := row != nil && row.Try == r.Try
	switch {
	case !entry.Ahead, own, row != nil && result.Verdict == stock.VerdictStale:
	case result.Verdict == stock.VerdictKeyReused:
		e.astray = append(e.astray, r.ID)
		return nil
	default:
		return fmt.Errorf("reservation %s was sold ahead and has no row of its try: %s", r.ID, result.Verdict)
	}
	closings := []stock.Closing{e.closing(r, row)}
	if entry.Ahead && !own && kept(row) { // or the end of its try would take the id's record with it
		closings = append(closings, stock.Closing{ID: r.ID, Try: row.Try, Fingerprint: row.Fingerprint, Won: true})
	}
	ps := []int{p}
	for _, l := range r.Lines {
		if of := stock.Partition(l.SKU, e.partitions); !slices.Contains(ps, of) {
			ps = append(ps, of)
		}
	}
	for _, p := range ps {
		e.at(p).closings = append(e.at(p).closings, closings...)
	}
	if entry.Ahead || e.claims() {
		of := e.at(stock.ClaimPartition(r.ID, e.partitions))
		of.closings = append(of.closings, claimsOf(r, row)...)
	}
	for _, f := range result.Facts {
		of := e.at(stock.Partition(f.SKU, e.partitions))
		of.facts = append(of.facts, f)
	}
	return nil
}

// claimsOf end the claim of a try. An id that has a row is kept, whatever became of it: who uses it has to look the row up.
func claimsOf(r *stock.Reservation, row *stock.Row) (claims []stock.Closing) {
	if row == nil || row.Try != r.Try {
		claims = append(claims, stock.Closing{ID: r.ID, Try: r.Try, Claim: true})
	}
	if row != nil {
		claims = append(claims, stock.Closing{ID: r.ID, Try: row.Try, Fingerprint: row.Fingerprint, Won: true, Claim: true})
	}
	return claims
}

func (e *endings) at(p int) *told {
	if e.of[p] == nil {
		e.of[p] = &told{}
	}
	return e.of[p]
}

// closing is how an entry ends, by the row that the sweep left: won if this try's row is held or confirmed, or keeps an answer; else
// lost, also if the row is of another try. A surplus one is won, too: its order is made, and its id must not make another.
func (e *endings) closing(r *stock.Reservation, row *stock.Row) stock.Closing {
	c := stock.Closing{ID: r.ID, Try: r.Try}
	if row != nil && row.Try == r.Try && kept(row) {
		c.Won, c.Fingerprint = true, row.Fingerprint
		e.won++
		return c
	}
	e.lost++
	return c
}

// kept reports whether Redis keeps the id of the row.
func kept(row *stock.Row) bool {
	return row.State.Deducted() || row.State == stock.StateSurplus || row.Answer != nil
}

// tell tells every partition. One partition's trouble does not keep the others from hearing: its entries are swept again.
func (e *endings) tell(ctx context.Context, cache closer) (failed error) {
	for p, t := range e.of {
		if err := t.tell(ctx, cache, p); err != nil {
			failed = errors.Join(failed, fmt.Errorf("tell partition %d: %w", p, err))
		}
	}
	return failed
}

// factsInOneCall is how many facts surely travel in one call with the first closings.
const factsInOneCall = 64

// tell sends the facts no later than the closings: an entry that is gone before its settle's fact is there would have its units sold again.
func (t *told) tell(ctx context.Context, cache closer, p int) error {
	facts := t.facts
	if len(facts) > factsInOneCall {
		if stale, err := cache.CloseNow(ctx, p, nil, facts); err != nil || stale {
			return cmp.Or(err, errStale)
		}
		facts = nil
	}
	stale, err := cache.CloseNow(ctx, p, t.closings, facts)
	if err == nil && stale {
		err = errStale
	}
	return err
}
