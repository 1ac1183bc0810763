package gateway

import (
	"bytes"
	"crypto/sha1" // WebSocket names it
	"encoding/base64"
	"errors"
	"io"
	"net"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"go.uber.org/zap"

	"github.com/stockgate/stockgate/stock"
)

// tunnel is a connection that was upgraded to WebSocket: bytes go both ways until both sides have ended their direction, one of them
// fails, nothing has come from either for the upstream's upgrade_idle, or a shutdown cuts it. It outlives its request, and holds its slot.
type tunnel struct {
	s     *Server
	u     *upstream
	side  *clientSide
	link  *link
	first []byte       // for the client: the header, and what the backend has said behind it
	moved atomic.Int64 // Unix nanoseconds of the last bytes in either direction
	ended sync.Once
	cut   sync.Once
}

const tunnelBufferBytes = 16 << 10

// takeUpgrade takes the right to have an upgraded connection at the upstream, or says why not.
func (u *upstream) takeUpgrade() *problem {
	select {
	case u.upgrades <- struct{}{}:
		return nil
	default:
		u.metrics.full.Inc()
		return &problem{code: stock.CodeQueueFull, limit: "upstreams." + u.name + ".max_upgrades", value: strconv.Itoa(cap(u.upgrades))}
	}
}

// upgrade hands the connection over: the handler ends, and the tunnel begins.
func (r *relay) upgrade() {
	e := r.e
	h := &e.ctx.Response.Header
	dropListed(h)
	cleanReply(h)
	e.finish()
	h.ResetConnectionClose()
	head := h.AppendBytes(nil)
	head = append(head[:len(head)-len("\r\n")], "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"...)
	t := &tunnel{s: e.s, u: r.u, side: r.side, link: r.link, first: append(head, r.unread()...)}
	r.letGo()
	e.held.slot, e.held.upgrade = false, false
	t.side.tunnel = t
	t.s.tunnels.Add(1)
	t.s.streams.add(t)
	t.u.metrics.upgrades.Inc()
	e.ctx.HijackSetNoResponse(true)
	e.ctx.Hijack(t.run)
}

// webSocketGUID is what a WebSocket server adds to a client's key (RFC 6455 section 1.3).
const webSocketGUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

// shookHands reports whether the reply is that of a program which speaks WebSocket. A status alone proves nothing: there are backends whose
// clients can choose it, and through a tunnel to one that speaks HTTP any order would come.
func (r *relay) shookHands(h *fasthttp.ResponseHeader) bool {
	key, _, _ := r.e.head.find(webSocketKey)
	sum := sha1.Sum(append(bytes.Clone(key), webSocketGUID...))
	var want [28]byte
	base64.StdEncoding.Encode(want[:], sum[:])
	return named(peekAny(h, "Upgrade"), "websocket") && bytes.Equal(peekAny(h, "Sec-WebSocket-Accept"), want[:])
}

// peekAny is the value of the first field of that name; backends' names keep their case, so it is compared without.
func peekAny(h *fasthttp.ResponseHeader, name string) []byte {
	for key, value := range h.All() {
		if named(key, name) {
			return value
		}
	}
	return nil
}

// unread is what the backend has said behind the header.
func (r *relay) unread() []byte {
	var b []byte
	if r.wide != nil {
		ahead, _ := r.wide.Peek(r.wide.Buffered())
		b = append(b, ahead...)
	}
	ahead, _ := r.narrow.Peek(r.narrow.Buffered())
	return append(b, ahead...)
}

// run is called when the request is over; fasthttp closes the client's connection behind it.
func (t *tunnel) run(client net.Conn) {
	defer t.end()
	t.moved.Store(time.Now().UnixNano())
	if t.side.write(t.first, t.s.http.WriteTimeout) != nil {
		return
	}
	t.first = nil
	var up sync.WaitGroup
	up.Go(func() { t.copy(t.link, client) }) // client reads what fasthttp had read ahead, too
	t.copy(t.side, t.link)
	up.Wait()
}

// copy is one direction. The end of a direction is passed on and leaves the other alone.
func (t *tunnel) copy(to, from net.Conn) {
	defer t.survive()
	room := make([]byte, tunnelBufferBytes)
	for {
		n, err := t.read(from, room)
		if n > 0 && !t.write(to, room[:n]) {
			t.kill()
			return
		}
		switch {
		case errors.Is(err, io.EOF):
			if closeWrite(to) != nil {
				t.kill()
			}
			return
		case isTimeout(err) && !t.over():
		case err != nil:
			t.kill()
			return
		}
	}
}

func (t *tunnel) read(from net.Conn, room []byte) (int, error) {
	if err := from.SetReadDeadline(time.Now().Add(min(lookEvery, t.u.upgradeIdle))); err != nil {
		return 0, err
	}
	return from.Read(room)
}

func (t *tunnel) write(to net.Conn, b []byte) bool {
	t.moved.Store(time.Now().UnixNano())
	if to.SetWriteDeadline(time.Now().Add(t.u.upgradeIdle)) != nil {
		return false
	}
	_, err := to.Write(b)
	return err == nil
}

// over reports whether the tunnel must end although both sides are there.
func (t *tunnel) over() bool {
	return t.s.cutting.Load() || time.Since(time.Unix(0, t.moved.Load())) >= t.u.upgradeIdle
}

// kill ends both directions.
func (t *tunnel) kill() {
	_ = t.link.inner.Close()
	_ = t.side.Close()
}

// hasten ends both directions at once: bytes that still came would be cut off anyway. To say goodbye in TLS may take a while.
func (t *tunnel) hasten(time.Time) { t.cut.Do(func() { go t.kill() }) }

// survive keeps a panic from ending the process.
func (t *tunnel) survive() {
	if reason := recover(); reason != nil {
		t.s.metrics.panics.Inc()
		t.s.log.Error("a tunnel panicked", zap.Any("panic", reason), zap.ByteString("stack", debug.Stack()))
		t.kill()
	}
}

// end gives back what the tunnel has. It is safe to repeat.
func (t *tunnel) end() {
	t.ended.Do(func() {
		t.link.end(false)
		<-t.u.upgrades
		t.u.giveSlot()
		t.u.metrics.upgrades.Dec()
		t.s.streams.remove(t)
		t.s.tunnels.Add(-1)
	})
}

// abandon is for a connection that fasthttp closed before the tunnel could begin.
func (t *tunnel) abandon(state fasthttp.ConnState) {
	if t != nil && state == fasthttp.StateClosed {
		t.end()
	}
}
