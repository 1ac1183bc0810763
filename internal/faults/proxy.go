package faults

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

// Longest wait for a connection to the server.
const dialTimeout = 5 * time.Second

// Proxy passes bytes between clients and one server, healthy until told otherwise. All methods may be called at any time, from
// any goroutine; faults apply to open connections and to new ones.
type Proxy struct {
	addr   string
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	target   string
	listener net.Listener // nil while connections are refused
	links    map[*link]struct{}
	accepted int64
	faults   conditions
	armed    []*armed
	rewrite  func([]byte) []byte // nil: replies pass as they are
}

// conditions are the faults that hold until they are taken back.
type conditions struct {
	requestDelay, replyDelay time.Duration
	dropReplies              bool
	open                     chan struct{} // closed while bytes may pass; an unclosed one stalls
	replyBytes               int64         // new connections are cut after so many reply bytes; < 0: never
	replyCut                 Then
}

func healthy() conditions {
	open := make(chan struct{})
	close(open)
	return conditions{open: open, replyBytes: -1}
}

// Listen starts a proxy on a free port of 127.0.0.1 to target (host:port). The target need not answer yet.
func Listen(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("faults: listen: %w", err)
	}
	p := &Proxy{addr: l.Addr().String(), target: target, listener: l, links: map[*link]struct{}{}, faults: healthy()}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.wg.Add(1)
	go p.accept(l)
	return p, nil
}

// Addr is where clients connect to, host:port. It does not change.
func (p *Proxy) Addr() string { return p.addr }

// Close cuts all connections and returns once every goroutine of the proxy has ended.
func (p *Proxy) Close() {
	p.cancel()
	p.mu.Lock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	p.mu.Unlock()
	p.Cut(RST)
	p.wg.Wait()
}

// Redirect sends new connections to another server; open ones stay where they are.
func (p *Proxy) Redirect(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Connections says how many were accepted in all and how many are open.
func (p *Proxy) Connections() (accepted int64, open int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted, len(p.links)
}

func (p *Proxy) accept(l net.Listener) {
	defer p.wg.Done()
	for {
		conn, err := l.Accept()
		if err != nil {
			return // closed: by Close or Refuse
		}
		p.serve(conn.(*net.TCPConn))
	}
}

// serve makes a link of an accepted connection, unless the proxy is closing.
func (p *Proxy) serve(client *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		reset(client)
		return
	}
	l := newLink(p, client, p.faults)
	target := p.target
	p.links[l] = struct{}{}
	p.accepted++
	p.wg.Go(func() {
		l.run(target)
		p.forget(l)
	})
}

func (p *Proxy) forget(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}
