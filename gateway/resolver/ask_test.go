package resolver

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/internal/ordercall"
	"github.com/stockgate/stockgate/internal/orderservice"
	"github.com/stockgate/stockgate/stock"
)

var someID = stock.ID{1, 2, 3}

// knows404 answers 404 for what is not asked about by name, so that the probe is content, and lets h answer for someID.
func knows404(h http.HandlerFunc) setting {
	return func(w *world, _ *Config, _ *Parts) {
		w.handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, someID.String()) {
				http.NotFound(rw, r)
				return
			}
			h(rw, r)
		})
	}
}

func (w *world) wantAsk(id stock.ID, want admission.BackendState, wantOK bool) {
	w.t.Helper()
	if got, ok := w.Ask(context.Background(), "place", id); got != want || ok != wantOK {
		w.t.Errorf("the answer is %s %v, want %s %v", got, ok, want, wantOK)
	}
}

func TestOnlyThreeStatesAnd404AreAnswers(t *testing.T) {
	t.Parallel()
	f := func(status int, body string, want result) {
		t.Helper()
		r := reply{status: status, body: []byte(body), whole: true}
		if got := r.answer(); got.result != want {
			t.Errorf("%d %s is %s (%s), want %s", status, body, got.result, got.detail, want)
		}
	}
	f(200, `{"state":"open"}`, resultOpen)
	f(200, `{"state":"paid"}`, resultPaid)
	f(200, `{"state":"cancelled"}`, resultCancelled)
	f(200, ` {"order":"7","lines":[{"state":"x"}],"state":"paid","more":{"state":1}} `, resultPaid)
	f(200, `{"state":"p\u0061id"}`, resultPaid)
	f(404, `whatever`, resultNoOrder)

	f(200, `{"state":"Open"}`, resultContent)
	f(200, `{"state":"refunded"}`, resultContent)
	f(200, `{"state":""}`, resultContent)
	f(200, `{"state":null}`, resultContent)
	f(200, `{"state":1}`, resultContent)
	f(200, `{"State":"paid"}`, resultContent)
	f(200, `{"state":"open","state":"paid"}`, resultContent)
	f(200, `{"state":"no_order"}`, resultContent)
	f(200, `{}`, resultContent)
	f(200, ``, resultContent)
	f(200, `null`, resultContent)
	f(200, `"paid"`, resultContent)
	f(200, `[{"state":"paid"}]`, resultContent)
	f(200, `{"state":"paid"`, resultContent)
	f(200, `{"state":"paid"} x`, resultContent)
	f(200, `{"state":"paid"}{"state":"paid"}`, resultContent)
	f(200, `<html>not found</html>`, resultContent)
	for _, status := range []int{201, 202, 204, 206, 301, 302, 304, 400, 401, 403, 405, 410, 429, 500, 502, 503, 504} {
		f(status, `{"state":"paid"}`, resultStatus)
	}
}

func TestAReplyThatIsTooLongOrBreaksOffIsNoAnswer(t *testing.T) {
	t.Parallel()
	good := []byte(`{"state":"paid"}`)
	f := func(r reply, want result) {
		t.Helper()
		if got := r.answer(); got.result != want {
			t.Errorf("%+v is %s, want %s", r, got.result, want)
		}
	}
	f(reply{status: 200, body: good}, resultContent)
	f(reply{status: 200, body: good, whole: true, err: http.ErrBodyReadAfterClose}, resultUnreachable)
	f(reply{err: http.ErrServerClosed}, resultUnreachable)
	f(reply{err: fmt.Errorf("get: %w", context.DeadlineExceeded)}, resultTimeout)
}

func TestTheOrderServiceIsAskedOverHTTP(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.wantAsk(someID, admission.NoOrder, true)
	order := w.order(someID)
	w.wantAsk(someID, admission.Open, true)
	w.pay(order)
	w.wantAsk(someID, admission.Paid, true)
	w.cancel(order)
	w.wantAsk(someID, admission.Cancelled, true)
	for _, r := range []result{resultNoOrder, resultOpen, resultPaid, resultCancelled} {
		if n := w.metric("resolve_asks_total", string(r), "orders"); n != 1 {
			t.Errorf("%s was counted %v times", r, n)
		}
	}
	if _, ok := w.Ask(context.Background(), "other", someID); ok {
		t.Error("an upstream without resolve has answered")
	}
	if _, ok := w.Ask(context.Background(), "nowhere", someID); ok {
		t.Error("an unknown route has answered")
	}
}

func TestFailuresAreNoAnswers(t *testing.T) {
	t.Parallel()
	redirected := atomic.Bool{}
	f := func(what string, want result, h http.HandlerFunc) {
		t.Helper()
		w := newWorld(t, knows404(h))
		got := w.now.Load().upstreams["orders"].ask(context.Background(), someID, false)
		if got.result != want {
			t.Errorf("%s: %s (%s), want %s", what, got.result, got.detail, want)
		}
	}
	body := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }
	}
	f("a web page", resultContent, body("<!doctype html><title>shop</title>"))
	f("64 KiB and one byte", resultContent, body(`{"state":"paid"}`+strings.Repeat(" ", 64<<10)))
	f("an error", resultStatus, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	f("a redirect", resultStatus, func(w http.ResponseWriter, r *http.Request) {
		redirected.Store(r.URL.RawQuery == "again" || redirected.Load())
		http.Redirect(w, r, r.URL.Path+"?again", http.StatusFound)
	})
	f("silence for 3 s", resultTimeout, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	f("half a reply", resultUnreachable, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		fmt.Fprint(w, `{"state":"paid"}`)
	})
	if redirected.Load() {
		t.Error("a redirect was followed")
	}
}

func TestAQuestionIsSignedAndCarriesNoCookies(t *testing.T) {
	t.Parallel()
	signed := func(w *world, cfg *Config, _ *Parts) {
		w.orders = orderservice.New(orderservice.Config{Keys: map[string][]byte{"k1": []byte("secret")}, Now: w.clock.Now})
		cfg.Upstreams[0].Sign = ordercall.NewSigner("k1", []byte("secret"), w.clock.Now)
		cfg.Upstreams[0].Resolve += "?a=%2F{reservation}"
		w.handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Cookie") != "" {
				t.Error("a cookie was kept")
			}
			rw.Header().Set("Set-Cookie", "a=b")
			w.orders.ServeHTTP(rw, r)
		})
	}
	w := newWorld(t, signed)
	w.wantAsk(someID, admission.NoOrder, true)
	w.wantAsk(someID, admission.NoOrder, true)
}

func TestAWrongKeyIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world, cfg *Config, _ *Parts) {
		w.orders = orderservice.New(orderservice.Config{Keys: map[string][]byte{"k1": []byte("secret")}, Now: w.clock.Now})
		w.handler = w.orders
		cfg.Upstreams[0].Sign = ordercall.NewSigner("k1", []byte("other"), w.clock.Now)
	})
	w.wantAsk(someID, admission.NoOrder, false)
	if d := w.Distrusted(); len(d) != 1 || !strings.Contains(d[0].Detail, "signing key") {
		t.Fatalf("%+v", d)
	}
}

// gate lets questions wait at the order service until they are let go.
type gate struct {
	reached chan struct{} // one a question that has come
	open    chan struct{}
}

func newGate() *gate { return &gate{make(chan struct{}, 100), make(chan struct{})} }

func (g *gate) pass() {
	g.reached <- struct{}{}
	<-g.open
}

func TestOneQuestionAnIdIsUnderWay(t *testing.T) {
	t.Parallel()
	g := newGate()
	w := newWorld(t, knows404(func(rw http.ResponseWriter, _ *http.Request) {
		g.pass()
		fmt.Fprint(rw, `{"state":"paid"}`)
	}))
	w.wantAsk(stock.ID{9}, admission.NoOrder, true) // it is trusted now
	var group sync.WaitGroup
	const callers = 20
	waiting := make(chan struct{}, callers)
	for range callers {
		group.Go(func() {
			if state, ok := w.Ask(whenWaiting(waiting), "place", someID); state != admission.Paid || !ok {
				t.Errorf("the answer is %s %v", state, ok)
			}
		})
	}
	for range callers {
		<-waiting
	}
	close(g.open)
	group.Wait()
	if n := w.questions(someID); n != 1 {
		t.Fatalf("%d questions for %d callers at once", n, callers)
	}
}

// whenWaiting is a context that tells when somebody waits for its end.
func whenWaiting(told chan<- struct{}) context.Context { return waited{context.Background(), told} }

type waited struct {
	context.Context
	told chan<- struct{}
}

func (c waited) Done() <-chan struct{} {
	c.told <- struct{}{}
	return nil
}

// "No order" and "open" may have been read before the caller came: then they do not answer his question.
func TestAnAnswerIsNoOlderThanItsCall(t *testing.T) {
	t.Parallel()
	g := newGate()
	w := newWorld(t)
	w.orders.ScriptAsked(orderservice.Fault{}, // the probe
		orderservice.Fault{After: orderservice.Trouble{Reached: func() { g.reached <- struct{}{} }, Hang: g.open}})
	first := make(chan string, 1)
	go func() {
		state, ok := w.Ask(context.Background(), "place", someID)
		first <- fmt.Sprint(state, ok)
	}()
	<-g.reached // it has read that there is no order
	order := w.order(someID)
	w.pay(order)
	second, waiting := make(chan string, 1), make(chan struct{}, 2) // for the first question, then for one of its own
	go func() {
		state, ok := w.Ask(whenWaiting(waiting), "place", someID)
		second <- fmt.Sprint(state, ok)
	}()
	<-waiting
	close(g.open)
	if got := <-first; got != "none true" {
		t.Errorf("the first caller hears %s", got)
	}
	if got := <-second; got != "paid true" {
		t.Errorf("the second caller came after the payment and hears %s", got)
	}
}

func TestAsksAreBoundedAndTheRestHaveNoAnswerAtOnce(t *testing.T) {
	t.Parallel()
	g := newGate()
	w := newWorld(t, func(w *world, cfg *Config, _ *Parts) {
		cfg.Asks = 2
		w.handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Stockgate-Reservation")[:2] == "ff" {
				g.pass()
			}
			http.NotFound(rw, r)
		})
	})
	w.wantAsk(someID, admission.NoOrder, true) // it is trusted now
	var group sync.WaitGroup
	for i := range 2 {
		group.Go(func() { w.wantAsk(stock.ID{0xff, byte(i)}, admission.NoOrder, true) })
		<-g.reached
	}
	w.wantAsk(stock.ID{0xff, 9}, admission.NoOrder, false)
	if n := w.metric("resolve_asks_total", "busy", "orders"); n != 1 {
		t.Errorf("busy was counted %v times", n)
	}
	patient := make(chan answer, 1) // the job waits for a place instead
	go func() { patient <- w.now.Load().upstreams["orders"].ask(context.Background(), someID, true) }()
	close(g.open)
	group.Wait()
	if got := <-patient; got.result != resultNoOrder {
		t.Errorf("the patient one has %+v", got)
	}
	w.wantAsk(stock.ID{0xff, 9}, admission.NoOrder, true)
}

func TestACallersEndDoesNotEndTheQuestion(t *testing.T) {
	t.Parallel()
	g := newGate()
	w := newWorld(t, knows404(func(rw http.ResponseWriter, _ *http.Request) {
		g.pass()
		fmt.Fprint(rw, `{"state":"paid"}`)
	}))
	ctx, leave := context.WithCancel(context.Background())
	left := make(chan bool, 1)
	go func() { _, ok := w.Ask(ctx, "place", someID); left <- ok }()
	<-g.reached
	shared := w.now.Load().upstreams["orders"].flights.now(someID)
	leave()
	if <-left {
		t.Error("there was an answer before the order service gave one")
	}
	close(g.open)
	if got := shared.wait(context.Background()); got.result != resultPaid {
		t.Errorf("who shared the question has %+v", got)
	}
}

func TestADeadOrderServiceRestsAndIsTriedByOneQuestion(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	w := newWorld(t, func(w *world, _ *Config, _ *Parts) {
		w.handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if broken.Load() {
				rw.WriteHeader(503)
				return
			}
			w.orders.ServeHTTP(rw, r)
		})
	})
	w.wantAsk(someID, admission.NoOrder, true)
	broken.Store(true)
	before := w.allQuestions()
	for range 3 * failuresMax {
		w.wantAsk(someID, admission.NoOrder, false)
	}
	if n := w.allQuestions() - before; n != failuresMax {
		t.Fatalf("%d questions until it rests, want %d", n, failuresMax)
	}
	f := func(wait time.Duration, questions int) {
		t.Helper()
		w.clock.add(wait)
		before := w.allQuestions()
		for range 3 {
			w.wantAsk(someID, admission.NoOrder, false)
		}
		if n := w.allQuestions() - before; n != questions {
			t.Errorf("%d questions after %s, want %d", n, wait, questions)
		}
	}
	f(restMin-1, 0)
	f(1, 1)
	f(2*restMin-1, 0)
	f(1, 1)
	for range 10 {
		f(restMax, 1) // it never rests longer
	}
	broken.Store(false)
	w.clock.add(restMax)
	w.wantAsk(someID, admission.NoOrder, true)
	w.wantAsk(someID, admission.NoOrder, true)
	if n := w.logs.FilterMessageSnippet("does not answer").Len(); n != 1 {
		t.Errorf("the failure was logged %d times", n)
	}
	if n := w.logs.FilterMessageSnippet("answers again").Len(); n != 1 {
		t.Errorf("the recovery was logged %d times", n)
	}
}

func TestConfigNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	f := func(want string, change func(*Config)) {
		t.Helper()
		cfg := Config{Upstreams: []Upstream{{Name: "orders", URL: "http://a", Resolve: "/r/{reservation}"}}}
		change(&cfg)
		cfg = cfg.WithDefaults()
		if err := cfg.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	f(`upstreams.orders.resolve is "/r"`, func(c *Config) { c.Upstreams[0].Resolve = "/r" })
	f(`upstreams.orders.resolve is "r{reservation}"`, func(c *Config) { c.Upstreams[0].Resolve = "r{reservation}" })
	f(`upstreams.orders.url is "ftp://a"`, func(c *Config) { c.Upstreams[0].URL = "ftp://a" })
	f(`upstream "shop" is not configured`, func(c *Config) { c.Routes = []Route{{Name: "x", Upstream: "shop"}} })
	f("BackoffMax is 1s", func(c *Config) { c.BackoffMin, c.BackoffMax = time.Minute, time.Second })
	f("must be at least 1", func(c *Config) { c.Asks = -1 })
	f("must not be below 0", func(c *Config) { c.Every = -1 })
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *world, cfg *Config, _ *Parts) {
		cfg.Upstreams[1].Unique, cfg.Upstreams[1].OrderDelay = true, time.Second
	})
	f := func(route string, want ...any) {
		t.Helper()
		asks, unique, delay := w.Policy(route)
		if got := fmt.Sprint(asks, unique, delay); got != fmt.Sprint(want...) {
			t.Errorf("%s: %s, want %v", route, got, want)
		}
	}
	f("place", true, false, orderDelay)
	f("other", false, true, time.Second)
	f("api", false, false, time.Duration(0))
	if got := fmt.Sprint(w.Routes()); got != "[place sold]" {
		t.Errorf("routes %s", got)
	}
}
