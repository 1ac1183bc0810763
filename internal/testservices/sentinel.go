package testservices

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// SentinelMaster is what the sentinels call their master.
const SentinelMaster = "stock"

// Sentinel is a master with two replicas and three sentinels, all real servers without persistence. The sentinels take a master that
// has been silent for half a second for down.
type Sentinel struct {
	Nodes     []*Redis // the first was the master at the start
	Sentinels []*Redis
	t         testing.TB
}

// StartSentinel starts them and returns once all sentinels know each other and both replicas.
func StartSentinel(t testing.TB) *Sentinel {
	t.Helper()
	s := &Sentinel{t: t}
	for range 3 {
		s.Nodes = append(s.Nodes, StartRedis(t, "--repl-diskless-sync-delay", "0"))
	}
	for _, n := range s.Nodes[1:] {
		n.follow(s.Nodes[0])
	}
	for range 3 {
		s.Sentinels = append(s.Sentinels, startSentinel(t, s.Nodes[0]))
	}
	for _, n := range s.Sentinels {
		EventuallyNil(t, "the sentinels know each other", func() error {
			return n.want(map[string]string{"num-slaves": "2", "num-other-sentinels": "2"}, "SENTINEL", "MASTER", SentinelMaster)
		})
	}
	return s
}

// startSentinel starts one; its own word is kept in a file, which it writes itself.
func startSentinel(t testing.TB, master *Redis) *Redis {
	t.Helper()
	host, port, _ := strings.Cut(master.Addr, ":")
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("sentinel monitor %[1]s %[2]s %[3]s 2\nsentinel down-after-milliseconds %[1]s 500\n"+
		"sentinel failover-timeout %[1]s 3000\nsentinel parallel-syncs %[1]s 2\n", SentinelMaster, host, port)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return startServer(t, []string{file, "--sentinel"})
}

// Addresses are those of the sentinels.
func (s *Sentinel) Addresses() []string { return addresses(s.Sentinels) }

func addresses(nodes []*Redis) []string {
	list := make([]string, len(nodes))
	for i, n := range nodes {
		list[i] = n.Addr
	}
	return list
}

// Master is the node that most sentinels name; nil: there is no such majority.
func (s *Sentinel) Master() *Redis {
	votes := make(map[string]int)
	for _, n := range s.Sentinels {
		if at, err := n.Command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SentinelMaster); err == nil && len(at) == 2 {
			votes[at[0]+":"+at[1]]++
		}
	}
	for _, n := range s.Nodes {
		if votes[n.Addr]*2 > len(s.Sentinels) {
			return n
		}
	}
	return nil
}

// AwaitFailover returns the new master once one of the replicas has taken over from old and can be written to.
func (s *Sentinel) AwaitFailover(old *Redis) (now *Redis) {
	s.t.Helper()
	EventuallyNil(s.t, "a replica takes over", func() error {
		if now = s.Master(); now == nil || now == old {
			return fmt.Errorf("the sentinels still name %s, or none", old.Addr)
		}
		return now.isMaster()
	})
	return now
}

// follow makes it a replica and returns once it has the master's data.
func (r *Redis) follow(master *Redis) {
	r.t.Helper()
	host, port, _ := strings.Cut(master.Addr, ":")
	if _, err := r.Command("REPLICAOF", host, port); err != nil {
		r.t.Fatal(err)
	}
	EventuallyNil(r.t, "the replica follows", func() error {
		return r.wantInfo("replication", "master_link_status:up")
	})
}

func (r *Redis) isMaster() error { return r.wantInfo("replication", "role:master") }

func (r *Redis) wantInfo(section, line string) error { return r.says(line, "INFO", section) }

// says fails unless the reply to a command has that in it.
func (r *Redis) says(what string, command ...string) error {
	text, err := r.Command(command...)
	if err == nil && !strings.Contains(strings.Join(text, ""), what) {
		err = fmt.Errorf("%s of %s is without %s", strings.Join(command, " "), r.Addr, what)
	}
	return err
}

// want fails unless a reply of names and values has those.
func (r *Redis) want(fields map[string]string, command ...string) error {
	reply, err := r.Command(command...)
	if err != nil {
		return err
	}
	for i := 0; i+1 < len(reply); i += 2 {
		if want, ok := fields[reply[i]]; ok && want != reply[i+1] {
			return fmt.Errorf("%s of %s is %s, want %s", reply[i], r.Addr, reply[i+1], want)
		}
	}
	return nil
}

// AwaitFollowers waits until every node that runs, but for the master, follows it.
func (s *Sentinel) AwaitFollowers() {
	s.t.Helper()
	EventuallyNil(s.t, "all others follow the master", func() error {
		master := s.Master()
		if master == nil {
			return fmt.Errorf("the sentinels agree on none")
		}
		_, port, _ := strings.Cut(master.Addr, ":")
		for _, n := range s.Nodes {
			if n == master || !n.Running() {
				continue
			}
			if err := n.wantInfo("replication", "master_port:"+port); err != nil {
				return err
			}
			if err := n.wantInfo("replication", "master_link_status:up"); err != nil {
				return err
			}
		}
		return nil
	})
}

// Replace asks the sentinels for another master, which they may refuse while they are at it, or soon after they were. It does not wait.
func (s *Sentinel) Replace() error {
	_, err := s.Sentinels[0].Command("SENTINEL", "FAILOVER", SentinelMaster)
	return err
}

// Heal starts what was killed, resumes what was paused, and returns once the sentinels agree on a master that all others follow and have
// nothing to complain of. Sentinels take their time over a former master that comes back as one, so it is told whom to follow.
func (s *Sentinel) Heal() {
	s.t.Helper()
	EventuallyNil(s.t, "servers run", func() error { return revive(append(slices.Clone(s.Nodes), s.Sentinels...)) })
	EventuallyNil(s.t, "all follow one master", func() error {
		master := s.Master()
		if master == nil {
			return fmt.Errorf("the sentinels agree on none")
		}
		if err := master.isMaster(); err != nil {
			return err
		}
		for _, n := range s.Nodes {
			if n == master {
				continue
			}
			if n.wantInfo("replication", "master_port:"+master.port()) != nil {
				if _, err := n.Command("REPLICAOF", "127.0.0.1", master.port()); err != nil {
					return err
				}
			}
			if err := n.followsOne([]*Redis{master}); err != nil {
				return err
			}
		}
		return s.calm()
	})
}

// calm fails while a sentinel takes anything for down or is replacing a master.
func (s *Sentinel) calm() error {
	for _, n := range s.Sentinels {
		if err := n.want(map[string]string{"flags": "master", "num-slaves": "2", "num-other-sentinels": "2"}, "SENTINEL", "MASTER", SentinelMaster); err != nil {
			return err
		}
	}
	return nil
}
