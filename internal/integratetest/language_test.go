package integratetest

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/ordercall"
	"github.com/stockgate/stockgate/internal/testservices"
)

// languages are the small order services of examples/integrate with the commands that their files name.
var languages = []struct {
	name string
	argv func() []string
}{
	{"Go", func() []string { return []string{filepath.Join(built, "small")} }},
	{"Java", func() []string { return []string{"java", "examples/integrate/java/OrderService.java"} }},
	{"Node", func() []string { return []string{"node", "examples/integrate/node/orderservice.mjs"} }},
}

// In every language the order service takes what a gateway has signed, once, and nothing else; then it brings orders through their life
// behind a gateway.
func TestTheOrderServicesOfThePage(t *testing.T) {
	t.Parallel()
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, testservices.FreePort(t))
			listen := fmt.Sprintf("127.0.0.1:%d", g.backend)
			base := "http://" + listen
			control := newControlSide(t, g.control)
			start(t, base+"/", []string{"LISTEN=" + listen, "SIGN_SECRET=" + secret, "CONTROL_URL=" + control.URL, "CONTROL_TOKEN=" + token}, l.argv()...)
			t.Run("takes what is signed", func(t *testing.T) { takesWhatIsSigned(t, base) })
			t.Run("one order per reservation", func(t *testing.T) { oneOrderPerReservation(t, base) })
			t.Run("makes void", func(t *testing.T) { makesVoid(t, base) })
			t.Run("says what became of it", func(t *testing.T) { saysWhatBecameOfIt(t, base) })
			g.start()
			t.Run("confirm, release, extend", func(t *testing.T) { livesBehind(t, g, control) })
		})
	}
}

func takesWhatIsSigned(t *testing.T, base string) {
	f := func(name string, want int, before, after func(*request)) {
		t.Helper()
		r := anOrder()
		if before != nil {
			before(r)
		}
		a := r.send(t, base, after)
		if rejected := a.outcome == "rejected"; a.status != want || rejected != (want >= 400) {
			t.Errorf("%s: %d with Stockgate-Outcome %q, want %d: %s", name, a.status, a.outcome, want, a.body)
		}
		if state := resolve(t, base, r.reservation); want >= 400 && state.status != http.StatusNotFound {
			t.Errorf("%s: refused, and yet it knows the reservation: %d %s", name, state.status, state.body)
		}
	}
	f("as it should be", 201, nil, nil)
	f("a wrong signature", 401, nil, func(r *request) { r.signature = r.signature[:len(r.signature)-1] + other(r.signature) })
	f("a short signature", 401, nil, func(r *request) { r.signature = r.signature[:len(r.signature)-2] })
	f("no signature", 401, nil, func(r *request) { r.signature = "" })
	f("nonsense for a signature", 401, nil, func(r *request) { r.signature = "t=,k,=v1,,=" })
	f("a key that is not known", 401, nil, func(r *request) { r.signature = "t=1,k=constructor,v1=00" })
	f("signed with another secret", 401, func(r *request) { r.key = "fedcba9876543210" }, nil)
	f("recorded long ago", 401, func(r *request) { r.at = r.at.Add(-time.Hour) }, nil)
	f("from the future", 401, func(r *request) { r.at = r.at.Add(time.Hour) }, nil)
	f("another body", 401, nil, func(r *request) { r.body = `{"sku":"sku-1","qty":8,"user":"u1"}` })
	f("another target", 401, nil, func(r *request) { r.target = "/orders?ref=male" })
	f("other lines", 401, nil, func(r *request) { r.lines = `"sku-1";q=3` })
	f("another forward-by", 401, nil, func(r *request) { r.forwardBy = r.forwardBy.Add(time.Minute) })
	f("after forward-by", 410, func(r *request) { r.forwardBy = time.Now().Add(-time.Second) }, nil)
	r := anOrder()
	if a := r.send(t, base, func(sent *request) { sent.reservation = anOrder().reservation }); a.status != 401 {
		t.Errorf("another reservation: %d %s", a.status, a.body)
	}
}

// other is a hex digit that is not the last one of s.
func other(s string) string {
	if s[len(s)-1] == '0' {
		return "1"
	}
	return "0"
}

func oneOrderPerReservation(t *testing.T, base string) {
	r := anOrder()
	first := r.send(t, base, nil)
	if first.status != http.StatusCreated || first.order.Order == "" || first.order.Reservation != r.reservation {
		t.Fatalf("%d %s", first.status, first.body)
	}
	if l := first.order.Lines; len(l) != 1 || l[0].SKU != "sku-1" || l[0].Qty != 2 {
		t.Errorf("lines %v, want what Stockgate-Lines says and not the body", l)
	}
	r.forwardBy = time.Now().Add(-time.Second)
	if again := r.send(t, base, nil); again.status != http.StatusCreated || again.body != first.body {
		t.Errorf("the same reservation again, late: %d %s, at first %s", again.status, again.body, first.body)
	}
	cart := anOrder()
	cart.target, cart.lines, cart.body = "/checkout", `"sku-1";q=2, "sku-2";q=1`, `{}`
	if a := cart.send(t, base, nil); a.status != http.StatusCreated || len(a.order.Lines) != 2 || a.order.Lines[1].SKU != "sku-2" {
		t.Errorf("a cart: %d %s", a.status, a.body)
	} else if a.order.Order == first.order.Order {
		t.Errorf("two orders are called %s", a.order.Order)
	}
}

// void asks to make an order void as the gateway does; key signs.
func void(t *testing.T, base, reservation, key string) int {
	t.Helper()
	target, body := "/orders/by-reservation/"+reservation+"/void", `{"reservation":"`+reservation+`","reason":"surplus","lines":[]}`
	req, err := http.NewRequest(http.MethodPost, base+target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Stockgate-Reservation", reservation)
	req.Header.Set("Stockgate-Signature", ordercall.NewSigner(keyID, []byte(key), time.Now)(http.MethodPost, target, reservation, []byte(body)))
	return do(t, req).status
}

// An order that is made void is cancelled, once and for all; so is one whose request comes only afterwards.
func makesVoid(t *testing.T, base string) {
	there, later := anOrder(), anOrder()
	if a := there.send(t, base, nil); a.status != http.StatusCreated {
		t.Fatalf("%d %s", a.status, a.body)
	}
	for _, r := range []*request{there, later} {
		if status := void(t, base, r.reservation, "fedcba9876543210"); status != http.StatusUnauthorized {
			t.Errorf("signed by somebody else: %d", status)
		}
		for range 2 { // an answer may get lost
			if status := void(t, base, r.reservation, secret); status != http.StatusOK {
				t.Errorf("void: %d", status)
			}
		}
		if a := r.send(t, base, nil); a.status != http.StatusGone || a.outcome != "rejected" {
			t.Errorf("an order of a void reservation: %d with Stockgate-Outcome %q: %s", a.status, a.outcome, a.body)
		}
		if a := resolve(t, base, r.reservation); a.order.State != "cancelled" {
			t.Errorf("resolve: %d %s", a.status, a.body)
		}
	}
}

// resolve asks as the gateway does, with the gateway's own signer.
func resolve(t *testing.T, base, reservation string) *answer {
	t.Helper()
	target := "/orders/by-reservation/" + reservation
	req, err := http.NewRequest(http.MethodGet, base+target, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Stockgate-Reservation", reservation)
	req.Header.Set("Stockgate-Signature", ordercall.NewSigner(keyID, []byte(secret), time.Now)(http.MethodGet, target, reservation, nil))
	return do(t, req)
}

// step makes one step of an order's life, as the shop's pages would.
func step(t *testing.T, base, reservation, step string) *answer {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, base+"/orders/"+reservation+"/"+step, nil)
	if err != nil {
		t.Fatal(err)
	}
	return do(t, req)
}

func saysWhatBecameOfIt(t *testing.T, base string) {
	f := func(reservation string, status int, state string) {
		t.Helper()
		if a := resolve(t, base, reservation); a.status != status || a.order.State != state {
			t.Errorf("asked: %d %s, want %d %s", a.status, a.body, status, state)
		}
	}
	r := anOrder()
	f(r.reservation, 404, "")
	r.send(t, base, nil)
	f(r.reservation, 200, "open")
	resp, err := client.Get(base + "/orders/by-reservation/" + r.reservation)
	if err != nil {
		t.Fatal(err)
	}
	if _ = resp.Body.Close(); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("asked without a signature: %s", resp.Status)
	}

	// Asked after its end, the order is closed, and that is the end of it.
	late := anOrder()
	late.expires = time.Now()
	late.send(t, base, nil)
	f(late.reservation, 200, "cancelled")
	if a := step(t, base, late.reservation, "pay"); a.status != http.StatusConflict {
		t.Errorf("paid after it was closed: %d %s", a.status, a.body)
	}
	f(late.reservation, 200, "cancelled")
	if a := late.send(t, base, nil); a.status != http.StatusGone || a.outcome != "rejected" {
		t.Errorf("the request of a cancelled order again: %d with Stockgate-Outcome %q: %s", a.status, a.outcome, a.body)
	}

	// A payment after the end is refused, asked or not.
	unasked := anOrder()
	unasked.expires = time.Now()
	unasked.send(t, base, nil)
	if a := step(t, base, unasked.reservation, "pay"); a.status != http.StatusConflict {
		t.Errorf("paid after its end: %d %s", a.status, a.body)
	}
}
