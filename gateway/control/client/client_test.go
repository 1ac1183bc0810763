package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"go.uber.org/goleak"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/stock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve is a client of a handler on a real socket.
func serve(t *testing.T, cfg Config, handler http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	cfg.URL = server.URL
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// answerTo is the least that a server answers.
func answerTo(r *http.Request) string {
	switch path := r.URL.Path; path {
	case "/v1/reservations":
		if r.Method == http.MethodPost {
			break
		}
		return `{"reservations":[]}`
	case "/v1/doubts", "/v1/doubts/3":
		return `{"doubts":[]}`
	case "/v1/compensations":
		return `{"compensations":[]}`
	case "/v1/compensations/surplus.1/retry":
		return `{"id":"surplus.1"}`
	case "/v1/ledger":
		return `{"rows":[]}`
	case "/v1/reservations/import":
		return `{"imported_reservations":{"reservations":1}}`
	case "/v1/status":
		return `{"phase":"ready"}`
	case "/v1/stock":
		return `{"skus":[]}`
	case "/v1/stock/import":
		return `{"phase":"checked","done":1,"of":1}` + "\n" + `{"imported":{"skus":1}}`
	}
	return `{"sku":"a","reservation":"1"}`
}

func TestEveryCallAsksForWhatItsNameSays(t *testing.T) {
	t.Parallel()
	var asked string
	var steps []api.Progress
	c := serve(t, Config{Token: "t0k", Actor: "ann"}, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = strings.TrimSpace(r.Method + " " + r.RequestURI + " " + string(body))
		if r.Header.Get("Authorization") != "Bearer t0k" || r.Header.Get("Stockgate-Actor") != "ann" {
			t.Errorf("headers %v", r.Header)
		}
		if strings.HasSuffix(r.URL.Path, "/import") {
			w.Header().Set("Content-Type", r.Header.Get("Accept"))
		}
		asked += strings.TrimRight(" key="+r.Header.Get("Idempotency-Key"), "key= ")
		_, _ = io.WriteString(w, answerTo(r))
	})
	ctx := context.Background()
	id := stock.ID{15: 1}
	f := func(want string, err error) {
		t.Helper()
		if err != nil || asked != want {
			t.Errorf("asked %s (%v), want %s", asked, err, want)
		}
	}
	_, err := c.Status(ctx)
	f("GET /v1/status", err)
	_, err = c.Stock(ctx, "a:b")
	f("GET /v1/stock/a:b", err)
	_, err = c.Stock(ctx, "..")
	f("GET /v1/stock/%2E%2E", err)
	_, err = c.Stock(ctx, "a/b?c")
	f("GET /v1/stock/a%2Fb%3Fc", err)
	_, err = c.ListStock(ctx, "a", 10)
	f("GET /v1/stock?after=a&limit=10", err)
	_, err = c.SetStock(ctx, "a", api.SetStock{})
	f(`PUT /v1/stock/a {"available":0}`, err)
	_, err = c.AdjustStock(ctx, "a", api.AdjustStock{Delta: -1, Op: "o", Reason: "r"})
	f(`POST /v1/stock/a/adjust {"delta":-1,"op":"o","reason":"r"}`, err)
	_, err = c.PauseStock(ctx, "a", "r")
	f(`POST /v1/stock/a/pause {"reason":"r"}`, err)
	_, err = c.ResumeStock(ctx, "a", "")
	f(`POST /v1/stock/a/resume {}`, err)
	_, err = c.SyncStock(ctx, "a", "")
	f(`POST /v1/stock/a/sync {}`, err)
	_, err = c.ImportStock(ctx, "o&1", strings.NewReader("a,1"), func(p api.Progress) { steps = append(steps, p) })
	f(`POST /v1/stock/import?op=o%261 a,1`, err)
	if len(steps) != 1 || steps[0] != (api.Progress{Phase: "checked", Done: 1, Of: 1}) {
		t.Errorf("%+v", steps)
	}
	_, err = c.Doubts(ctx)
	f("GET /v1/doubts", err)
	_, err = c.ClearDoubts(ctx, 3, "r")
	f(`DELETE /v1/doubts/3 {"reason":"r"}`, err)
	_, err = c.ClearAllDoubts(ctx, "r")
	f(`DELETE /v1/doubts {"reason":"r"}`, err)
	_, err = c.Compensations(ctx, "dead", "surplus.0", 10)
	f("GET /v1/compensations?after=surplus.0&limit=10&state=dead", err)
	_, err = c.Compensations(ctx, "", "", 10)
	f("GET /v1/compensations?limit=10", err)
	_, err = c.RetryCompensation(ctx, "surplus.1", api.RetryCompensation{Make: api.MakeVoid})
	f(`POST /v1/compensations/surplus.1/retry {"make":"void"}`, err)
	_, err = c.ImportReservations(ctx, strings.NewReader("o,a,1,,held"), nil)
	f(`POST /v1/reservations/import o,a,1,,held`, err)
	_, err = c.Find(ctx, Find{User: "u", Request: "k"}, "", 7)
	f("GET /v1/reservations?limit=7&request=k&user=u", err)
	_, err = c.Find(ctx, Find{Unknown: true}, "1.a", 7)
	f("GET /v1/reservations?after=1.a&limit=7&unknown=true", err)
	_, err = c.Ledger(ctx, LedgerOf{SKU: "a"}, "", 5)
	f("GET /v1/ledger?limit=5&sku=a", err)
	_, err = c.Ledger(ctx, LedgerOf{Reservation: id}, "x", 5)
	f("GET /v1/ledger?after=x&limit=5&reservation=00000000000000000000000000000001", err)
	_, err = c.Reserve(ctx, "k-1", api.CreateReservation{SKU: "a", Qty: 2})
	f(`POST /v1/reservations {"sku":"a","qty":2} key=k-1`, err)
	_, err = c.Extend(ctx, id, api.Extend{Hold: "25m"})
	f(`POST /v1/reservations/00000000000000000000000000000001/extend {"hold":"25m"}`, err)
	_, err = c.Reservation(ctx, id, true)
	f("GET /v1/reservations/00000000000000000000000000000001?history=true", err)
	_, err = c.Reservation(ctx, id, false)
	f("GET /v1/reservations/00000000000000000000000000000001", err)
	_, err = c.Confirm(ctx, id, api.Confirm{OrderRef: "o"})
	f(`POST /v1/reservations/00000000000000000000000000000001/confirm {"order_ref":"o"}`, err)
	_, err = c.Release(ctx, id, api.Release{UnlessPaid: true})
	f(`POST /v1/reservations/00000000000000000000000000000001/release {"unless_paid":true}`, err)
}

func TestARefusalIsAProblem(t *testing.T) {
	t.Parallel()
	c := serve(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", api.ProblemType)
		w.WriteHeader(503)
		_, _ = io.WriteString(w, `{"status":503,"code":"QUEUE_FULL","detail":"limit control.max_in_flight = 1","limit":"control.max_in_flight","value":"1"}`)
	})
	_, err := c.Stock(context.Background(), "a")
	var p *api.Problem
	if !errors.As(err, &p) || p.Limit != "control.max_in_flight" || err.Error() != "QUEUE_FULL: limit control.max_in_flight = 1" {
		t.Fatal(err)
	}
}

func TestTroubleOnTheWayIsOneClearLine(t *testing.T) {
	t.Parallel()
	f := func(c *Client, want string) {
		t.Helper()
		_, err := c.Stock(context.Background(), "a")
		var p *api.Problem
		if err == nil || errors.As(err, &p) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close() // a port where surely nothing listens
	nobody, err := New(Config{URL: "http://" + ln.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	f(nobody, "nothing listens at http://127.0.0.1:")

	hang := make(chan struct{})
	slow := serve(t, Config{Timeout: time.Millisecond}, func(http.ResponseWriter, *http.Request) { <-hang })
	f(slow, "did not answer in time")
	close(hang)

	f(serve(t, Config{}, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "nginx", http.StatusBadGateway) }), "not answer like a control API: HTTP 502")
	f(serve(t, Config{}, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }), "not answer like a control API")
	f(serve(t, Config{}, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), "cannot reach http://127.0.0.1:")
	f(serve(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, answerBytesMax+1))
	}), "answered more than")
}

// The public side, or what is behind its catch-all, is easily taken for the control side.
func TestAnotherServerIsSaidToBeOne(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	public := serve(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(404)
		_, _ = io.WriteString(w, `{"status":404,"code":"NO_ROUTE"}`)
	})
	var p *api.Problem
	if _, err := public.Stock(ctx, "a"); !errors.As(err, &p) || !strings.Contains(err.Error(), "is no control side") ||
		!strings.Contains(err.Error(), "--control") {
		t.Error(err)
	}
	shop := serve(t, Config{}, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"ok":true}`) })
	_, get := shop.Stock(ctx, "a")
	_, set := shop.SetStock(ctx, "a", api.SetStock{})
	_, list := shop.ListStock(ctx, "", 1)
	_, imported := shop.ImportStock(ctx, "", strings.NewReader("a,1"), nil)
	_, reservation := shop.Reservation(ctx, stock.ID{}, false)
	_, status := shop.Status(ctx)
	_, doubts := shop.Doubts(ctx)
	_, compensations := shop.Compensations(ctx, "", "", 1)
	_, retry := shop.RetryCompensation(ctx, "surplus.1", api.RetryCompensation{})
	for i, err := range []error{get, set, list, imported, reservation, status, doubts, compensations, retry} {
		if err == nil || !strings.Contains(err.Error(), "does not answer like a control API") {
			t.Errorf("call %d: %v", i, err)
		}
	}
}

func TestTroubleWithTheInputIsNoTroubleOnTheWay(t *testing.T) {
	t.Parallel()
	c := serve(t, Config{}, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	broken := io.MultiReader(strings.NewReader("a,1\n"), iotest.ErrReader(errors.New("the disk is gone")))
	_, err := c.ImportStock(context.Background(), "", broken, nil)
	var mine *InputError
	if !errors.As(err, &mine) || err.Error() != "the disk is gone" {
		t.Errorf("%v", err)
	}
}

func TestTokensThatCannotBeSentAreRefusedAndNotShown(t *testing.T) {
	t.Parallel()
	for _, token := range []string{"s3cr\net", "s3cr et", "s3cr\u00e9t"} {
		if _, err := New(Config{URL: "http://a", Token: token}); err == nil || strings.Contains(err.Error(), "s3cr") {
			t.Errorf("%q: %v", token, err)
		}
	}
}

func TestTheTokenDoesNotFollowARedirect(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") }))
	t.Cleanup(elsewhere.Close)
	c := serve(t, Config{Token: "t"}, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	})
	if _, err := c.Status(context.Background()); err == nil {
		t.Fatal("no error")
	}
}

func TestAddressesThatCannotBeOnesAreRefused(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "127.0.0.1:9090", "ftp://a", "http://", "http://a/v1", "http://u:p@a", "http://a?b", "http://a#b", "http://a:b:c"} {
		if _, err := New(Config{URL: url}); err == nil || !strings.Contains(err.Error(), "control address") {
			t.Errorf("%q: %v", url, err)
		}
	}
	if _, err := New(Config{URL: "https://a:1/"}); err != nil {
		t.Error(err)
	}
}

// An import that breaks off in the middle of its answer may be done.
func TestAnAnswerThatBreaksOffIsSaidToBe(t *testing.T) {
	t.Parallel()
	f := func(body, want string) {
		t.Helper()
		c := serve(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", api.ProgressType)
			_, _ = io.WriteString(w, body)
		})
		_, err := c.ImportStock(context.Background(), "", strings.NewReader("a,1"), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", body, err)
		}
	}
	f(`{"phase":"written","done":1,"of":2}`+"\n", "broke off: it may or may not have been done")
	f("", "broke off")
	f("{\"problem\":{\"status\":504,\"code\":\"OUTCOME_UNKNOWN\"}}\n", "OUTCOME_UNKNOWN")
	f("<html>\n", "does not answer like a control API")
}
