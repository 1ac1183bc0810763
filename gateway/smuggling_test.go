package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stockgate/stockgate/internal/testservices"
)

// parsingBackend is Go's own server. It keeps what it has parsed: a request that it made up out of another's bytes would be there, too.
type parsingBackend struct {
	*httptest.Server
	mu   sync.Mutex
	seen []string // method, target and body
}

func startParsingBackend(t *testing.T) *parsingBackend {
	t.Helper()
	b := &parsingBackend{}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body []byte
		if r.URL.RawQuery != "unread" {
			var err error
			if body, err = io.ReadAll(r.Body); err != nil {
				return // no request: plain routes are streamed, and a body whose framing breaks later is broken off
			}
		}
		b.mu.Lock()
		b.seen = append(b.seen, fmt.Sprintf("%s %s %s %q %v", r.Method, r.RequestURI, r.Host, body, tampered(r)))
		b.mu.Unlock()
		w.WriteHeader(http.StatusCreated)
	}))
	t.Cleanup(b.Close)
	return b
}

// tampered are fields that a request must not have reached the backend with.
func tampered(r *http.Request) []string {
	var found []string
	for _, name := range []string{"Upgrade", "Http2-Settings", "Transfer_Encoding", "Content_Length", "Stockgate-Sku-X", "X-User-Id"} {
		if r.Header.Get(name) != "" || r.Trailer.Get(name) != "" {
			found = append(found, name)
		}
	}
	if r.Header.Get("X-Forwarded-For") == "" {
		found = append(found, "no X-Forwarded-For")
	}
	return found
}

// taken is what came since the last call.
func (b *parsingBackend) taken() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	seen := b.seen
	b.seen = nil
	return seen
}

// nginxBefore is a real nginx in front of a backend, with connections that it keeps.
func nginxBefore(t *testing.T, backend string) (addr string) {
	t.Helper()
	addr = fmt.Sprintf("127.0.0.1:%d", testservices.FreePort(t))
	testservices.StartNginx(t, addr, fmt.Sprintf(`
upstream shop { server %s; keepalive 4; }
server {
	listen %s;
	location / {
		proxy_pass http://shop;
		proxy_http_version 1.1;
		proxy_set_header Connection "";
		proxy_set_header Host $http_host;
	}
}`, backend, addr))
	return addr
}

// TestC077_PublishedTechniques sends each technique as an order and to a plain route, with Go's server and with nginx behind. What is
// refused is 400 (or what the table says) and the end of the connection; what passes has one meaning. The backend has parsed as many
// requests as the gateway has sent, and the order behind each technique was admitted only where the connection went on.
func TestC077_PublishedTechniques(t *testing.T) {
	t.Parallel()
	both := slices.Concat(lengths(), codings(), chunkings(), heads(), expectations())
	for _, front := range []string{"go", "nginx"} {
		t.Run(front, func(t *testing.T) {
			t.Parallel()
			b := startParsingBackend(t)
			addr := b.Listener.Addr().String()
			if front == "nginx" {
				addr = nginxBefore(t, addr)
			}
			g := startGate(t, addr, func(c *Config, _ *Parts) { c.PlainBodyBytes = 1 << 20 })
			for _, target := range []string{"/orders", "/plain"} {
				for _, one := range both {
					tryTechnique(t, g, b, one, target)
				}
			}
			for _, one := range plainOnly() {
				tryTechnique(t, g, b, one, "/plain")
			}
		})
	}
}

// tryTechnique sends a technique and, behind it, an order.
func tryTechnique(t *testing.T, g *gate, b *parsingBackend, one technique, target string) {
	t.Helper()
	sent := sentTo(t, g)
	what := one.name + " to " + target + " (" + one.source + ")"
	if one.source == "" {
		t.Errorf("%s: no source", what)
	}
	statuses := answersTo(t, g.addr, strings.ReplaceAll(one.bytes, "PATH", target)+orderOf(goodBody))
	seen, now := b.taken(), sentTo(t, g)
	if len(seen) != now-sent {
		t.Errorf("%s: the backend parsed %d requests, the gateway sent %d: %q", what, len(seen), now-sent, seen)
	}
	for _, s := range seen {
		if !strings.HasSuffix(s, " []") {
			t.Errorf("%s: the backend got %s", what, s)
		}
	}
	if one.meaning == 0 {
		want := []int{max(one.status, 400)}
		if !slices.Equal(statuses, want) || len(seen) > 0 {
			t.Errorf("%s: answers %v, want %v and the end; the backend got %q", what, statuses, want, seen)
		}
		return
	}
	order := fmt.Sprintf("POST /orders shop.example %q []", goodBody)
	if len(seen) != one.meaning+1 || seen[len(seen)-1] != order || !slices.Equal(statuses, []int{201, 201}) {
		t.Errorf("%s: answers %v, the backend got %q", what, statuses, seen)
	}
}

// sentTo is how many requests a gateway has sent to its upstream as a whole: a reply came.
func sentTo(t *testing.T, g *gate) int {
	t.Helper()
	families, err := g.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range families {
		if f.GetName() == "stockgate_upstream_duration_seconds" {
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					if l.GetValue() == "answered" {
						n += int(m.GetHistogram().GetSampleCount())
					}
				}
			}
		}
	}
	return n
}

// answersTo sends bytes on a connection of their own, ends its direction and reads every answer until the server ends the connection.
func answersTo(t *testing.T, addr, text string) []int {
	t.Helper()
	w := dialWire(t, addr)
	defer w.Close()
	_, _ = io.WriteString(w.Conn, text) // a refused one may be answered and ended before it is all sent
	_ = w.Conn.(*net.TCPConn).CloseWrite()
	method, _, _ := strings.Cut(text, " ")
	br := bufio.NewReader(w.Conn)
	var statuses []int
	for {
		resp, err := http.ReadResponse(br, &http.Request{Method: method})
		if err != nil {
			return statuses
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		if resp.StatusCode >= 200 {
			statuses = append(statuses, resp.StatusCode)
		}
		method = "POST"
	}
}
