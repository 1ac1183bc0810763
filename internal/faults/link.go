package faults

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// link is one client's connection and the connection to the server that was made for it.
type link struct {
	p      *Proxy
	client *net.TCPConn
	server *net.TCPConn // set before the pumps start

	dead     chan struct{} // closed when the link is cut
	deadOnce sync.Once

	// Under p.mu.
	replyBytes int64 // reply bytes that may still pass; < 0: no bound
	muted      bool  // replies are thrown away
	stalled    bool  // nothing passes any more
	pending    *armed
	asked      []byte // what the client has sent since the server last replied
}

func newLink(p *Proxy, client *net.TCPConn, f conditions) *link {
	return &link{p: p, client: client, dead: make(chan struct{}), replyBytes: f.replyBytes}
}

// run returns when both directions have ended.
func (l *link) run(target string) {
	defer l.client.Close()
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(l.p.ctx, "tcp", target)
	if err != nil {
		reset(l.client)
		return
	}
	l.p.mu.Lock()
	l.server = conn.(*net.TCPConn)
	l.p.mu.Unlock()
	defer l.server.Close()
	if l.isDead() { // cut while it was dialled
		return
	}
	var both sync.WaitGroup
	both.Go(func() { l.pump(l.client, l.server, l.request) })
	both.Go(func() { l.pump(l.server, l.client, l.reply) })
	both.Wait()
}

// pump gives what comes from src to handle, which passes it on, wholly, in part, later or not at all. An end of file is handed on,
// so half-closed connections stay half closed; a reset is handed on as a reset.
func (l *link) pump(src, dst *net.TCPConn, handle func([]byte)) {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			handle(buf[:n])
		}
		if errors.Is(err, io.EOF) {
			_ = dst.CloseWrite()
			return
		}
		if err != nil {
			l.cut(RST)
			return
		}
	}
}

// request handles what the client sent.
func (l *link) request(piece []byte) {
	if !l.hold(func(f *conditions) time.Duration { return f.requestDelay }) {
		return
	}
	a := l.p.match(l.remember(piece))
	if a != nil && !a.Forward {
		l.cut(a.Then)
		a.done()
		return
	}
	if a != nil {
		l.await(a)
	}
	_, _ = l.server.Write(piece) // a broken server shows in the other pump
}

// await throws replies away from now on, and lets the trigger act when the first one comes.
func (l *link) await(a *armed) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	l.pending, l.muted = a, true
}

// remember adds a piece to what the client has sent since the last reply. The slice is the pump's until the next call.
func (l *link) remember(piece []byte) []byte {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	l.asked = append(l.asked, piece...)
	if over := len(l.asked) - MatchWindow; over > 0 {
		l.asked = append(l.asked[:0], l.asked[over:]...)
	}
	return l.asked
}

// reply handles what the server sent.
func (l *link) reply(piece []byte) {
	l.fire()
	if !l.hold(func(f *conditions) time.Duration { return f.replyDelay }) {
		return
	}
	pass, spent := l.allow(l.rewritten(piece))
	if len(pass) > 0 {
		_, _ = l.client.Write(pass) // a broken client shows in the other pump
	}
	if spent != nil {
		l.cut(*spent)
	}
}

func (l *link) rewritten(piece []byte) []byte {
	l.p.mu.Lock()
	change := l.p.rewrite
	l.p.mu.Unlock()
	if change == nil {
		return piece
	}
	return change(piece)
}

// allow says how much of a reply may pass, and what becomes of the link after it, if its reply bytes are used up.
func (l *link) allow(piece []byte) (pass []byte, spent *Then) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	l.asked = nil
	if l.muted || l.p.faults.dropReplies {
		return nil, nil
	}
	if l.replyBytes < 0 {
		return piece, nil
	}
	piece = piece[:min(int64(len(piece)), l.replyBytes)]
	l.replyBytes -= int64(len(piece))
	if l.replyBytes > 0 {
		return piece, nil
	}
	l.replyBytes = -1
	how := l.p.faults.replyCut
	return piece, &how
}

// fire acts on the trigger that waited for this reply.
func (l *link) fire() {
	l.p.mu.Lock()
	a := l.pending
	l.pending = nil
	l.p.mu.Unlock()
	if a == nil {
		return
	}
	l.cut(a.Then)
	a.done()
}

// hold waits out delay and stall. It reports whether the piece may pass: not if the link is cut or stalled for good.
func (l *link) hold(delay func(*conditions) time.Duration) bool {
	l.p.mu.Lock()
	d := delay(&l.p.faults)
	l.p.mu.Unlock()
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-l.dead:
			return false
		}
	}
	return l.awaitOpen()
}

// awaitOpen waits until bytes may pass. It reports whether they may: never on a link that is cut.
func (l *link) awaitOpen() bool {
	for {
		open, stalled := l.gate()
		if stalled {
			<-l.dead
			return false
		}
		select {
		case <-l.dead:
			return false
		case <-open:
		}
		if again, _ := l.gate(); again == open {
			return !l.isDead()
		} // else stalled anew
	}
}

// gate is the channel that is closed while bytes may pass, and whether this link is stalled for good.
func (l *link) gate() (open chan struct{}, stalled bool) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	return l.p.faults.open, l.stalled
}

func (l *link) isDead() bool {
	select {
	case <-l.dead:
		return true
	default:
		return false
	}
}

func (l *link) cut(how Then) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	l.cutLocked(how)
}

// cutLocked does what becomes of the link. With FIN the pumps read on and drop what comes, because to close a socket with unread
// bytes would send a reset; the link ends when its peers close too.
func (l *link) cutLocked(how Then) {
	switch how {
	case Swallow:
		l.muted = true
	case Stall:
		l.stalled = true
	case FIN:
		l.die()
		_ = l.client.CloseWrite()
		if l.server != nil {
			_ = l.server.CloseWrite()
		}
	case RST:
		l.die()
		reset(l.client)
		if l.server != nil {
			reset(l.server)
		}
	}
}

func (l *link) die() {
	l.muted = true
	l.deadOnce.Do(func() { close(l.dead) })
}

// reset closes a connection with RST instead of FIN.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}
