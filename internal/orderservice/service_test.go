package orderservice

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const reservation = "00112233445566778899aabbccddeeff"

type bundle struct {
	*Service
	t      *testing.T
	url    string
	client *http.Client
}

func setup(t *testing.T, cfg Config) *bundle {
	t.Helper()
	s := New(cfg)
	server := httptest.NewServer(s)
	b := &bundle{Service: s, t: t, url: server.URL, client: server.Client()}
	t.Cleanup(func() {
		s.End()
		server.Close()
	})
	return b
}

// do sends a request and returns status, body and the outcome header; status 0: the connection broke.
func (b *bundle) do(method, path, body string, headers ...string) (int, string, string) {
	b.t.Helper()
	req, err := http.NewRequest(method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := b.client.Do(req)
	if err != nil {
		return 0, err.Error(), ""
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error(), ""
	}
	return res.StatusCode, strings.TrimSpace(string(text)), res.Header.Get(outcomeHeader)
}

func (b *bundle) wantStatus(want int, method, path, body string, headers ...string) string {
	b.t.Helper()
	got, text, _ := b.do(method, path, body, headers...)
	if got != want {
		b.t.Fatalf("%s %s: %d %s, want %d", method, path, got, text, want)
	}
	return text
}

func TestAnOrderIsRecordedWithAllThatAnOracleNeeds(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_800_000_000_000)
	b := setup(t, Config{Now: func() time.Time { return at }})
	text := b.wantStatus(201, "POST", "/orders", `{"sku":"sku-1001","qty":2,"user":"u1"}`,
		reservationHeader, reservation, linesHeader, `"sku-1001";q=2`, "Idempotency-Key", "k1", forwardByHeader, "1800000000000")
	var answer map[string]any
	if err := json.Unmarshal([]byte(text), &answer); err != nil || answer["order"] != "1" {
		t.Fatalf("answer %s, %v", text, err)
	}
	if _, there := answer["code"]; there {
		t.Fatalf("the answer has a code, which only refusals of the gateway have: %s", text)
	}
	got := fmt.Sprint(b.Orders())
	want := fmt.Sprint([]Order{{Order: "1", Lines: []Line{{SKU: "sku-1001", Qty: 2}}, User: "u1", Reservation: reservation, Key: "k1",
		State: Open, At: at, History: []Step{{Open, at}}}})
	if got != want {
		t.Fatalf("orders\n%s\nwant\n%s", got, want)
	}
	if text := b.wantStatus(200, "GET", "/orders/count", ""); text != `{"orders":1}` {
		t.Fatalf("count %s", text)
	}
}

func TestTheGatewaysLinesCountAndNotTheBody(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	b.wantStatus(201, "POST", "/orders", `{"sku":"sku-1","qty":1}`, linesHeader, `"sku-2";q=3, "sku-1";q=1`, "X-User-Id", "u9")
	b.wantStatus(201, "POST", "/orders", `no JSON at all`, linesHeader, `"sku-2";q=3`)
	got := b.Orders()
	if fmt.Sprint(got[0].Lines) != "[{sku-1 1 0} {sku-2 3 0}]" || got[0].User != "u9" || fmt.Sprint(got[1].Lines) != "[{sku-2 3 0}]" {
		t.Fatalf("orders %+v", got)
	}
}

func TestWhatIsNoOrderIsRejected(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	f := func(body string, headers ...string) {
		t.Helper()
		if status, text, outcome := b.do("POST", "/orders", body, headers...); status != 422 || outcome != "rejected" {
			t.Errorf("%s %v: %d %s, outcome %q", body, headers, status, text, outcome)
		}
	}
	f(``)
	f(`{"sku":"a b"}`)
	f(`{"sku":"a","qty":0}`)
	f(`{"sku":"a","qty":1.5}`)
	f(`{}`, linesHeader, `sku-1;q=1`)
	f(`{}`, linesHeader, `"sku-1"`)
	f(`{}`, linesHeader, `"sku-1";q=x`)
	f(`{}`, linesHeader, `"sku-1";q=1,`)
	if b.Count() != 0 {
		t.Fatalf("%d orders", b.Count())
	}
}

func TestC060_AnOrderAfterForwardByIsRejected(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_800_000_000_000)
	b := setup(t, Config{Now: func() time.Time { return at }})
	status, text, outcome := b.do("POST", "/orders", `{"sku":"a"}`, forwardByHeader, "1799999999999")
	if status != 410 || outcome != "rejected" || b.Count() != 0 {
		t.Fatalf("%d %s, outcome %q, %d orders", status, text, outcome, b.Count())
	}
}

func TestUniqueKeepsOneOrderPerReservation(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{Unique: true})
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if status, text, _ := b.do("POST", "/orders", `{"sku":"a"}`, reservationHeader, reservation); status != 201 {
				t.Errorf("%d %s", status, text)
			}
		})
	}
	group.Wait()
	b.wantStatus(201, "POST", "/orders", `{"sku":"a"}`) // without a reservation there is nothing to be unique by
	b.wantStatus(201, "POST", "/orders", `{"sku":"a"}`)
	if b.Count() != 3 {
		t.Fatalf("%d orders, want 3", b.Count())
	}
}

// One request id has one answer also if two gateways bring it, and what has become of the order in between changes nothing.
func TestUniqueAnswersAlike(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{Unique: true})
	_, first, _ := b.do("POST", "/orders", `{"sku":"a","qty":2}`, reservationHeader, reservation)
	b.wantStatus(200, "POST", "/orders/1/pay", "")
	for _, step := range []string{`{"op":"r","lines":[{"sku":"a","qty":1}]}`, `{"op":"s","lines":[{"sku":"a","qty":1}]}`} {
		b.wantStatus(200, "POST", "/orders/1/refund", step)
		if status, again, _ := b.do("POST", "/orders", `{"sku":"a","qty":2}`, reservationHeader, reservation); status != 201 || again != first {
			t.Errorf("%d %s, want %s", status, again, first)
		}
	}
}

func TestWithoutUniqueEveryDoubleIsSeen(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	b.wantStatus(201, "POST", "/orders", `{"sku":"a"}`, reservationHeader, reservation)
	b.wantStatus(201, "POST", "/orders", `{"sku":"a"}`, reservationHeader, reservation)
	if b.Count() != 2 {
		t.Fatalf("%d orders, want 2", b.Count())
	}
}

func TestOnlyASignedRequestIsTaken(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_800_000_000, 0)
	secret := []byte("secret")
	b := setup(t, Config{Keys: map[string][]byte{"k1": secret}, Now: func() time.Time { return at }})
	const body = `{"sku":"a","qty":2}`
	headers := func(signature string) []string {
		return []string{reservationHeader, reservation, linesHeader, `"a";q=2`, forwardByHeader, "1800000000500", signatureHeader, signature}
	}
	signed := func(t int64, key string) string {
		r := httptest.NewRequest("POST", "/orders?x=%2F1", nil)
		for i, h := 0, headers(""); i < len(h); i += 2 {
			r.Header.Set(h[i], h[i+1])
		}
		return fmt.Sprintf("t=%d,k=%s,v1=%s", t, key, hex.EncodeToString(sign(secret, t, r, []byte(body))))
	}
	f := func(want int, path, body, signature string) {
		t.Helper()
		if status, text, _ := b.do("POST", path, body, headers(signature)...); status != want {
			t.Errorf("%s: %d %s, want %d", signature, status, text, want)
		}
	}
	good := signed(at.Unix(), "k1")
	f(201, "/orders?x=%2F1", body, good)
	f(201, "/orders?x=%2F1", body, good+",v2=later")
	f(401, "/orders?x=/1", body, good)            // the target is signed as it is spelled
	f(401, "/orders?x=%2F1", `{"sku":"b"}`, good) // so is the body
	f(401, "/orders?x=%2F1", body, signed(at.Unix(), "k2"))
	f(401, "/orders?x=%2F1", body, signed(at.Unix()-301, "k1"))
	f(401, "/orders?x=%2F1", body, strings.Replace(good, "v1=", "v1=0", 1))
	f(401, "/orders?x=%2F1", body, strings.Replace(good, "k=k1,", "", 1))
	f(401, "/orders?x=%2F1", body, "")
	if b.Count() != 2 {
		t.Fatalf("%d orders, want 2", b.Count())
	}
}

// The text that is signed, written out: both sides must agree on every byte of it.
func TestTheSignedTextIsTheDocumentedOne(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest("POST", "/orders?a=b", nil)
	r.Header.Set(reservationHeader, reservation)
	r.Header.Set(linesHeader, `"a";q=2`)
	r.Header.Set(forwardByHeader, "1800000000500")
	got := hex.EncodeToString(sign([]byte("secret"), 1800000000, r, []byte("{}")))
	// printf 'v1\n1800000000\nPOST\n/orders?a=b\n<reservation>\n"a";q=2\n1800000000500\n<sha256 of {}>' | openssl dgst -sha256 -hmac secret
	const want = "c84f237f23a4e6d24c654843023a7fa0a7fd6deea182f7f17af22a61bb633772"
	if got != want {
		t.Fatalf("signature %s, want %s", got, want)
	}
}

func TestResolvePayAndCancel(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	byReservation := "/orders/by-reservation/" + reservation
	b.wantStatus(404, "GET", byReservation, "")
	b.wantStatus(201, "POST", "/orders", `{"sku":"a"}`, reservationHeader, reservation)
	state := func(want string) {
		t.Helper()
		if text := b.wantStatus(200, "GET", byReservation, ""); text != `{"state":"`+want+`"}` {
			t.Fatalf("state %s, want %s", text, want)
		}
	}
	state("open")
	b.wantStatus(200, "POST", "/orders/1/pay", "")
	state("paid")
	b.wantStatus(200, "DELETE", "/orders/1", "")
	b.wantStatus(200, "DELETE", "/orders/1", "")
	state("cancelled")
	b.wantStatus(409, "POST", "/orders/1/pay", "")
	for _, unknown := range []string{"2", "0", "01", "x"} {
		b.wantStatus(404, "DELETE", "/orders/"+unknown, "")
	}
	if b.Count() != 0 || len(b.Orders()) != 1 {
		t.Fatalf("%d stand of %d", b.Count(), len(b.Orders()))
	}
}

func TestTheListIsPaged(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	for range 5 {
		b.wantStatus(201, "POST", "/orders", `{"sku":"a"}`)
	}
	var seen []string
	for after := 0; ; {
		var page struct {
			Orders []Order
			Next   int
		}
		text := b.wantStatus(200, "GET", "/orders?limit=2&after="+strconv.Itoa(after), "")
		if err := json.Unmarshal([]byte(text), &page); err != nil {
			t.Fatal(err)
		}
		for _, o := range page.Orders {
			seen = append(seen, o.Order)
		}
		if after = page.Next; after == 0 {
			break
		}
	}
	if !slices.Equal(seen, []string{"1", "2", "3", "4", "5"}) {
		t.Fatalf("seen %v", seen)
	}
	b.wantStatus(400, "GET", "/orders?after=-1", "")
}

func TestAFullBookRefusesAndForgetsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{OrdersMax: 1})
	b.wantStatus(201, "POST", "/orders", `{"sku":"a"}`)
	if status, _, outcome := b.do("POST", "/orders", `{"sku":"a"}`); status != 503 || outcome != "rejected" {
		t.Fatalf("%d, outcome %q", status, outcome)
	}
	if len(b.Orders()) != 1 {
		t.Fatalf("%d orders", len(b.Orders()))
	}
}

func TestFaultsHappenWhereTheyAreScripted(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	f := func(fault Fault, wantStatus, wantOrders int) {
		t.Helper()
		before := len(b.Orders())
		b.Script(fault)
		status, text, _ := b.do("POST", "/orders", `{"sku":"a"}`)
		if got := len(b.Orders()) - before; status != wantStatus || got != wantOrders {
			t.Errorf("%+v: %d %s and %d orders, want %d and %d", fault, status, text, got, wantStatus, wantOrders)
		}
	}
	f(Fault{}, 201, 1)
	f(Fault{Status: 500}, 500, 1)
	f(Fault{Status: 500, Lose: true}, 500, 0)
	f(Fault{Before: Trouble{Close: CloseFIN}}, 0, 0)
	f(Fault{Before: Trouble{Close: CloseRST}}, 0, 0)
	f(Fault{After: Trouble{Close: CloseFIN}}, 0, 1)
	f(Fault{After: Trouble{Close: CloseRST}}, 0, 1)
	f(Fault{Before: Trouble{Delay: time.Millisecond}, Body: []byte("{}")}, 201, 1)

	b.Always(Fault{Status: 503, Lose: true})
	b.wantStatus(503, "POST", "/orders", `{"sku":"a"}`)
	b.Always(Fault{})
	b.wantStatus(201, "POST", "/orders", `{"sku":"a"}`)
}

// A client that gives up does not stop the order: that is what makes a time-out an unknown.
func TestC060_AHangingOrderIsMadeAfterItsClientLeft(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	proceed, reached, recorded := make(chan struct{}), make(chan struct{}), make(chan struct{})
	b.Script(Fault{
		Before: Trouble{Hang: proceed, Reached: func() { close(reached) }},
		After:  Trouble{Reached: func() { close(recorded) }},
	})
	ctx, leave := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, "POST", b.url+"/orders", strings.NewReader(`{"sku":"a"}`))
	if err != nil {
		t.Fatal(err)
	}
	left := make(chan error, 1)
	go func() {
		_, err := b.client.Do(req)
		left <- err
	}()
	<-reached
	leave()
	if err := <-left; err == nil {
		t.Fatal("the client was answered")
	}
	if b.Count() != 0 {
		t.Fatal("recorded too early")
	}
	close(proceed)
	<-recorded
	if b.Count() != 1 {
		t.Fatalf("%d orders, want 1", b.Count())
	}
}

func TestServeEndsWithItsContextEvenWhileAnswersHang(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{})
	recorded := make(chan struct{})
	s.Script(Fault{After: Trouble{Hang: make(chan struct{}), Reached: func() { close(recorded) }}})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, ln) }()
	answered := make(chan int, 1)
	go func() {
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		res, err := client.Post("http://"+ln.Addr().String()+"/orders", "application/json", strings.NewReader(`{"sku":"a"}`))
		if err != nil {
			t.Error(err)
			answered <- 0
			return
		}
		res.Body.Close()
		answered <- res.StatusCode
	}()
	<-recorded
	cancel()
	if status := <-answered; status != 201 {
		t.Fatalf("the hanging answer ended with %d", status)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
