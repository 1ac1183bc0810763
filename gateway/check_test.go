package gateway

import (
	"crypto/tls"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/internal/certs"
	"github.com/stockgate/stockgate/internal/certs/certtest"
	"github.com/stockgate/stockgate/stock"
)

// startChecks is a gate that is asked, and never forwards: nothing listens where its upstream is.
func startChecks(t *testing.T, change ...func(*Config, *Parts)) *gate {
	t.Helper()
	done := make(chan error, 1)
	t.Cleanup(func() { // after the gate was stopped
		if err := <-done; err != nil {
			t.Errorf("serve checks: %v", err)
		}
	})
	g := startGate(t, "127.0.0.1:1", change...)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g.addr = ln.Addr().String()
	go func() { done <- g.ServeCheck(ln) }()
	return g
}

// checkOf is a check with a body. lines end in CR LF.
func checkOf(method, target, body string, lines ...string) string {
	return method + " " + target + " HTTP/1.1\r\nHost: stockgate\r\nContent-Type: application/json\r\nContent-Length: " + itoa(len(body)) + "\r\n" +
		strings.Join(lines, "") + "\r\n" + body
}

const (
	leaseEnds = 1800000900123 // of passFor
	keyOne    = "Idempotency-Key: k1\r\n"
)

// wantsLease checks a 200 for lines of the reservation that passFor gives.
func (r reply) wantsLease(t *testing.T, lines string) {
	t.Helper()
	if r.StatusCode != 200 || r.body != "" {
		t.Fatalf("answer is %d %s, want 200 without a body", r.StatusCode, r.body)
	}
	for name, want := range map[string]string{"Stockgate-Reservation": testID.String(), "Stockgate-Lines": lines, "Stockgate-Expires": itoa(leaseEnds),
		"Stockgate-Forward-By": itoa(leaseEnds - 2000), "Stockgate-Status": "", "Cache-Control": "no-store"} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func signing(c *Config, _ *Parts) {
	c.Upstreams[0].SignKeys = []SignKey{{ID: "k7", Secret: []byte("0123456789abcdef")}}
}

func TestACheckGrantsALease(t *testing.T) {
	t.Parallel()
	g := startChecks(t, signing, func(c *Config, _ *Parts) { c.CheckLease, c.AnswerBehind = 45*time.Second, true })
	r := g.do(checkOf("POST", "/check/orders?from=mail", goodBody, keyOne))
	r.wantsLease(t, `"sku-1001";q=2`)
	if sku, qty := r.Header.Get("Stockgate-Sku"), r.Header.Get("Stockgate-Qty"); sku != "sku-1001" || qty != "2" {
		t.Errorf("sku %q, qty %q", sku, qty)
	}
	if from := r.Header.Get("Stockgate-Source"); from != "redis" {
		t.Errorf("decided by %q", from)
	}
	w := g.adm.asked()
	if len(w) != 1 || w[0].Lease != 45*time.Second || w[0].Route != "place-order" || w[0].User != "u1" || w[0].RequestID != "k1" {
		t.Errorf("wishes %+v", w)
	}
	if o := g.adm.outcome(t); o.Kind != admission.Accepted || o.Answer != nil || o.Confirm {
		t.Errorf("booked %+v, want a taken order without an answer", o)
	}
	if g.adm.behind != 0 {
		t.Error("it did not wait for the booking")
	}

	// What the order service verifies is the request that it gets, not the check.
	sign := r.Header.Get("Stockgate-Signature")
	unix, err := strconv.ParseInt(strings.TrimPrefix(strings.Split(sign, ",")[0], "t="), 10, 64)
	if err != nil {
		t.Fatalf("signature %q: %v", sign, err)
	}
	s := signed{method: []byte("POST"), target: []byte("/orders?from=mail"), lines: []byte(`"sku-1001";q=2`), body: []byte(goodBody),
		reservation: testID.String(), forwardBy: leaseEnds - 2000}
	if want := string(appendSignature(nil, &SignKey{ID: "k7", Secret: []byte("0123456789abcdef")}, &s, time.Unix(unix, 0))); sign != want {
		t.Errorf("signature %q, want %q", sign, want)
	}
}

// Without the request's body there is nothing to sign; a GET has none.
func TestACheckSignsWhatItKnows(t *testing.T) {
	t.Parallel()
	g := startChecks(t, signing, byHeader)
	for method, want := range map[string]bool{"POST": false, "GET": true} {
		r := g.do(method + " /check/buy HTTP/1.1\r\nHost: s\r\nX-Sku: a\r\n\r\n")
		r.wantsLease(t, `"a";q=1`)
		if got := r.Header.Get("Stockgate-Signature") != ""; got != want {
			t.Errorf("%s: signed %v", method, got)
		}
	}
}

// byHeader adds a route whose orders stand in header and query alone.
func byHeader(c *Config, _ *Parts) {
	c.Routes = append([]Route{{Name: "buy", Methods: []string{"GET", "POST"}, Path: "/buy", Upstream: "orders", Admit: &Admit{
		SKU: []Place{Header("X-Sku")}, Qty: []Place{Query("qty")}, Request: []Place{Header("Idempotency-Key")}}}}, c.Routes...)
}

// The request that a check is about is named once, by one of three ways.
func TestWhereACheckNamesItsRequest(t *testing.T) {
	t.Parallel()
	g := startChecks(t, byHeader)
	const bare = "GET /check HTTP/1.1\r\nHost: s\r\nX-Sku: a\r\n"
	f := func(name, text string, status int, code stock.Code) {
		t.Helper()
		r := g.do(text + "\r\n")
		if status == 200 {
			r.wantsLease(t, `"a";q=3`)
			return
		}
		if r.StatusCode != status || !strings.Contains(r.body, `"code":"`+string(code)+`"`) || r.Header.Get("Stockgate-Reservation") != "" {
			t.Errorf("%s: %d %s, want %d %s", name, r.StatusCode, r.body, status, code)
		}
	}
	f("in the path", "POST /check/buy?qty=3 HTTP/1.1\r\nHost: s\r\nX-Sku: a\r\n", 200, "")
	f("as nginx", bare+"X-Original-Method: POST\r\nX-Original-URI: /buy?qty=3\r\n", 200, "")
	f("as Traefik", bare+"X-Forwarded-Method: POST\r\nX-Forwarded-Uri: /buy?qty=3\r\n", 200, "")
	f("nowhere", bare, 400, stock.CodeBadRequest)
	f("without a method", bare+"X-Original-URI: /buy?qty=3\r\n", 400, stock.CodeBadRequest)
	f("with the method of the other way", bare+"X-Original-URI: /buy?qty=3\r\nX-Forwarded-Method: POST\r\n", 400, stock.CodeBadRequest)
	f("with an odd method", bare+"X-Original-Method: PO ST\r\nX-Original-URI: /buy?qty=3\r\n", 400, stock.CodeBadRequest)
	f("in two ways", bare+"X-Original-Method: GET\r\nX-Original-URI: /else\r\nX-Forwarded-Method: POST\r\nX-Forwarded-Uri: /buy\r\n", 400, stock.CodeBadRequest)
	f("in the path and beside it", "POST /check/buy HTTP/1.1\r\nHost: s\r\nX-Sku: a\r\nX-Original-Method: GET\r\nX-Original-URI: /else\r\n", 400, stock.CodeBadRequest)
	f("twice", bare+"X-Original-Method: POST\r\nX-Original-URI: /else\r\nX-Original-URI: /buy\r\n", 400, stock.CodeBadRequest)
	f("under what CGI takes for it", bare+"X-Original-Method: POST\r\nX-Original-URI: /else\r\nX_Original_URI: /buy\r\n", 400, stock.CodeBadRequest)
	f("absolute", bare+"X-Original-Method: POST\r\nX-Original-URI: http://s/buy\r\n", 400, stock.CodeBadRequest)
	f("with a space", bare+"X-Original-Method: POST\r\nX-Original-URI: /buy x\r\n", 400, stock.CodeBadRequest)
	f("with a fragment", bare+"X-Original-Method: POST\r\nX-Original-URI: /buy#a\r\n", 400, stock.CodeBadRequest)
	f("elsewhere", "POST /checks/buy HTTP/1.1\r\nHost: s\r\nX-Sku: a\r\n", 404, stock.CodeNoRoute)
	f("without check", "POST /buy HTTP/1.1\r\nHost: s\r\nX-Sku: a\r\n", 404, stock.CodeNoRoute)
	if n := len(g.adm.asked()); n != 3 {
		t.Errorf("%d orders were decided about, want 3", n)
	}
}

// The guard cannot be walked around by asking about another spelling, and what needs no stock is allowed by its limits alone.
func TestACheckIsGuardedAsTheRequestIs(t *testing.T) {
	t.Parallel()
	g := startChecks(t)
	for _, path := range []string{"/orders/", "//orders", "/Orders", "/x/../orders", "/%6Frders", "/orders;a=1"} {
		g.do(checkOf("POST", "/check"+path, goodBody)).wants(t, 400, stock.CodeBadRequest)
	}
	g.do(checkOf("PUT", "/check/orders", goodBody)).wants(t, 405, stock.CodeMethodNotAllowed)
	for _, request := range []string{"GET /check/", "GET /check/search?q=a", "DELETE /check/basket"} {
		r := g.do(request + " HTTP/1.1\r\nHost: s\r\n\r\n")
		if r.StatusCode != 200 || r.Header.Get("Stockgate-Lines") != "" || r.Header.Get("Stockgate-Reservation") != "" {
			t.Errorf("%s: %d %v", request, r.StatusCode, r.Header)
		}
	}
	if n := len(g.adm.asked()); n != 0 {
		t.Errorf("%d orders were decided about", n)
	}
}

// A field that may stand in a body which did not come along is not taken for absent: a quantity would be 1.
func TestACheckWithoutABody(t *testing.T) {
	t.Parallel()
	g := startChecks(t, func(c *Config, _ *Parts) {
		c.Routes = append([]Route{
			{Name: "cart", Path: "/checkout", Upstream: "orders", Admit: &Admit{Lines: Body("items"), SKU: []Place{InLine("sku")}, Qty: []Place{InLine("qty")}}},
			{Name: "either", Path: "/either", Upstream: "orders", Admit: &Admit{SKU: []Place{Header("X-Sku")}, Qty: []Place{Body("qty"), Header("X-Qty")}}},
			{Name: "form", Path: "/form", Upstream: "orders", Admit: &Admit{SKU: []Place{Header("X-Sku")}, Request: []Place{Form("key")}}},
		}, c.Routes...)
	})
	f := func(path, lines, field string) {
		t.Helper()
		r := g.do("POST /check" + path + " HTTP/1.1\r\nHost: s\r\nContent-Type: application/json\r\n" + lines + "\r\n")
		r.wants(t, 400, stock.CodeBadRequest)
		if !strings.Contains(r.body, `"field":"`+field+`"`) || !strings.Contains(r.body, "without the request's body") {
			t.Errorf("%s: %s", path, r.body)
		}
	}
	f("/orders", "", "sku")
	f("/checkout", "", "lines")
	f("/either", "X-Sku: a\r\n", "qty")
	f("/form", "X-Sku: a\r\n", "request")
	if n := len(g.adm.asked()); n != 0 {
		t.Errorf("%d orders were decided about", n)
	}
	g.do("POST /check/either HTTP/1.1\r\nHost: s\r\nX-Sku: a\r\nX-Qty: 4\r\n\r\n").wantsLease(t, `"a";q=4`)
	g.do(checkOf("POST", "/check/orders", goodBody, "X-Envoy-Auth-Partial-Body: true\r\n")).wants(t, 413, stock.CodeBodyTooLarge)
}

// The same id again gets the same reservation while it is held or paid, and nothing else.
func TestARepeatedCheck(t *testing.T) {
	t.Parallel()
	g := startChecks(t)
	now := time.UnixMilli(leaseEnds).Add(-time.Second)
	row := stock.Row{Reservation: stock.Reservation{ID: testID, Lines: []stock.Line{{SKU: "sku-1001", Qty: 2}}}, State: stock.StateHeld,
		Outcome: stock.OutcomeAccepted, ExpiresAt: time.UnixMilli(leaseEnds), Now: now}
	f := func(change func(*stock.Row), status int, code stock.Code) {
		t.Helper()
		own := row
		if change != nil {
			change(&own)
		}
		g.adm.decide = func(*admission.Wish) admission.Decision {
			return admission.Decision{Source: admission.SourceDatabase, Reservation: testID, Replay: &stock.Answer{Status: 201}, Row: &own}
		}
		r := g.do(checkOf("POST", "/check/orders", goodBody, keyOne))
		if status == 200 {
			r.wantsLease(t, `"sku-1001";q=2`)
			return
		}
		r.wants(t, status, code)
	}
	f(nil, 200, "")
	f(func(r *stock.Row) { r.State, r.Now = stock.StateConfirmed, now.Add(time.Hour) }, 200, "")
	f(func(r *stock.Row) { r.Now = r.ExpiresAt }, 409, stock.CodeInFlight)
	f(func(r *stock.Row) { r.State = stock.StateReleased }, 409, stock.CodeReleased)
	f(func(r *stock.Row) { r.Released = []int64{1} }, 409, stock.CodeReleased)
	if n := g.adm.outcomes(); n != 0 {
		t.Errorf("%d outcomes were booked for repeats", n)
	}
	g.adm.decide = func(*admission.Wish) admission.Decision {
		return admission.Decision{Replay: &stock.Answer{Status: 201}} // of what it is nobody says
	}
	g.do(checkOf("POST", "/check/orders", goodBody, keyOne)).wants(t, 500, stock.CodeInternal)
}

func TestARefusedCheck(t *testing.T) {
	t.Parallel()
	soldOut := func(*admission.Wish) admission.Decision {
		return admission.Decision{Source: admission.SourceRedis, Refusal: &admission.Refusal{Code: stock.CodeSoldOut}}
	}
	waits := func(*admission.Wish) admission.Decision {
		return admission.Decision{Refusal: &admission.Refusal{Code: stock.CodeUnavailable, RetryAfter: 5 * time.Second}}
	}
	for instead, want := range map[int][2]int{0: {409, 503}, 403: {403, 403}} {
		g := startChecks(t, func(c *Config, _ *Parts) { c.CheckDenyStatus = instead })
		for i, decide := range []func(*admission.Wish) admission.Decision{soldOut, waits} {
			g.adm.decide = decide
			r := g.do(checkOf("POST", "/check/orders", goodBody))
			status, code := []string{"409", "503"}[i], []string{"SOLD_OUT", "UNAVAILABLE"}[i]
			if r.StatusCode != want[i] || r.Header.Get("Stockgate-Status") != status || r.Header.Get("Stockgate-Code") != code {
				t.Errorf("deny_status %d: %d with %v", instead, r.StatusCode, r.Header)
			}
			if !strings.Contains(r.body, `"status":`+status) || (r.Header.Get("Retry-After") == "") != (i == 0) {
				t.Errorf("deny_status %d: Retry-After %q, %s", instead, r.Header.Get("Retry-After"), r.body)
			}
		}
		r := g.do("GET /check/orders HTTP/1.1\nHost: s\n\n")
		if want := max(instead, 400); r.StatusCode != want || r.Header.Get("Stockgate-Status") != "400" {
			t.Errorf("deny_status %d, a broken check: %d with %v", instead, r.StatusCode, r.Header)
		}
		g.adm.decide = nil
		g.do(checkOf("POST", "/check/orders", goodBody)).wantsLease(t, `"sku-1001";q=2`)
	}
}

// In shadow every order is allowed, and nothing is taken for it.
func TestACheckInShadow(t *testing.T) {
	t.Parallel()
	seen := &fakeShadow{}
	g := startChecks(t, inShadow(always, seen))
	for _, body := range []string{goodBody, `{"sku":1}`} {
		if r := g.do(checkOf("POST", "/check/orders", body)); r.StatusCode != 200 || r.Header.Get("Stockgate-Lines") != "" || r.Header.Get("Stockgate-Source") != "" {
			t.Errorf("%s: %d %v", body, r.StatusCode, r.Header)
		}
	}
	if len(g.adm.asked()) != 0 || len(seen.decided) != 1 || len(seen.refused) != 1 || seen.back != 0 {
		t.Errorf("%d orders were decided about; shadow saw %+v", len(g.adm.asked()), seen)
	}
}

// TestChecksOverTLS: with check.tls only a proxy that shows a certificate is answered, whatever the public side speaks.
func TestChecksOverTLS(t *testing.T) {
	t.Parallel()
	ca := certtest.New(t)
	source := sourceOf(t, ca, func(l *certs.Listening) {
		l.CA = certtest.Write(t, t.TempDir(), "ca.crt", ca.PEM)
	})
	g := startChecks(t, func(c *Config, _ *Parts) { c.CheckTLS = source })
	order := checkOf("POST", "/check/orders", goodBody, keyOne)

	proxy := clientOfShop(ca)
	proxy.Certificates = []tls.Certificate{ca.Issue(t, time.Hour, "proxy.example").TLS(t)}
	w := dialWire(t, g.addr).over(proxy)
	w.send(order)
	w.receive("POST").wantsLease(t, `"sku-1001";q=2`)

	stranger := tls.Client(dialWire(t, g.addr).Conn, clientOfShop(ca))
	_, _ = io.WriteString(stranger, order) // with TLS 1.3 the refusal comes behind the handshake
	if b, err := io.ReadAll(stranger); err == nil || len(b) > 0 {
		t.Errorf("without a certificate there was an answer: %q, %v", b, err)
	}
	if got := g.do(order); got.StatusCode != 400 {
		t.Errorf("in plain text the answer is %d", got.StatusCode)
	}
	if n := len(g.adm.asked()); n != 1 {
		t.Errorf("%d orders were admitted, want 1", n)
	}
}
