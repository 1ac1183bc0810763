package luascripts

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// sentinels finds the master by asking all sentinels at once. A majority that agrees is believed at once; without one, the most votes
// among those that answered within the time-out count. So neither a sentinel that hangs nor one that is cut off from the others keeps
// us from the master: go-redis's own failover client asks one, and goes on asking it while it hangs.
//
// A failover is noticed with the next dial, and at the latest with the next RunIDOf (the breaker's probe, each pass of the way back).
// Then connections to the former master are closed, so that none of them goes on reaching it.
type sentinels struct {
	name    string
	tls     *tls.Config
	fresh   time.Duration // how long an answer is used again
	clients []*redis.SentinelClient
	asking  sync.WaitGroup

	mu     sync.Mutex // guards the following, and asking.Add against close
	closed bool
	known  string // address of the master, as last told
	heard  time.Time
	conns  map[*trackedConn]string
}

func newSentinels(cfg Config) *sentinels {
	s := &sentinels{name: cfg.MasterName, tls: cfg.TLS, fresh: cfg.Timeout, conns: make(map[*trackedConn]string)}
	for _, a := range cfg.Addresses {
		o := connectOptions(cfg, a, nil)
		o.Username, o.Password = cfg.SentinelUsername, cfg.SentinelPassword
		o.PoolSize, o.MaxActiveConns = sentinelConnections, sentinelConnections
		// Half of a dial's time is left for the master.
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = cfg.Timeout/2, cfg.Timeout/2, cfg.Timeout/2, cfg.Timeout/2
		s.clients = append(s.clients, redis.NewSentinelClient(o))
	}
	return s
}

// sentinelConnections bounds the connections to one sentinel: each dial of a master asks it once.
const sentinelConnections = 8

// vote is what one sentinel said.
type vote struct {
	address string
	err     error
}

// present is the master, asked for unless it was told within the last Config.Timeout: a pool dials many connections at once.
func (s *sentinels) present(ctx context.Context) (string, error) {
	s.mu.Lock()
	known, fresh := s.known, time.Since(s.heard) < s.fresh
	s.mu.Unlock()
	if fresh {
		return known, nil
	}
	return s.master(ctx)
}

// master asks who the master is, and closes the connections to a former one. It blocks for at most half of Config.Timeout.
func (s *sentinels) master(ctx context.Context) (string, error) {
	votes := make(chan vote, len(s.clients))
	if !s.begin() {
		return "", redis.ErrClosed
	}
	for _, c := range s.clients {
		go func() {
			defer s.asking.Done()
			votes <- s.ask(ctx, c)
		}()
	}
	address, err := elect(votes, len(s.clients))
	if err != nil {
		return "", fmt.Errorf("sentinels of %s: %w", s.name, err)
	}
	s.moved(address)
	return address, nil
}

// begin counts in one question to each sentinel, unless all is closed.
func (s *sentinels) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.asking.Add(len(s.clients))
	}
	return !s.closed
}

func (s *sentinels) ask(ctx context.Context, c *redis.SentinelClient) vote {
	at, err := c.GetMasterAddrByName(ctx, s.name).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return vote{err: errors.New("no master of that name is known")}
	case err != nil:
		return vote{err: err}
	case len(at) != 2:
		return vote{err: fmt.Errorf("a sentinel replied %q", at)}
	}
	return vote{address: net.JoinHostPort(at[0], at[1])}
}

// elect gives the address that most of n votes name.
func elect(votes <-chan vote, n int) (string, error) {
	count := make(map[string]int)
	best, failed := "", error(nil)
	for range n {
		v := <-votes
		if v.err != nil {
			failed = v.err
			continue
		}
		if count[v.address]++; count[v.address] > count[best] {
			best = v.address
		}
		if count[best]*2 > n {
			break
		}
	}
	if best == "" {
		return "", failed
	}
	return best, nil
}

// moved notes the master's address and closes connections to another one.
func (s *sentinels) moved(address string) {
	s.mu.Lock()
	var old []*trackedConn
	s.heard = time.Now()
	if s.known != address {
		s.known = address
		for c, to := range s.conns {
			if to != address {
				old = append(old, c)
			}
		}
	}
	s.mu.Unlock()
	for _, c := range old {
		_ = c.Close()
	}
}

// dial connects to the present master.
func (s *sentinels) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	address, err := s.present(ctx)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	var conn net.Conn
	if s.tls == nil {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
	} else {
		conn, err = (&tls.Dialer{Config: s.tls}).DialContext(ctx, network, address)
	}
	if err != nil {
		return nil, err
	}
	t := &trackedConn{Conn: conn, of: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[t] = address
	return t, nil
}

func (s *sentinels) close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	var err error
	for _, c := range s.clients {
		err = errors.Join(err, c.Close())
	}
	s.asking.Wait()
	return err
}

// trackedConn is a connection that can be found by the master it goes to.
type trackedConn struct {
	net.Conn
	of     *sentinels
	closed atomic.Bool
}

// Close closes it and forgets it.
func (t *trackedConn) Close() error {
	t.closed.Store(true)
	t.of.mu.Lock()
	delete(t.of.conns, t)
	t.of.mu.Unlock()
	return t.Conn.Close()
}

// SyscallConn lets go-redis see, before it uses an idle connection, that we have closed it, or that the other side has.
func (t *trackedConn) SyscallConn() (syscall.RawConn, error) {
	if t.closed.Load() {
		return nil, net.ErrClosed
	}
	if c, ok := t.Conn.(syscall.Conn); ok {
		return c.SyscallConn()
	}
	return noRaw{}, nil
}

// noRaw is the inside of a TLS connection, which must not be looked into: bytes of TLS's own may wait there.
type noRaw struct{}

func (noRaw) Control(func(uintptr)) error    { return nil }
func (noRaw) Read(func(uintptr) bool) error  { return nil }
func (noRaw) Write(func(uintptr) bool) error { return nil }
