package gateway

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/stock"
)

// carts makes the guarded route one of carts.
func carts(c *Config, _ *Parts) {
	c.CartLines = 3
	c.Routes[0].Admit = &Admit{Lines: Body("cart.items"), SKU: []Place{InLine("sku")}, Qty: []Place{InLine("n")},
		User: []Place{Header("X-User-Id"), Body("user")}, Request: []Place{Header("Idempotency-Key")}}
}

func cartOf(lines ...string) string {
	return `{"user":"u1","cart":{"items":[` + strings.Join(lines, ",") + `]}}`
}

// TestCartsAreMergedAndTold: units of one SKU are one line, lines are in the order of SKU bytes, and the backend is told all of them.
func TestCartsAreMergedAndTold(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), carts)
	f := func(body, told string, want ...stock.Line) {
		t.Helper()
		if got := g.do(orderOf(body)); got.StatusCode != 201 {
			t.Fatalf("%s: %d %s", body, got.StatusCode, got.body)
		}
		asked, sent := g.adm.asked(), b.requests()
		if last := asked[len(asked)-1]; !slices.Equal(last.Lines, want) || last.User != "u1" {
			t.Errorf("%s was understood as %+v", body, last)
		}
		last := sent[len(sent)-1]
		if got := last.header(t, "Stockgate-Lines"); got != told || last.body != body {
			t.Errorf("%s was sent on as %s with lines %s", body, last.body, got)
		}
		if one := len(want) == 1; (last.header(t, "Stockgate-Sku") != "") != one || (last.header(t, "Stockgate-Qty") != "") != one {
			t.Errorf("%s: Stockgate-Sku and -Qty are for one line only: %s", body, last.head)
		}
	}
	f(cartOf(`{"sku":"sku-2"}`, `{"sku":"sku-1","n":2}`), `"sku-1";q=2, "sku-2";q=1`,
		stock.Line{SKU: "sku-1", Qty: 2}, stock.Line{SKU: "sku-2", Qty: 1})
	f(cartOf(`{"sku":"b","n":2}`, `{"n":5,"sku":"a"}`, `{"sku":"b"}`), `"a";q=5, "b";q=3`, stock.Line{SKU: "a", Qty: 5}, stock.Line{SKU: "b", Qty: 3})
	f(cartOf(`{"sku":"a"}`), `"a";q=1`, stock.Line{SKU: "a", Qty: 1})
	f(cartOf(`{"sku":"a"}`, `{"sku":"a"}`), `"a";q=2`, stock.Line{SKU: "a", Qty: 2})
}

// TestCartSignature covers the lines as they are told.
func TestCartSignature(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	now := time.Unix(1_800_000_000, 0)
	g := startGate(t, b.addr(), carts, func(c *Config, p *Parts) {
		c.Upstreams[0].SignKeys = []SignKey{{ID: "k1", Secret: []byte("0123456789abcdef")}}
		p.Now = func() time.Time { return now }
	})
	body := cartOf(`{"sku":"sku-2"}`, `{"sku":"sku-1","n":2}`)
	g.do(orderOf(body))
	sent := b.only()
	sum := sha256.Sum256([]byte(body))
	mac := hmac.New(sha256.New, []byte("0123456789abcdef"))
	fmt.Fprintf(mac, "v1\n%d\nPOST\n/orders\n%s\n%s\n%s\n%s", now.Unix(), testID, `"sku-1";q=2, "sku-2";q=1`,
		sent.header(t, "Stockgate-Forward-By"), hex.EncodeToString(sum[:]))
	want := "t=1800000000,k=k1,v1=" + hex.EncodeToString(mac.Sum(nil))
	if got := sent.header(t, "Stockgate-Signature"); got != want {
		t.Errorf("signature is %s, want %s", got, want)
	}
}

func TestC008_OddCarts(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), carts)
	f := func(body string, says ...string) {
		t.Helper()
		got := g.do(orderOf(body))
		got.wants(t, 400, stock.CodeBadRequest)
		for _, s := range says {
			if !strings.Contains(got.body, s) {
				t.Errorf("cart %s: the answer %s does not say %s", body, got.body, s)
			}
		}
	}
	const bound = `"limit":"server.cart_lines","value":"3"`
	f(cartOf(), "has 0 elements", bound)
	f(cartOf(`{"sku":"a"}`, `{"sku":"b"}`, `{"sku":"c"}`, `{"sku":"d"}`), "has 4 elements", bound)
	f(`{"user":"u1"}`, "lines is missing; it was looked for in body.cart.items")
	f(`{"user":"u1","cart":{}}`, "lines is missing")
	f(`{"user":"u1","cart":[]}`, "lines is missing")
	f(`{"user":"u1","cart":{"items":{"0":{"sku":"a"}}}}`, "is a JSON object, it must be a list")
	f(`{"user":"u1","cart":{"items":null}}`, "is a JSON null, it must be a list")
	f(`{"user":"u1","cart":"a"}`, "body.cart.items", "string")
	f(`{"user":"u1","cart":{"items":[{"sku":"a"}],"items":[{"sku":"b"}]}}`, "body.cart.items is there twice")
	f(`{"user":"u1","cart":{"items":[{"sku":"a"}]},"Cart":{"items":[{"sku":"b"}]}}`, "body.cart is there twice, or in another case")
	for _, line := range []string{"null", "7", `"a"`, "[]", `[{"sku":"a"}]`} {
		f(cartOf(`{"sku":"a"}`, line), "body.cart.items.1 is a JSON", "every line must be an object")
	}
	f(cartOf(`{"sku":"a"}`, `{"n":1}`), "sku is missing; it was looked for in body.cart.items.1.sku")
	f(cartOf(`{"sku":"a","sku":"b"}`), "body.cart.items.0.sku is there twice")
	f(cartOf(`{"sku":"a"}`, `{"sku":"b","SKU":"c"}`), "body.cart.items.1.sku is there twice, or in another case")
	f(cartOf(`{"sku":"a"}`, `{"sku":"b","n":1,"N":2}`), "body.cart.items.1.n is there twice, or in another case")
	f(cartOf(`{"sku":"a"}`, `{"sku":"b c"}`), "sku (body.cart.items.1.sku)")
	for _, n := range []string{"0", "-1", "1.0", "1e0", `"2"`, "null", "true", "101", "9223372036854775807", "18446744073709551617"} {
		f(cartOf(`{"sku":"a"}`, `{"sku":"b","n":`+n+`}`), `"field":"qty","limit":"max_qty","value":"100","sku":"b"`)
	}
	// Two lines of the largest number, and a sum above what one order may have.
	f(cartOf(`{"sku":"a","n":9223372036854775807}`, `{"sku":"a","n":9223372036854775807}`), `"field":"qty"`)
	f(cartOf(`{"sku":"a","n":60}`, `{"sku":"b"}`, `{"sku":"a","n":41}`), "qty of a adds up to 101", `"limit":"max_qty","value":"100","sku":"a"`)
	// What a backend could find in the query in place of the list.
	got := g.do(strings.Replace(orderOf(cartOf(`{"sku":"a"}`)), "/orders", "/orders?cart[items]=x", 1))
	got.wants(t, 400, stock.CodeBadRequest)
	if asked := g.adm.asked(); len(asked) > 0 || len(b.requests()) > 0 {
		t.Errorf("the admission was asked: %+v, the backend got %d requests", asked, len(b.requests()))
	}
}

// TestCartSumsStayExact: up to the largest quantity, and not beyond.
func TestCartSumsStayExact(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), carts, func(_ *Config, p *Parts) { p.Rules = fixedRules{maxQty: stock.MaxQuantity} })
	half := itoa(int(stock.MaxQuantity / 2))
	if got := g.do(orderOf(cartOf(`{"sku":"a","n":`+half+`}`, `{"sku":"a","n":`+half+`}`))); got.StatusCode != 201 {
		t.Fatalf("2^53 in two lines: %d %s", got.StatusCode, got.body)
	}
	if asked := g.adm.asked(); asked[0].Lines[0].Qty != stock.MaxQuantity {
		t.Errorf("understood as %+v", asked[0].Lines)
	}
	g.do(orderOf(cartOf(`{"sku":"a","n":`+half+`}`, `{"sku":"a","n":`+half+`}`, `{"sku":"a"}`))).wants(t, 400, stock.CodeBadRequest)
}

// TestRetriesUnderOtherRules: an order that can be read, but that the rules do not allow, may have been admitted under others.
func TestRetriesUnderOtherRules(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), carts)
	var asked []admission.Wish
	g.adm.recall = func(w *admission.Wish) (admission.Decision, bool) {
		asked = append(asked, *w)
		return admission.Decision{Source: admission.SourceNone, Reservation: testID, Replay: &stock.Answer{Status: 201, Body: []byte("before")}}, true
	}
	keyed := func(body string) string {
		return strings.Replace(orderOf(body), "\r\n\r\n", "\r\nIdempotency-Key: k\r\n\r\n", 1)
	}
	f := func(body string, want ...stock.Line) {
		t.Helper()
		asked = nil
		got := g.do(keyed(body))
		if got.StatusCode != 201 || got.body != "before" || got.Header.Get("Stockgate-Replayed") != "stored" {
			t.Errorf("%s: %d %s", body, got.StatusCode, got.body)
		}
		if len(asked) != 1 || !slices.Equal(asked[0].Lines, want) || asked[0].User != "u1" || asked[0].RequestID != "k" {
			t.Errorf("%s asked for %+v", body, asked)
		}
	}
	f(cartOf(`{"sku":"b","n":101}`, `{"sku":"a","n":500}`), stock.Line{SKU: "a", Qty: 500}, stock.Line{SKU: "b", Qty: 101})
	f(cartOf(`{"sku":"b","n":60}`, `{"sku":"a"}`, `{"sku":"b","n":60}`), stock.Line{SKU: "a", Qty: 1}, stock.Line{SKU: "b", Qty: 120})
	bad := func(request string) {
		t.Helper()
		asked = nil
		if g.do(request).wants(t, 400, stock.CodeBadRequest); len(asked) > 0 {
			t.Errorf("%s asked for %+v", request, asked)
		}
	}
	bad(orderOf(cartOf(`{"sku":"b","n":101}`))) // without a key nobody comes again
	bad(keyed(cartOf(`{"sku":"b","n":101}`, `{"sku":"a","n":0}`)))
	bad(keyed(cartOf(`{"sku":"b","n":101}`, `{"n":1}`)))
	bad(keyed(cartOf(`{"sku":"b","n":9007199254740993}`)))
	bad(keyed(cartOf(`{"sku":"b","n":9007199254740992}`, `{"sku":"b"}`)))
	bad(keyed(strings.Replace(cartOf(`{"sku":"b","n":101}`), `"u1"`, `""`, 1)))
	g.adm.recall = nil
	bad(keyed(cartOf(`{"sku":"b","n":101}`)))
	if len(b.requests()) > 0 || len(g.adm.asked()) > 0 {
		t.Errorf("%d requests were forwarded, %d admissions asked for", len(b.requests()), len(g.adm.asked()))
	}
}

// TestRefusalsOfCartsNameTheSKU, whoever decided.
func TestRefusalsOfCartsNameTheSKU(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	limit := &cartLimit{}
	g := startGate(t, b.addr(), carts, func(_ *Config, p *Parts) { p.Limits = filters.NewChain(limit) })
	body := orderOf(cartOf(`{"sku":"b"}`, `{"sku":"a","n":2}`))
	f := func(code stock.Code, status int, says string) {
		t.Helper()
		got := g.do(body)
		got.wants(t, status, code)
		if !strings.Contains(got.body, says) {
			t.Errorf("answer %s does not say %s", got.body, says)
		}
	}
	refusal := &admission.Refusal{Code: stock.CodeSoldOut, SKU: "b"}
	g.adm.decide = func(*admission.Wish) admission.Decision {
		return admission.Decision{Source: admission.SourceRedis, Refusal: refusal}
	}
	f(stock.CodeSoldOut, 409, `"sku":"b"`)
	refusal = &admission.Refusal{Code: stock.CodePurchaseLimit, Limit: "activities[11.11].purchase_limit", Value: "1", SKU: "a"}
	f(stock.CodePurchaseLimit, 409, `"limit":"activities[11.11].purchase_limit","value":"1","sku":"a"`)
	limit.refuse = true
	f(stock.CodeSKULimited, 429, `"limit":"hotspot.shared.queue","value":"5","sku":"b"`)
	if want := []stock.Line{{SKU: "b", Qty: 1}}; limit.sku != "a" || limit.qty != 2 || !slices.Equal(limit.more, want) {
		t.Errorf("the limits were told %s %d %+v", limit.sku, limit.qty, limit.more)
	}
}

// cartLimit refuses the last line on demand.
type cartLimit struct {
	refuse bool
	sku    string
	qty    int64
	more   []stock.Line
}

func (*cartLimit) Name() string { return "cart" }

func (l *cartLimit) Enter(r *filters.Request) *filters.Refusal {
	l.sku, l.qty, l.more = r.SKU, r.Qty, slices.Clone(r.More)
	if !l.refuse {
		return nil
	}
	refusal := r.Refuse(stock.CodeSKULimited, "hotspot.shared.queue", "5", time.Second)
	refusal.SKU = r.More[len(r.More)-1].SKU
	return refusal
}

func (*cartLimit) Leave(*filters.Request) {}

// TestConfigOfCarts: places inside a line only with lines, and always then.
func TestConfigOfCarts(t *testing.T) {
	t.Parallel()
	f := func(a Admit, says string) {
		t.Helper()
		err := errorsOf(a.validate("routes.x.admit."))
		if (says == "") != (err == "") || !strings.Contains(err, says) {
			t.Errorf("%+v: %q, want %q", a, err, says)
		}
	}
	sku, inside := []Place{Body("sku")}, []Place{InLine("sku")}
	f(Admit{Lines: Body("items"), SKU: inside}, "")
	f(Admit{Lines: Body("items"), SKU: sku}, "must be inside a line")
	f(Admit{SKU: inside}, "must not be without")
	f(Admit{SKU: sku, Qty: inside}, "must not be without")
	f(Admit{Lines: Header("X-Lines"), SKU: inside}, `lines is "header.X-Lines"`)
	f(Admit{Lines: Body("items"), SKU: inside, User: inside}, "of the whole order")
}

func errorsOf(errs []error) string {
	var b strings.Builder
	for _, err := range errs {
		b.WriteString(err.Error() + "\n")
	}
	return b.String()
}
