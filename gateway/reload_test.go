package gateway

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/stock"
)

// turnstile is a filter that counts who goes in and out.
type turnstile struct {
	mu       sync.Mutex
	in, left int
}

func (*turnstile) Name() string { return "turnstile" }

func (c *turnstile) Enter(*filters.Request) *filters.Refusal {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in++
	return nil
}

func (c *turnstile) Leave(*filters.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left++
}

func (c *turnstile) seen() (in, left int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.in, c.left
}

// changed is the config that g has now, with a change.
func (g *gate) changed(change func(*Config)) Config {
	cfg := g.setup.Load().cfg
	cfg.Upstreams = append([]Upstream(nil), cfg.Upstreams...)
	cfg.Routes = append([]Route(nil), cfg.Routes...)
	change(&cfg)
	return cfg
}

func (g *gate) reload(change func(*Config), with Limiting) {
	g.t.Helper()
	take, err := g.Prepare(g.changed(change), with)
	if err != nil {
		g.t.Fatal(err)
	}
	take()
}

// An order that is at the backend while the route, its upstream and the limits go is answered, and gives back what it holds to where it took it.
func TestReload_InFlightEndsByTheOldConfig(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	b := startBackend(t, func(c net.Conn, r received) bool {
		if strings.HasPrefix(r.line(), "POST") {
			arrived <- struct{}{}
			<-release
		}
		return answering(created)(c, r)
	})
	before, after := &turnstile{}, &turnstile{}
	g := startGate(t, b.addr(), func(_ *Config, p *Parts) { p.Limits = filters.NewChain(before) })
	w := dialWire(t, g.addr)
	w.send(orderOf(goodBody))
	<-arrived
	old := g.setup.Load().upstreams[0]
	g.reload(func(c *Config) {
		c.Upstreams = []Upstream{{Name: "other", URL: "http://" + b.addr()}}
		c.Routes = []Route{{Name: "pages", Path: "/pages/*", Upstream: "other"}}
	}, Limiting{Limits: filters.NewChain(after)})

	g.do("GET /other HTTP/1.1\r\nHost: shop.example\r\n\r\n").wants(t, 404, stock.CodeNoRoute)
	if got := g.do("GET /pages/1 HTTP/1.1\r\nHost: shop.example\r\n\r\n"); got.StatusCode != 201 {
		t.Errorf("the new route answers %d %s", got.StatusCode, got.body)
	}
	close(release)
	if got := w.receive("POST"); got.StatusCode != 201 {
		t.Errorf("the order in flight got %d %s", got.StatusCode, got.body)
	}
	w.send(orderOf(goodBody)) // the same connection, the next request: the new config
	w.receive("POST").wants(t, 404, stock.CodeNoRoute)
	if in, left := before.seen(); in != 1 || left != 1 {
		t.Errorf("the old limits: %d in, %d left, want 1 and 1", in, left)
	}
	if err := g.Shutdown(t.Context()); err != nil { // a page is answered a moment before it leaves its limits
		t.Error(err)
	}
	if in, left := after.seen(); in != 1 || left != 1 {
		t.Errorf("the new limits: %d in, %d left, want 1 and 1", in, left)
	}
	if len(old.slots) != 0 {
		t.Errorf("%d slots of the old upstream are still taken", len(old.slots))
	}
	if n := g.adm.outcomes(); n != 1 {
		t.Errorf("%d outcomes were booked, want 1", n)
	}
}

// A reload that leaves an upstream alone keeps its connections and counts its slots on.
func TestReload_UnchangedUpstreamKeepsItsSlotsAndConnections(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}, 8), make(chan struct{})
	b := startBackend(t, func(c net.Conn, r received) bool {
		arrived <- struct{}{}
		if strings.HasPrefix(r.line(), "POST") {
			<-release
		}
		return answering(created)(c, r)
	})
	g := startGate(t, b.addr(), func(c *Config, _ *Parts) { c.Upstreams[0].MaxConnections, c.Upstreams[0].IdleTimeout = 1, time.Minute })
	w := dialWire(t, g.addr)
	w.send(orderOf(goodBody))
	<-arrived
	g.reload(func(c *Config) { c.CartLines = 7 }, Limiting{})
	g.do(orderOf(goodBody)).wants(t, 503, stock.CodeQueueFull)
	close(release)
	w.receive("POST")
	g.do("GET /a HTTP/1.1\r\nHost: shop.example\r\n\r\n")
	b.mu.Lock()
	conns := b.conns
	b.mu.Unlock()
	if conns != 1 {
		t.Errorf("%d connections to the backend, want the one from before the reload", conns)
	}
	same := g.setup.Load().upstreams[0]
	g.reload(func(c *Config) { c.Upstreams[0].MaxConnections = 2 }, Limiting{})
	if now := g.setup.Load().upstreams[0]; now == same || cap(now.slots) != 2 {
		t.Errorf("a changed upstream was kept, or has %d slots", cap(now.slots))
	}
}

// No request is lost while the configuration changes all the time.
func TestReload_UnderLoad(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr())
	const clients, each = 8, 60
	var done sync.WaitGroup
	for range clients {
		done.Go(func() {
			w := dialWire(t, g.addr)
			for range each {
				if _, err := io.WriteString(w.Conn, orderOf(goodBody)); err != nil {
					t.Errorf("send: %v", err)
					return
				}
				if got := w.receive("POST"); got.StatusCode != 201 {
					t.Errorf("got %d %s", got.StatusCode, got.body)
				}
			}
		})
	}
	stop := make(chan struct{})
	var reloads sync.WaitGroup
	reloads.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				g.reload(func(c *Config) {
					c.CartLines, c.Upstreams[0].MaxConnections = 5+i%3, 100+i%2 // every other time it is another upstream
				}, Limiting{Limits: filters.NewChain(&turnstile{})})
			}
		}
	})
	done.Wait()
	close(stop)
	reloads.Wait()
	if n := g.adm.outcomes(); n != clients*each {
		t.Errorf("%d outcomes, want %d", n, clients*each)
	}
}

// What is wrong, or belongs to the process, changes nothing.
func TestReload_WrongConfigChangesNothing(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr())
	old := g.setup.Load()
	f := func(want string, change func(*Config)) {
		t.Helper()
		take, err := g.Prepare(g.changed(change), Limiting{})
		if err == nil || take != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
	f(`upstream "gone" is not configured`, func(c *Config) { c.Routes[0].Upstream = "gone" })
	f("can be walked around", func(c *Config) { c.Routes[0], c.Routes[1] = c.Routes[1], c.Routes[0] })
	f("server.headers cannot be changed", func(c *Config) { c.HeaderBytes++ })
	f("server.read_timeout cannot be changed", func(c *Config) { c.ReadTimeout++ })
	if g.setup.Load() != old {
		t.Error("the setup was exchanged all the same")
	}
	if got := g.do(orderOf(goodBody)); got.StatusCode != 201 {
		t.Errorf("an order got %d %s", got.StatusCode, got.body)
	}
}

// Names that are not configured any more leave the metrics, and a request of theirs that ends later does not bring them back.
func TestReload_MetricsKnowConfiguredNamesAlone(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	b := startBackend(t, func(c net.Conn, r received) bool {
		arrived <- struct{}{}
		<-release
		return answering(created)(c, r)
	})
	g := startGate(t, b.addr())
	w := dialWire(t, g.addr)
	w.send(orderOf(goodBody))
	<-arrived
	g.reload(func(c *Config) {
		c.Upstreams[0].Name, c.Routes[1].Upstream = "pages", "pages"
		c.Routes = c.Routes[1:]
	}, Limiting{})
	close(release)
	if got := w.receive("POST"); got.StatusCode != 201 {
		t.Errorf("the order in flight got %d", got.StatusCode)
	}
	families, err := g.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				seen[l.GetName()+"="+l.GetValue()] = true
			}
		}
	}
	for label, want := range map[string]bool{"route=place-order": false, "upstream=orders": false, "route=the-rest": true, "upstream=pages": true,
		"route=none": true} {
		if seen[label] != want {
			t.Errorf("%s is there: %v, want %v", label, seen[label], want)
		}
	}
}
