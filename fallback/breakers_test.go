package fallback

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockgate/stockgate/stock"
)

func TestEachNodeHasABreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dead atomic.Bool
		dead.Store(true)
		changes := make(chan BreakerChange, 10)
		s := NewBreakers(BreakerConfig{OnChange: func(c BreakerChange) { changes <- c }}, func(_ context.Context, node string) error {
			if node == "a" && dead.Load() {
				return errors.New("dead")
			}
			return nil
		})
		before := s.Of("a") // made before Run
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); s.Run(ctx) }()
		synctest.Wait()
		for range 5 {
			_ = s.Of("a").Do(func() error { return stock.ErrUnknown })
			if err := s.Of("b").Do(func() error { return nil }); err != nil {
				t.Errorf("the other node: %v", err)
			}
		}
		if s.Closed("a") || !s.Closed("b") || s.State() != BreakerOpen || s.Of("a") != before {
			t.Errorf("a closed %v, b closed %v, worst %v", s.Closed("a"), s.Closed("b"), s.State())
		}
		if c := <-changes; c.Node != "a" || c.To != BreakerOpen {
			t.Errorf("told %+v", c)
		}
		dead.Store(false)
		eventually(t, 2*time.Minute, "the node's own probe closes it", func() bool { return s.Closed("a") })
		s.Forget("a")
		s.Forget("never there")
		if nodes, opened := s.Stats(); len(nodes) != 1 || nodes[0].Node != "b" || opened != 1 {
			t.Errorf("after a was forgotten: %+v, opened %d", nodes, opened)
		}
		cancel()
		<-ended
		if !s.Closed("c") {
			t.Error("a breaker made after the end")
		}
	})
}

// twoNodes is a cluster of two nodes: even partitions are on one, odd ones on the other.
type twoNodes struct {
	even, odd *fakeClient
	moved     atomic.Bool // partition 0 has moved to the odd ones
}

func newTwoNodes(epochs *epochsLater) *twoNodes {
	node := func(runID string) *fakeClient { return &fakeClient{fakeRedis: newFakeRedis(runID), epochs: epochs} }
	return &twoNodes{even: node("even"), odd: node("odd")}
}

type epochsLater struct{ *WayBack }

func (s *twoNodes) of(p int) *fakeClient {
	if p%2 == 1 || p == 0 && s.moved.Load() {
		return s.odd
	}
	return s.even
}

func (s *twoNodes) NodeOf(p int) string {
	return map[bool]string{true: "even", false: "odd"}[s.of(p) == s.even]
}

func (s *twoNodes) LookAgain() {}

func (s *twoNodes) RunIDOf(ctx context.Context, node string) (string, error) {
	return map[string]*fakeClient{"even": s.even, "odd": s.odd}[node].RunIDOf(ctx, "")
}

func (s *twoNodes) Partition(ctx context.Context, p int) (stock.PartitionRegister, error) {
	return s.of(p).Partition(ctx, p)
}

func (s *twoNodes) OpenPartition(ctx context.Context, p int, epoch int64, runID string) error {
	return s.of(p).OpenPartition(ctx, p, epoch, runID)
}

func (s *twoNodes) Load(ctx context.Context, p int, facts []stock.Fact) (bool, error) {
	return s.of(p).Load(ctx, p, facts)
}

func (s *twoNodes) CloseNow(ctx context.Context, p int, closings []stock.Closing, facts []stock.Fact) (bool, error) {
	return s.of(p).CloseNow(ctx, p, closings, facts)
}

func (s *twoNodes) SetIDsLoaded(ctx context.Context, p int, epoch int64) error {
	return s.of(p).SetIDsLoaded(ctx, p, epoch)
}

func (s *twoNodes) Registers(ctx context.Context, skus []string) ([]stock.Registers, error) {
	return s.of(stock.Partition(skus[0], testPartitions)).Registers(ctx, skus)
}

func (s *twoNodes) OpenAhead(ctx context.Context, p int, epoch int64) error {
	return s.of(p).OpenAhead(ctx, p, epoch)
}

func (s *twoNodes) OpenEntries(ctx context.Context, p int, after string, limit int) ([]stock.OpenEntry, string, error) {
	return s.of(p).OpenEntries(ctx, p, after, limit)
}

// clustered is a replica over two nodes. The breaker of a node that is down is open.
func clustered(t *testing.T, db *fakeDB) (*WayBack, *twoNodes) {
	t.Helper()
	later := &epochsLater{}
	s := newTwoNodes(later)
	usable := func(p int) bool {
		n := s.of(p)
		n.mu.Lock()
		defer n.mu.Unlock()
		return !n.down
	}
	w := NewWayBack(db, s, db, WayBackConfig{Holder: "a", Partitions: testPartitions, AnswersKeep: 24 * time.Hour, Now: time.Now, Usable: usable})
	later.WayBack = w
	(&replica{WayBack: w}).start(t)
	return w, s
}

func TestADeadNodeKeepsNoOtherFromComingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFakeDB(testPartitions, skuNames(200)...)
		w, s := clustered(t, db)
		eventually(t, 5*time.Second, "redis_ok", w.RedisOK)
		time.Sleep(time.Minute)
		down := func(n *fakeClient, name string) {
			n.setDown(true)
			w.BreakerChanged(BreakerChange{Node: name, To: BreakerOpen, At: time.Now()})
		}
		down(s.even, "even")
		if w.RedisOK() {
			t.Fatal("redis_ok with a dead node")
		}
		for p := range testPartitions {
			if missed := w.outage[p].Load() != nil; missed != (p%2 == 0) {
				t.Errorf("partition %d: outage %v", p, missed)
			}
		}
		s.odd.restart("odd again") // while the other one is dead
		eventually(t, 5*time.Second, "the living node is opened anew", func() bool {
			epoch, runID := w.Epoch(1)
			return epoch == 2 && runID == "odd again" && s.odd.part(1).epoch == 2
		})
		eventually(t, 30*time.Second, "its ids are loaded", func() bool { return s.odd.part(testPartitions - 1).ids })
		if epoch, _ := w.Epoch(0); epoch != 1 {
			t.Errorf("the epoch of a partition on the dead node was raised to %d", epoch)
		}
		s.even.setDown(false)
		w.BreakerChanged(BreakerChange{Node: "even", To: BreakerClosed, At: time.Now()})
		eventually(t, 5*time.Second, "redis_ok", w.RedisOK)
		if epoch, _ := w.Epoch(0); epoch != 1 {
			t.Errorf("a node that only was away needs no new epoch, it has %d", epoch)
		}
	})
}

func TestAPartitionThatMovesIsOpenedWhereItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFakeDB(testPartitions, skuNames(200)...)
		w, s := clustered(t, db)
		eventually(t, 5*time.Second, "redis_ok", w.RedisOK)
		s.odd.mu.Lock()
		s.odd.parts[0] = s.even.part(0) // its keys move with it
		s.odd.mu.Unlock()
		s.moved.Store(true)
		eventually(t, 5*time.Second, "a new epoch on the new node", func() bool {
			epoch, runID := w.Epoch(0)
			return epoch == 2 && runID == "odd" && s.odd.part(0).epoch == 2
		})
		if epoch, runID := w.Epoch(2); epoch != 1 || runID != "even" {
			t.Errorf("a partition that stayed: epoch %d on %s", epoch, runID)
		}
	})
}
