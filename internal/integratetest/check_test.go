package integratetest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/testservices"
)

// bazaar is a shop behind a proxy that asks stockgate: it makes an order of whatever has a reservation, one of each.
type bazaar struct {
	*httptest.Server
	mu     sync.Mutex
	orders map[string]string // reservation → lines
	state  string            // of every order, for the question at a lease's end
	seen   []http.Header     // of all requests that are no questions
}

func newBazaar(t *testing.T) *bazaar {
	b := &bazaar{orders: map[string]string{}, state: "open"}
	b.Server = httptest.NewServer(b)
	t.Cleanup(b.Close)
	return b
}

func (b *bazaar) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if id, asked := strings.CutPrefix(r.URL.Path, "/orders/by-reservation/"); asked {
		if b.orders[id] == "" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		fmt.Fprintf(w, `{"state":%q}`, b.state)
		return
	}
	b.seen = append(b.seen, r.Header.Clone())
	id := r.Header.Get("Stockgate-Reservation")
	if id == "" {
		return
	}
	if b.orders[id] == "" {
		b.orders[id] = r.Header.Get("Stockgate-Lines")
	}
	w.WriteHeader(http.StatusCreated)
}

func (b *bazaar) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.orders)
}

func (b *bazaar) last() http.Header {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen[len(b.seen)-1]
}

// block is the only one of a language on docs/check-mode.md below a heading.
func block(t *testing.T, heading, language string) string {
	t.Helper()
	_, below, found := strings.Cut(read(t, "docs/check-mode.md"), heading+"\n")
	m := regexp.MustCompile("(?ms)^```" + language + "\n(.*?)^```$").FindStringSubmatch(below)
	if !found || m == nil {
		t.Fatalf("docs/check-mode.md has no %s below %q", language, heading)
	}
	return m[1]
}

// replaced replaces what must be there once.
func replaced(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if strings.Count(text, pairs[i]) != 1 {
			t.Fatalf("%q is not there once in\n%s", pairs[i], text)
		}
		text = strings.Replace(text, pairs[i], pairs[i+1], 1)
	}
	return text
}

// checkGateway is a gateway with the configuration of the page, on SQLite alone, with leases that a test can see the end of.
func checkGateway(t *testing.T, b *bazaar, lease string) (g *gateway, checks string) {
	t.Helper()
	g = newGateway(t, testservices.FreePort(t))
	checks = fmt.Sprint("127.0.0.1:", testservices.FreePort(t))
	text := replaced(t, block(t, "# Check mode", "yaml"), `"127.0.0.1:8080"`, `"`+strings.TrimPrefix(g.public, "http://")+`"`, `":8081"`, `"`+checks+`"`,
		"lease: 60s", "lease: "+lease, "http://orders:3000", b.URL, "unique: true", "unique: true, timeout: 1s, order_delay: 1s", `"10.0.0.0/8"`, `"127.0.0.1"`)
	old, err := os.ReadFile(g.config)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(old)) {
		if strings.HasPrefix(line, "control:") || strings.HasPrefix(line, "redis:") || strings.HasPrefix(line, "database:") {
			text += line
		}
	}
	if err := os.WriteFile(g.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	g.start()
	return g, checks
}

// buyer sends an order for one unit.
func buyer(t *testing.T, base, sku, key string, lines ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, base+"/orders?sku="+sku, strings.NewReader("a body that nobody checks"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-User-Id", shopper)
	req.Header.Set("Idempotency-Key", key)
	for i := 0; i < len(lines); i += 2 {
		req.Header.Set(lines[i], lines[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp
}

// A real nginx with the configuration of docs/check-mode.md asks a real gateway.
func TestChecksOfNginx(t *testing.T) {
	t.Parallel()
	b := newBazaar(t)
	g, checks := checkGateway(t, b, "60s")
	g.setStock(t, "a", 3)
	listen := fmt.Sprint("127.0.0.1:", testservices.FreePort(t))
	testservices.StartNginx(t, listen, replaced(t, block(t, "## nginx", "nginx"), "server stockgate:8081", "server "+checks,
		"server orders:3000", "server "+strings.TrimPrefix(b.URL, "http://"), "listen 80;", "listen "+listen+";"))
	nginx := "http://" + listen

	forged := []string{"Stockgate-Lines", `"a";q=99`, "Stockgate-Signature", "mine", "X-Original-URI", "/free", "X-Forwarded-Uri", "/free"}
	if resp := buyer(t, nginx, "a", "k1", forged...); resp.StatusCode != http.StatusCreated {
		t.Fatalf("an order: %d %v", resp.StatusCode, resp.Header)
	}
	if h := b.last(); h.Get("Stockgate-Lines") != `"a";q=1` || h.Get("Stockgate-Signature") != "" || len(h.Get("Stockgate-Reservation")) != 32 ||
		h.Get("Stockgate-Sku") != "a" || h.Get("Stockgate-Qty") != "1" || h.Get("Stockgate-Forward-By") == "" || h.Get("Stockgate-Expires") == "" {
		t.Errorf("the order service was told %v", h)
	}
	if resp := buyer(t, nginx, "a", "k1"); resp.StatusCode != http.StatusCreated || b.count() != 1 {
		t.Errorf("the same id again: %d, %d orders", resp.StatusCode, b.count())
	}
	if resp, err := client.Get(nginx + "/search"); err != nil || resp.StatusCode != http.StatusOK || b.last().Get("Stockgate-Reservation") != "" {
		t.Errorf("what needs no stock: %v, %v", resp, err)
	}

	// Ten for the last two.
	var wg sync.WaitGroup
	codes := make([]string, 10)
	for i := range codes {
		wg.Go(func() {
			resp := buyer(t, nginx, "a", fmt.Sprint("race-", i))
			codes[i] = fmt.Sprint(resp.StatusCode, resp.Header.Get("Stockgate-Code"))
		})
	}
	wg.Wait()
	if won := strings.Count(strings.Join(codes, " "), "201"); won != 2 || strings.Count(strings.Join(codes, " "), "409SOLD_OUT") != 8 || b.count() != 3 {
		t.Errorf("%d won, %d orders: %v", won, b.count(), codes)
	}
	if left := g.available(t, "a"); left != 0 {
		t.Errorf("%d are left", left)
	}
	for target, want := range map[string]int{"/orders/?sku=a": 400, "/orders?sku=nobody": 404, "/orders": 400} {
		req, err := http.NewRequest(http.MethodPost, nginx+target, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-User-Id", shopper)
		req.Header.Set("Idempotency-Key", "other")
		if a := do(t, req); a.status != want {
			t.Errorf("%s: %d %s, want %d", target, a.status, a.body, want)
		}
	}
	if b.count() != 3 {
		t.Errorf("%d orders", b.count())
	}
}

// A lease ends: of what the order service does not have, and of what it has and is not paid. What was confirmed stays.
func TestALeaseEnds(t *testing.T) {
	t.Parallel()
	b := newBazaar(t)
	g, checks := checkGateway(t, b, "3s")
	g.setStock(t, "a", 3)
	ids := map[string]string{}
	for _, key := range []string{"never came", "unpaid", "paid"} {
		resp := buyer(t, "http://"+checks+"/check", "a", strings.ReplaceAll(key, " ", "-"))
		if ids[key] = resp.Header.Get("Stockgate-Reservation"); resp.StatusCode != http.StatusOK || ids[key] == "" {
			t.Fatalf("%s: %d %v", key, resp.StatusCode, resp.Header)
		}
	}
	if resp := buyer(t, "http://"+checks+"/check", "a", "late"); resp.Header.Get("Stockgate-Code") != "SOLD_OUT" || resp.StatusCode != http.StatusForbidden {
		t.Errorf("with all leased: %d %v", resp.StatusCode, resp.Header)
	}
	b.mu.Lock()
	b.orders[ids["unpaid"]], b.orders[ids["paid"]] = "1", "1"
	b.mu.Unlock()
	g.call(t, "POST", "/v1/reservations/"+ids["paid"]+"/confirm", `{"order_ref":"1"}`, nil)

	g.becomes(t, ids["unpaid"], "released")
	g.becomes(t, ids["never came"], "released")
	if r := g.reservation(t, ids["paid"]); r.State != "confirmed" {
		t.Errorf("what was confirmed is %s", r.State)
	}
	testservices.Eventually(t, "two units are back", func() string {
		if left := g.available(t, "a"); left != 2 {
			return fmt.Sprint(left, " are available")
		}
		return ""
	})
	for key, want := range map[string]string{"unpaid": "RELEASED", "paid": "", "new": ""} {
		resp := buyer(t, "http://"+checks+"/check", "a", key)
		if resp.Header.Get("Stockgate-Code") != want || (resp.StatusCode == http.StatusOK) != (want == "") {
			t.Errorf("%s, after the end: %d %v", key, resp.StatusCode, resp.Header)
		}
	}
	var view struct {
		ExpiresAt time.Time `json:"expires_at"`
	}
	id := buyer(t, "http://"+checks+"/check", "a", "new").Header.Get("Stockgate-Reservation")
	if g.call(t, "POST", "/v1/reservations/"+id+"/extend", `{"hold":"10m"}`, &view); time.Until(view.ExpiresAt) < 5*time.Minute {
		t.Errorf("a lease that was extended ends at %s", view.ExpiresAt)
	}
	if resp := buyer(t, "http://"+checks+"/check", "a", "new"); resp.StatusCode != http.StatusOK || resp.Header.Get("Stockgate-Expires") != fmt.Sprint(view.ExpiresAt.UnixMilli()) {
		t.Errorf("a check again: %d %v", resp.StatusCode, resp.Header)
	}
}

// The other recipes name fields that exist; their proxies are not run here.
func TestTheRecipesNameTheFields(t *testing.T) {
	t.Parallel()
	for _, heading := range []string{"## Envoy", "## Gateway API", "## Traefik"} {
		recipe := strings.ToLower(block(t, heading, "yaml"))
		for _, name := range []string{"reservation", "lines", "sku", "qty", "expires", "forward-by", "signature"} {
			if !strings.Contains(recipe, "stockgate-"+name) {
				t.Errorf("%s has no stockgate-%s", heading, name)
			}
		}
	}
}
