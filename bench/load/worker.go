package load

import (
	"bufio"
	"context"
	"net"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"
)

// worker owns one connection.
type worker struct {
	c    *Config
	rec  *recorder
	ev   evidence
	word words

	conn  net.Conn    // nil: to be dialled
	stop  func() bool // takes back that ctx's end closes conn
	read  *bufio.Reader
	write []byte
	body  []byte
	resp  fasthttp.Response
}

// run sends what the tickets say until there are no more. When ctx ends, the request under way is cut off.
func (w *worker) run(ctx context.Context, t *tickets) {
	defer w.hangUp()
	for i := range t.due {
		if ctx.Err() != nil {
			return
		}
		s := shot{due: t.at(i), sent: time.Now()}
		if !s.sent.Before(t.giveUp) {
			continue
		}
		identity := w.c.Plan.Identity(i)
		order := w.c.Plan.Order(identity)
		a := w.order(ctx, order)
		s.done = time.Now()
		if ctx.Err() != nil {
			return // cut off by us
		}
		w.rec.add(t.start, order.SKU, s, &a)
		w.ev.add(t.start, identity, s, &a)
	}
}

// order sends one request and reads its answer. Whatever goes wrong, the request is not sent again.
func (w *worker) order(ctx context.Context, o Order) answer {
	if err := w.exchange(ctx, o); err != nil {
		w.hangUp()
		return answer{code: failure(err)}
	}
	if w.resp.ConnectionClose() {
		w.hangUp()
	}
	return w.word.readAnswer(&w.resp)
}

func (w *worker) exchange(ctx context.Context, o Order) error {
	if err := w.connect(ctx); err != nil {
		return err
	}
	if err := w.conn.SetDeadline(time.Now().Add(w.c.Timeout)); err != nil {
		return err
	}
	w.write = w.request(w.write[:0], o)
	if _, err := w.conn.Write(w.write); err != nil {
		return err
	}
	if _, err := w.read.Peek(1); err != nil { // fasthttp would call whatever happens before the first byte an end of file
		return err
	}
	return w.resp.Read(w.read)
}

// connect dials unless there is a connection.
func (w *worker) connect(ctx context.Context) error {
	if w.conn != nil {
		return nil
	}
	conn, err := (&net.Dialer{Timeout: w.c.Timeout}).DialContext(ctx, "tcp", w.c.Target.Address)
	if err != nil {
		return err
	}
	w.conn, w.stop = conn, context.AfterFunc(ctx, func() { _ = conn.Close() })
	if w.read == nil {
		w.read = bufio.NewReaderSize(conn, 8<<10)
	}
	w.read.Reset(conn)
	return nil
}

func (w *worker) hangUp() {
	if w.conn != nil {
		w.stop()
		_ = w.conn.Close()
		w.conn = nil
	}
}

// request appends the bytes of one order. SKU, user and key need no escapes: they are made by the Plan.
func (w *worker) request(b []byte, o Order) []byte {
	body := append(w.body[:0], `{"sku":"`...)
	body = append(append(body, o.SKU...), `","qty":`...)
	body = strconv.AppendInt(body, o.Qty, 10)
	body = append(append(append(body, `,"user":"`...), o.User...), `"}`...)
	w.body = body
	b = append(b, w.c.Target.head...)
	b = strconv.AppendInt(append(b, "Content-Length: "...), int64(len(body)), 10)
	if o.Key != "" {
		b = append(append(b, "\r\nIdempotency-Key: "...), o.Key...)
	}
	return append(append(b, "\r\n\r\n"...), body...)
}
