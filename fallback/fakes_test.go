package fallback

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// fakeDB is a database in memory: epochs, leases with fencing, facts and rows.
type fakeDB struct {
	mu      sync.Mutex
	down    bool
	states  []stock.PartitionState
	raised  []int // how often each partition's epoch was raised
	leases  map[string]fakeLease
	facts   map[string]stock.Fact
	changed map[string]time.Time
	rows    []stock.RecentRow
	sweeps  map[stock.ID]*stock.Row // rows that a sweep finds
	// sweptFacts are the facts that a sweep gives.
	sweptFacts []stock.Fact
	ops        []*stock.Op
	locked     string // a SKU whose stock row somebody else keeps locked
	fleet      fakeFleet
	settler    func(r stock.Reservation, epoch int64) *stock.Row // settles what was sold ahead; nil: settleAhead
	steps      []string                                          // what was done to partitions and SKUs that sell ahead, in order, Redis's part included
}

type fakeLease struct {
	holder string
	token  int64
	until  time.Time
}

func newFakeDB(partitions int, skus ...string) *fakeDB {
	db := &fakeDB{states: make([]stock.PartitionState, partitions), raised: make([]int, partitions), leases: map[string]fakeLease{},
		facts: map[string]stock.Fact{}, changed: map[string]time.Time{}, sweeps: map[stock.ID]*stock.Row{},
		fleet: fakeFleet{seen: map[string]time.Time{}, out: map[string][]bool{}, drained: map[string]map[int]int64{}, doubts: map[int]map[string]int64{}}}
	for p := range db.states {
		db.states[p].P = p
	}
	for _, sku := range skus {
		db.change(sku, 100)
	}
	return db
}

// change is a committed transaction that touches a SKU.
func (db *fakeDB) change(sku string, available int64) stock.Fact {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.changeLocked(sku, available)
}

func (db *fakeDB) changeLocked(sku string, available int64) stock.Fact {
	f := db.facts[sku]
	f.SKU, f.Available = sku, available
	f.Ver++
	f.Epoch = db.states[stock.Partition(sku, len(db.states))].Epoch
	db.facts[sku] = f
	db.changed[sku] = time.Now()
	return f
}

func (db *fakeDB) row(r stock.RecentRow) {
	db.mu.Lock()
	defer db.mu.Unlock()
	r.UpdatedAt = time.Now()
	db.rows = append(db.rows, r)
}

func (db *fakeDB) setDown(down bool) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.down = down
}

func (db *fakeDB) begin() error {
	db.mu.Lock()
	if db.down {
		db.mu.Unlock()
		return stock.ErrUnavailable
	}
	return nil
}

func (db *fakeDB) Partitions(context.Context) ([]stock.PartitionState, error) {
	if err := db.begin(); err != nil {
		return nil, err
	}
	defer db.mu.Unlock()
	return slices.Clone(db.states), nil
}

func (db *fakeDB) RaiseEpochs(_ context.Context, holder string, leases []stock.Lease, runID string, atLeast map[int]int64) ([]stock.PartitionState, error) {
	if err := db.begin(); err != nil {
		return nil, err
	}
	defer db.mu.Unlock()
	var out []stock.PartitionState
	if err := db.fence(holder, leases); err != nil {
		return nil, err
	}
	for _, l := range leases {
		var p int
		fmt.Sscanf(l.Name, "partition/%d", &p)
		s := &db.states[p]
		s.Epoch, s.RunID = max(s.Epoch, atLeast[p])+1, runID
		switch {
		case !s.Ahead:
			s.State = stock.PartitionOpen
		case s.State == stock.PartitionOpen:
			s.State, s.DrainEpoch = stock.PartitionDraining, s.Epoch
		}
		db.raised[p]++
		out = append(out, *s)
	}
	return out, nil
}

func (db *fakeDB) AcquireLeases(_ context.Context, holder string, names []string, ttl time.Duration) ([]stock.Lease, error) {
	if err := db.begin(); err != nil {
		return nil, err
	}
	defer db.mu.Unlock()
	var got []stock.Lease
	for _, name := range names {
		l, ok := db.leases[name]
		switch {
		case ok && l.holder == holder && l.until.After(time.Now()):
		case ok && l.until.After(time.Now()):
			continue
		default:
			l.holder = holder
			l.token++
		}
		l.until = time.Now().Add(ttl)
		db.leases[name] = l
		got = append(got, stock.Lease{Name: name, Token: l.token})
	}
	return got, nil
}

func (db *fakeDB) ReleaseLeases(_ context.Context, holder string, leases []stock.Lease) error {
	if err := db.begin(); err != nil {
		return err
	}
	defer db.mu.Unlock()
	for _, l := range leases {
		if have := db.leases[l.Name]; have.holder == holder && have.token == l.Token {
			have.until = time.Time{}
			db.leases[l.Name] = have
		}
	}
	return nil
}

func (db *fakeDB) factLocked(sku string) stock.Fact {
	f := db.facts[sku]
	f.Epoch = db.states[stock.Partition(sku, len(db.states))].Epoch
	return f
}

func (db *fakeDB) Facts(_ context.Context, skus []string) ([]stock.Fact, error) {
	if err := db.begin(); err != nil {
		return nil, err
	}
	defer db.mu.Unlock()
	var out []stock.Fact
	for _, sku := range skus {
		if _, ok := db.facts[sku]; ok {
			out = append(out, db.factLocked(sku))
		}
	}
	return out, nil
}

func (db *fakeDB) FactsChangedSince(_ context.Context, since time.Time, limit int) ([]stock.Fact, time.Time, error) {
	if err := db.begin(); err != nil {
		return nil, since, err
	}
	defer db.mu.Unlock()
	var skus []string
	for sku, at := range db.changed {
		if !at.Before(since) {
			skus = append(skus, sku)
		}
	}
	slices.SortFunc(skus, func(a, b string) int { return db.changed[a].Compare(db.changed[b]) })
	next := time.Now()
	if len(skus) > limit {
		skus = skus[:limit]
		next = db.changed[skus[limit-1]]
	}
	var out []stock.Fact
	for _, sku := range skus {
		out = append(out, db.factLocked(sku))
	}
	return out, next, nil
}

func (db *fakeDB) Recent(_ context.Context, since time.Time, after stock.Cursor, limit int) ([]stock.RecentRow, stock.Cursor, error) {
	if err := db.begin(); err != nil {
		return nil, after, err
	}
	defer db.mu.Unlock()
	var out []stock.RecentRow
	for _, r := range db.rows {
		if r.UpdatedAt.Before(since) || r.UpdatedAt.Before(after.UpdatedAt) ||
			(r.UpdatedAt.Equal(after.UpdatedAt) && r.ID.String() <= after.ID.String()) {
			continue
		}
		if len(out) < limit {
			out = append(out, r)
			after = stock.Cursor{UpdatedAt: r.UpdatedAt, ID: r.ID}
		}
	}
	return out, after, nil
}

// DoAll makes the fake a worker: loads raise the ver, sweeps find what sweeps says.
func (db *fakeDB) DoAll(ctx context.Context, ops []*stock.Op) []error {
	errs := make([]error, len(ops))
	for i, op := range ops {
		if db.locked != "" && slices.Contains(op.SKUs(nil), db.locked) {
			defer func() { errs[i] = patience(ctx, op) }()
			continue
		}
		if errs[i] = db.begin(); errs[i] != nil {
			continue
		}
		db.ops = append(db.ops, op)
		op.Result.Verdict = stock.VerdictDone
		switch op.Kind {
		case stock.OpLoad:
			f, ok := db.facts[op.SKU]
			if !ok {
				op.Result.Verdict = stock.VerdictUnknownSKU
			} else {
				op.Result.Facts = []stock.Fact{db.changeLocked(op.SKU, f.Available)}
			}
		case stock.OpGrantBack:
			db.grantBack(op)
		case stock.OpSweep:
			if op.Ahead && (db.settler != nil || db.sweeps[op.Reservation.ID] == nil) {
				db.settleAhead(op)
				break
			}
			op.Result.Row, op.Result.Facts = db.sweeps[op.Reservation.ID], db.sweptFacts
			if op.Result.Row == nil {
				op.Result.Row = &stock.Row{Reservation: *op.Reservation, State: stock.StateVoid}
			}
		}
		db.mu.Unlock()
	}
	return errs
}

// patience is what becomes of an op whose SKU stays locked.
func patience(ctx context.Context, op *stock.Op) error {
	if !op.Deadline.IsZero() {
		var cancel func()
		ctx, cancel = context.WithDeadlineCause(ctx, op.Deadline, &stock.LimitError{Code: stock.CodeQueueTimeout})
		defer cancel()
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// fakeRedis is one server; fakeClient is a replica's way to it.
type fakeRedis struct {
	mu    sync.Mutex
	runID string
	down  bool
	step  func(string) // may be nil
	// ends, if set, is told of every end of an entry just before it, under the lock.
	ends  func(stock.Closing)
	parts map[int]fakePart
	skus  map[string]stock.Fact
	ids   map[stock.ID]stock.Closing
	open  map[int][]stock.OpenEntry
	// closed is what each partition was told of ids; misplaced are facts that came to another partition than theirs.
	closed    map[int][]stock.Closing
	misplaced []stock.Fact
	calls     int
}

type fakePart struct {
	epoch  int64
	pinned string
	ids    bool
	open   bool
}

func newFakeRedis(runID string) *fakeRedis {
	r := &fakeRedis{}
	r.restart(runID)
	return r
}

// restart makes it empty, under a new run id.
func (r *fakeRedis) restart(runID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runID, r.down = runID, false
	r.parts, r.skus = map[int]fakePart{}, map[string]stock.Fact{}
	r.ids, r.open = map[stock.ID]stock.Closing{}, map[int][]stock.OpenEntry{}
	r.closed = map[int][]stock.Closing{}
}

func (r *fakeRedis) setDown(down bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = down
}

func (r *fakeRedis) fact(sku string) stock.Fact {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.skus[sku]
}

func (r *fakeRedis) id(id stock.ID) (stock.Closing, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.ids[id]
	return c, ok
}

func (r *fakeRedis) part(p int) fakePart {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.parts[p]
}

// fakeClient knows the epochs of one replica, like luascripts.Client.
type fakeClient struct {
	*fakeRedis
	epochs interface {
		Epoch(p int) (int64, string)
		Stale(p int)
	}
}

func (c *fakeClient) begin() error {
	c.mu.Lock()
	c.calls++
	if c.down {
		c.mu.Unlock()
		return errDown
	}
	return nil
}

// stale holds the lock when it says false.
func (c *fakeClient) stale(p int) (bool, error) {
	if err := c.begin(); err != nil {
		return false, err
	}
	epoch, runID := c.epochs.Epoch(p)
	if epoch == 0 || c.parts[p].epoch != epoch || c.runID != runID {
		c.mu.Unlock()
		c.epochs.Stale(p)
		return true, nil
	}
	return false, nil
}

func (c *fakeClient) LookAgain() {}

func (c *fakeClient) NodeOf(int) string { return "" }

func (c *fakeClient) RunIDOf(context.Context, string) (string, error) {
	if err := c.begin(); err != nil {
		return "", err
	}
	defer c.mu.Unlock()
	return c.runID, nil
}

func (c *fakeClient) Partition(_ context.Context, p int) (stock.PartitionRegister, error) {
	if err := c.begin(); err != nil {
		return stock.PartitionRegister{}, err
	}
	defer c.mu.Unlock()
	part := c.parts[p]
	return stock.PartitionRegister{Epoch: part.epoch, RunID: part.pinned, IDsLoaded: part.ids, Open: part.open}, nil
}

func (c *fakeClient) Registers(_ context.Context, skus []string) ([]stock.Registers, error) {
	if err := c.begin(); err != nil {
		return nil, err
	}
	defer c.mu.Unlock()
	all := make([]stock.Registers, len(skus))
	for i, sku := range skus {
		f, ok := c.skus[sku]
		all[i] = stock.Registers{SKU: sku, Base: f.Base(), Rest: f.Rest(), Epoch: f.Epoch, Ver: f.Ver, Ahead: f.Ahead, Loaded: ok}
	}
	return all, nil
}

func (c *fakeClient) OpenPartition(_ context.Context, p int, epoch int64, runID string) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.mu.Unlock()
	if c.runID != runID || c.parts[p].epoch >= epoch {
		return stock.ErrNotExecuted
	}
	c.parts[p] = fakePart{epoch: epoch, pinned: runID}
	for sku := range c.skus {
		if stock.Partition(sku, testPartitions) == p {
			delete(c.skus, sku)
		}
	}
	return nil
}

func (c *fakeClient) Load(_ context.Context, p int, facts []stock.Fact) (bool, error) {
	if stale, err := c.stale(p); stale || err != nil {
		return stale, err
	}
	defer c.mu.Unlock()
	c.place(p, facts)
	for _, f := range facts {
		if f.Epoch != c.parts[p].epoch {
			return true, nil
		}
		if f.Ahead && !c.parts[p].open {
			continue
		}
		c.note("load " + f.SKU)
		if have, ok := c.skus[f.SKU]; !ok || f.Newer(have) {
			c.skus[f.SKU] = f
		}
	}
	return false, nil
}

func (c *fakeClient) CloseNow(ctx context.Context, p int, closings []stock.Closing, facts []stock.Fact) (bool, error) {
	if ctx.Err() != nil {
		return false, fmt.Errorf("%w: %w", stock.ErrNotExecuted, ctx.Err())
	}
	if stale, err := c.stale(p); stale || err != nil {
		return stale, err
	}
	defer c.mu.Unlock()
	c.place(p, facts)
	c.closed[p] = append(c.closed[p], closings...)
	for _, f := range facts {
		if have, ok := c.skus[f.SKU]; ok && f.Newer(have) {
			c.skus[f.SKU] = f
		}
	}
	for _, k := range closings {
		if k.Claim {
			continue
		}
		if c.ends != nil {
			c.ends(k)
		}
		c.open[p] = slices.DeleteFunc(c.open[p], func(e stock.OpenEntry) bool { return e.ID == k.ID && e.Try == k.Try })
		if k.Won {
			c.ids[k.ID] = k
		} else if have, ok := c.ids[k.ID]; ok && have.Try == k.Try {
			delete(c.ids, k.ID)
		}
	}
	return false, nil
}

// place notes facts of other partitions; the lock is held.
func (r *fakeRedis) place(p int, facts []stock.Fact) {
	for _, f := range facts {
		if stock.Partition(f.SKU, testPartitions) != p {
			r.misplaced = append(r.misplaced, f)
		}
	}
}

// inPlace fails if a fact came to another partition than its own.
func (r *fakeRedis) inPlace(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.misplaced) > 0 {
		t.Errorf("facts of other partitions: %+v", r.misplaced)
	}
}

func (c *fakeClient) SetIDsLoaded(_ context.Context, p int, epoch int64) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.mu.Unlock()
	if c.parts[p].epoch != epoch {
		return stock.ErrNotExecuted
	}
	part := c.parts[p]
	part.ids = true
	c.parts[p] = part
	return nil
}

func (c *fakeClient) Due(_ context.Context, p, limit int) ([]stock.OpenEntry, error) {
	if err := c.begin(); err != nil {
		return nil, err
	}
	defer c.mu.Unlock()
	due := slices.Clone(c.open[p])
	return due[:min(limit, len(due))], nil
}

func (r *fakeRedis) note(step string) {
	if r.step != nil {
		r.step(step)
	}
}

func (c *fakeClient) OpenAhead(_ context.Context, p int, epoch int64) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.mu.Unlock()
	if c.parts[p].epoch != epoch {
		return stock.ErrNotExecuted
	}
	part := c.parts[p]
	part.open = true
	c.parts[p] = part
	c.note("open ahead")
	return nil
}

// OpenEntries gives them in pages of one, so that cursors are used.
func (c *fakeClient) OpenEntries(_ context.Context, p int, after string, _ int) ([]stock.OpenEntry, string, error) {
	if err := c.begin(); err != nil {
		return nil, "", err
	}
	defer c.mu.Unlock()
	open := slices.SortedFunc(slices.Values(c.open[p]), func(a, b stock.OpenEntry) int { return strings.Compare(a.ID.String(), b.ID.String()) })
	for _, e := range open {
		if id := e.ID.String(); id > after {
			e.Epoch = c.parts[p].epoch
			return []stock.OpenEntry{e}, id, nil
		}
	}
	return nil, "", nil
}
