package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// send posts a body as it is to the order route.
func (g *gateway) send(body, key string) told {
	var got told
	g.post("/orders", body, key, &got)
	return got
}

// orderOf is an order body for one unit, in an activity if one is named.
func orderOf(sku, user, activity string) string {
	if activity == "" {
		return fmt.Sprintf(`{"sku":%q,"user":%q}`, sku, user)
	}
	return fmt.Sprintf(`{"sku":%q,"user":%q,"activity":%q}`, sku, user, activity)
}

// requireTold fails unless an answer has this status and code.
func requireTold(t *testing.T, what string, got told, status int, code stock.Code) {
	t.Helper()
	if got.err != nil || got.Status != status || got.Code != code {
		t.Errorf("%s: %s, want %d %s", what, got, status, code)
	}
}

// problemOf is what a refusal says beside its code.
func problemOf(t *testing.T, got told) (p struct {
	Detail, Limit, Value, Field string
	Starts                      time.Time
}) {
	t.Helper()
	if err := json.Unmarshal([]byte(got.body), &p); err != nil {
		t.Errorf("%s: %v", got, err)
	}
	return p
}

// series is the value of one series of the metrics, with its labels as they are shown; "" if it is not there.
func (g *gateway) series(name string) string {
	_, text := g.get("/metrics")
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// eventuallySeries waits until a series of the metrics has a value.
func (g *gateway) eventuallySeries(name, want string) {
	g.w.t.Helper()
	g.w.eventually(name, func() string {
		if got := g.series(name); got != want {
			return fmt.Sprintf("is %q, want %s", got, want)
		}
		return ""
	})
}

// page is what a buyer's page hears of its order.
type page struct {
	status      int
	Code        stock.Code
	Reservation string
	State       string
	Outcome     string
	OrderRef    string `json:"order_ref"`
}

// askStatus asks what became of an order, as a buyer's page does.
func (g *gateway) askStatus(user, key string) (p page) {
	req, err := http.NewRequest("GET", g.public+"/my-order?user="+url.QueryEscape(user), nil)
	if err != nil {
		g.w.t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := g.w.http.Do(req)
	if err != nil {
		g.w.t.Errorf("status of %s: %v", key, err)
		return p
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if err := json.Unmarshal(body, &p); err != nil {
		g.w.t.Errorf("status of %s: %d %s", key, resp.StatusCode, body)
	}
	p.status = resp.StatusCode
	return p
}

// eventuallyStock waits until a SKU stands so.
func (g *gateway) eventuallyStock(sku string, want stockView) {
	g.w.t.Helper()
	g.w.eventually("stock of "+sku, func() string {
		if got := g.stock(sku); got != want {
			return fmt.Sprintf("%+v, want %+v", got, want)
		}
		return ""
	})
}

// requireStock fails unless a SKU stands so.
func (g *gateway) requireStock(sku string, want stockView) {
	g.w.t.Helper()
	if got := g.stock(sku); got != want {
		g.w.t.Errorf("stock of %s: %+v, want %+v", sku, got, want)
	}
}

// reservation is a reservation as the control side has it.
func (g *gateway) reservation(id stock.ID) (r struct {
	State, Outcome, Reason, Route, User string
	OrderRef                            string    `json:"order_ref"`
	ExpiresAt                           time.Time `json:"expires_at"`
	ForwardBy                           time.Time `json:"forward_by"`
	CreatedAt                           time.Time `json:"created_at"`
	UpdatedAt                           time.Time `json:"updated_at"`
}) {
	g.w.t.Helper()
	if status, body := g.get("/v1/reservations/" + id.String()); status != 200 {
		g.w.t.Errorf("reservation %s: %d %s", id, status, body)
	} else if err := decode(body, &r); err != nil {
		g.w.t.Errorf("reservation %s: %s: %v", id, body, err)
	}
	return r
}

// eventuallyIs waits until a reservation has a state and an outcome.
func (g *gateway) eventuallyIs(id stock.ID, state, outcome string) {
	g.w.t.Helper()
	g.w.eventually("reservation "+id.String(), func() string {
		if r := g.reservation(id); r.State != state || r.Outcome != outcome {
			return fmt.Sprintf("%+v, want %s and %s", r, state, outcome)
		}
		return ""
	})
}

// payOrderOf pays the order of a reservation at the order service, which tells nobody.
func (w *world) payOrderOf(id stock.ID) {
	w.t.Helper()
	order, known := w.orders.ByReservation(id.String())
	if !known {
		w.t.Fatalf("no order of reservation %s", id)
	}
	resp, err := w.http.Post(w.backend+"/orders/"+order.Order+"/pay", "", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		w.t.Fatalf("pay order %s: %s", order.Order, resp.Status)
	}
}
