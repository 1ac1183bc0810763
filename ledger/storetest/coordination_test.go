package storetest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

func caseRecent(t *testing.T, e *env) {
	e.set("a", 100)
	e.set("b", 100)
	var ids []stock.ID
	for range 7 {
		r := wish("a", 1, "b", 1)
		ids = append(ids, r.ID)
		e.exec(settle(r))
		if len(ids)%2 == 0 {
			e.exec(reject(r, answer(400)))
		}
	}
	seen := map[stock.ID]ledger.RecentRow{}
	var cursor ledger.Cursor
	for {
		page, next, err := e.Recent(t.Context(), time.Time{}, cursor, 3)
		e.must(err)
		if len(page) == 0 {
			break
		}
		for _, r := range page {
			if _, twice := seen[r.ID]; twice {
				t.Errorf("%s came twice", r.ID)
			}
			seen[r.ID] = r
		}
		cursor = next
	}
	for i, id := range ids {
		r, ok := seen[id]
		if odd := i%2 == 1; !ok || r.HasAnswer != odd || (r.State == stock.StateReleased) != odd || strings.Join(r.SKUs, "+") != "a+b" || !r.Won() {
			t.Errorf("row %d: %+v", i, r)
		}
	}
	if page, _, err := e.Recent(t.Context(), time.Now().Add(time.Hour), ledger.Cursor{}, 3); len(page) != 0 || err != nil {
		t.Errorf("of the future: %v, %v", page, err)
	}
}

func caseForget(t *testing.T, e *env) {
	e.set("a", 100)
	short := e.cfg
	short.AnswersKeep = time.Millisecond
	s, err := ledger.Open(short)
	e.must(err)
	defer s.Close()
	r, q := wish("a", 1), wish("a", 1)
	e.exec(settle(r), settle(q))
	e.exec(reject(r, answer(400)), reject(q, answer(400)))
	if n, err := e.ForgetAnswers(t.Context(), 10); n != 0 || err != nil {
		t.Fatalf("forgot %d young answers, %v", n, err)
	}
	total := 0
	for total < 2 { // one at a time; a millisecond may not have passed yet
		n, err := s.ForgetAnswers(t.Context(), 1)
		e.must(err)
		if n > 1 {
			t.Fatalf("forgot %d, the limit is 1", n)
		}
		total += n
	}
	if e.find(r).Answer != nil {
		t.Error("the answer is still there")
	}
	op := settle(again(r))
	e.exec(op)
	e.verdict(op, stock.VerdictDone)
}

func caseLeases(t *testing.T, e *env) {
	got, err := e.AcquireLeases(t.Context(), "gw-1", []string{"b", "a", "a"}, time.Hour)
	e.must(err)
	if len(got) != 2 || got[0] != (ledger.Lease{Name: "a", Token: 1}) || got[1] != (ledger.Lease{Name: "b", Token: 1}) {
		t.Fatalf("leases %+v", got)
	}
	other, err := e.AcquireLeases(t.Context(), "gw-2", []string{"a", "b", "c"}, time.Hour)
	e.must(err)
	if len(other) != 1 || other[0].Name != "c" {
		t.Fatalf("leases %+v", other)
	}
	mine, err := e.AcquireLeases(t.Context(), "gw-1", []string{"a"}, time.Millisecond)
	e.must(err)
	if len(mine) != 1 || mine[0].Token != 1 {
		t.Fatalf("renewed %+v", mine)
	}
	var taken []ledger.Lease
	for len(taken) == 0 { // until the millisecond is over
		taken, err = e.AcquireLeases(t.Context(), "gw-2", []string{"a"}, time.Hour)
		e.must(err)
	}
	if taken[0].Token != 2 {
		t.Errorf("taken over %+v", taken)
	}
	e.must(e.ReleaseLeases(t.Context(), "gw-1", mine)) // a no-op: it is another's by now
	if none, err := e.AcquireLeases(t.Context(), "gw-3", []string{"a"}, time.Hour); len(none) != 0 || err != nil {
		t.Errorf("%v, %v", none, err)
	}
	e.must(e.ReleaseLeases(t.Context(), "gw-2", taken))
	freed, err := e.AcquireLeases(t.Context(), "gw-3", []string{"a"}, time.Hour)
	e.must(err)
	if len(freed) != 1 || freed[0].Token != 3 {
		t.Errorf("freed %+v", freed)
	}
}

// raise begins a new epoch for the partitions of SKUs.
func (e *env) raise(skus []string, run string) []ledger.PartitionState {
	e.t.Helper()
	var names []string
	for _, sku := range skus {
		names = append(names, stock.PartitionLease(stock.Partition(sku, 64)))
	}
	leases, err := e.AcquireLeases(e.t.Context(), "gw-1", names, time.Hour)
	e.must(err)
	states, err := e.RaiseEpochs(e.t.Context(), "gw-1", leases, run, nil)
	e.must(err)
	return states
}

func caseEpochs(t *testing.T, e *env) {
	if none, err := e.Partitions(t.Context()); len(none) != 0 || err != nil {
		t.Fatalf("%v, %v", none, err)
	}
	leases, err := e.AcquireLeases(t.Context(), "gw-1", []string{"partition/3", "partition/12"}, time.Hour)
	e.must(err)
	first, err := e.RaiseEpochs(t.Context(), "gw-1", leases, "run-1", map[int]int64{12: 40})
	e.must(err)
	if len(first) != 2 || first[0] != (ledger.PartitionState{P: 3, Epoch: 1, RunID: "run-1", State: "open"}) || first[1].Epoch != 41 {
		t.Fatalf("states %+v", first)
	}
	second, err := e.RaiseEpochs(t.Context(), "gw-1", leases, "run-2", map[int]int64{3: 1, 12: 7})
	e.must(err)
	stored, err := e.Partitions(t.Context())
	e.must(err)
	if second[0].Epoch != 2 || second[1].Epoch != 42 || len(stored) != 2 || stored[0] != second[0] || stored[1] != second[1] {
		t.Errorf("states %+v, stored %+v", second, stored)
	}
	stale := []ledger.Lease{leases[0], {Name: leases[1].Name, Token: leases[1].Token - 1}}
	_, err = e.RaiseEpochs(t.Context(), "gw-1", stale, "run-3", nil)
	if !errors.Is(err, ledger.ErrFenced) || !errors.Is(err, stock.ErrNotExecuted) {
		t.Errorf("a lost lease: %v", err)
	}
	_, err = e.RaiseEpochs(t.Context(), "gw-2", leases, "run-3", nil)
	if !errors.Is(err, ledger.ErrFenced) {
		t.Errorf("another holder: %v", err)
	}
	if after, err := e.Partitions(t.Context()); err != nil || after[0] != stored[0] || after[1] != stored[1] {
		t.Errorf("after refusals %+v, %v", after, err)
	}
}

func caseBeat(t *testing.T, e *env) {
	p, err := e.Beat(t.Context(), "gw-1", true, nil)
	e.must(err)
	if p.Live != 1 || !p.AllRedisOK || time.Since(p.Now).Abs() > time.Minute {
		t.Errorf("pulse %+v", p)
	}
	p, err = e.Beat(t.Context(), "gw-2", false, nil)
	e.must(err)
	if p.Live != 2 || p.AllRedisOK {
		t.Errorf("pulse %+v", p)
	}
	p, err = e.Beat(t.Context(), "gw-2", true, nil)
	e.must(err)
	if p.Live != 2 || !p.AllRedisOK {
		t.Errorf("pulse %+v", p)
	}
	short := e.cfg
	short.ReplicaTimeout = time.Millisecond
	s, err := ledger.Open(short)
	e.must(err)
	defer s.Close()
	for p.Live != 1 { // until the others have been silent for a millisecond
		p, err = s.Beat(t.Context(), "gw-3", true, nil)
		e.must(err)
	}
}

func caseMigrate(t *testing.T, e *env) {
	e.fresh()
	e.parallel(3, func(s *ledger.Store, _ int) {
		e.must(s.Migrate(t.Context()))
		e.must(s.Migrate(t.Context()))
		_, err := s.Prepare(t.Context())
		e.must(err)
	})
	e.set("sku-1", 1)
}

func casePrepare(t *testing.T, e *env) {
	first, err := e.Prepare(t.Context())
	e.must(err)
	again, err := e.Prepare(t.Context())
	e.must(err)
	if first != again || len(first.Deployment) != 32 || first.Partitions != 64 {
		t.Errorf("meta %+v, then %+v", first, again)
	}
	f := func(change func(*ledger.Config), want string) {
		t.Helper()
		cfg := e.cfg
		change(&cfg)
		s, err := ledger.Open(cfg)
		e.must(err)
		defer s.Close()
		if _, err := s.Prepare(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
	f(func(c *ledger.Config) { c.Partitions = 128 }, "redis.partitions is 128, but this database was prepared with 64")
	f(func(c *ledger.Config) { c.Prefix = "other" }, `redis.prefix is "other"`)
	f(func(c *ledger.Config) { c.Stock.Table = "nowhere" }, "nowhere")
	e.sql(`CREATE TABLE bag (sku text, available bigint)`)
	f(func(c *ledger.Config) { c.Stock.Table = "bag" }, "not unique")
	f(func(c *ledger.Config) { c.Stock.Table = "bag"; c.Stock.SKU = "code" }, `no column "code"`)
	e.sql(`CREATE TABLE odd (sku text PRIMARY KEY, available text, number bigint UNIQUE)`)
	f(func(c *ledger.Config) { c.Stock.Table = "odd" }, `column "available" of`)
	f(func(c *ledger.Config) { c.Stock.Table = "odd"; c.Stock.SKU = "number"; c.Stock.Available = "number" }, "must be")
}
