package faults

import (
	"bytes"
	"fmt"
	"net"
	"time"
)

// MatchWindow is how many bytes of a conversation a Match sees at most, the latest.
const MatchWindow = 64 << 10

// Then is what becomes of a connection.
type Then uint8

// What may become of a connection.
const (
	Swallow Then = iota // it stays open, but no reply comes back any more
	FIN                 // it is closed in order: the client reads an end of file
	RST                 // it is reset: the client reads "connection reset by peer"
	Stall               // it stays open, but nothing passes any more in either direction
)

// Trigger is a fault at a point of a conversation.
type Trigger struct {
	Match   func(request []byte) bool // must not keep the slice; nil matches everything
	Forward bool                      // true: the server gets the request, and Then happens when its reply arrives; false: it never gets it
	Then    Then
	Times   int // how many matches it acts on before it is gone; 0 means 1
}

type armed struct {
	Trigger
	left  int
	fired chan struct{}
}

// Contains matches requests in which text occurs.
func Contains(text string) func([]byte) bool {
	return func(request []byte) bool { return bytes.Contains(request, []byte(text)) }
}

// Arm sets a trigger. The channel is closed once it has acted for the last of its Times: with Forward, when the server's reply was
// there; otherwise when the request was. Of several triggers that match, the one armed first acts.
func (p *Proxy) Arm(t Trigger) (fired <-chan struct{}) {
	a := &armed{Trigger: t, left: max(t.Times, 1), fired: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = append(p.armed, a)
	return a.fired
}

// Delay holds every piece of a request and of a reply back for so long. Pieces of one connection and direction wait one after the
// other, so this is latency for a protocol that asks and answers, and a bandwidth limit for one that streams.
func (p *Proxy) Delay(request, reply time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults.requestDelay, p.faults.replyDelay = request, reply
}

// Rewrite changes every piece of a reply on its way to the client, for a server that tells its own address: the client would go there past
// the proxy. A piece is what one read gave, so what change looks for may be cut in two by it, if rarely. change must not keep the slice; it
// may write to it, and runs on many goroutines at once. Nil: replies pass as they are. Heal leaves it: it is no fault.
func (p *Proxy) Rewrite(change func(reply []byte) []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rewrite = change
}

// DropReplies lets requests through and throws replies away, as long as it is on. A reply that began before is cut in the middle.
func (p *Proxy) DropReplies(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults.dropReplies = on
}

// Stall turns the proxy into a black hole: connections are taken and stay open, nothing passes. Off: what was held back goes on.
func (p *Proxy) Stall(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.faults.open:
		if on {
			p.faults.open = make(chan struct{})
		}
	default:
		if !on {
			close(p.faults.open)
		}
	}
}

// Refuse closes the port, so that a connect fails with "connection refused"; open connections stay. Off: it listens again.
func (p *Proxy) Refuse(on bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if on == (p.listener == nil) || p.ctx.Err() != nil {
		return nil
	}
	if on {
		err := p.listener.Close()
		p.listener = nil
		return err
	}
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		return fmt.Errorf("faults: listen again: %w", err)
	}
	p.listener = l
	p.wg.Add(1)
	go p.accept(l)
	return nil
}

// Cut ends (or stalls, or silences) every open connection now. New ones are healthy.
func (p *Proxy) Cut(how Then) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.cutLocked(how)
	}
}

// CutReplies cuts each connection, open or new, when n further bytes of replies have passed, exactly there. n < 0: no more.
func (p *Proxy) CutReplies(n int64, how Then) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults.replyBytes, p.faults.replyCut = n, how
	for l := range p.links {
		l.replyBytes = n
	}
}

// Heal takes back every fault and trigger and listens again. Connections that were cut, silenced or stalled by a trigger or by Cut
// stay so: a client must not get a reply that it has given up.
func (p *Proxy) Heal() error {
	p.Stall(false)
	p.Delay(0, 0)
	p.DropReplies(false)
	p.CutReplies(-1, FIN)
	p.mu.Lock()
	p.armed = nil
	p.mu.Unlock()
	return p.Refuse(false)
}

// match finds the trigger that acts on a request, and counts it. p.mu must not be held.
func (p *Proxy) match(request []byte) *armed {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, a := range p.armed {
		if a.Match != nil && !a.Match(request) {
			continue
		}
		a.left--
		if a.left == 0 {
			p.armed = append(p.armed[:i:i], p.armed[i+1:]...)
		}
		return &armed{Trigger: a.Trigger, left: a.left, fired: a.fired}
	}
	return nil
}

// done tells whoever waits that the trigger has acted for the last time.
func (a *armed) done() {
	if a.left == 0 {
		close(a.fired)
	}
}
