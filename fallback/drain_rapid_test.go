package fallback

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stockgate/stockgate/stock"
)

// The model test drives real way-backs, pass by pass, over a database and a Redis in memory. Between any two calls of a job anything may
// happen: it crashes, it stands still while others go on for longer than its lease, its call is done and the reply lost. Whatever happens,
// no unit is sold twice, and in the end none is missing.

const (
	modelSKU   = "sku-1"
	modelUnits = 12
)

// world is the fleet and what it has sold.
type world struct {
	t         *rapid.T
	rnd       *rand.Rand // what happens; rapid's own numbers are mostly small, so most of it would be
	db        *fakeDB
	redis     *fakeRedis
	rules     *rules
	gateways  []*modelGateway
	snapshot  []stock.OpenEntry // of open in a copy of Redis that lags behind
	forwarded map[stock.ID]int64
	alone     int64 // units that the database alone has sold
	servers   int
	ids       uint64
	depth     int // of what happens in the midst of something else
	calm      bool
}

// modelGateway is one replica.
type modelGateway struct {
	*WayBack
	w                    *world
	name                 string
	client               *fakeClient
	usable, dead, paused bool
	cut                  bool // from the database
	seen                 bool // it has beaten once
	work                 []*modelOrder
}

// modelOrder is a request to sell ahead, from before its epoch was read until the database knows its end.
type modelOrder struct {
	entry    stock.OpenEntry
	epoch    int64 // that it entered under, and that its reserve carries
	runID    string
	state    int // asked, unknown, won
	wonUnder int64
}

const (
	orderAsked = iota
	orderUnknown
	orderWon
)

var (
	errCut     = fmt.Errorf("cut off: %w", stock.ErrUnavailable)
	errCrashed = errors.New("crashed")
)

func (w *world) start() {
	g := &modelGateway{w: w, name: fmt.Sprint("g", len(w.gateways)), usable: true}
	g.client = &fakeClient{fakeRedis: w.redis}
	g.WayBack = NewWayBack(hookedStore{g}, hookedCache{g}, hookedWorker{g}, WayBackConfig{Holder: g.name, Partitions: testPartitions,
		AnswersKeep: time.Hour, Usable: func(int) bool { return g.usable }, Now: g.now, Idle: g.idle, Pulse: w.db.pulse,
		Eventual: w.rules.is, AnyEventual: w.rules.any, RulesVersion: w.rules.version.Load})
	g.client.epochs = g.WayBack
	w.gateways = append(w.gateways, g)
}

func (g *modelGateway) now() time.Time {
	if !g.seen {
		return time.Time{}
	}
	return time.Now()
}

func (g *modelGateway) idle(p int, epoch int64) bool {
	return p != partOf(modelSKU) || !slices.ContainsFunc(g.work, func(o *modelOrder) bool { return o.epoch < epoch })
}

func (g *modelGateway) acts() bool { return !g.dead && !g.paused }

// happens is what may befall a call of a job, before and after it is done.
func (g *modelGateway) happens() error {
	if g.dead {
		return errCrashed
	}
	if g.w.calm || g.w.depth > 1 {
		return nil
	}
	switch n := g.w.rnd.IntN(400); {
	case n == 0:
		g.dead = true
		return errCrashed
	case n < 5:
		return stock.ErrUnknown
	case n < 12:
		g.standsStill()
	}
	return nil
}

// standsStill lets the others go on.
func (g *modelGateway) standsStill() {
	g.paused = true
	g.w.depth++
	if g.w.rnd.IntN(2) == 0 {
		g.w.pass(12 * time.Second)
	}
	for range g.w.rnd.IntN(30) {
		g.w.act()
	}
	g.w.depth--
	g.paused = false
}

// pass lets time go by; whoever can beats every second.
func (w *world) pass(d time.Duration) {
	for ; d > 0; d -= time.Second {
		for _, g := range w.gateways {
			g.beat()
		}
		time.Sleep(time.Second)
	}
}

func (g *modelGateway) beat() {
	if g.acts() && !g.cut {
		g.w.db.beat(g.name, g.Out())
		g.seen = true
	}
}

// sell goes one step with an order that is sold ahead: ask, hear, forward, settle.
func (g *modelGateway) sell(qty int64) {
	p := partOf(modelSKU)
	epoch, runID := g.Epoch(p)
	g.w.ids++
	r := stock.Reservation{Try: stock.Try(g.w.ids), Lines: []stock.Line{{SKU: modelSKU, Qty: qty}}}
	binary.BigEndian.PutUint64(r.ID[:], g.w.ids)
	g.work = append(g.work, &modelOrder{entry: stock.OpenEntry{Reservation: r, Ahead: true}, epoch: epoch, runID: runID})
}

func (g *modelGateway) goOn(o *modelOrder, lost bool) {
	switch {
	case o.state == orderAsked, o.state == orderUnknown && g.usable:
		g.reserve(o, lost)
	case o.state == orderUnknown && !g.cut:
		g.void(o)
	case o.state == orderWon && !g.cut:
		g.w.settle(o.entry.Reservation, o.wonUnder)
		g.end(o)
	}
}

func (g *modelGateway) end(o *modelOrder) {
	g.work = slices.DeleteFunc(g.work, func(x *modelOrder) bool { return x == o })
}

// reserve executes in Redis under the epoch that the request was sent with. Its reply may be lost; then the same is asked again.
func (g *modelGateway) reserve(o *modelOrder, lost bool) {
	won := g.w.redisReserve(o)
	switch {
	case lost:
		o.state = orderUnknown
	case won:
		o.state = orderWon
		g.w.forwarded[o.entry.ID] = o.entry.Lines[0].Qty
	case o.state == orderUnknown:
		g.void(o) // the first call may have been executed, and may still be
	default:
		g.end(o)
	}
}

// void ends an order that surely was not forwarded.
func (g *modelGateway) void(o *modelOrder) {
	if g.cut {
		return
	}
	g.w.db.mu.Lock()
	defer g.w.db.mu.Unlock()
	if g.w.db.sweeps[o.entry.ID] == nil {
		g.w.db.sweeps[o.entry.ID] = &stock.Row{Reservation: o.entry.Reservation, State: stock.StateVoid}
	} else {
		g.w.giveUnits(o.entry.Reservation) // somebody settled it from open: never sent, so it is released
	}
	g.end(o)
}

// giveUnits puts the units of a reservation that was never sent back; the database's lock is held.
func (w *world) giveUnits(r stock.Reservation) {
	row := w.db.sweeps[r.ID]
	if row.State == stock.StateHeld {
		row.State = stock.StateReleased
		w.db.changeLocked(modelSKU, w.db.facts[modelSKU].Available+r.Lines[0].Qty)
	}
}

func (w *world) redisReserve(o *modelOrder) (won bool) {
	w.redis.mu.Lock()
	defer w.redis.mu.Unlock()
	p := partOf(modelSKU)
	part, f := w.redis.parts[p], w.redis.skus[modelSKU]
	if w.redis.down || o.epoch == 0 || part.epoch != o.epoch || w.redis.runID != o.runID || !part.open || !f.Ahead {
		return false
	}
	free := f.Base()
	for _, e := range w.redis.open[p] {
		if e.ID == o.entry.ID {
			o.wonUnder = o.epoch
			return true
		}
		free -= e.Lines[0].Qty
	}
	if free < o.entry.Lines[0].Qty {
		return false
	}
	w.redis.open[p] = append(w.redis.open[p], o.entry)
	o.wonUnder = o.epoch
	return true
}

// settle is the ledger's settle of what was forwarded.
func (w *world) settle(r stock.Reservation, epoch int64) {
	w.db.mu.Lock()
	defer w.db.mu.Unlock()
	w.settleLocked(r, epoch)
}

func (w *world) settleLocked(r stock.Reservation, epoch int64) *stock.Row {
	if row := w.db.sweeps[r.ID]; row != nil {
		return row
	}
	f, s, need := w.db.facts[modelSKU], w.db.states[partOf(modelSKU)], r.Lines[0].Qty
	base := f.Granted - f.Doubtful
	take := func(pool *int64) {
		n := min(*pool, need)
		*pool, need = *pool-n, need-n
	}
	if epoch == s.Epoch || s.State != stock.PartitionOpen {
		take(&base)
		take(&f.Available)
		take(&f.Doubtful)
	} else {
		take(&f.Doubtful)
		take(&f.Available)
		take(&base)
	}
	if need > 0 {
		w.t.Fatalf("surplus: %d of %s lack", need, r.ID)
	}
	f.Granted = base + f.Doubtful
	w.db.facts[modelSKU] = f
	w.db.changeLocked(modelSKU, f.Available)
	row := &stock.Row{Reservation: r, State: stock.StateHeld}
	w.db.sweeps[r.ID] = row
	return row
}

// grant moves units to be sold ahead.
func (w *world) grant(n int64) {
	w.db.mu.Lock()
	defer w.db.mu.Unlock()
	f := w.db.facts[modelSKU]
	n = min(n, f.Available)
	f.Granted, f.Ahead = f.Granted+n, true
	w.db.facts[modelSKU] = f
	w.db.changeLocked(modelSKU, f.Available-n)
	w.db.states[partOf(modelSKU)].Ahead = true
}

// buyAlone is admission by the database alone: of an order service that keeps one order per reservation, or with the partition drained.
func (w *world) buyAlone() {
	w.db.mu.Lock()
	defer w.db.mu.Unlock()
	if f := w.db.facts[modelSKU]; f.Available > 0 {
		w.db.changeLocked(modelSKU, f.Available-1)
		w.alone++
	}
}

// restart is a Redis that comes back empty, or as the copy that was behind.
func (w *world) restart(stale bool) {
	w.servers++
	name := fmt.Sprint("server ", w.servers)
	if !stale {
		w.redis.restart(name)
		return
	}
	w.redis.mu.Lock()
	defer w.redis.mu.Unlock()
	w.redis.runID = name
	w.redis.open[partOf(modelSKU)] = slices.Clone(w.snapshot)
}

// sweep settles every entry that its owner may have left behind: it is past its deadline whenever the model says so.
func (g *modelGateway) sweep() {
	s := NewSweeper(hookedStore{g}, hookedCache{g}, hookedWorker{g}, SweeperConfig{Holder: g.name, Partitions: testPartitions,
		Usable: func(int) bool { return g.usable }})
	_ = s.sweep(context.Background(), partOf(modelSKU))
}

// tell sends the fact of the moment, and loads the key if there is none.
func (g *modelGateway) tell() {
	if g.cut || !g.usable {
		return
	}
	ctx, p := context.Background(), partOf(modelSKU)
	g.w.db.mu.Lock()
	f := g.w.db.changeLocked(modelSKU, g.w.db.facts[modelSKU].Available)
	g.w.db.mu.Unlock()
	_, _ = g.client.Load(ctx, p, []stock.Fact{f})
	_, _ = g.client.CloseNow(ctx, p, nil, []stock.Fact{f})
}

// job runs one pass of a gateway's job.
func (g *modelGateway) job(n int) {
	ctx := context.Background()
	_ = []func(context.Context) error{g.learnPass, g.pass, g.sayPass, g.drainPass}[n](ctx)
}

// act is one thing that happens in the world.
func (w *world) act() {
	g := w.gateways[w.rnd.IntN(len(w.gateways))]
	switch what := w.rnd.IntN(1000); {
	case what < 20:
		w.trouble(g)
	case what < 60:
		w.pass(time.Duration(1+w.rnd.IntN(3)) * time.Second)
	case what < 70:
		w.buyAlone()
	case what < 130:
		w.grant(1 + w.rnd.Int64N(3))
	case what < 160:
		w.copyLags()
	case g.acts():
		g.act(what)
	}
	w.check()
}

// trouble is what breaks.
func (w *world) trouble(g *modelGateway) {
	switch w.rnd.IntN(9) {
	case 0, 1:
		w.restart(false)
	case 2, 3:
		w.restart(true)
	case 4:
		if len(w.gateways) < 6 {
			w.start()
		}
	case 5, 6:
		g.cut = !g.cut
	case 7:
		g.usable = !g.usable
	case 8: // more than half
		for _, g := range w.gateways {
			g.usable = w.rnd.IntN(3) > 0
		}
	}
}

func (w *world) copyLags() {
	w.redis.mu.Lock()
	defer w.redis.mu.Unlock()
	w.snapshot = slices.Clone(w.redis.open[partOf(modelSKU)])
}

// act is one thing that a gateway does.
func (g *modelGateway) act(what int) {
	switch {
	case what < 200:
		g.beat()
	case what < 210:
		g.sweep()
	case what < 300:
		g.tell()
	case what < 450:
		g.sell(1 + g.w.rnd.Int64N(2))
	case what < 650:
		if n := len(g.work); n > 0 {
			g.goOn(g.work[g.w.rnd.IntN(n)], g.w.rnd.IntN(8) == 0)
		}
	default:
		g.job(what % 4)
	}
}

// check: no unit is sold twice. What was forwarded and has no row yet is in what is granted, so that nobody else is sold it.
func (w *world) check() {
	w.db.mu.Lock()
	defer w.db.mu.Unlock()
	sold, open := w.alone, int64(0)
	for id, qty := range w.forwarded {
		sold += qty
		if w.db.sweeps[id] == nil {
			open += qty
		}
	}
	if f := w.db.facts[modelSKU]; sold > modelUnits || open > f.Granted {
		w.t.Fatalf("%d sold of %d; %d forwarded without a row, %d granted", sold, modelUnits, open, f.Granted)
	}
}

// heal ends all trouble, reconciles what crashed replicas forwarded, and lets the fleet come to rest.
func (w *world) heal() {
	w.calm = true
	w.start() // somebody lives
	for _, g := range w.gateways {
		g.paused, g.cut, g.usable = false, false, true
	}
	w.rest(40)
	w.reconcile()
	w.rest(40)
}

func (w *world) rest(rounds int) {
	for range rounds {
		w.pass(time.Second)
		for _, g := range w.gateways {
			if g.dead {
				continue
			}
			for n := range 4 {
				g.job(n)
			}
			for _, o := range slices.Clone(g.work) {
				g.goOn(o, false)
			}
			g.sweep()
		}
	}
	w.check()
}

// reconcile books what the order service has and the database has not, and clears the doubts.
func (w *world) reconcile() {
	w.db.mu.Lock()
	defer w.db.mu.Unlock()
	for id, qty := range w.forwarded {
		if w.db.sweeps[id] == nil {
			w.settleLocked(stock.Reservation{ID: id, Lines: []stock.Line{{SKU: modelSKU, Qty: qty}}}, 0)
		}
	}
	clear(w.db.fleet.doubts)
	for p := range w.db.states {
		w.db.states[p].Doubtful = 0
	}
}

// wantRest fails unless nothing is lost: every unit is unsold or sold once, and Redis would sell just what it was granted.
func (w *world) wantRest() {
	f, s := w.db.stock(modelSKU), w.db.partState(modelSKU)
	held := w.alone
	for _, row := range w.db.sweeps {
		if row.State == stock.StateHeld {
			held += row.Lines[0].Qty
		}
	}
	if f.Available+f.Granted+held != modelUnits {
		w.t.Fatalf("%d available + %d granted + %d sold, of %d", f.Available, f.Granted, held, modelUnits)
	}
	if f.Doubtful > 0 || s.State != stock.PartitionOpen {
		w.t.Fatalf("at rest %d are doubtful, the partition is %+v", f.Doubtful, s)
	}
	if n := w.redis.openIn(partOf(modelSKU)); n > 0 {
		w.t.Fatalf("%d entries are open at rest", n)
	}
}

func TestModelOfDrainingSellsNoUnitTwiceAndLosesNone(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var failed any // what fails in the bubble fails outside of it
		synctest.Test(t, func(*testing.T) {
			defer func() { failed = recover() }()
			oneWorld(rt)
		})
		if failed != nil {
			panic(failed)
		}
	})
}

func oneWorld(t *rapid.T) {
	seed := rapid.Uint64().Draw(t, "seed")
	w := &world{t: t, rnd: rand.New(rand.NewPCG(seed, 1)), db: newFakeDB(testPartitions, modelSKU), redis: newFakeRedis("server 0"), rules: newRules(modelSKU),
		forwarded: map[stock.ID]int64{}}
	w.db.change(modelSKU, modelUnits)
	w.db.settler = w.settleLocked
	w.calm = true
	for range 1 + w.rnd.IntN(3) {
		w.start()
	}
	w.rest(2)
	w.grant(4)
	w.gateways[0].tell()
	w.calm = false
	for range rapid.IntRange(100, 600).Draw(t, "acts") {
		w.act()
	}
	w.heal()
	w.wantRest()
}
