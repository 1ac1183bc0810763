package orderservice

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

func TestACartIsAnOrderOfSeveralLines(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	b.wantStatus(201, "POST", "/checkout", `{"items":[{"sku":"b","quantity":2},{"sku":"a","quantity":1},{"sku":"b","quantity":1}],"user":"u1"}`)
	b.wantStatus(201, "POST", "/checkout", `{"items":[{"sku":"b","quantity":2}]}`, linesHeader, `"c";q=4`)
	b.wantStatus(422, "POST", "/checkout", `{"items":[{"sku":"b"}]}`)
	got := b.Orders()
	if fmt.Sprint(got[0].Lines) != "[{a 1 0} {b 3 0}]" || fmt.Sprint(got[1].Lines) != "[{c 4 0}]" || len(got) != 2 {
		t.Fatalf("orders %+v", got)
	}
}

func TestRefundsAreDoneOncePerOpAndNeverBeyondTheOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	b.wantStatus(201, "POST", "/orders", `{}`, linesHeader, `"a";q=2, "b";q=1`, reservationHeader, reservation)
	f := func(want int, body string) {
		t.Helper()
		b.wantStatus(want, "POST", "/orders/1/refund", body)
	}
	f(409, `{"lines":[{"sku":"a","qty":1}],"op":"r1"}`) // not paid
	b.wantStatus(200, "POST", "/orders/1/pay", "")
	before := b.Orders()[0]
	f(200, `{"lines":[{"sku":"a","qty":1}],"op":"r1"}`)
	f(200, `{"lines":[{"sku":"a","qty":1}],"op":"r1"}`)
	f(409, `{"lines":[{"sku":"b","qty":1}],"op":"r1"}`)
	f(409, `{"lines":[{"sku":"a","qty":2}],"op":"r2"}`)
	f(409, `{"lines":[{"sku":"b","qty":1},{"sku":"c","qty":1}],"op":"r3"}`) // all or nothing
	f(400, `{"lines":[]}`)
	f(400, `{"lines":[{"sku":"a","qty":-1}]}`)
	f(400, `nonsense`)
	b.wantStatus(404, "POST", "/orders/2/refund", `{"lines":[{"sku":"a","qty":1}]}`)
	if o := b.Orders()[0]; o.State != Paid || fmt.Sprint(o.Lines) != "[{a 2 1} {b 1 0}]" || len(o.Refunds) != 1 {
		t.Fatalf("%+v", o)
	}
	if fmt.Sprint(before.Lines) != "[{a 2 0} {b 1 0}]" || len(before.Refunds) != 0 {
		t.Fatalf("a copy has changed: %+v", before)
	}
	f(200, `{"lines":[{"sku":"a","qty":1},{"sku":"b","qty":1}],"op":"r4"}`)
	f(409, `{"lines":[{"sku":"a","qty":1}],"op":"r5"}`)
	f(200, `{"lines":[{"sku":"a","qty":1}],"op":"r1"}`)
	if o, _ := b.ByReservation(reservation); o.State != Cancelled || b.Count() != 0 {
		t.Fatalf("nothing is left of it, yet %+v", o)
	}
}

func TestAnOrderKeepsItsHistory(t *testing.T) {
	t.Parallel()
	var seconds atomic.Int64
	b := setup(t, Config{Now: func() time.Time { return time.Unix(seconds.Add(1), 0).UTC() }})
	b.wantStatus(201, "POST", "/orders", `{"sku":"a"}`)
	b.wantStatus(200, "POST", "/orders/1/pay", "")
	b.wantStatus(200, "POST", "/orders/1/pay", "") // no second step
	b.wantStatus(200, "DELETE", "/orders/1", "")
	history := b.Orders()[0].History
	if len(history) != 3 || history[0].State != Open || history[1].State != Paid || history[2].State != Cancelled ||
		!history[0].At.Before(history[1].At) || !history[1].At.Before(history[2].At) {
		t.Fatalf("%+v", history)
	}
}

func TestAnUnpaidOrderIsClosedAtItsExpiry(t *testing.T) {
	t.Parallel()
	var now atomic.Int64
	now.Store(1_800_000_000_000)
	late := func(o Order) bool { return o.Lines[0].SKU != "late" }
	b := setup(t, Config{Closes: late, Now: func() time.Time { return time.UnixMilli(now.Load()) }})
	const expires = "1800000010000"
	for _, sku := range []string{"paid", "open", "late"} {
		b.wantStatus(201, "POST", "/orders", `{"sku":"`+sku+`"}`, expiresHeader, expires, reservationHeader, sku)
	}
	b.wantStatus(201, "POST", "/orders", `{"sku":"no-expiry"}`)
	now.Store(1_800_000_009_999)
	b.wantStatus(200, "POST", "/orders/1/pay", "")
	if b.Count() != 4 {
		t.Fatalf("%d stand, want 4", b.Count())
	}
	now.Store(1_800_000_010_000)
	if text := b.wantStatus(200, "GET", "/orders/by-reservation/open", ""); text != `{"state":"cancelled"}` {
		t.Fatal(text)
	}
	b.wantStatus(409, "POST", "/orders/2/pay", "")
	b.wantStatus(200, "POST", "/orders/3/pay", "")
	b.wantStatus(200, "POST", "/orders/4/pay", "")
	if b.Count() != 3 {
		t.Fatalf("%d stand, want 3", b.Count())
	}
	b.wantStatus(400, "POST", "/orders", `{"sku":"a"}`, expiresHeader, "soon")
}

func TestTheOrderThatCountsOfAReservation(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	f := func(want string, known bool) {
		t.Helper()
		if o, ok := b.ByReservation(reservation); o.Order != want || ok != known {
			t.Errorf("order %q %v, want %q %v", o.Order, ok, want, known)
		}
	}
	f("", false)
	for range 3 {
		b.wantStatus(201, "POST", "/orders", `{"sku":"a"}`, reservationHeader, reservation)
	}
	f("1", true)
	b.wantStatus(200, "DELETE", "/orders/1", "")
	f("2", true)
	b.wantStatus(200, "POST", "/orders/3/pay", "")
	f("3", true)
}

func TestQuestionsByReservationGoWrongAsScripted(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	b.wantStatus(201, "POST", "/orders", `{"sku":"a"}`, reservationHeader, reservation)
	const path = "/orders/by-reservation/"
	f := func(fault Fault, reservation string, status int, body string) {
		t.Helper()
		b.AlwaysAsked(fault) // net/http asks again by itself when a used connection breaks
		got, text, _ := b.do("GET", path+reservation, "")
		if got != status || body != "" && text != body {
			t.Errorf("%+v: %d %s, want %d %s", fault, got, text, status, body)
		}
	}
	f(Fault{}, reservation, 200, `{"state":"open"}`)
	f(Fault{Lose: true}, reservation, 404, "")
	f(Fault{Status: 500}, reservation, 500, "")
	f(Fault{Before: Trouble{Close: CloseRST}}, reservation, 0, "")
	f(Fault{After: Trouble{Close: CloseFIN}}, reservation, 0, "")
	html := http.Header{"Content-Type": {"text/html"}}
	f(Fault{Status: 200, Body: []byte("<html>"), Header: html}, "anything", 200, "<html>")
	b.ScriptAsked(Fault{Status: 503})
	b.AlwaysAsked(Fault{Body: []byte(`{"state":"open"}`)})
	b.wantStatus(503, "GET", path+"anything", "")
	for range 2 {
		if text := b.wantStatus(200, "GET", path+"anything", ""); text != `{"state":"open"}` {
			t.Fatalf("the catch-all says %s", text)
		}
	}
	b.wantStatus(201, "POST", "/orders", `{"sku":"a"}`) // orders have faults of their own
	b.AlwaysAsked(Fault{})
	b.wantStatus(404, "GET", path+"anything", "")
}

func TestOnlyASignedQuestionIsAnswered(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_800_000_000, 0)
	b := setup(t, Config{Keys: map[string][]byte{"k1": []byte("secret")}, Now: func() time.Time { return at }})
	path := "/orders/by-reservation/" + reservation
	r := httptest.NewRequest("GET", path, nil)
	r.Header.Set(reservationHeader, reservation)
	signature := "t=1800000000,k=k1,v1=" + hex.EncodeToString(sign([]byte("secret"), at.Unix(), r, nil))
	b.wantStatus(404, "GET", path, "", reservationHeader, reservation, signatureHeader, signature)
	b.wantStatus(401, "GET", path, "", reservationHeader, "other", signatureHeader, signature)
	b.wantStatus(401, "GET", path, "")
}
