package ledger

import (
	"context"

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
	full       bool // the ids most likely have rows, so read them at once
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
	p, err := newPlan(ops, s.own)
	if err != nil {
		return nil, err
	}
	c, err := s.d.acquire(ctx, true)
	if err != nil {
		return nil, s.executing(err)
	}
	defer c.release()
	t := &transaction{s: s, p: p, session: s.d.session(c)}
	if err := t.run(wait); err != nil {
		c.rollback()
		return nil, s.executing(err)
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
	reply, err := t.session.lock(lockRequest{skus: t.p.skus(), create: t.p.create, lookups: t.p.lookups(), wait: wait})
	if err != nil {
		return err
	}
	t.p.complete(reply.needs)
	t.locked = t.p.putBack(reply.busy)
	if len(t.p.members) == 0 {
		return nil
	}
	if err := t.read(reply); err != nil {
		return err
	}
	t.locked = append(t.locked, t.p.putBackUnlocked(t.h)...)
	t.decide()
	if !t.h.changed() {
		return nil
	}
	return t.session.write(t.h)
}

func (t *transaction) read(reply lockReply) error {
	t.h = &held{forwardWithin: t.s.cfg.ForwardWithin, skus: map[string]*skuState{},
		rows: map[stock.ID]*rowState{}, ops: map[opKey]doneOp{}, partitions: map[int]*partition{}, parts: map[partKey]map[string]int64{}}
	req := readRequest{skus: t.p.skus(), ids: t.p.ids(), opKeys: t.p.opKeys, takes: t.p.takes(), parts: t.p.parts, full: !t.p.onlyNew()}
	t.h.takes = make(map[takeKey]*takeState, len(req.takes))
	req.partitions = partitionsOf(req.skus, t.s.cfg.Partitions)
	for _, sku := range req.skus {
		if row, ok := reply.stocks[sku]; ok {
			t.h.skus[sku] = &skuState{sku: sku, present: true, whole: row.whole, available: row.available}
		}
	}
	if err := t.session.read(req, t.h); err != nil {
		return err
	}
	for _, sku := range req.skus {
		if k := t.h.skus[sku]; k != nil {
			k.partition = t.h.partitionOf(sku, t.s.cfg.Partitions)
			t.h.noticeExternal(k)
		}
	}
	return nil
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
