package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/luascripts"
	"github.com/stockgate/stockgate/stock"
)

// redisSet is a Redis of several servers.
type redisSet interface {
	servers() []*testservices.Redis // all that a gateway may connect to
	// lookAt is how to reach it, keys the same for a gateway that finds its first servers there.
	lookAt() luascripts.Config
	keys(addresses []string) string
	// master is that of a partition, nil if there is none now.
	master(p int) *testservices.Redis
	// replace lets a replica take over; move gives a partition to another master, which only a cluster can.
	replace(old *testservices.Redis) error
	move(p int) error
	heal()
}

func startRedisSet(t testing.TB, kind string) redisSet {
	if kind == clusterKind {
		return newClusterSet(testservices.StartCluster(t))
	}
	return sentinelSet{testservices.StartSentinel(t)}
}

// chaosTimeout is redis.timeout of the gateways: longer than a busy machine takes, shorter than forward_within.
const chaosTimeout = "400ms"

type sentinelSet struct{ *testservices.Sentinel }

func (s sentinelSet) servers() []*testservices.Redis {
	return slices.Concat(s.Sentinels, s.Nodes)
}

func (s sentinelSet) lookAt() luascripts.Config {
	return luascripts.Config{Mode: luascripts.ModeSentinel, MasterName: testservices.SentinelMaster, Addresses: s.Addresses()}
}

func (s sentinelSet) keys(addresses []string) string {
	return fmt.Sprintf("mode: sentinel, master_name: %s, timeout: %s, addresses: [%s]", testservices.SentinelMaster, chaosTimeout,
		quoted(addresses[:len(s.Sentinels)]))
}

func (s sentinelSet) master(int) *testservices.Redis        { return s.Master() }
func (s sentinelSet) replace(old *testservices.Redis) error { return s.Replace() }
func (s sentinelSet) move(int) error                        { return nil }
func (s sentinelSet) heal()                                 { s.Heal() }

type clusterSet struct {
	*testservices.Cluster
	slots  [64]int      // of the partitions
	moving func() error // of the move that was begun last; nil: it is done
}

func (s *clusterSet) servers() []*testservices.Redis { return s.Nodes }

func (s *clusterSet) lookAt() luascripts.Config {
	return luascripts.Config{Mode: luascripts.ModeCluster, Addresses: s.Addresses()}
}

func (s *clusterSet) keys(addresses []string) string {
	return fmt.Sprintf("mode: cluster, timeout: %s, addresses: [%s]", chaosTimeout, quoted(addresses[:4]))
}

func newClusterSet(c *testservices.Cluster) *clusterSet {
	s := &clusterSet{Cluster: c}
	for p := range s.slots { // now, since later no node may answer
		s.slots[p] = c.Slot(fmt.Sprintf("{stockgate:%d}:part", p))
	}
	return s
}

func (s *clusterSet) master(p int) *testservices.Redis { return s.MasterOf(s.slots[p]) }

func (s *clusterSet) replace(old *testservices.Redis) error { return s.Replace(old) }

// move gives the partition's slot to the next master. A move that fails is made again by heal.
func (s *clusterSet) move(p int) error {
	slot := s.slots[p]
	from := s.MasterOf(slot)
	masters, err := s.Masters()
	if from == nil || err != nil {
		return err
	}
	to := masters[(slices.Index(masters, from)+1)%len(masters)]
	s.moving = func() error {
		if s.MasterOf(slot) == to {
			return nil
		}
		return s.MoveSlot(slot, from, to)
	}
	return s.finishMove()
}

func (s *clusterSet) finishMove() error {
	if s.moving == nil {
		return nil
	}
	err := s.moving()
	if err == nil {
		s.moving = nil
	}
	return err
}

func (s *clusterSet) heal() {
	s.Heal()
	if err := s.finishMove(); err != nil {
		s.moving = nil // one of the two is no master any more: the slot stays where it is
		for _, n := range s.Nodes {
			_, _ = n.Command("CLUSTER", "SETSLOT", fmt.Sprint(s.halfMoved(n)), "STABLE")
		}
	}
}

// halfMoved is a slot that a node takes for one on its way; -1: none.
func (s *clusterSet) halfMoved(n *testservices.Redis) (slot int) {
	text, _ := n.Command("CLUSTER", "NODES")
	_, after, found := strings.Cut(strings.Join(text, ""), " [")
	if _, err := fmt.Sscanf(after, "%d", &slot); !found || err != nil {
		return -1
	}
	return slot
}

// partitionOf is the partition of a SKU.
func partitionOf(sku string) int { return stock.Partition(sku, 64) }
