package fallback

import (
	"context"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// hooked does a call of a gateway's job, unless something happens before. What happens after it loses its reply.
func hooked[T any](g *modelGateway, database bool, call func() (T, error)) (T, error) {
	var none T
	if err := g.happens(); err != nil {
		return none, err
	}
	if database && g.cut {
		return none, errCut
	}
	v, err := call()
	if happened := g.happens(); happened != nil {
		return none, happened
	}
	return v, err
}

func hooked0(g *modelGateway, database bool, call func() error) error {
	_, err := hooked(g, database, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

// hookedStore is a gateway's way to the database.
type hookedStore struct{ g *modelGateway }

type states = []stock.PartitionState

func (s hookedStore) db() *fakeDB { return s.g.w.db }

func (s hookedStore) Partitions(ctx context.Context) (states, error) {
	return hooked(s.g, true, func() (states, error) { return s.db().Partitions(ctx) })
}

func (s hookedStore) RaiseEpochs(ctx context.Context, holder string, leases []stock.Lease, runID string, atLeast map[int]int64) (states, error) {
	return hooked(s.g, true, func() (states, error) { return s.db().RaiseEpochs(ctx, holder, leases, runID, atLeast) })
}

func (s hookedStore) NoteSetBack(ctx context.Context, holder string, leases []stock.Lease, atLeast map[int]int64) (states, error) {
	return hooked(s.g, true, func() (states, error) { return s.db().NoteSetBack(ctx, holder, leases, atLeast) })
}

func (s hookedStore) AcquireLeases(ctx context.Context, holder string, names []string, ttl time.Duration) ([]stock.Lease, error) {
	return hooked(s.g, true, func() ([]stock.Lease, error) { return s.db().AcquireLeases(ctx, holder, names, ttl) })
}

func (s hookedStore) ReleaseLeases(ctx context.Context, holder string, leases []stock.Lease) error {
	return hooked0(s.g, true, func() error { return s.db().ReleaseLeases(ctx, holder, leases) })
}

func (s hookedStore) Facts(ctx context.Context, skus []string) ([]stock.Fact, error) {
	return hooked(s.g, true, func() ([]stock.Fact, error) { return s.db().Facts(ctx, skus) })
}

func (s hookedStore) FactsChangedSince(ctx context.Context, since time.Time, limit int) ([]stock.Fact, time.Time, error) {
	next := since
	facts, err := hooked(s.g, true, func() (f []stock.Fact, err error) {
		f, next, err = s.db().FactsChangedSince(ctx, since, limit)
		return f, err
	})
	return facts, next, err
}

func (s hookedStore) Recent(ctx context.Context, since time.Time, after stock.Cursor, limit int) ([]stock.RecentRow, stock.Cursor, error) {
	return nil, after, nil // ids are another test's
}

func (s hookedStore) BeginDrain(ctx context.Context, holder string, leases []stock.Lease) (states, error) {
	return hooked(s.g, true, func() (states, error) { return s.db().BeginDrain(ctx, holder, leases) })
}

func (s hookedStore) SayDrained(ctx context.Context, gateway string, epochs map[int]int64) error {
	return hooked0(s.g, true, func() error { return s.db().SayDrained(ctx, gateway, epochs) })
}

func (s hookedStore) CompleteDrains(ctx context.Context, holder string, leases []stock.Lease) (states, error) {
	return hooked(s.g, true, func() (states, error) { return s.db().CompleteDrains(ctx, holder, leases) })
}

func (s hookedStore) ReopenPartitions(ctx context.Context, holder string, leases []stock.Lease) (states, error) {
	return hooked(s.g, true, func() (states, error) { return s.db().ReopenPartitions(ctx, holder, leases) })
}

func (s hookedStore) RaiseVers(ctx context.Context, holder string, leases []stock.Lease, atLeast map[string]int64) error {
	return hooked0(s.g, true, func() error { return s.db().RaiseVers(ctx, holder, leases, atLeast) })
}

func (s hookedStore) AheadSKUs(ctx context.Context, after string, limit int) ([]stock.Fact, error) {
	return hooked(s.g, true, func() ([]stock.Fact, error) { return s.db().AheadSKUs(ctx, after, limit) })
}

// hookedWorker is a gateway's deducter.
type hookedWorker struct{ g *modelGateway }

func (h hookedWorker) DoAll(ctx context.Context, ops []*stock.Op) []error {
	errs := make([]error, len(ops))
	for i, op := range ops {
		errs[i] = hooked0(h.g, true, func() error { return h.g.w.db.DoAll(ctx, []*stock.Op{op})[0] })
	}
	return errs
}

// hookedCache is a gateway's way to Redis.
type hookedCache struct{ g *modelGateway }

func (c hookedCache) NodeOf(int) string { return "" }
func (c hookedCache) LookAgain()        {}

func (c hookedCache) RunIDOf(ctx context.Context, node string) (string, error) {
	return hooked(c.g, false, func() (string, error) { return c.g.client.RunIDOf(ctx, node) })
}

func (c hookedCache) Partition(ctx context.Context, p int) (stock.PartitionRegister, error) {
	return hooked(c.g, false, func() (stock.PartitionRegister, error) { return c.g.client.Partition(ctx, p) })
}

func (c hookedCache) OpenPartition(ctx context.Context, p int, epoch int64, runID string) error {
	return hooked0(c.g, false, func() error { return c.g.client.OpenPartition(ctx, p, epoch, runID) })
}

func (c hookedCache) OpenAhead(ctx context.Context, p int, epoch int64) error {
	return hooked0(c.g, false, func() error { return c.g.client.OpenAhead(ctx, p, epoch) })
}

func (c hookedCache) Load(ctx context.Context, p int, facts []stock.Fact) (bool, error) {
	return hooked(c.g, false, func() (bool, error) { return c.g.client.Load(ctx, p, facts) })
}

func (c hookedCache) CloseNow(ctx context.Context, p int, closings []stock.Closing, facts []stock.Fact) (bool, error) {
	return hooked(c.g, false, func() (bool, error) { return c.g.client.CloseNow(ctx, p, closings, facts) })
}

func (c hookedCache) SetIDsLoaded(ctx context.Context, p int, epoch int64) error {
	return hooked0(c.g, false, func() error { return c.g.client.SetIDsLoaded(ctx, p, epoch) })
}

func (c hookedCache) Registers(ctx context.Context, skus []string) ([]stock.Registers, error) {
	return hooked(c.g, false, func() ([]stock.Registers, error) { return c.g.client.Registers(ctx, skus) })
}

func (c hookedCache) Due(ctx context.Context, p, limit int) ([]stock.OpenEntry, error) {
	return hooked(c.g, false, func() ([]stock.OpenEntry, error) { return c.g.client.Due(ctx, p, limit) })
}

func (c hookedCache) OpenEntries(ctx context.Context, p int, after string, limit int) ([]stock.OpenEntry, string, error) {
	next := ""
	entries, err := hooked(c.g, false, func() (e []stock.OpenEntry, err error) {
		e, next, err = c.g.client.OpenEntries(ctx, p, after, limit)
		return e, err
	})
	return entries, next, err
}
