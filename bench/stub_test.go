package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/internal/orderservice"
	"github.com/stockgate/stockgate/stock"
)

// stubGateway is an honest gateway in a few lines, with one mutex for a database; each flag makes it break one promise.
type stubGateway struct {
	t        *testing.T
	public   *httptest.Server
	control  *httptest.Server
	backend  *httptest.Server
	orders   *orderservice.Service
	mu       sync.Mutex
	skus     map[string]*api.SKU
	answers  map[string]storedAnswer // by user and key
	requests int

	oversells, forgetsKeys, losesOrders, refusesPlaced, neverRests bool
	onOrder                                                        func(n int) // before the nth request is worked on
}

type storedAnswer struct {
	reservation stock.ID
	body        string
}

func startStub(t *testing.T, change func(*stubGateway)) *stubGateway {
	t.Helper()
	g := &stubGateway{t: t, orders: orderservice.New(orderservice.Config{}), skus: map[string]*api.SKU{}, answers: map[string]storedAnswer{}}
	if change != nil {
		change(g)
	}
	public, control := http.NewServeMux(), http.NewServeMux()
	public.HandleFunc("POST /orders", g.place)
	control.HandleFunc("PUT /v1/stock/{sku}", g.set)
	control.HandleFunc("GET /v1/stock/{sku}", g.get)
	control.HandleFunc("GET /v1/stock", g.list)
	control.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(api.Status{Phase: "ready", Queues: []api.Queue{{Name: "fallback.queue.total", Depth: 0, Limit: 20000}}})
	})
	for s, h := range map[**httptest.Server]http.Handler{&g.public: public, &g.control: control, &g.backend: g.orders} {
		*s = httptest.NewServer(h)
		t.Cleanup((*s).Close)
	}
	return g
}

// place sells under one lock, so that nothing needs proof.
func (g *stubGateway) place(w http.ResponseWriter, r *http.Request) {
	var wish struct {
		SKU  string
		Qty  int64
		User string
	}
	if err := json.NewDecoder(r.Body).Decode(&wish); err != nil {
		g.t.Error(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.requests++
	if g.onOrder != nil {
		g.onOrder(g.requests)
	}
	key := r.Header.Get("Idempotency-Key")
	name := wish.User + " " + key
	if key == "" || g.forgetsKeys {
		name = fmt.Sprint("request ", g.requests)
	}
	if kept, ok := g.answers[name]; ok {
		won(w, kept, "none")
		return
	}
	k := g.skus[wish.SKU]
	if k.Available < wish.Qty && !g.oversells {
		problem(w, http.StatusConflict, stock.CodeSoldOut)
		return
	}
	if k.Available >= wish.Qty {
		k.Available -= wish.Qty
		k.Held += wish.Qty
		k.Ver++
	}
	answer := storedAnswer{reservation: stock.DeriveID("d", "place-order", "", wish.User, name)}
	answer.body = g.forward(answer.reservation, key, wish.SKU, wish.Qty, wish.User)
	g.answers[name] = answer
	if g.refusesPlaced {
		problem(w, http.StatusServiceUnavailable, stock.CodeUnavailable)
		return
	}
	won(w, answer, "redis")
}

// forward places the order at the order service and gives its answer.
func (g *stubGateway) forward(id stock.ID, key, sku string, qty int64, user string) string {
	if g.losesOrders {
		return "{}"
	}
	body := fmt.Sprintf(`{"sku":%q,"qty":%d,"user":%q}`, sku, qty, user)
	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(body))
	r.Header.Set("Stockgate-Reservation", id.String())
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	g.orders.ServeHTTP(w, r)
	if w.Code != http.StatusCreated {
		g.t.Errorf("order service: %d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func won(w http.ResponseWriter, a storedAnswer, source string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Stockgate-Source", source)
	w.Header().Set("Stockgate-Reservation", a.reservation.String())
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write([]byte(a.body))
}

func problem(w http.ResponseWriter, status int, code stock.Code) {
	w.Header().Set("Content-Type", api.ProblemType)
	w.Header().Set("Stockgate-Source", "redis")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(api.Problem{Status: status, Code: string(code)})
}

func (g *stubGateway) set(w http.ResponseWriter, r *http.Request) {
	var in api.SetStock
	_ = json.NewDecoder(r.Body).Decode(&in)
	g.mu.Lock()
	defer g.mu.Unlock()
	sku := r.PathValue("sku")
	if g.skus[sku] == nil {
		g.skus[sku] = &api.SKU{Fact: api.Fact{SKU: sku}}
	}
	k := g.skus[sku]
	k.StockIn += in.Available - k.Available
	k.Available = in.Available
	k.Ver++
	_ = json.NewEncoder(w).Encode(api.Change{Fact: k.Fact})
}

func (g *stubGateway) get(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	k := g.skus[r.PathValue("sku")]
	if k == nil {
		problem(w, http.StatusNotFound, stock.CodeUnknownSKU)
		return
	}
	_ = json.NewEncoder(w).Encode(g.view(k))
}

func (g *stubGateway) list(w http.ResponseWriter, _ *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all api.SKUList
	for _, k := range g.skus {
		all.SKUs = append(all.SKUs, g.view(k))
	}
	_ = json.NewEncoder(w).Encode(all)
}

func (g *stubGateway) view(k *api.SKU) api.SKU {
	v := *k
	v.Redis = &api.Registers{Loaded: true, Base: k.Available, Free: k.Available, Ver: k.Ver}
	if g.neverRests {
		v.Redis.Out, v.Redis.Free = 1, k.Available-1
	}
	return v
}
