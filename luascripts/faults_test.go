package luascripts

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/faults"
	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/stock"
)

// proxied is a rig whose client reaches its Redis through a proxy that breaks on command; raw and admin calls do not.
func proxied(t *testing.T, cfg Config, guard Guard) (*rig, *faults.Proxy) {
	t.Helper()
	server := testservices.StartRedis(t)
	proxy, err := faults.Listen(server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	cfg.Addresses, cfg.PinRunID = []string{proxy.Addr()}, true
	r := newRig(t, cfg, guard)
	r.server = server
	_ = r.raw.Close()
	r.raw = connect(Config{Timeout: generous, PoolSize: 2}, server.Addr, nil)
	return r, proxy
}

func TestALostReplyIsUnknownAndAskedAgainWonOnce(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]faults.Then{"reset": faults.RST, "closed": faults.FIN, "silent": faults.Swallow} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, proxy := proxied(t, Config{Timeout: time.Second}, nil)
			r.open(1)
			r.load("s", 10)
			res := wish(1, 1, "s", 1)
			r.buy("s", 1, 2) // the script is there
			fired := proxy.Arm(faults.Trigger{Match: faults.Contains(res.ID.String()), Forward: true, Then: how})
			_, err := r.prededuct(context.Background(), res, time.Minute)
			if !errors.Is(err, stock.ErrUnknown) || errors.Is(err, stock.ErrNotExecuted) || !Failure(err) {
				t.Fatalf("%v, failure of the node %v", err, Failure(err))
			}
			<-fired
			r.want("s", 10, 2)
			if got := r.ask1(res).Code; got != stock.CacheWon {
				t.Fatalf("asked again: %v", got)
			}
			r.want("s", 10, 2)
		})
	}
}

func TestALostReplyToACloseIsSentAgain(t *testing.T) {
	t.Parallel()
	r, proxy := proxied(t, Config{}, nil)
	r.open(1)
	r.load("s", 10)
	res := wish(1, 1, "s", 4)
	r.ask1(res)
	fired := proxy.Arm(faults.Trigger{Match: faults.Contains(res.ID.String()), Forward: true, Then: faults.RST, Times: 2})
	r.Close(0, []stock.Closing{won(res)}, []stock.Fact{r.fact("s", 6)})
	<-fired
	r.await(func(s Stats) bool { return s.Closings == 1 })
	r.want("s", 6, 0)
	if s := r.Stats(); s.ClosingsDropped != 0 || s.FactsDropped != 0 {
		t.Fatalf("%+v", s)
	}
}

// await asks for the totals until they are as wanted.
func (r *rig) await(ok func(Stats) bool) {
	r.Helper()
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok(r.Stats()) {
		if time.Now().After(deadline) {
			r.Fatalf("%+v", r.Stats())
		}
		<-tick.C
	}
}

func TestARefusedConnectionIsNotExecuted(t *testing.T) {
	t.Parallel()
	r, proxy := proxied(t, Config{}, nil)
	r.open(1)
	r.load("s", 10)
	if err := proxy.Refuse(true); err != nil {
		t.Fatal(err)
	}
	proxy.Cut(faults.RST)
	sure := 0
	for n := range 10 {
		_, err := r.prededuct(context.Background(), wish(n, 1, "s", 1), time.Minute)
		if err == nil || !Failure(err) {
			t.Fatalf("%v", err)
		}
		if errors.Is(err, stock.ErrNotExecuted) {
			sure++
		}
	}
	if sure < 8 { // one or two may meet a connection that was just cut
		t.Fatalf("%d of 10 are surely not executed", sure)
	}
	r.wantRaw("s", "0")
}

// wantRaw looks at out past the client.
func (r *rig) wantRaw(sku, out string) {
	r.Helper()
	got := r.raw.HGet(context.Background(), r.keys[r.p(sku)].out.(string), sku).Val()
	if got == "" {
		got = "0"
	}
	if got != out {
		r.Fatalf("out of %s is %s, want %s", sku, got, out)
	}
}

func TestServersThatRefuseAreNotExecuted(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	refuse := map[string]func(r *rig) (undo func()){
		"out of memory": func(r *rig) func() {
			r.raw.ConfigSet(ctx, "maxmemory", "1")
			return func() { r.raw.ConfigSet(ctx, "maxmemory", "0") }
		},
		"read only replica": func(r *rig) func() {
			r.raw.ReplicaOf(ctx, "127.0.0.1", "1")
			return func() { r.raw.ReplicaOf(ctx, "NO", "ONE") }
		},
		"busy": func(r *rig) func() {
			r.raw.ConfigSet(ctx, "busy-reply-threshold", "1")
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				r.raw.Eval(ctx, "while true do end", nil)
			}()
			for !strings.HasPrefix(fmt.Sprint(r.raw.Ping(ctx).Err()), "BUSY") {
			}
			return func() { r.raw.ScriptKill(ctx); <-ended }
		},
	}
	for name, begin := range refuse {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, Config{PinRunID: true}, nil)
			r.open(1)
			r.load("s", 10)
			res := wish(1, 1, "s", 1)
			undo := begin(r)
			_, err := r.prededuct(ctx, res, time.Minute)
			undo()
			if !errors.Is(err, stock.ErrNotExecuted) || errors.Is(err, stock.ErrUnknown) || !Failure(err) {
				t.Fatalf("%v, failure of the node %v", err, Failure(err))
			}
			r.want("s", 10, 0)
			if n, err := r.OpenCount(ctx); n != 0 || err != nil {
				t.Fatalf("%d open entries, %v", n, err)
			}
			if got := r.ask1(res).Code; got != stock.CacheWon {
				t.Fatalf("afterwards: %v", got)
			}
		})
	}
}

func TestC018_NoReplyGoesToAnotherCommand(t *testing.T) {
	t.Parallel()
	const partitions, skus, rounds = 8, 40, 6
	timeout := 60 * time.Millisecond
	r, proxy := proxied(t, Config{Timeout: timeout, Partitions: partitions}, nil)
	// A busy machine may be slower than the time-out while it loads.
	r.patiently(func() error { return r.openAll(1) })
	for i := range skus {
		f := r.fact(fmt.Sprint("sku-", i), int64(1000*(i+1)))
		r.patiently(func() error { _, err := r.Load(context.Background(), r.p(f.SKU), []stock.Fact{f}); return err })
	}
	var mu sync.Mutex
	var unknown []*stock.Reservation
	wins, unknowns := make([]int64, skus), 0
	for round := range rounds {
		if round%2 == 1 {
			proxy.Delay(0, 2*timeout)
		} else {
			proxy.Delay(0, 0)
		}
		var all sync.WaitGroup
		for n := range 4 * skus {
			all.Go(func() {
				i := n % skus
				res := wish(round*10_000+n, 1, fmt.Sprint("sku-", i), 1)
				reply, err := r.prededuct(context.Background(), res, time.Minute)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case errors.Is(err, stock.ErrUnknown):
					unknown = append(unknown, res)
					unknowns++
				case err != nil:
					if !errors.Is(err, stock.ErrNotExecuted) {
						t.Errorf("neither class: %v", err)
					}
				case reply.Code != stock.CacheWon || reply.Base != int64(1000*(i+1)):
					t.Errorf("sku-%d got another's reply: %+v", i, reply)
				default:
					wins[i]++
				}
			})
		}
		all.Wait()
	}
	if unknowns == 0 {
		t.Fatal("no reply came late: the test has shown nothing")
	}
	proxy.Delay(0, 0)
	for _, res := range unknown {
		r.patiently(func() error {
			reply, err := r.prededuct(context.Background(), res, time.Minute)
			if err == nil && reply.Code != stock.CacheWon {
				t.Errorf("unknown, asked again: %+v", reply)
			}
			return err
		})
		i, _ := strconv.Atoi(strings.TrimPrefix(res.Lines[0].SKU, "sku-"))
		wins[i]++
	}
	for i := range skus {
		r.wantRaw(fmt.Sprint("sku-", i), fmt.Sprint(wins[i]))
	}
	_, open := proxy.Connections()
	if open > r.cfg.PoolSize {
		t.Errorf("%d connections, the pool allows %d", open, r.cfg.PoolSize)
	}
}

// C018: late replies to claims. Nobody hears who has another id, and what was unknown is one's own when it is asked again.
func TestC018_NoClaimHearsOfAnother(t *testing.T) {
	t.Parallel()
	const partitions, ids, rounds = 8, 40, 6
	timeout := 60 * time.Millisecond
	r, proxy := proxied(t, Config{Timeout: timeout, Partitions: partitions}, nil)
	ctx := context.Background()
	r.patiently(func() error { return r.openAll(1) })
	for p := range partitions {
		r.patiently(func() error { return r.OpenAhead(ctx, p, 1) })
	}
	claim := func(n int, try stock.Try) (stock.ClaimReply, *stock.Reservation, error) {
		res := wish(n, try, "s", 1)
		res.Owner = res.ID.String()
		reply, err := r.Claim(ctx, stock.ClaimPartition(res.ID, partitions), res, time.Hour, 0)
		return reply, res, err
	}
	for n := range ids {
		r.patiently(func() error { _, _, err := claim(n, 1); return err })
	}
	var mu sync.Mutex
	unknown := make(map[int]stock.Try)
	for round := range rounds {
		if round%2 == 1 {
			proxy.Delay(0, 2*timeout)
		} else {
			proxy.Delay(0, 0)
		}
		var all sync.WaitGroup
		for n := range 4 * ids { // half of them are had by others
			all.Go(func() {
				id := n % ids
				if n%2 == 1 {
					id = 10_000*(round+1) + n
				}
				reply, res, err := claim(id, 2)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case errors.Is(err, stock.ErrUnknown) && n%2 == 1:
					unknown[id] = 2
				case err != nil:
				case reply.Code == stock.ClaimTaken && (id >= ids || reply.KnownOwner != res.Owner || reply.KnownTry != 1):
					t.Errorf("id %d got another's reply: %+v", id, reply)
				case reply.Code != stock.ClaimTaken && (id < ids || reply.Code != stock.ClaimOurs):
					t.Errorf("id %d got another's reply: %+v", id, reply)
				}
			})
		}
		all.Wait()
	}
	if len(unknown) == 0 {
		t.Fatal("no reply came late: the test has shown nothing")
	}
	proxy.Delay(0, 0)
	for id, try := range unknown {
		r.patiently(func() error {
			reply, _, err := claim(id, try)
			if err == nil && reply.Code != stock.ClaimOurs {
				t.Errorf("unknown, asked again: %+v", reply)
			}
			return err
		})
	}
}

// patiently repeats what failed with a class of stock.
func (r *rig) patiently(f func() error) {
	r.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) || !errors.Is(err, stock.ErrNotExecuted) && !errors.Is(err, stock.ErrUnknown) {
			r.Fatal(err)
		}
	}
}

// openAll is open with errors.
func (r *rig) openAll(epoch int64) error {
	ctx := context.Background()
	runID, err := r.RunID(ctx)
	if err != nil {
		return err
	}
	for p := range r.keys {
		if err := r.OpenPartition(ctx, p, epoch, runID); err != nil {
			return err
		}
		r.epochs.learn(p, epoch, runID)
	}
	return nil
}
