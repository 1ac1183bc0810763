package storetest

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockgate/stockgate/fallback"
	"github.com/stockgate/stockgate/internal/faults"
	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// What only a server can do to a store.
func TestPostgresFaults(t *testing.T) {
	t.Parallel()
	pg := testservices.StartPostgres(t)
	for _, c := range []struct {
		name string
		run  func(*testing.T, *env)
	}{
		{"C031_ALostReplyIsNotRunAgain", faultLostReply},
		{"ALostCommitIsRepeatedByID", faultLostCommit},
		{"ASetWhoseReplyIsLostIsDoneOnce", faultLostSet},
		{"C033_LateCallsPoisonNobody", faultLateCalls},
		{"C036_AReadOnlyServer", faultReadOnly},
		{"ASilentServerHangsNobody", faultSilent},
		{"ALateReplyIsNotTakenForTheNext", faultLateReply},
		{"LockedRowsAreSkipped", faultLocked},
		{"C034_ADeadlockIsRepeated", faultDeadlock},
		{"AStoppedTransactionLetsGo", faultIdle},
		{"NoServer", faultNoServer},
		{"ATableThatMayNotBeWritten", faultPrivileges},
		{"TheShopsTableIsNotTakenForOurs", faultShadowed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, ledger.DriverPostgres, pg.Database)
			e.set("sku-1", 100)
			c.run(t, e)
		})
	}
}

// through is a store whose connections go through a proxy.
func (e *env) through(change ...func(*ledger.Config)) (*ledger.Store, *faults.Proxy) {
	e.t.Helper()
	const at = "@127.0.0.1:"
	from := strings.Index(e.cfg.DSN, at) + 1
	to := from + strings.Index(e.cfg.DSN[from:], "/")
	p, err := faults.Listen(e.cfg.DSN[from:to])
	e.must(err)
	e.t.Cleanup(p.Close)
	cfg := e.cfg
	cfg.DSN = e.cfg.DSN[:from] + p.Addr() + e.cfg.DSN[to:]
	for _, c := range change {
		c(&cfg)
	}
	s, err := ledger.Open(cfg)
	e.must(err)
	e.t.Cleanup(func() { _ = s.Close() })
	return s, p
}

// eventually repeats an Exec that surely had no effect, or that is safe to repeat, until it comes through.
func (e *env) eventually(s *ledger.Store, ops ...*stock.Op) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		_, err := s.Exec(ctx, ops, true)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			e.t.Fatalf("still failing: %v", err)
		}
	}
}

func faultLostReply(t *testing.T, e *env) {
	s, p := e.through()
	for _, forward := range []bool{true, false} {
		for _, then := range []faults.Then{faults.RST, faults.FIN} {
			op := settle(wish("sku-1", 1))
			fired := p.Arm(faults.Trigger{Match: faults.Contains("UPDATE stockgate.stock"), Forward: forward, Then: then})
			_, err := s.Exec(t.Context(), []*stock.Op{op}, true)
			if !errors.Is(err, stock.ErrNotExecuted) || errors.Is(err, stock.ErrUnknown) {
				t.Fatalf("error %v, want not executed", err)
			}
			<-fired
			if e.find(op.Reservation) != nil {
				t.Fatal("it was executed")
			}
			e.eventually(s, op)
			e.verdict(op, stock.VerdictDone)
		}
	}
	if n := e.info("sku-1").Available; n != 96 {
		t.Errorf("available %d, want 96", n)
	}
	e.sound()
}

func faultLostCommit(t *testing.T, e *env) {
	s, p := e.through()
	sold := int64(0)
	for _, forward := range []bool{true, false} {
		for _, then := range []faults.Then{faults.RST, faults.FIN, faults.Swallow} {
			r := wish("sku-1", 1)
			ops := []*stock.Op{settle(r), adjust("sku-1", -1, r.ID.String()), neverSent(wish("sku-1", 1))}
			fired := p.Arm(faults.Trigger{Match: faults.Contains("COMMIT\x00"), Forward: forward, Then: then})
			_, err := s.Exec(t.Context(), ops, true)
			if !errors.Is(err, stock.ErrUnknown) || ledger.Retryable(err) || ledger.BadMember(err) {
				t.Fatalf("error %v, want unknown", err)
			}
			<-fired
			e.eventually(s, ops...)
			for _, op := range ops {
				e.verdict(op, stock.VerdictDone)
			}
			if row := e.find(r); !row.ForwardBy.Equal(ops[0].Result.ForwardBy) || !row.ExpiresAt.Equal(ops[0].Result.ExpiresAt) {
				t.Errorf("row %+v, result %+v", row, ops[0].Result)
			}
			sold += 2
			if n := e.info("sku-1").Available; n != 100-sold {
				t.Fatalf("available %d, want %d", n, 100-sold)
			}
		}
	}
	e.sound()
}

// A stock table that may be read but not written would refuse every sale as if the database were away: the start says so instead.
func faultPrivileges(t *testing.T, e *env) {
	e.sql(`CREATE ROLE reader LOGIN; GRANT USAGE ON SCHEMA stockgate TO reader; GRANT ALL ON ALL TABLES IN SCHEMA stockgate TO reader;
		CREATE TABLE public.shop (code text PRIMARY KEY, units bigint, price bigint); GRANT SELECT, UPDATE (price) ON public.shop TO reader`)
	cfg := e.cfg
	cfg.DSN = strings.Replace(cfg.DSN, "//stockgate@", "//reader@", 1)
	cfg.Stock = ledger.StockTable{Table: "public.shop", SKU: "code", Available: "units"}
	s, err := ledger.Open(cfg)
	e.must(err)
	t.Cleanup(func() { _ = s.Close() })
	_, err = s.Prepare(t.Context())
	if err == nil || !strings.Contains(err.Error(), `may not update column "units"`) || errors.Is(err, stock.ErrUnavailable) {
		t.Fatalf("error %v", err)
	}
	e.sql(`GRANT UPDATE (units) ON public.shop TO reader; INSERT INTO public.shop VALUES ('sku-9', 1)`)
	_, err = s.Prepare(t.Context())
	e.must(err)
	op := settle(wish("sku-9", 1))
	e.execOn(s, op)
	e.verdict(op, stock.VerdictDone)
	e.sql(`REVOKE SELECT ON public.shop FROM reader`)
	if _, err = s.Prepare(t.Context()); err == nil || !strings.Contains(err.Error(), `may not read column`) {
		t.Fatalf("error %v", err)
	}
}

// The database user is called stockgate, as in the example, so its search path begins with our schema, and an unqualified stock is our
// table and not the shop's: nothing would ever move there.
func faultShadowed(t *testing.T, e *env) {
	e.sql(`CREATE TABLE public.stock (sku text PRIMARY KEY, available bigint); INSERT INTO public.stock VALUES ('sku-9', 1)`)
	e.cfg.Stock = ledger.StockTable{Table: "stock", SKU: "sku", Available: "available"}
	s := e.open()
	if _, err := s.Prepare(t.Context()); err == nil || !strings.Contains(err.Error(), "write the schema") {
		t.Errorf("error %v", err)
	}
	e.cfg.Stock.Table = "public.stock"
	s = e.open()
	_, err := s.Prepare(t.Context())
	e.must(err)
	op := settle(wish("sku-9", 1))
	e.execOn(s, op)
	e.verdict(op, stock.VerdictDone)
}

// sellsBetween is a store beside which others sell before an unknown transaction is repeated.
type sellsBetween struct {
	*ledger.Store
	sell func()
}

func (s *sellsBetween) Exec(ctx context.Context, ops []*stock.Op, wait bool) ([]*stock.Op, error) {
	locked, err := s.Store.Exec(ctx, ops, wait)
	if errors.Is(err, stock.ErrUnknown) {
		s.sell()
	}
	return locked, err
}

// A set has no id of its own: repeated blindly, it would put back for sale what was sold since.
func faultLostSet(t *testing.T, e *env) {
	s, p := e.through()
	sold := make(chan struct{})
	between := &sellsBetween{Store: s, sell: sync.OnceFunc(func() {
		defer close(sold)
		e.exec(settle(wish("sku-1", 30))) // waits for the server to commit
	})}
	d := ledger.NewDeducter(between, fallback.NewQueue[*ledger.Work](fallback.QueueConfig{}), ledger.DeducterConfig{})
	var ran sync.WaitGroup
	ran.Go(func() { d.Run(context.WithoutCancel(t.Context())) })
	defer ran.Wait()
	defer d.Stop(context.Background())
	fired := p.Arm(faults.Trigger{Match: faults.Contains("COMMIT\x00"), Forward: true, Then: faults.RST})
	op := &stock.Op{Kind: stock.OpSet, Class: stock.ClassPrededuct, SKU: "sku-1", Available: 200}
	e.must(d.Do(t.Context(), op))
	<-fired
	<-sold
	e.verdict(op, stock.VerdictDone)
	if i := e.info("sku-1"); i.Available != 170 || i.StockIn != 200 {
		t.Errorf("200 units were put in and 30 sold: available %d, put in %d", i.Available, i.StockIn)
	}
	e.sound()
}

func TestPostgresIsKilledAtCommit(t *testing.T) {
	t.Parallel()
	pg := testservices.StartPostgres(t)
	e := newEnv(t, ledger.DriverPostgres, pg.Database)
	e.set("sku-1", 1000)
	for range 3 {
		// Buyers all the time; the server dies at some moment of it, also in the middle of a COMMIT.
		var unsure []*stock.Op
		var mu sync.Mutex
		var wg sync.WaitGroup
		var done atomic.Int64
		dead := make(chan struct{})
		for range 3 {
			wg.Go(func() {
				for {
					ops := []*stock.Op{settle(wish("sku-1", 1)), settle(wish("sku-1", 1))}
					_, err := e.Exec(context.Background(), ops, true)
					if err == nil {
						done.Add(1)
						continue
					}
					if !errors.Is(err, stock.ErrUnknown) && !errors.Is(err, stock.ErrNotExecuted) {
						t.Errorf("error without a class: %v", err)
					}
					if errors.Is(err, stock.ErrUnavailable) || errors.Is(err, stock.ErrUnknown) {
						mu.Lock()
						unsure = append(unsure, ops...)
						mu.Unlock()
						return
					}
				}
			})
		}
		go func() {
			for before := done.Load(); done.Load() < before+5; {
				time.Sleep(time.Millisecond) // only paces the look; the event is the counter
			}
			pg.Kill()
			close(dead)
		}()
		wg.Wait()
		<-dead
		pg.Start()
		e.eventually(e.Store, unsure...)
		for _, op := range unsure {
			e.verdict(op, stock.VerdictDone)
		}
		e.sound()
	}
}

func TestPostgresIsPaused(t *testing.T) {
	t.Parallel()
	pg := testservices.StartPostgres(t)
	e := newEnv(t, ledger.DriverPostgres, pg.Database)
	e.set("sku-1", 1000)
	e.cfg.StatementTimeout = 300 * time.Millisecond
	s := e.open()
	r := wish("sku-1", 1)
	e.execOn(s, settle(r))
	pg.Pause()
	defer pg.Resume()
	f := func(name string, call func(ctx context.Context) error) {
		t.Helper()
		for _, bounded := range []bool{true, false} {
			ctx, cancel := context.WithCancel(t.Context())
			if bounded {
				ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
			}
			if err := call(ctx); !errors.Is(err, stock.ErrNotExecuted) { // it returns at all: the test's own time-out is the judge
				t.Errorf("%s: %v, want not executed", name, err)
			}
			cancel()
		}
	}
	f("Exec", func(ctx context.Context) error {
		_, err := s.Exec(ctx, []*stock.Op{settle(wish("sku-1", 1))}, false)
		return err
	})
	f("Find", func(ctx context.Context) error {
		_, err := s.Find(ctx, []stock.ID{r.ID})
		return err
	})
	f("Beat", func(ctx context.Context) error {
		_, err := s.Beat(ctx, "gw-1", true, nil)
		return err
	})
	f("Ping", s.Ping)
	f("Migrate", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
		return s.Migrate(ctx)
	})
	pg.Resume()
	e.eventually(s, settle(r))
	e.sound()
}

func faultLateCalls(t *testing.T, e *env) {
	s, _ := e.through()
	db := e.db()
	tx, err := db.Begin()
	e.must(err)
	e.set("sku-2", 1000)
	_, err = tx.Exec("SELECT 1 FROM stockgate.stock WHERE sku = 'sku-1' FOR UPDATE")
	e.must(err)
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			for i := range 40 {
				if n == 0 {
					op := settle(wish("sku-2", 1))
					if _, err := s.Exec(context.Background(), []*stock.Op{op}, true); err != nil || op.Result.Verdict != stock.VerdictDone {
						t.Errorf("a normal call: %v, %s", err, op.Result.Verdict)
					}
					continue
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(5+i%15)*time.Millisecond)
				if _, err := s.Exec(ctx, []*stock.Op{settle(wish("sku-1", 1))}, true); !errors.Is(err, stock.ErrNotExecuted) {
					t.Errorf("a late call: %v", err)
				}
				cancel()
			}
		})
	}
	finished := make(chan struct{})
	go func() { wg.Wait(); close(finished) }()
	most := 0
	for running := true; running; {
		var open int
		e.must(db.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()").Scan(&open))
		most = max(most, open)
		select {
		case <-finished:
			running = false
		default:
		}
	}
	if most > 2*e.cfg.MaxConnections+3 { // the env's own store and this test have connections too
		t.Errorf("%d connections were open at once", most)
	}
	e.must(tx.Rollback())
	e.eventually(s, settle(wish("sku-1", 1)))
	e.sound()
}

func faultReadOnly(t *testing.T, e *env) {
	e.execOn(e.Store, settle(wish("sku-1", 1)))
	e.sql("ALTER ROLE stockgate IN DATABASE " + e.name() + " SET default_transaction_read_only = on")
	e.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
	readOnly := func(err error) {
		t.Helper()
		if !errors.Is(err, stock.ErrUnavailable) || !errors.Is(err, stock.ErrNotExecuted) {
			t.Errorf("error %v, want unavailable", err)
		}
	}
	for range 4 {
		_, err := e.Exec(t.Context(), []*stock.Op{settle(wish("sku-1", 1))}, false)
		readOnly(err)
		_, err = e.Exec(t.Context(), []*stock.Op{accept(wish("sku-1", 1), nil)}, false)
		readOnly(err)
		_, err = e.Beat(t.Context(), "gw-1", true, nil)
		readOnly(err)
		readOnly(e.Ping(t.Context()))
	}
	// The sessions above stay read-only for as long as they live: it has to be new ones that work again.
	e.sql("BEGIN READ WRITE; ALTER ROLE stockgate IN DATABASE " + e.name() + " RESET default_transaction_read_only; COMMIT")
	_, err := e.Exec(t.Context(), []*stock.Op{settle(wish("sku-1", 1))}, false)
	e.must(err)
	e.must(e.Ping(t.Context()))
	e.sound()
}

// name is the name of the database.
func (e *env) name() string {
	path := e.cfg.DSN[strings.LastIndex(e.cfg.DSN, "/")+1:]
	return path[:strings.Index(path, "?")]
}

func faultSilent(t *testing.T, e *env) {
	s, p := e.through(func(c *ledger.Config) { c.StatementTimeout = 200 * time.Millisecond })
	e.execOn(s, settle(wish("sku-1", 1)))
	p.Stall(true)
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, err := s.Exec(ctx, []*stock.Op{settle(wish("sku-1", 1))}, true)
		if !errors.Is(err, stock.ErrNotExecuted) {
			t.Errorf("error %v, want not executed", err)
		}
		cancel()
	}
	_, err := s.Exec(t.Context(), []*stock.Op{settle(wish("sku-1", 1))}, true) // no deadline of its own
	if !errors.Is(err, stock.ErrUnavailable) {
		t.Errorf("error %v, want unavailable", err)
	}
	p.Stall(false)
	p.Cut(faults.RST)
	e.eventually(s, settle(wish("sku-1", 1)))
	e.sound()
}

func faultLateReply(t *testing.T, e *env) {
	e.set("sku-2", 7)
	s, p := e.through(func(c *ledger.Config) { c.MaxConnections = 2 })
	for range 5 {
		p.Delay(0, 80*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
		_, _, err := s.Stock(ctx, "sku-1")
		cancel()
		if err == nil {
			t.Fatal("the reply came in time")
		}
		p.Delay(0, 0)
		i, _, err := s.Stock(t.Context(), "sku-2")
		e.must(err)
		if i.SKU != "sku-2" || i.Available != 7 {
			t.Fatalf("asked for sku-2, got %+v", i)
		}
	}
}

func faultLocked(t *testing.T, e *env) {
	e.set("sku-2", 10)
	held := wish("sku-1", 1)
	e.exec(settle(held))
	tx, err := e.db().Begin()
	e.must(err)
	_, err = tx.Exec("UPDATE stockgate.stock SET available = available + 1 WHERE sku = 'sku-1'")
	e.must(err)
	busy, cart, free, back, after := settle(wish("sku-1", 1)), settle(wish("sku-1", 1, "sku-2", 1)), settle(wish("sku-2", 1)), cancel(held),
		settle(again(held))
	back.Reason = stock.ReasonNeverSent
	note := accept(held, nil) // behind the release, about the same reservation: must not overtake it
	ops := []*stock.Op{busy, cart, free, back, after, note}
	locked, err := e.Exec(t.Context(), ops, false)
	e.must(err)
	if len(locked) != 5 || locked[0] != busy || locked[1] != cart || locked[2] != back || locked[3] != after || locked[4] != note {
		t.Fatalf("locked %v", locked)
	}
	e.verdict(free, stock.VerdictDone)
	e.verdict(busy, stock.VerdictNone)
	_, err = e.Exec(t.Context(), locked, true)
	if !ledger.Retryable(err) || !errors.Is(err, stock.ErrNotExecuted) {
		t.Fatalf("waiting for a lock: %v", err)
	}
	e.must(tx.Commit())
	locked, err = e.Exec(t.Context(), locked, false)
	if len(locked) != 0 || err != nil {
		t.Fatalf("locked %v, %v", locked, err)
	}
	e.verdict(after, stock.VerdictDone)
	e.verdict(note, stock.VerdictStale)
	if i := e.info("sku-1"); i.Available != 98 || i.StockIn != 101 {
		t.Errorf("info %+v", i)
	}
	e.sound()
}

func faultDeadlock(t *testing.T, e *env) {
	e.set("sku-2", 100)
	tx, err := e.db().Begin() // a transaction of the shop that locks in the other order
	e.must(err)
	_, err = tx.Exec("UPDATE stockgate.stock SET available = available + 1 WHERE sku = 'sku-2'")
	e.must(err)
	started, result := make(chan struct{}), make(chan error)
	op := settle(wish("sku-1", 1, "sku-2", 1))
	go func() {
		close(started)
		_, err := e.Exec(context.Background(), []*stock.Op{op}, true)
		result <- err
	}()
	<-started
	_, err = tx.Exec("UPDATE stockgate.stock SET available = available + 1 WHERE sku = 'sku-1'")
	e.must(err) // the shop never is the victim
	e.must(tx.Commit())
	if err := <-result; err != nil && !ledger.Retryable(err) {
		t.Fatal(err)
	}
	e.eventually(e.Store, op)
	e.sound()
}

func faultIdle(t *testing.T, e *env) {
	s, p := e.through()
	fired := p.Arm(faults.Trigger{Match: faults.Contains("UPDATE stockgate.stock"), Then: faults.Stall})
	done := make(chan error, 1)
	go func() {
		_, err := s.Exec(context.Background(), []*stock.Op{settle(wish("sku-1", 1))}, true)
		done <- err
	}()
	<-fired // the locks are held, the gateway is gone
	e.eventually(e.Store, settle(wish("sku-1", 1)))
	if err := <-done; !errors.Is(err, stock.ErrNotExecuted) {
		t.Errorf("error %v", err)
	}
	e.sound()
}

func faultNoServer(t *testing.T, e *env) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	e.must(err)
	e.must(l.Close())
	cfg := e.cfg
	cfg.DSN = "postgres://stockgate@" + l.Addr().String() + "/shop?sslmode=disable"
	s, err := ledger.Open(cfg) // start in any order
	e.must(err)
	defer s.Close()
	for _, err := range []error{s.Ping(t.Context()), s.Migrate(t.Context())} {
		if !errors.Is(err, stock.ErrUnavailable) {
			t.Errorf("error %v, want unavailable", err)
		}
	}
	_, err = s.Exec(t.Context(), []*stock.Op{settle(wish("sku-1", 1))}, false)
	if !errors.Is(err, stock.ErrUnavailable) || ledger.Retryable(err) {
		t.Errorf("error %v, want unavailable", err)
	}
	for _, bad := range []ledger.Config{{}, {Driver: "postgres"}, {Driver: "oracle", DSN: "x"}, {Driver: "postgres", DSN: "postgres://%zz"},
		{Driver: "postgres", DSN: "host=h", MaxConnections: 1}, {Driver: "sqlite", DSN: ":memory:"}, {Driver: "sqlite", DSN: "f", LockTimeout: 1}} {
		if s, err := ledger.Open(bad); err == nil {
			_ = s.Close()
			t.Errorf("%+v was accepted", bad)
		}
	}
}
