package storetest

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// storm is what many workers do to a few reservations at once.
type storm struct {
	mu    sync.Mutex
	rs    []*stock.Reservation
	tries map[stock.ID][]*stock.Reservation // everything that was tried: what was late, lost or repeated speaks of any of them
	ends  map[stock.ID][]time.Time          // expiries that somebody has read
	done  map[stock.OpKind]int
}

// caseStorm: any op of a life about any try, in batches, from several replicas, with the terms of the sale changing from try to try. Whatever
// the interleaving, units, counts and chains are whole.
func caseStorm(t *testing.T, e *env) {
	e.cfg.ForwardWithin = time.Millisecond // so that take-overs come in time
	e.Store = e.open()
	for _, sku := range []string{"a", "b", "c"} {
		e.set(sku, 40)
	}
	s := &storm{tries: map[stock.ID][]*stock.Reservation{}, ends: map[stock.ID][]time.Time{}, done: map[stock.OpKind]int{}}
	for range 24 {
		s.begin()
	}
	e.parallel(4, func(store *ledger.Store, n int) {
		random := rand.New(rand.NewPCG(7, uint64(n))) //nolint:gosec // a seeded workload
		for round := 0; round < 40 || round < 4000 && !s.enough(); round++ {
			if round >= 40 {
				s.begin() // the others have ended by now: how fast the database is decides what comes in time
			}
			var ops []*stock.Op
			for range 1 + random.IntN(6) {
				ops = append(ops, s.op(random))
			}
			e.stormExec(store, ops, random.IntN(2) == 0)
			s.learn(ops)
		}
	})
	e.sound()
	if !s.enough() {
		t.Errorf("too little was done: %v", s.done)
	}
}

// begin adds a reservation.
func (s *storm) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rs = append(s.rs, wish([][]any{{"a", 2}, {"a", 1, "b", 2}, {"b", 1, "c", 3}, {"a", 1, "b", 1, "c", 1}}[len(s.rs)%4]...))
}

// any is one of the reservations, the latest ones rather than others once there are many.
func (s *storm) any(random *rand.Rand) *stock.Reservation {
	s.mu.Lock()
	defer s.mu.Unlock()
	const few = 24
	return s.rs[len(s.rs)-1-random.IntN(min(len(s.rs), few))]
}

// enough reports whether what is rare was done at all.
func (s *storm) enough() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done[stock.OpTakeOver] > 0 && s.done[stock.OpConfirm] > 0
}

// stormExec is execOn without its patience: what is locked all the time is left.
func (e *env) stormExec(s *ledger.Store, ops []*stock.Op, wait bool) {
	for patience := 50; len(ops) > 0 && patience > 0; patience-- {
		locked, err := s.Exec(context.Background(), ops, wait)
		switch {
		case ledger.Retryable(err):
			continue
		case err != nil:
			e.t.Error(err)
			return
		}
		ops = locked
	}
}

// again is another try of a reservation under other terms of the sale.
func (s *storm) again(random *rand.Rand, of *stock.Reservation) *stock.Reservation {
	r := again(of)
	r.User, r.Terms = []string{"", "u1", "u2"}[random.IntN(3)], nil
	activity := []string{"", "sale", "after sale"}[random.IntN(3)]
	for range r.Lines {
		r.Terms = append(r.Terms, stock.LineTerms{Activity: activity, Limit: random.Int64N(3) * 4})
	}
	r.OpenLimit = random.Int64N(2) * 4
	r.Hold = time.Duration(1+random.IntN(20)) * time.Millisecond
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries[r.ID] = append(s.tries[r.ID], r)
	return r
}

// known is a try that was made before, the latest ones rather than others.
func (s *storm) known(random *rand.Rand, of *stock.Reservation) *stock.Reservation {
	s.mu.Lock()
	defer s.mu.Unlock()
	made := s.tries[of.ID]
	if len(made) == 0 {
		return of
	}
	return made[max(len(made)-1-random.IntN(5)/3, 0)] // mostly the last
}

func (s *storm) end(random *rand.Rand, of *stock.Reservation) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ends := s.ends[of.ID]; len(ends) > 0 {
		return ends[max(len(ends)-1-random.IntN(2), 0)]
	}
	return time.Time{}
}

func (s *storm) learn(ops []*stock.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, op := range ops {
		if row := op.Result.Row; row != nil {
			s.ends[row.ID] = append(s.ends[row.ID], row.ExpiresAt)
		}
		if op.Result.Verdict == stock.VerdictDone {
			s.done[op.Kind]++
		}
	}
}

func (s *storm) op(random *rand.Rand) *stock.Op {
	of := s.any(random)
	r := s.known(random, of)
	switch random.IntN(16) {
	case 0, 1, 2, 3:
		return settle(s.again(random, of))
	case 4:
		return settle(r) // its COMMIT was lost
	case 5:
		return accept(r, nil)
	case 6:
		return reject(r, nil)
	case 7:
		return unknown(r, "timeout")
	case 8:
		return neverSent(r)
	case 9:
		return cancel(r)
	case 10:
		return part(r, string("xyz"[random.IntN(3)]), of.Lines[0].SKU, 1)
	case 11:
		return late(r)
	case 12:
		op := expire(r, s.end(random, of))
		op.Asked, op.Outcome, op.Answered = random.IntN(2) == 0, stock.Outcome(random.IntN(2)), stock.Outcome(1+random.IntN(2))
		return op
	case 13:
		return &stock.Op{Kind: stock.OpTakeOver, ID: r.ID, Try: r.Try, Reservation: s.again(random, of)}
	case 14:
		return sweep(r)
	}
	return &stock.Op{Kind: stock.OpExtend, ID: r.ID, Hold: time.Duration(1+random.IntN(50)) * time.Millisecond}
}
