package ledger

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stockgate/stockgate/stock"
)

// win is what Redis gave a replica, and what the database does not know yet.
type win struct {
	r       *stock.Reservation
	epoch   int64
	replica int
}

// fleet is one SKU that is sold ahead by two replicas over a Redis that forgets, hears late and is loaded anew, while the database sells
// what is not granted.
type fleet struct {
	h       *held
	k       *skuState
	base    int64              // of Redis
	out     map[stock.Try]*win // what Redis has in open
	open    int64              // the epoch under which Redis sells ahead; 0: it does not
	wins    []*win             // unsettled, as the replicas that forwarded them know
	knows   [2]int64           // the epoch that a replica works under
	silent  [2]bool
	doubted [2]bool
	made    byte
}

// Whatever Redis sells ahead has its units: under any order of grants, settles, sales by the database, drains with a replica that keeps
// silent and comes back late, and losses of Redis, no settle of a win finds nothing.
func TestWhatRedisSellsAheadIsNeverSurplus(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet(6)
		f.do(&stock.Op{Kind: stock.OpGrant, SKU: "a", Need: 4})
		f.hear()
		f.win(0, 2)
		f.silent[0] = true // what is rare stands at the beginning
		for range rapid.IntRange(20, 120).Draw(t, "steps") {
			f.step(t, rapid.SampledFrom(fleetSteps).Draw(t, "step"))
			f.check(t)
		}
	})
}

func newFleet(units int64) *fleet {
	f := &fleet{h: holding(map[string]int64{"a": units}), out: map[stock.Try]*win{}, open: 1, knows: [2]int64{1, 1}}
	f.h.tried, f.k = map[tryKey]bool{}, f.h.skus["a"]
	f.k.partition.ahead = true
	return f
}

// fleetSteps are what may happen, the frequent more than once.
var fleetSteps = []string{"grant", "grant", "hear", "hear", "win", "win", "win", "settle", "settle", "sell", "sell", "give", "adjust",
	"silence", "return", "learn", "learn", "learn", "drain", "drain", "lose", "reopen", "reopen", "clear"}

func (f *fleet) step(t *rapid.T, name string) {
	replica := rapid.IntRange(0, 1).Draw(t, "replica")
	switch name {
	case "grant":
		f.do(&stock.Op{Kind: stock.OpGrant, SKU: "a", Need: rapid.Int64Range(1, 3).Draw(t, "need"), Want: rapid.Int64Range(0, 6).Draw(t, "want")})
	case "hear":
		f.hear()
	case "win":
		f.win(replica, rapid.Int64Range(1, 3).Draw(t, "qty"))
	case "settle":
		f.settle(t)
	case "sell":
		f.sell(t, rapid.Bool().Draw(t, "unique"))
	case "give":
		f.give(t)
	case "adjust":
		f.do(&stock.Op{Kind: stock.OpAdjust, SKU: "a", Delta: rapid.Int64Range(-2, 2).Draw(t, "delta")})
	case "silence":
		f.silent = [2]bool{replica == 0, replica == 1}
	case "return":
		f.silent = [2]bool{}
	case "learn":
		f.learn(replica)
	case "drain":
		f.drain()
	case "lose":
		f.open, f.base, f.out = 0, 0, map[stock.Try]*win{}
	case "reopen":
		f.reopen()
	case "clear":
		f.do(&stock.Op{Kind: stock.OpGrantBack, SKU: "a", Cleared: true})
	}
}

// give ends a reservation.
func (f *fleet) give(t *rapid.T) {
	if f.made > 0 {
		f.do(&stock.Op{Kind: stock.OpRelease, ID: stock.ID{rapid.ByteRange(1, f.made).Draw(t, "id")}})
	}
}

func (f *fleet) do(op *stock.Op) stock.Result {
	f.k.touched, f.h.entries = false, nil
	res := f.h.decide(op)
	for _, e := range f.h.entries {
		f.h.tried[tryKey{e.Reservation, e.Try}] = true
	}
	return res
}

// hear brings Redis the SKU's fact, if Redis is under its epoch. What does not sell ahead is not asked to.
func (f *fleet) hear() {
	if f.open == f.k.partition.epoch && f.k.ahead {
		f.base = f.k.fact().Base()
	}
}

func (f *fleet) win(replica int, qty int64) {
	var out int64
	for _, w := range f.out {
		out += w.r.Lines[0].Qty
	}
	if f.open == 0 || f.silent[replica] || f.knows[replica] != f.open || f.base-out < qty {
		return
	}
	f.made++
	w := &win{r: decideWish(f.made, stock.Try(f.made), stock.Line{SKU: "a", Qty: qty}), epoch: f.open, replica: replica}
	f.wins, f.out[w.r.Try] = append(f.wins, w), w
}

// settle lets a replica settle one of its wins. The close brings the fact, or nothing: under another epoch it is stale.
func (f *fleet) settle(t *rapid.T) {
	if len(f.wins) == 0 {
		return
	}
	w := rapid.SampledFrom(f.wins).Draw(t, "win")
	if f.silent[w.replica] {
		return
	}
	f.do(&stock.Op{Kind: stock.OpSettle, Reservation: w.r, Ahead: true, Seen: true, Epoch: w.epoch})
	f.forget(w)
	if rapid.Bool().Draw(t, "closed") && f.open == f.k.partition.epoch {
		delete(f.out, w.r.Try)
		f.hear()
	}
}

func (f *fleet) forget(w *win) {
	f.wins = slices.DeleteFunc(f.wins, func(o *win) bool { return o == w })
}

// sell is a sale by the database alone.
func (f *fleet) sell(t *rapid.T, unique bool) {
	f.made++
	f.do(&stock.Op{Kind: stock.OpSettle, Unique: unique,
		Reservation: decideWish(f.made, stock.Try(f.made), stock.Line{SKU: "a", Qty: rapid.Int64Range(1, 3).Draw(t, "qty")})})
}

// learn tells a replica of the epoch; it has drained once it has settled all that it won before.
func (f *fleet) learn(replica int) {
	if f.silent[replica] {
		return
	}
	f.knows[replica] = f.k.partition.epoch
	if !slices.ContainsFunc(f.wins, func(w *win) bool { return w.replica == replica && w.epoch < f.knows[replica] }) && f.doubted[replica] {
		f.doubted[replica] = false
		f.k.partition.doubts--
	}
}

// drain begins to drain, or completes it: who is silent is doubted.
func (f *fleet) drain() {
	p := f.k.partition
	if p.state == stock.PartitionOpen {
		p.state = stock.PartitionDraining
		p.epoch++
		return
	}
	for replica := range f.knows {
		busy := slices.ContainsFunc(f.wins, func(w *win) bool { return w.replica == replica && w.epoch < p.epoch })
		if !f.silent[replica] && (busy || f.knows[replica] != p.epoch) {
			return
		}
	}
	p.state = stock.PartitionDrained
	for replica := range f.knows {
		if f.silent[replica] && !f.doubted[replica] {
			f.doubted[replica] = true
			p.doubts++
		}
	}
}

// reopen is the way back: what open holds is settled, the grant given back, Redis loaded.
func (f *fleet) reopen() {
	p := f.k.partition
	if p.state != stock.PartitionDrained {
		return
	}
	for _, w := range f.out {
		f.do(&stock.Op{Kind: stock.OpSweep, Reservation: w.r, Ahead: true, Seen: true, Epoch: w.epoch})
		f.forget(w)
	}
	f.do(&stock.Op{Kind: stock.OpGrantBack, SKU: "a", Epoch: p.epoch, Doubtful: p.doubts > 0})
	p.state, f.open, f.base, f.out = stock.PartitionOpen, p.epoch, 0, map[stock.Try]*win{}
	f.hear()
}

func (f *fleet) check(t *rapid.T) {
	for _, row := range f.h.rows {
		if row.State == stock.StateSurplus {
			t.Fatalf("%s of %d units is surplus: available %d, granted %d, doubtful %d", row.ID, row.Lines[0].Qty, f.k.available, f.k.granted, f.k.doubtful)
		}
	}
	unsettled := int64(0)
	for _, w := range f.wins {
		unsettled += w.r.Lines[0].Qty
	}
	if unsettled > f.k.unsold() {
		t.Fatalf("%d units are won and not settled, %d are unsold", unsettled, f.k.unsold())
	}
	if k := f.k; k.available < 0 || k.doubtful < 0 || k.doubtful > k.granted || k.unsold()+k.held != k.stockIn {
		t.Fatalf("available %d, granted %d, doubtful %d, held %d, put in %d", k.available, k.granted, k.doubtful, k.held, k.stockIn)
	}
}

// A test of the test: without the doubt, a replica that comes back late finds nothing.
func TestWithoutDoubtALateWinWouldBeSurplus(t *testing.T) {
	f := newFleet(2)
	f.do(&stock.Op{Kind: stock.OpGrant, SKU: "a", Need: 2})
	f.hear()
	f.win(0, 2)
	f.open, f.out = 0, map[stock.Try]*win{} // Redis has lost it
	f.k.partition.state, f.k.partition.epoch = stock.PartitionDrained, 2
	f.do(&stock.Op{Kind: stock.OpGrantBack, SKU: "a", Epoch: 2})
	f.do(&stock.Op{Kind: stock.OpSettle, Reservation: decideWish(9, 9, stock.Line{SKU: "a", Qty: 1})})
	res := f.do(&stock.Op{Kind: stock.OpSettle, Reservation: f.wins[0].r, Ahead: true, Seen: true, Epoch: 1})
	if res.Row.State != stock.StateSurplus || !res.ForwardBy.Equal(decideNow.Add(2*time.Second)) {
		t.Errorf("%s, %+v", res.Verdict, res.Row)
	}
}

// What waits for its commit takes no doubtful units, also while its partition drains: a silent replica may have sold them, and its order is
// out already.
func TestWhatGoesThroughTakesNothingDoubtful(t *testing.T) {
	f := newFleet(2)
	f.do(&stock.Op{Kind: stock.OpGrant, SKU: "a", Need: 2})
	f.hear()
	f.win(0, 2)
	f.k.doubtful, f.k.partition.state, f.k.partition.epoch = 2, stock.PartitionDraining, 2
	through := f.do(&stock.Op{Kind: stock.OpSettle, Reservation: decideWish(9, 9, stock.Line{SKU: "a", Qty: 1}), Seen: true, Epoch: 1})
	late := f.do(&stock.Op{Kind: stock.OpSettle, Reservation: f.wins[0].r, Ahead: true, Seen: true, Epoch: 1})
	if through.Verdict != stock.VerdictShort || late.Row.State != stock.StateHeld {
		t.Errorf("through: %s, late: %+v", through.Verdict, late.Row)
	}
}
