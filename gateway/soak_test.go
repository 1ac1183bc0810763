package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/stock"
)

// TestEveryClientGetsItsOwnAnswer: exchanges, buffers and connections are reused all the time; nothing of one request may show up in
// another. The backend closes and refuses at random, and some clients leave before they are answered. Whatever comes, each order that was
// admitted has one outcome, and has reached the backend unless its outcome says that it may not have.
func TestEveryClientGetsItsOwnAnswer(t *testing.T) {
	t.Parallel()
	b := startBackend(t, moody(t))
	// Nothing here is about time: a machine that is busy with something else must not change what is counted.
	g := startGate(t, b.addr(), func(c *Config, _ *Parts) {
		c.ReadTimeout, c.ForwardWithin, c.Upstreams[0].Timeout = soakPatience, soakPatience, soakPatience
	})
	g.adm.decide = func(w *admission.Wish) admission.Decision {
		pass := passFor(w)
		pass.SendBefore = time.Now().Add(soakPatience)
		return admission.Decision{Source: admission.SourceRedis, Pass: pass}
	}
	var clients sync.WaitGroup
	var sent, answered atomic.Int64
	for n := range 16 {
		clients.Go(func() { soakClient(t, g, n, &sent, &answered) })
	}
	clients.Wait()
	g.stop() // behind it nothing is in flight
	passes, unsent := g.adm.settled(t)
	if int64(passes) < answered.Load() || int64(passes) > sent.Load() {
		t.Errorf("%d passes for %d orders, of which %d were answered", passes, sent.Load(), answered.Load())
	}
	if got := len(b.requests()); got > passes || got < passes-unsent {
		t.Errorf("%d orders at the backend, with %d passes of which %d may not have been sent", got, passes, unsent)
	}
	for _, u := range g.setup.Load().upstreams {
		if len(u.slots) > 0 {
			t.Errorf("%d slots of %s are still taken", len(u.slots), u.name)
		}
	}
}

const soakPatience = 50 * time.Second

// moody is a backend that says for whom it answers. It refuses some orders and ends some connections.
func moody(t *testing.T) func(net.Conn, received) bool {
	return func(c net.Conn, r received) bool {
		body := "for " + r.header(t, "X-User-Id") + " " + r.body
		status, stay := "201 Created", true
		switch rand.IntN(6) {
		case 0:
			status = "422 No"
		case 1:
			stay = false
		}
		_, err := fmt.Fprintf(c, "HTTP/1.1 %s\r\nX-For: %s\r\nContent-Length: %d\r\n\r\n%s", status, r.header(t, "X-User-Id"), len(body), body)
		return err == nil && stay
	}
}

// soakClient orders 60 times, and leaves after one order in ten without waiting for the answer.
func soakClient(t *testing.T, g *gate, n int, sent, answered *atomic.Int64) {
	w := dialWire(t, g.addr)
	for i := range 60 {
		user := fmt.Sprintf("user-%d-%d", n, i)
		body := fmt.Sprintf(`{"sku":"sku-%d","qty":%d,"pad":%q}`, n, i+1, strings.Repeat("p", rand.IntN(30_000)))
		_ = w.SetDeadline(time.Now().Add(soakPatience)) // one that cannot be set fails the next line
		sent.Add(1)
		if _, err := io.WriteString(w.Conn, orderOf(body, "X-User-Id: "+user+"\r\n")); err != nil {
			t.Errorf("send: %v", err)
			return
		}
		if rand.IntN(10) == 0 {
			_ = w.Close()
			w = dialWire(t, g.addr)
			continue
		}
		got := w.receive("POST")
		answered.Add(1)
		if got.StatusCode == 504 { // the backend closed as the order went out
			continue
		}
		if got.body != "for "+user+" "+body || got.Header.Get("X-For") != user {
			t.Errorf("%s got %d %.80q", user, got.StatusCode, got.body)
			return
		}
	}
}

// FuzzAcceptedOrdersHaveOneReading: what we accept, Go's own decoder reads in the same way.
func FuzzAcceptedOrdersHaveOneReading(f *testing.F) {
	for _, seed := range []string{goodBody, `{"sku":"a","user":"u"}`, `{"sku":"a","Sku":"b","user":"u"}`, `{"s\u006bu":"a","user":"\ud83d\ude00"}`,
		`{"sku":"a","qty":1e0,"user":7}`, `{"user":{"sku":"b"},"sku":"a"}`, `{"sku":"a","user":"u","x":[1,{"sku":2}]}`,
		`{"sku":"a","user":"\u212a"}`, `{"\u017fku":"b","sku":"a","user":"u"}`, "{\"sku\":\"a\",\"user\":\"u\"}\n", `{"sku":"a","user":"\ud800"}`} {
		f.Add([]byte(seed))
	}
	x := newExtractor(&Admit{SKU: []Place{Body("sku")}, Qty: []Place{Body("qty")}, User: []Place{Body("user")}},
		wildRules{}, CartLinesDefault, "")
	f.Fuzz(func(t *testing.T, body []byte) {
		r := &reader{head: &head{}, body: body}
		var o order
		p := x.extract(r, &o)
		if p != nil {
			var resp fasthttp.Response
			p.write(&resp, true)
			if !json.Valid(resp.Body()) {
				t.Fatalf("the refusal is not JSON: %s", resp.Body())
			}
			return
		}
		var read struct {
			SKU  string `json:"sku"`
			Qty  *int64 `json:"qty"`
			User any    `json:"user"`
		}
		dec := json.NewDecoder(strings.NewReader(string(body)))
		dec.UseNumber()
		if err := dec.Decode(&read); err != nil {
			t.Fatalf("accepted %q, encoding/json says %v", body, err)
		}
		if dec.More() {
			t.Fatalf("accepted %q with more behind", body)
		}
		qty := int64(1)
		if read.Qty != nil {
			qty = *read.Qty
		}
		if read.SKU != o.lines[0].SKU || qty != o.lines[0].Qty || fmt.Sprint(read.User) != o.user {
			t.Fatalf("%q: we read %+v %q, encoding/json %q %d %v", body, o.lines, o.user, read.SKU, qty, read.User)
		}
	})
}

// FuzzAcceptedCartsHaveOneReading: the same for the lines of carts, added up.
func FuzzAcceptedCartsHaveOneReading(f *testing.F) {
	for _, seed := range []string{`{"items":[{"sku":"a","n":2},{"sku":"b"},{"sku":"a","n":1}]}`, `{"items":[{"sku":"a","Sku":"b"}]}`,
		`{"items":[{"sku":"a","n":1e0}]}`, `{"items":[],"Items":[{"sku":"a"}]}`, `{"items":[{"sku":"a"},7]}`, `{"items":[[{"sku":"a"}]]}`,
		`{"items":[{"sku":"a","n":9007199254740992},{"sku":"a","n":9007199254740992}]}`, `{"items":{"0":{"sku":"a"}}}`} {
		f.Add([]byte(seed))
	}
	x := newExtractor(&Admit{Lines: Body("items"), SKU: []Place{InLine("sku")}, Qty: []Place{InLine("n")}}, wildRules{}, CartLinesDefault, "")
	f.Fuzz(func(t *testing.T, body []byte) {
		var o order
		if x.extract(&reader{head: &head{}, body: body}, &o) != nil {
			return
		}
		var read struct {
			Items []struct {
				SKU string `json:"sku"`
				N   *int64 `json:"n"`
			} `json:"items"`
		}
		if err := json.Unmarshal(body, &read); err != nil {
			t.Fatalf("accepted %q, encoding/json says %v", body, err)
		}
		lines := make([]stock.Line, len(read.Items))
		for i, item := range read.Items {
			lines[i] = stock.Line{SKU: item.SKU, Qty: 1}
			if item.N != nil {
				lines[i].Qty = *item.N
			}
		}
		if want, err := stock.MergeLines(lines); err != nil || !slices.Equal(want, o.lines) {
			t.Fatalf("%q: we read %+v, encoding/json %+v, %v", body, o.lines, want, err)
		}
	})
}

// FuzzHeadsAreWrittenAsUnderstood: what we send on, parsed again, has the fields that were understood and one length.
func FuzzHeadsAreWrittenAsUnderstood(f *testing.F) {
	f.Add([]byte("Host: h\r\nContent-Length: 3\r\nX-A:  b \r\n\r\n"))
	f.Add([]byte("Host: h\r\nTransfer-Encoding: chunked\r\nConnection: x-a, close\r\nX-A: b\r\n\r\n"))
	f.Add([]byte("host:h\r\nX_Forwarded_For: a\r\nstockgate-sku: x\r\n\r\n"))
	f.Fuzz(func(t *testing.T, block []byte) {
		var h head
		if h.parse(block) != nil {
			return
		}
		out := outgoing{method: []byte("POST"), target: []byte("/"), head: &h, body: []byte("abc"), scheme: "http"}
		written, _ := out.append(nil)
		_, rest, _ := strings.Cut(string(written), "\r\n")
		headEnd := strings.Index(rest, "\r\n\r\n")
		if headEnd < 0 || rest[headEnd+4:] != "abc" {
			t.Fatalf("written %q", written)
		}
		var again head
		if p := again.parse([]byte(rest[:headEnd+4])); p != nil {
			t.Fatalf("from %q we wrote %q, which we refuse: %s", block, written, p.detail)
		}
		lengths := 0
		for _, field := range again.fields {
			if named(field.name, "Content-Length") {
				lengths++
			}
			if named(field.name, "Transfer-Encoding") || named(field.name, "Stockgate-Sku") {
				t.Fatalf("from %q we wrote %q", block, written)
			}
		}
		if lengths != 1 {
			t.Fatalf("from %q we wrote %d lengths: %q", block, lengths, written)
		}
	})
}
