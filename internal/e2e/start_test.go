package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/orderservice"
	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/stock"
)

// C091: a gateway whose database is not there yet answers 503 at once: a request that waits unseen would be sold later to a client that
// has long left.
func TestC091_WithoutADatabaseAtStartNothingWaitsUnseen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.postgres.Kill()
	g := w.newGateway(testservices.FreePort(t), testservices.FreePort(t))
	g.start()
	w.eventually("it listens", func() string {
		got := g.buy(want{sku: "s", user: "u", key: ""})
		if got.Status != http.StatusServiceUnavailable || got.Code != stock.CodeUnavailable || got.retryAfter == "" {
			return got.String()
		}
		return ""
	})
	if status, body := g.get("/readyz?verbose"); status != 503 || !strings.Contains(body, "database") {
		t.Errorf("readyz: %d %s", status, body)
	}
	if status, _ := g.get("/livez"); status != 200 {
		t.Errorf("livez: %d", status)
	}
	w.postgres.Start()
	g.awaitReady()
	g.setStock("s", 1)
	if w.orders.Count() != 0 {
		t.Errorf("%d orders were placed for clients that had their 503", w.orders.Count())
	}
	if got := g.buy(want{sku: "s", user: "u", key: "k"}); !got.Won() {
		t.Errorf("%s", got)
	}
}

// A stock table that is not there is no reason to wait: it ends the start, and says what is missing.
func TestAMissingStockTableEndsTheStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockTable = `{table: public.nope, sku: sku, available: available}`
	g := w.newGateway(testservices.FreePort(t), testservices.FreePort(t))
	g.start()
	select {
	case <-g.exited:
	case <-time.After(patience):
		t.Fatal("it goes on waiting")
	}
	if log := g.log.String(); !strings.Contains(log, "database.stock") || !strings.Contains(log, "nope") {
		t.Errorf("it says: %s", log)
	}
	g.cmd = nil
}

// An unknown that the order service has resolved: the buyer's retry hears of the order, not of a doubt that is over.
func TestARetryAfterAConfirmHearsOfTheOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.gateway()
	g.setStock("s", 1)
	w.orders.Script(orderservice.Fault{Status: 500})
	b := want{sku: "s", user: "u", key: "k"}
	first := g.buy(b)
	if first.Code != stock.CodeOutcomeUnknown {
		t.Fatalf("%s", first)
	}
	g.call("POST", "/v1/reservations/"+first.Reservation.String()+"/confirm", `{"order_ref":"47"}`)
	got := g.buy(b)
	want := fmt.Sprintf(`{"reservation":"%s","ordered":true}`, first.Reservation)
	if got.Status != 200 || got.replayed != "resolved" || got.body != want {
		t.Errorf("%s", got)
	}
	w.requireInvariants(t, nil, "s")
}

// C006: somebody else wrote to stockgate's key. Nothing is sold from it and nobody is told SOLD_OUT; a sync mends it.
func TestC006_ACorruptRegisterIsMendedBySync(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.gateway()
	g.awaitRedis()
	g.setStock("s", 5)
	if got := g.buy(want{sku: "s", user: "u", key: "a"}); got.Status != 201 {
		t.Fatalf("%s", got)
	}
	w.eventually("the close has reached Redis", func() string {
		_, body := g.get("/v1/stock/s")
		if !strings.Contains(body, `"base":4,"rest":0,"out":0`) {
			return body
		}
		return ""
	})
	key := fmt.Sprintf("{stockgate:%d}:sku:s", stock.Partition("s", 64))
	if _, err := command(w.redis.Addr, "HSET "+key+" base abc"); err != nil {
		t.Fatal(err)
	}
	if got := g.buy(want{sku: "s", user: "u", key: "b"}); got.Status != 503 || got.Code != stock.CodeCorruptStock {
		t.Errorf("%s", got)
	}
	g.call("POST", "/v1/stock/s/sync", `{}`)
	w.eventually("sells again", func() string {
		if got := g.buy(want{sku: "s", user: "u", key: "c"}); got.Status != 201 {
			return got.String()
		}
		return ""
	})
	w.requireInvariants(t, nil, "s")
}
