package testservices

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// clusterSlots is how many slots a Redis Cluster has.
const clusterSlots = 16384

// Cluster is a Redis Cluster of three masters with a replica each, all real servers without persistence. A master that has been silent
// for about a second is replaced by its replica; the others go on meanwhile.
type Cluster struct {
	Nodes []*Redis // three masters, then their replicas in the same order, as they were at the start
	ids   map[*Redis]string
	t     testing.TB
}

// StartCluster starts it and returns once every node says that the cluster works and every replica follows.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{t: t, ids: make(map[*Redis]string)}
	var bus []string // their ports for each other
	for range 6 {
		bus = append(bus, strconv.Itoa(FreePort(t)))
		c.Nodes = append(c.Nodes, startClusterNode(t, bus[len(bus)-1]))
	}
	first := c.Nodes[0]
	for i, n := range c.Nodes {
		c.ids[n] = n.line("CLUSTER", "MYID")
		n.line("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		if n != first {
			host, port, _ := strings.Cut(first.Addr, ":")
			n.line("CLUSTER", "MEET", host, port, bus[0])
		}
		if i < 3 {
			n.line("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(i*clusterSlots/3), strconv.Itoa((i+1)*clusterSlots/3-1))
		}
	}
	for i, n := range c.Nodes[3:] {
		EventuallyNil(t, "the replica follows", func() error {
			if _, err := n.Command("CLUSTER", "REPLICATE", c.ids[c.Nodes[i]]); err != nil {
				return err // it has not met its master yet
			}
			return n.wantInfo("replication", "master_link_status:up")
		})
	}
	c.AwaitOK()
	for _, n := range c.Nodes {
		EventuallyNil(t, "every node knows the replicas", func() error { return c.knowsReplicas(n) })
	}
	return c
}

func startClusterNode(t testing.TB, bus string) *Redis {
	t.Helper()
	return StartRedis(t, "--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-node-timeout", "1000",
		"--cluster-require-full-coverage", "no", "--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0",
		"--cluster-config-file", "nodes.conf")
}

// knowsReplicas fails unless a node knows the replica of each master.
func (c *Cluster) knowsReplicas(n *Redis) error {
	text, err := n.Command("CLUSTER", "NODES")
	if err != nil {
		return err
	}
	if k := strings.Count(strings.Join(text, ""), "slave "); k != 3 {
		return fmt.Errorf("%s knows %d replicas", n.Addr, k)
	}
	return nil
}

// Addresses are those of all nodes.
func (c *Cluster) Addresses() []string { return addresses(c.Nodes) }

// AwaitOK waits until every node that runs says that the cluster works.
func (c *Cluster) AwaitOK() {
	c.t.Helper()
	for _, n := range c.Nodes {
		if n.Running() {
			EventuallyNil(c.t, "cluster_state:ok", func() error { return n.says("cluster_state:ok", "CLUSTER", "INFO") })
		}
	}
}

// Slot is the slot of a key.
func (c *Cluster) Slot(key string) int {
	c.t.Helper()
	i := slices.IndexFunc(c.Nodes, (*Redis).Running)
	slot, err := strconv.Atoi(c.Nodes[max(i, 0)].line("CLUSTER", "KEYSLOT", key))
	if err != nil {
		c.t.Fatal(err)
	}
	return slot
}

// MasterOf is the running node that says of itself that it is the master of a slot; nil: there is none.
func (c *Cluster) MasterOf(slot int) *Redis {
	for _, n := range c.Nodes {
		if n.Running() && n.owns(slot) {
			return n
		}
	}
	return nil
}

// owns reports whether a node takes itself for the master of a slot.
func (r *Redis) owns(slot int) bool {
	return slices.ContainsFunc(r.ranges(), func(s [2]int) bool { return s[0] <= slot && slot <= s[1] })
}

// slotsOwned is how many slots a node takes itself for the master of.
func (r *Redis) slotsOwned() (n int) {
	for _, s := range r.ranges() {
		n += s[1] - s[0] + 1
	}
	return n
}

// ranges are the slots, first and last, that a node takes itself for the master of. Slots on their way are with the master that they leave.
func (r *Redis) ranges() (list [][2]int) {
	text, err := r.Command("CLUSTER", "NODES")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(strings.Join(text, "")) {
		fields := strings.Fields(line)
		if len(fields) < 9 || !strings.Contains(fields[2], "myself,master") {
			continue
		}
		for _, f := range fields[8:] {
			from, to, ok := strings.Cut(f, "-")
			if !ok {
				to = from
			}
			a, errA := strconv.Atoi(from)
			b, errB := strconv.Atoi(to)
			if errA == nil && errB == nil {
				list = append(list, [2]int{a, b})
			}
		}
	}
	return list
}

// AwaitFailover returns the new master of a slot once it has taken over from old.
func (c *Cluster) AwaitFailover(slot int, old *Redis) (now *Redis) {
	c.t.Helper()
	EventuallyNil(c.t, "a replica takes over", func() error {
		if now = c.MasterOf(slot); now == nil || now == old {
			return fmt.Errorf("no other node has slot %d", slot)
		}
		return nil
	})
	return now
}

// BeginMove declares that a slot is on its way to another master: keys are asked for in both.
func (c *Cluster) BeginMove(slot int, from, to *Redis) {
	c.t.Helper()
	to.line("CLUSTER", "SETSLOT", strconv.Itoa(slot), "IMPORTING", c.ids[from])
	from.line("CLUSTER", "SETSLOT", strconv.Itoa(slot), "MIGRATING", c.ids[to])
}

// MoveKeys moves at most n keys of a slot that is on its way, and returns how many there were.
func (c *Cluster) MoveKeys(slot, n int, from, to *Redis) int {
	c.t.Helper()
	keys, err := from.Command("CLUSTER", "GETKEYSINSLOT", strconv.Itoa(slot), strconv.Itoa(n))
	if err != nil {
		c.t.Fatal(err)
	}
	host, port, _ := strings.Cut(to.Addr, ":")
	for _, k := range keys {
		from.line("MIGRATE", host, port, k, "0", "5000")
	}
	return len(keys)
}

// EndMove moves what is left and gives the slot to its new master.
func (c *Cluster) EndMove(slot int, from, to *Redis) {
	c.t.Helper()
	for c.MoveKeys(slot, 100, from, to) > 0 {
	}
	to.line("CLUSTER", "SETSLOT", strconv.Itoa(slot), "NODE", c.ids[to])
	from.line("CLUSTER", "SETSLOT", strconv.Itoa(slot), "NODE", c.ids[to])
}

// line is a command whose reply must be one line.
func (r *Redis) line(command ...string) string {
	r.t.Helper()
	reply, err := r.Command(command...)
	if err != nil || len(reply) != 1 {
		r.t.Fatalf("%s: %s replied %q, %v", r.Addr, strings.Join(command, " "), reply, err)
	}
	return reply[0]
}

// MoveSlot moves a slot to another master while everyone goes on. It may be made again after an error, and must be before anything else
// is done with the slot.
func (c *Cluster) MoveSlot(slot int, from, to *Redis) error {
	number, host, port := strconv.Itoa(slot), "127.0.0.1", to.port()
	if _, err := to.Command("CLUSTER", "SETSLOT", number, "IMPORTING", c.ids[from]); err != nil {
		return err
	}
	if _, err := from.Command("CLUSTER", "SETSLOT", number, "MIGRATING", c.ids[to]); err != nil {
		return err
	}
	for {
		keys, err := from.Command("CLUSTER", "GETKEYSINSLOT", number, "10")
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			break
		}
		for _, k := range keys {
			if _, err := from.Command("MIGRATE", host, port, k, "0", "5000", "REPLACE"); err != nil {
				return err
			}
		}
	}
	for _, n := range []*Redis{to, from} {
		if _, err := n.Command("CLUSTER", "SETSLOT", number, "NODE", c.ids[to]); err != nil {
			return err
		}
	}
	return nil
}

// Replace lets the replica of a master take over at once, without asking it or anyone: it goes on for as long as it has not heard.
func (c *Cluster) Replace(master *Redis) error {
	for _, n := range c.Nodes {
		if n != master && n.Running() && n.wantInfo("replication", "master_port:"+master.port()) == nil {
			_, err := n.Command("CLUSTER", "FAILOVER", "TAKEOVER")
			return err
		}
	}
	return fmt.Errorf("nobody follows %s", master.Addr)
}

// Heal starts what was killed, resumes what was paused, and returns once the cluster works and every node is the master of some slots or
// follows one. A slot that is on its way stays so.
func (c *Cluster) Heal() {
	c.t.Helper()
	EventuallyNil(c.t, "servers run", func() error { return revive(c.Nodes) })
	c.AwaitOK()
	EventuallyNil(c.t, "all follow the masters", func() error {
		masters, err := c.Masters()
		if err != nil {
			return err
		}
		for _, n := range c.Nodes {
			if slices.Contains(masters, n) {
				continue
			}
			if err := n.followsOne(masters); err != nil {
				return err
			}
		}
		return nil
	})
}

// Masters are the nodes that have slots, in the order of Nodes, by the word of the nodes themselves. An error: some slots have none, or
// two nodes take themselves for the master of one.
func (c *Cluster) Masters() (masters []*Redis, err error) {
	owned := 0
	for _, n := range c.Nodes {
		if !n.Running() {
			continue
		}
		if k := n.slotsOwned(); k > 0 {
			masters, owned = append(masters, n), owned+k
		}
	}
	if owned != clusterSlots {
		return masters, fmt.Errorf("the masters have %d slots in all, want %d", owned, clusterSlots)
	}
	return masters, nil
}

// ReplicasOf are the nodes that follow a master.
func (c *Cluster) ReplicasOf(master *Redis) (replicas []*Redis) {
	c.t.Helper()
	_, port, _ := strings.Cut(master.Addr, ":")
	for _, n := range c.Nodes {
		if n != master && n.wantInfo("replication", "master_port:"+port) == nil {
			replicas = append(replicas, n)
		}
	}
	return replicas
}
