package control

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/stock"
)

// door is an admission that decides as it is told and remembers what was asked and booked.
type door struct {
	decide func(w *admission.Wish) admission.Decision
	wishes []admission.Wish
	booked []admission.Outcome
}

func (d *door) Admit(_ context.Context, w *admission.Wish) admission.Decision {
	d.wishes = append(d.wishes, *w)
	return d.decide(w)
}

func (d *door) Recall(context.Context, *admission.Wish) (admission.Decision, bool) {
	return admission.Decision{}, false
}

func (d *door) Book(_ context.Context, _ *admission.Pass, o admission.Outcome) {
	d.booked = append(d.booked, o)
}

// through lets everybody in, as the reservation of the tests.
func through(w *admission.Wish) admission.Decision {
	at := time.Date(2026, 11, 10, 16, 0, 0, 0, time.UTC)
	return admission.Decision{Source: admission.SourceRedis, Pass: &admission.Pass{
		Reservation: &stock.Reservation{ID: must(stock.ParseID(reservationID)), Try: 7, User: w.User, Route: w.Route, Lines: w.Lines, Hold: 15 * time.Minute},
		ExpiresAt:   at.Add(15 * time.Minute), ForwardBy: at.Add(2 * time.Second)}}
}

func refusing(f admission.Refusal) func(*admission.Wish) admission.Decision {
	return func(*admission.Wish) admission.Decision { return admission.Decision{Refusal: &f} }
}

func atTheDoor(t *testing.T, decide func(w *admission.Wish) admission.Decision) (*bundle, *door) {
	t.Helper()
	d := &door{decide: decide}
	return setup(t, func(_ *Config, deps *Deps) { deps.Admission = d }), d
}

const created = `{"reservation":"` + reservationID + `","state":"held","outcome":"accepted","user":"u1","route":"api",` +
	`"lines":[{"sku":"sku-1","qty":2}],"expires_at":"2026-11-10T16:15:00Z","forward_by":"2026-11-10T16:00:02Z"}`

func TestADirectReservationIsBookedAsAcceptedWithItsAnswer(t *testing.T) {
	t.Parallel()
	b, d := atTheDoor(t, through)
	for _, key := range []string{`k-1`, `"k-1"`} {
		got := b.do("POST", "/v1/reservations", `{"sku":"sku-1","qty":2,"user":"u1","activity":"11.11"}`, "Idempotency-Key", key)
		if got.status != 201 || got.body != created || got.header.Get("Content-Type") != "application/json" {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	for i, w := range d.wishes {
		if w.RequestID != "k-1" || w.Route != "api" || w.Activity != "11.11" || w.User != "u1" || fmt.Sprint(w.Lines) != "[{sku-1 2}]" {
			t.Errorf("wish %+v", w)
		}
		if o := d.booked[i]; o.Kind != admission.Accepted || o.Confirm || o.Answer.Status != 201 || strings.TrimSpace(string(o.Answer.Body)) != created {
			t.Errorf("booked %+v", o)
		}
	}
	b.do("POST", "/v1/reservations", `{"lines":[{"sku":"sku-2","qty":2},{"sku":"sku-1"},{"sku":"sku-2","qty":1}]}`)
	if w := d.wishes[2]; fmt.Sprint(w.Lines) != "[{sku-1 1} {sku-2 3}]" || w.RequestID != "" {
		t.Errorf("wish %+v", w)
	}
}

func TestC042_TheSameRequestIDGetsTheSameAnswer(t *testing.T) {
	t.Parallel()
	answer := &stock.Answer{Status: 201, Body: []byte(created + "\n"), Headers: []stock.Header{{Name: "Content-Type", Value: "application/json"}}}
	b, d := atTheDoor(t, func(*admission.Wish) admission.Decision { return admission.Decision{Replay: answer} })
	got := b.do("POST", "/v1/reservations", `{"sku":"sku-1","qty":2,"user":"u1"}`, "Idempotency-Key", "k-1")
	if got.status != 201 || got.body != created || got.header.Get("Stockgate-Replayed") != "stored" || len(d.booked) != 0 {
		t.Fatalf("%d %v %s", got.status, got.header, got.body)
	}
	answer.Status, answer.Body = 200, []byte(`{"reservation":"`+reservationID+`","state":"held"}`)
	d.decide = func(*admission.Wish) admission.Decision { return admission.Decision{Replay: answer, Resolved: true} }
	if got := b.do("POST", "/v1/reservations", `{"sku":"sku-1"}`); got.status != 200 || got.header.Get("Stockgate-Replayed") != "resolved" {
		t.Fatalf("%d %v %s", got.status, got.header, got.body)
	}
}

func TestADirectReservationMayBeHeldLonger(t *testing.T) {
	t.Parallel()
	b, d := atTheDoor(t, through)
	b.place(func(row *stock.Row) { row.Route = "api" })
	got := b.do("POST", "/v1/reservations", `{"sku":"sku-1","hold":"25m"}`)
	if got.status != 201 || !strings.Contains(got.body, `"expires_at":"2026-11-10T16:25:00Z"`) || d.booked[0].Kind != admission.Accepted {
		t.Fatalf("%d %s", got.status, got.body)
	}
	p := b.refused(stock.CodeBadRequest, "must be at most 30m0s", "POST", "/v1/reservations", `{"sku":"sku-1","hold":"1h"}`)
	if p.Limit != "defaults.hold_max" || d.booked[1].Kind != admission.NeverSent {
		t.Fatalf("%+v, booked %+v", p, d.booked[1])
	}
	b.breaks(func(*stock.Op) error { return stock.ErrUnknown })
	b.refused(stock.CodeOutcomeUnknown, "", "POST", "/v1/reservations", `{"sku":"sku-1","hold":"20m"}`)
	if d.booked[2].Kind != admission.NeverSent {
		t.Fatalf("booked %+v", d.booked[2])
	}
}

func TestADirectReservationIsRefusedAsABuyerIs(t *testing.T) {
	t.Parallel()
	b, d := atTheDoor(t, nil)
	for code, status := range map[stock.Code]int{stock.CodeSoldOut: 409, stock.CodePurchaseLimit: 409, stock.CodeReleased: 409, stock.CodeInFlight: 409,
		stock.CodeKeyReused: 422, stock.CodeUnknownSKU: 404, stock.CodeNotStarted: 403, stock.CodeEnded: 403, stock.CodeQueueFull: 503,
		stock.CodeQueueTimeout: 503, stock.CodePaused: 503, stock.CodeNotLoaded: 503, stock.CodeUnavailable: 503, stock.CodeCorruptStock: 503,
		stock.CodeOutcomeUnknown: 504, stock.CodeBadRequest: 400} {
		d.decide = refusing(admission.Refusal{Code: code, Detail: "because", Limit: "a.b", Value: "3", SKU: "sku-1"})
		got := b.do("POST", "/v1/reservations", `{"sku":"sku-1"}`)
		want := `"code":"` + string(code) + `","detail":"because","limit":"a.b","value":"3","sku":"sku-1"}`
		if got.status != status || !strings.HasSuffix(got.body, want) {
			t.Errorf("%s: %d %s", code, got.status, got.body)
		}
		wait := status == 503 || status == 504 || code == stock.CodeInFlight
		if (got.header.Get("Retry-After") != "") != wait {
			t.Errorf("%s: Retry-After %q", code, got.header.Get("Retry-After"))
		}
	}
	d.decide = refusing(admission.Refusal{Code: stock.CodeNotStarted, Starts: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)})
	got := b.do("POST", "/v1/reservations", `{"sku":"sku-1"}`)
	if !strings.Contains(got.body, `"starts":"2100-01-01T00:00:00Z"`) || len(got.header.Get("Retry-After")) < 5 {
		t.Errorf("%v %s", got.header, got.body)
	}
	d.decide = refusing(admission.Refusal{Code: stock.CodeQueueFull, Limit: "a.b", Value: "3", RetryAfter: 7 * time.Second})
	got = b.do("POST", "/v1/reservations", `{"sku":"sku-1"}`)
	if !strings.Contains(got.body, `"detail":"limit a.b = 3"`) || got.header.Get("Retry-After") != "7" {
		t.Errorf("%v %s", got.header, got.body)
	}
}

func TestC008_C044_AnUnclearDirectReservationAsksForNothing(t *testing.T) {
	t.Parallel()
	b, d := atTheDoor(t, through)
	f := func(part, body string, headers ...string) {
		t.Helper()
		b.refused(stock.CodeBadRequest, part, "POST", "/v1/reservations", body, headers...)
	}
	f("sku has 0 bytes", "")
	f("sku has", `{"sku":"a b"}`)
	for _, qty := range []string{"0", "-1", "1.0", "1e0", `"1"`, "null", "9007199254740993"} {
		f("qty is", `{"sku":"sku-2","qty":`+qty+`}`)
	}
	f("qty is 5, allowed of sku-1 is a whole number from 1 to 4", `{"sku":"sku-1","qty":5}`)
	f("qty is 5", `{"lines":[{"sku":"sku-1","qty":3},{"sku":"sku-1","qty":2}]}`)
	f("lines is there beside", `{"lines":[{"sku":"sku-1"}],"sku":"sku-1"}`)
	f("lines is not right", `{"lines":[]}`)
	f("user is", `{"sku":"sku-1","user":7}`)
	f("hold is", `{"sku":"sku-1","hold":"soon"}`)
	f("field is", `{"sku":"sku-1","Qty":1}`)
	for _, key := range []string{"", `""`, "a b", "ä", strings.Repeat("k", 256)} {
		f("Idempotency-Key is", `{"sku":"sku-1"}`, "Idempotency-Key", key)
	}
	f("Idempotency-Key is there twice", `{"sku":"sku-1"}`, "Idempotency-Key", "a", "Idempotency-Key", "b")
	if len(d.wishes) != 0 {
		t.Fatalf("%+v", d.wishes)
	}
}

// service is an order service that has an order of everything.
type service struct{}

func (service) Policy(string) (asks, unique bool, delay time.Duration) {
	return true, false, time.Minute
}

func (service) Ask(context.Context, string, stock.ID) (admission.BackendState, bool) {
	return admission.Open, true
}

func TestNoOrderServiceIsAskedOfADirectReservation(t *testing.T) {
	t.Parallel()
	f := func(others admission.Backend, route, want string) {
		t.Helper()
		b := WithDirect(others)
		asks, unique, delay := b.Policy(route)
		state, ok := b.Ask(context.Background(), route, stock.ID{1})
		if got := fmt.Sprint(asks, unique, delay, state, ok); got != want {
			t.Errorf("%s: %s, want %s", route, got, want)
		}
	}
	f(service{}, stock.RouteAPI, fmt.Sprint(true, true, 0*time.Second, admission.NoOrder, true))
	f(nil, stock.RouteAPI, fmt.Sprint(true, true, 0*time.Second, admission.NoOrder, true))
	f(service{}, "place-order", fmt.Sprint(true, false, time.Minute, admission.Open, true))
	f(nil, "place-order", fmt.Sprint(false, false, 0*time.Second, admission.NoOrder, false))
}
