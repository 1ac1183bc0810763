package integratetest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/testservices"
)

// gateway is a real one on SQLite, in front of an order service on the port backend.
type gateway struct {
	t               *testing.T
	backend         int
	public, control string
	config          string
}

// Orders of SKUs that begin with short- have a hold of 8 s, so that tests see them end.
const configuration = `
listen: "127.0.0.1:%d"
control: {listen: "127.0.0.1:%d", token: "%s"}
redis: {mode: none}
database: {driver: sqlite, dsn: "%s"}
upstreams:
  orders:
    url: "http://127.0.0.1:%d"
    timeout: 5s
    resolve: /orders/by-reservation/{reservation}
    order_delay: 5s
    unique: true
    sign: {keys: [{id: %s, secret: "%s"}]}
routes:
  - name: place-order
    match: {methods: [POST], path: /orders}
    upstream: orders
    admit: {sku: body.sku, qty: body.qty, user: header.X-User-Id, request: header.Idempotency-Key}
  - name: checkout
    match: {methods: [POST], path: /checkout}
    upstream: orders
    admit: {lines: body.items, sku: sku, qty: quantity, user: header.X-User-Id, request: header.Idempotency-Key}
  - name: the-rest
    match: {path: "/*"}
    upstream: orders
defaults: {late_confirm: refuse}
activities:
  - {id: short, starts: 2020-01-01T00:00:00Z, ends: 2100-01-01T00:00:00Z, skus: ["short-*"], hold: 8s}
`

// newGateway makes a gateway that is not started yet: the order service is to be there first.
func newGateway(t *testing.T, backend int) *gateway {
	t.Helper()
	public, control := testservices.FreePort(t), testservices.FreePort(t)
	dir := t.TempDir()
	g := &gateway{t: t, backend: backend, public: fmt.Sprintf("http://127.0.0.1:%d", public),
		control: fmt.Sprintf("http://127.0.0.1:%d", control), config: filepath.Join(dir, "stockgate.yaml")}
	text := fmt.Sprintf(configuration, public, control, token, filepath.Join(dir, "stockgate.db"), backend, keyID, secret)
	if err := os.WriteFile(g.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *gateway) start() {
	g.t.Helper()
	start(g.t, g.control+"/readyz", nil, filepath.Join(built, "stockgate"), "serve", "--config", g.config)
}

// call asks the control API.
func (g *gateway) call(t *testing.T, method, path, body string, into any) int {
	t.Helper()
	req, err := http.NewRequest(method, g.control+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	a := do(t, req)
	if into == nil {
		if a.status != http.StatusOK {
			t.Fatalf("%s %s: %d %s", method, path, a.status, a.body)
		}
		return a.status
	}
	if err := json.Unmarshal([]byte(a.body), into); err != nil {
		t.Fatalf("%s %s: %d %s: %v", method, path, a.status, a.body, err)
	}
	return a.status
}

func (g *gateway) setStock(t *testing.T, sku string, units int) {
	t.Helper()
	g.call(t, "PUT", "/v1/stock/"+sku, fmt.Sprintf(`{"available":%d}`, units), nil)
}

func (g *gateway) available(t *testing.T, sku string) int64 {
	t.Helper()
	var v struct{ Available int64 }
	g.call(t, "GET", "/v1/stock/"+sku, "", &v)
	return v.Available
}

// order places an order as a buyer does.
func (g *gateway) order(t *testing.T, path, key, body string) *answer {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, g.public+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-User-Id", shopper)
	req.Header.Set("Idempotency-Key", key)
	a := do(t, req)
	if a.status != http.StatusCreated {
		t.Fatalf("POST %s %s: %d %s", path, body, a.status, a.body)
	}
	return a
}

// reservation is one as the control API tells it.
type reservation struct {
	State    string
	Reason   string
	OrderRef string `json:"order_ref"`
	Lines    []struct {
		SKU           string
		Qty, Released int64
	}
	ExpiresAt time.Time `json:"expires_at"`
	History   []struct{ Actor string }
}

func (g *gateway) reservation(t *testing.T, id string) *reservation {
	t.Helper()
	r := &reservation{}
	g.call(t, "GET", "/v1/reservations/"+id+"?history=true", "", r)
	return r
}

// becomes waits until the reservation is in the state.
func (g *gateway) becomes(t *testing.T, id, state string) *reservation {
	t.Helper()
	var r *reservation
	testservices.Eventually(t, id+" "+state, func() string {
		if r = g.reservation(t, id); r.State != state {
			return r.State + " " + r.Reason
		}
		return ""
	})
	return r
}
