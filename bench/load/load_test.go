package load

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/faults"
	"github.com/stockgate/stockgate/stock"
)

// stub starts a server and gives a config of a small run against it.
func stub(t *testing.T, handle http.HandlerFunc) Config {
	t.Helper()
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	return configFor(t, s.URL)
}

func configFor(t *testing.T, url string) Config {
	t.Helper()
	target, err := ParseTarget(url)
	if err != nil {
		t.Fatal(err)
	}
	return Config{Target: target, Plan: Plan{Seed: 7, SKUs: []string{"sku-1001"}, Qty: 1, Keys: true}, Rate: 2000, Duration: time.Minute,
		Requests: 200, Connections: 8, Timeout: 10 * time.Second, Evidence: 1000}
}

func run(t *testing.T, c Config) *Result {
	t.Helper()
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func placed(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }

func TestEveryRequestIsSentOnceAsPlanned(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	c := stub(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		seen[fmt.Sprintf("%s %s %s %s %s", r.Method, r.URL.RequestURI(), r.Header.Get("Content-Type"), r.Header.Get("Idempotency-Key"), body)]++
		w.WriteHeader(http.StatusCreated)
	})
	r := run(t, c)
	if r.Sent() != 200 || r.Count(Won) != 200 || len(seen) != 200 {
		t.Fatalf("sent %d, won %d, server saw %d different requests", r.Sent(), r.Count(Won), len(seen))
	}
	want := `POST /orders application/json bench-7-3 {"sku":"sku-1001","qty":1,"user":"u3"}`
	if seen[want] != 1 {
		t.Fatalf("%s\nwas seen %d times, of\n%v", want, seen[want], seen)
	}
}

// C094: what arrives during a freeze waits, and the percentiles must show it.
func TestC094_FreezeShowsInThePercentiles(t *testing.T) {
	const freeze = 500 * time.Millisecond
	var gate sync.RWMutex
	var count atomic.Int64
	c := stub(t, func(w http.ResponseWriter, r *http.Request) {
		if count.Add(1) == 200 {
			gate.Lock()
			time.AfterFunc(freeze, gate.Unlock)
		}
		gate.RLock()
		defer gate.RUnlock()
		w.WriteHeader(http.StatusCreated)
	})
	c.Rate, c.Requests = 500, 750
	r := run(t, c)
	// 7 of 750 requests are above p99, and at least those due in the first 14 ms of the freeze waited nearly all of it.
	if p99 := r.Latency.ValueAtPercentile(99); p99 < 400_000 {
		t.Errorf("p99 is %d µs, the server stood still for %s", p99, freeze)
	}
	// With 8 connections only 8 requests were on the way; a client that waits would have seen no more slow ones than that.
	slow := int64(0)
	for _, bar := range r.Latency.Distribution() {
		if bar.From >= 100_000 {
			slow += bar.Count
		}
	}
	if slow < 100 {
		t.Errorf("%d requests took more than 100 ms, about 200 were due in that time", slow)
	}
	if r.Late < 100 {
		t.Errorf("%d late starts, all connections were busy", r.Late)
	}
	if sent := r.Service.ValueAtPercentile(50); sent > r.Latency.ValueAtPercentile(99) {
		t.Errorf("median of the service time is %d µs, above the latency", sent)
	}
}

// C094: refusals and errors are no throughput of orders.
func TestC094_RefusalsAreNoSuccess(t *testing.T) {
	var count atomic.Int64
	c := stub(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Stockgate-Source", "database")
		switch count.Add(1) % 4 {
		case 0, 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, `{"status":409,"code":"SOLD_OUT","detail":"x"}`)
		default:
			w.WriteHeader(http.StatusCreated)
		}
	})
	r := run(t, c)
	if r.Count(Won) != 50 || r.Count(Refused) != 50 || r.Count(Unavailable) != 100 || r.Count(Failed) != 0 {
		t.Fatalf("won %d, refused %d, unavailable %d, failed %d, want 50, 50, 100, 0",
			r.Count(Won), r.Count(Refused), r.Count(Unavailable), r.Count(Failed))
	}
	if r.PerSecond(Won)*4 != r.Throughput() {
		t.Fatalf("won %g/s, answered %g/s", r.PerSecond(Won), r.Throughput())
	}
	want := []Outcome{{503, "", "database", 100}, {201, "", "database", 50}, {409, "SOLD_OUT", "database", 50}}
	if fmt.Sprint(r.Outcomes) != fmt.Sprint(want) {
		t.Fatalf("outcomes %v, want %v", r.Outcomes, want)
	}
}

func TestBrokenConnectionsAreErrorsOfTheirKindAndNeverRepeated(t *testing.T) {
	for name, trigger := range map[string]faults.Then{"closed": faults.FIN, "reset": faults.RST, "timeout": faults.Swallow} {
		t.Run(name, func(t *testing.T) {
			var got atomic.Int64
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { got.Add(1); placed(w, r) }))
			t.Cleanup(s.Close)
			p, err := faults.Listen(s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.Close)
			c := configFor(t, "http://"+p.Addr())
			c.Connections, c.Requests, c.Timeout = 1, 20, 500*time.Millisecond
			p.Arm(faults.Trigger{Match: faults.Contains("bench-7-5\r"), Forward: true, Then: trigger})
			r := run(t, c)
			if r.Count(Failed) != 1 || r.Count(Won) != 19 || r.Outcomes[1].Code != name {
				t.Fatalf("outcomes %v", r.Outcomes)
			}
			if got.Load() != 20 {
				t.Fatalf("the server got %d requests", got.Load())
			}
		})
	}
}

func TestTargetThatTakesNoConnectionIsAnError(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := configFor(t, "http://"+l.Addr().String())
	_ = l.Close()
	if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "connection 1 of 8") {
		t.Fatalf("error is %v", err)
	}
}

func TestClosedLoopSendsAsFastAsAnswersCome(t *testing.T) {
	c := stub(t, placed)
	c.Rate = 0
	r := run(t, c)
	if r.Sent() != 200 || r.Late != 0 || r.Unsent != 0 {
		t.Fatalf("sent %d, late %d, unsent %d", r.Sent(), r.Late, r.Unsent)
	}
}

func TestEndOfContextCutsOffAtOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	held := make(chan struct{})
	var once sync.Once
	c := stub(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body) // only then the server watches for the client's end
		once.Do(func() { close(held) })
		<-r.Context().Done()
	})
	c.Timeout = time.Hour
	go func() { <-held; cancel() }()
	r, err := Run(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	if r.Sent() != 0 || r.Unsent != 0 {
		t.Fatalf("sent %d, unsent %d: what was cut off by us is no result", r.Sent(), r.Unsent)
	}
}

func TestWhatTheTargetCannotTakeIsGivenUpAndSaid(t *testing.T) {
	c := stub(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		<-r.Context().Done()
	})
	c.Connections, c.Requests, c.Duration, c.Timeout = 1, 0, 100*time.Millisecond, 200*time.Millisecond
	r := run(t, c)
	if r.Sent()+r.Unsent != 200 || r.Unsent < 190 || r.Count(Failed) != r.Sent() {
		t.Fatalf("sent %d, unsent %d of 200", r.Sent(), r.Unsent)
	}
}

func TestRepliesAreWhatClientsWereTold(t *testing.T) {
	id := stock.DeriveID("d", "r", "", "u", "k")
	c := stub(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json; charset=utf-8")
		switch r.Header.Get("Idempotency-Key") {
		case "bench-7-0":
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Stockgate-Reservation", id.String())
			_, _ = io.WriteString(w, `{"code":"MINE","order":"1"}`) // the backend's own code is none of the gateway's
		case "bench-7-1":
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"code":"QUEUE_FULL","limit":"fallback.queue.total"}`)
		default:
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, `{"code":"SOLD_OUT"}`)
		}
	})
	c.Connections, c.Requests, c.Evidence = 1, 10, 3
	r := run(t, c)
	replies := r.Replies("place-order")
	if len(replies) != 4 || r.Dropped != 6 { // 1 win, and 3 refusals of 9
		t.Fatalf("%d replies, %d dropped", len(replies), r.Dropped)
	}
	first, second := replies[0], replies[1]
	if !first.Won() || first.Reservation != id || first.Request != "bench-7-0" || first.User != "u0" || first.Answer == "" || !first.Done.After(first.Sent) {
		t.Errorf("first reply: %+v", first)
	}
	if second.Code != stock.CodeQueueFull || second.Limit != "fallback.queue.total" || second.Status != 503 {
		t.Errorf("second reply: %+v", second)
	}
}

func TestValidateNamesTheField(t *testing.T) {
	f := func(field string, change func(*Config)) {
		t.Helper()
		c := configFor(t, "http://127.0.0.1:1")
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: error is %v", field, err)
		}
	}
	f("rate", func(c *Config) { c.Rate = -1 })
	f("rate", func(c *Config) { c.Rate = 2 * RateMax })
	f("duration", func(c *Config) { c.Duration = 0 })
	f("requests", func(c *Config) { c.Requests = RequestsMax + 1 })
	f("connections", func(c *Config) { c.Connections = 0 })
	f("timeout", func(c *Config) { c.Timeout = 0 })
	f("SKUs", func(c *Config) { c.Plan.SKUs = nil })
	f("qty", func(c *Config) { c.Plan.Qty = 0 })
	f("again", func(c *Config) { c.Plan.Again = 1.5 })
	f("buyers", func(c *Config) { c.Plan.Buyers = -1 })
}
