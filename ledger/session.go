package ledger

import (
	"context"
	"slices"

	"github.com/stockgate/stockgate/stock"
)

// session is one transaction of Exec. Its calls come in the order they are declared in, which is the order of locks.
type session interface {
	// lock begins the transaction, makes missing stock rows for create, looks up the lines of ids and locks the stock rows of skus
	// and of those lines, by SKU bytes. With wait, rows that others have locked are waited for, otherwise they come back as busy.
	lock(req lockRequest) (lockReply, error)
	// read locks sku_state, user_take and reservations, and reads everything that deciding needs into h, also the clock of the transaction.
	read(req readRequest, h *held) error
	// write writes what has changed in h.
	write(h *held) error
}

type lockRequest struct {
	skus, create []string
	lookups      []stock.ID
	partitions   []int // whose rows are locked before anything else
	own          bool  // they are going to be written
	wait         bool
}

type lockReply struct {
	stocks map[string]stockRow // the stock rows that are locked
	busy   map[string]bool     // SKUs whose stock rows others have locked
	needs  map[stock.ID]needs  // of those ids that have lines; nil if none were asked for
}

// stockRow is what the stock table holds.
type stockRow struct {
	available int64
	whole     bool // false: NULL, or in a table of the shop in SQLite no integer
}

type readRequest struct {
	skus       []string
	ids        []stock.ID
	partitions []int
	opKeys     []opKey
	takes      []takeKey
	parts      []partKey
	tries      []tryKey
	doubts     []int // partitions whose doubtful replicas are counted
	full       bool  // the ids most likely have rows, so read them at once
}

// Exec runs ops in order in one transaction and sets each op's Result. Ops that see each other's SKUs or ids see each other's
// effects. Every kind of op is safe to repeat after stock.ErrUnknown; OpSet, OpAdjust and OpRelease with Lines by their OpID.
//
// With wait false, stock rows that other transactions have locked are skipped: their ops, and later ops about the same
// reservations, come back in locked, untouched. With wait true they are waited for, at most LockTimeout each; an op can still come
// back in locked if its reservation got its lines meanwhile.
//
// It blocks at most until ctx ends, or StatementTimeout and a second per statement. Cancelling ctx without a deadline is noticed
// between statements. Errors:
//
//   - errors.Is stock.ErrUnknown: the reply to COMMIT was lost. Repeat the same ops.
//   - errors.Is stock.ErrNotExecuted: surely nothing was done. Retryable(err): for another transaction's sake, repeat. BadMember(err):
//     one member's data cannot be written, the others may go on alone. errors.Is stock.ErrUnavailable: the database cannot be
//     reached, or it is read-only; connections are made anew by the next calls.
func (s *Store) Exec(ctx context.Context, ops []*stock.Op, wait bool) (locked []*stock.Op, err error) {
	if len(ops) == 0 {
		return nil, nil
	}
	p, err := newPlan(ops, s.own, s.cfg.Partitions)
	if err != nil {
		return nil, err
	}
	c, err := s.d.acquire(ctx, true)
	if err != nil {
		return nil, s.executing(err)
	}
	defer c.release()
	t := &transaction{s: s, p: p}
	for again := true; again; {
		t.session, t.h, t.results = s.d.session(c), nil, nil
		if err := t.run(wait); err != nil {
			c.rollback()
			return nil, s.executing(err)
		}
		if again = t.h != nil && t.h.lacking.some(); again { // each time more is locked, so it ends
			c.rollback()
			p.need(&t.h.lacking)
		}
	}
	if t.h == nil || !t.h.changed() {
		c.rollback() // nothing to write: what was read is as true as if it were committed
		t.publish()
		return t.locked, nil
	}
	if err := s.commit(c); err != nil {
		return nil, err
	}
	t.publish()
	return t.locked, nil
}

// transaction is one Exec under way.
type transaction struct {
	s       *Store
	p       *plan
	session session
	h       *held
	locked  []*stock.Op
	results []stock.Result
}

// run does everything but COMMIT.
func (t *transaction) run(wait bool) error {
	req := lockRequest{skus: t.p.stocks(), create: t.p.create, lookups: t.p.lookups(), own: len(t.p.owned) > 0, wait: wait}
	req.partitions = t.p.partitions()
	reply, err := t.session.lock(req)
	if err != nil {
		return err
	}
	t.p.complete(reply.needs)
	t.locked = append(t.locked, t.p.putBack(reply.busy)...)
	if len(t.p.members) == 0 {
		return nil
	}
	if err := t.read(reply); err != nil {
		return err
	}
	t.locked = append(t.locked, t.p.putBackUnlocked(t.h)...)
	t.decide()
	if t.h.lacking.some() || !t.h.changed() {
		return nil
	}
	return t.session.write(t.h)
}

func (t *transaction) read(reply lockReply) error {
	t.h = &held{forwardWithin: t.s.cfg.ForwardWithin, skus: map[string]*skuState{},
		rows: map[stock.ID]*rowState{}, ops: map[opKey]doneOp{}, partitions: map[int]*partition{}, parts: map[partKey]map[string]int64{}, tried: map[tryKey]bool{},
		partitionCount: t.s.cfg.Partitions, twins: t.p.twins}
	req := readRequest{skus: t.p.skus(), ids: t.p.ids(), opKeys: t.p.opKeys, takes: t.p.takes(), parts: t.p.parts,
		tries: t.p.tries, full: !t.p.onlyNew()}
	t.h.takes = make(map[takeKey]*takeState, len(req.takes))
	req.partitions, req.doubts = partitionsOf(req.skus, t.s.cfg.Partitions), partitionsOf(t.p.doubts, t.s.cfg.Partitions)
	if t.p.claims {
		req.partitions = append(req.partitions, t.p.partitions()...)
	}
	for _, sku := range req.skus {
		if row, ok := reply.stocks[sku]; ok {
			t.h.skus[sku] = &skuState{sku: sku, present: true, whole: row.whole, available: row.available}
		}
	}
	if t.p.light {
		t.leave(req.skus)
	}
	if err := t.session.read(req, t.h); err != nil {
		return err
	}
	t.hold()
	for _, sku := range req.skus {
		if k := t.h.skus[sku]; k != nil {
			k.partition = t.h.partitionOf(sku, t.s.cfg.Partitions)
			t.h.noticeExternal(k)
		}
	}
	return nil
}

// leave notes the SKUs whose stock rows were left alone: they count as there, with what stockgate last left in them.
func (t *transaction) leave(skus []string) {
	locked := t.p.stocks()
	for _, sku := range skus {
		if _, found := slices.BinarySearch(locked, sku); !found {
			t.h.skus[sku] = &skuState{sku: sku, unlocked: true, present: true, whole: true}
		}
	}
}

// hold notes the partitions whose rows are locked.
func (t *transaction) hold() {
	for _, n := range t.p.partitions() {
		if p := t.h.partitions[n]; p != nil {
			p.locked, p.owned = true, len(t.p.owned) > 0
		}
	}
}

func (t *transaction) decide() {
	t.results = make([]stock.Result, len(t.p.members))
	for i := range t.p.members {
		t.results[i] = t.h.decide(t.p.members[i].op)
	}
	for i := range t.p.members { // facts are of the end of the transaction, so they come last
		t.results[i].Facts = t.h.facts(t.p.members[i].skus, t.p.members[i].takes...)
	}
}

// publish gives the ops their results, once they are true.
func (t *transaction) publish() {
	for i := range t.results {
		t.p.members[i].op.Result = t.results[i]
	}
}
