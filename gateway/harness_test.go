package gateway

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/stock"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		// The next two sleep for one idle time-out more and then end by themselves.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*HostClient).connsCleaner"))
}

// fakeAdmission admits everything unless told otherwise, and remembers what it was told.
type fakeAdmission struct {
	decide func(w *admission.Wish) admission.Decision
	onBook func()
	status func(w *admission.Wish) (*stock.Row, *admission.Refusal)
	recall func(w *admission.Wish) (admission.Decision, bool) // nil: nothing is known

	mu     sync.Mutex
	wishes []admission.Wish
	booked []admission.Outcome
	behind int                       // of booked, those that nobody waited for
	passes map[*admission.Pass][]int // where in booked the outcomes of each pass are
}

func (f *fakeAdmission) Recall(_ context.Context, w *admission.Wish) (admission.Decision, bool) {
	if f.recall == nil {
		return admission.Decision{}, false
	}
	return f.recall(w)
}

func (f *fakeAdmission) Status(_ context.Context, w *admission.Wish) (*stock.Row, *admission.Refusal) {
	return f.status(w)
}

// fixedRules are the same for every SKU: no activity covers one unless it is named here, and every SKU is enforced unless shadow says
// otherwise.
type fixedRules struct {
	maxQty  int64
	covered map[string]string            // activity → its only SKU
	shadow  func(route, sku string) bool // nil: never
}

func (f fixedRules) Rule(sku, named string) (Rule, bool) {
	return Rule{MaxQty: f.maxQty}, named != "" && f.covered[named] == sku
}

// Activity is the one that sells the SKU.
func (f fixedRules) Activity(sku string) string {
	for activity, covered := range f.covered {
		if covered == sku {
			return activity
		}
	}
	return ""
}

func (f fixedRules) Mode(route, sku string) Mode {
	if f.shadow != nil && f.shadow(route, sku) {
		return Shadow
	}
	return Enforce
}

func (f *fakeAdmission) Admit(_ context.Context, w *admission.Wish) admission.Decision {
	f.mu.Lock()
	wish := *w
	wish.Lines = append([]stock.Line(nil), w.Lines...)
	f.wishes = append(f.wishes, wish)
	f.mu.Unlock()
	if f.decide != nil {
		return f.gave(f.decide(&wish))
	}
	return f.gave(admission.Decision{Source: admission.SourceRedis, Pass: passFor(&wish)})
}

// gave keeps the pass of a decision.
func (f *fakeAdmission) gave(d admission.Decision) admission.Decision {
	if d.Pass == nil {
		return d
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.passes == nil {
		f.passes = map[*admission.Pass][]int{}
	}
	f.passes[d.Pass] = nil
	return d
}

func (f *fakeAdmission) Book(_ context.Context, p *admission.Pass, o admission.Outcome) {
	f.mu.Lock()
	if _, known := f.passes[p]; known {
		f.passes[p] = append(f.passes[p], len(f.booked))
	}
	f.booked = append(f.booked, o)
	f.mu.Unlock()
	if f.onBook != nil {
		f.onBook()
	}
}

func (f *fakeAdmission) BookBehind(p *admission.Pass, o admission.Outcome) {
	f.mu.Lock()
	f.behind++
	f.mu.Unlock()
	f.Book(context.Background(), p, o)
}

func (f *fakeAdmission) asked() []admission.Wish {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]admission.Wish(nil), f.wishes...)
}

// outcome is the only booking there was.
func (f *fakeAdmission) outcome(t *testing.T) admission.Outcome {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.booked) != 1 {
		t.Fatalf("%d outcomes were booked, want exactly 1: %+v", len(f.booked), f.booked)
	}
	return f.booked[0]
}

// settled checks that every pass has exactly one outcome, and counts the passes and those of them that may never have reached a backend.
func (f *fakeAdmission) settled(t *testing.T) (passes, unsent int) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, of := range f.passes {
		if len(of) != 1 {
			t.Errorf("a pass has %d outcomes, want exactly 1", len(of))
			continue
		}
		if kind := f.booked[of[0]].Kind; kind == admission.NeverSent || kind == admission.Unknown {
			unsent++
		}
	}
	if len(f.booked) != len(f.passes) {
		t.Errorf("%d outcomes for %d passes", len(f.booked), len(f.passes))
	}
	return len(f.passes), unsent
}

func (f *fakeAdmission) outcomes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.booked)
}

var testID = stock.ID{0xab, 1, 2, 3}

// passFor is a pass that may be used for the next two seconds.
func passFor(w *admission.Wish) *admission.Pass {
	return &admission.Pass{
		Reservation: &stock.Reservation{ID: testID, Try: 7, Lines: w.Lines, Route: w.Route, User: w.User},
		RequestKey:  "drawn-key", ExpiresAt: time.UnixMilli(1800000900123), ForwardBy: time.UnixMilli(1800000002123),
		SendBefore: time.Now().Add(2 * time.Second),
	}
}

// gate is a running server.
type gate struct {
	*Server
	t    *testing.T
	addr string
	adm  *fakeAdmission
	reg  *prometheus.Registry
	done chan error
	end  sync.Once
}

// startGate runs a server with one guarded route, POST /orders, and a plain one for the rest, before the backend at addr.
func startGate(t *testing.T, addr string, change ...func(*Config, *Parts)) *gate {
	t.Helper()
	g := &gate{t: t, adm: &fakeAdmission{}, reg: prometheus.NewRegistry(), done: make(chan error, 1)}
	cfg := Config{
		ReadTimeout:   2 * time.Second,
		ForwardWithin: 2 * time.Second,
		Upstreams:     []Upstream{{Name: "orders", URL: "http://" + addr, Timeout: 2 * time.Second}},
		AnswerHeaders: []string{"Content-Type", "Location"},
		Routes: []Route{
			{Name: "place-order", Methods: []string{"POST"}, Path: "/orders", Upstream: "orders", Admit: &Admit{
				SKU: []Place{Body("sku")}, Qty: []Place{Body("qty")}, User: []Place{Header("X-User-Id"), Body("user")},
				Request: []Place{Header("Idempotency-Key")},
			}},
			{Name: "the-rest", Path: "/*", Upstream: "orders"},
		},
	}
	parts := Parts{Admission: g.adm, Log: zap.NewNop(), Registry: g.reg,
		Rules: fixedRules{maxQty: 100}}
	for _, c := range change {
		c(&cfg, &parts)
	}
	var err error
	if g.Server, err = New(cfg, parts); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g.addr = ln.Addr().String()
	go func() { g.done <- g.Serve(ln) }()
	t.Cleanup(g.stop)
	return g
}

// stop ends the server once its requests are answered. It may be called again.
func (g *gate) stop() { g.end.Do(g.shutDown) }

func (g *gate) shutDown() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := g.Shutdown(ctx); err != nil {
		g.t.Errorf("shutdown: %v", err)
	}
	if err := <-g.done; err != nil {
		g.t.Errorf("serve: %v", err)
	}
}

// wire is a raw connection to a server.
type wire struct {
	net.Conn
	t  *testing.T
	br *bufio.Reader
}

func dialWire(t *testing.T, addr string) *wire {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return &wire{Conn: c, t: t, br: bufio.NewReader(c)}
}

func (w *wire) send(text string) {
	w.t.Helper()
	if _, err := io.WriteString(w.Conn, text); err != nil {
		w.t.Fatalf("send: %v", err)
	}
}

// reply is an answer read to its end.
type reply struct {
	*http.Response
	body string
}

func (w *wire) receive(method string) reply {
	w.t.Helper()
	resp, err := http.ReadResponse(w.br, &http.Request{Method: method})
	if err != nil {
		w.t.Fatalf("read the answer: %v", err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatalf("read the answer's body: %v", err)
	}
	return reply{resp, string(body)}
}

// ended checks that the server closes the connection and says no more.
func (w *wire) ended() {
	w.t.Helper()
	if rest, err := io.ReadAll(w.br); err != nil || len(rest) > 0 {
		w.t.Fatalf("the connection did not end cleanly: %q, %v", rest, err)
	}
}

// do sends one request on a connection of its own.
func (g *gate) do(text string) reply {
	g.t.Helper()
	w := dialWire(g.t, g.addr)
	defer w.Close()
	w.send(text)
	method, _, _ := strings.Cut(text, " ")
	return w.receive(method)
}

// order writes a request for stock with extra header lines, each ending in CR LF.
func orderOf(body string, headers ...string) string {
	return "POST /orders HTTP/1.1\r\nHost: shop.example\r\nContent-Type: application/json\r\nContent-Length: " + itoa(len(body)) +
		"\r\n" + strings.Join(headers, "") + "\r\n" + body
}

const goodBody = `{"sku":"sku-1001","qty":2,"user":"u1"}`

func itoa(n int) string { return strconv.Itoa(n) }

// received is a request as it arrived at the backend.
type received struct {
	head string // with the request line and the empty line
	body string
}

func (r received) line() string { return r.head[:strings.Index(r.head, "\r\n")] }

// header is the value of the only field of that exact name, "" if absent.
func (r received) header(t *testing.T, name string) string {
	t.Helper()
	values := r.values(name)
	if len(values) > 1 {
		t.Fatalf("the backend got %s %d times: %q", name, len(values), values)
	}
	return strings.Join(values, "")
}

func (r received) values(name string) []string {
	var values []string
	for _, line := range strings.Split(r.head, "\r\n")[1:] {
		if n, v, found := strings.Cut(line, ": "); found && n == name {
			values = append(values, v)
		}
	}
	return values
}

// backend is a raw server: it keeps the bytes of every request and answers with what the script says.
type backend struct {
	t      *testing.T
	ln     net.Listener
	script func(c net.Conn, r received) (stay bool)

	mu    sync.Mutex
	got   []received
	conns int
	wg    sync.WaitGroup
	open  map[net.Conn]struct{}
}

const created = "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n{\"order\":\"1\"}"

// answering is a script that gives the same reply to every request.
func answering(text string) func(net.Conn, received) bool {
	return func(c net.Conn, _ received) bool {
		_, err := io.WriteString(c, text)
		return err == nil
	}
}

func startBackend(t *testing.T, script func(net.Conn, received) bool) *backend {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveBackend(t, ln, script)
}

// serveBackend is startBackend on a listener that it owns.
func serveBackend(t *testing.T, ln net.Listener, script func(net.Conn, received) bool) *backend {
	t.Helper()
	b := &backend{t: t, ln: ln, script: script, open: map[net.Conn]struct{}{}}
	b.wg.Add(1)
	go b.accept()
	t.Cleanup(b.stop)
	return b
}

func (b *backend) addr() string { return b.ln.Addr().String() }

func (b *backend) stop() {
	_ = b.ln.Close()
	b.mu.Lock()
	for c := range b.open {
		_ = c.Close()
	}
	b.mu.Unlock()
	b.wg.Wait()
}

func (b *backend) accept() {
	defer b.wg.Done()
	for {
		c, err := b.ln.Accept()
		if err != nil {
			return
		}
		b.mu.Lock()
		b.conns++
		b.open[c] = struct{}{}
		b.mu.Unlock()
		b.wg.Add(1)
		go b.serve(c)
	}
}

func (b *backend) serve(c net.Conn) {
	defer b.wg.Done()
	defer func() {
		_ = c.Close()
		b.mu.Lock()
		delete(b.open, c)
		b.mu.Unlock()
	}()
	br := bufio.NewReader(c)
	for {
		r, err := readRaw(br)
		if err != nil {
			return
		}
		b.mu.Lock()
		b.got = append(b.got, r)
		b.mu.Unlock()
		if !b.script(c, r) {
			return
		}
	}
}

func readRaw(br *bufio.Reader) (received, error) {
	var head bytes.Buffer
	for {
		line, err := br.ReadString('\n')
		if err != nil {
			return received{}, err
		}
		head.WriteString(line)
		if line == "\r\n" {
			break
		}
	}
	r := received{head: head.String()}
	for _, v := range r.values("Content-Length") {
		var n int
		for _, c := range v {
			n = n*10 + int(c-'0')
		}
		body := make([]byte, n)
		if _, err := io.ReadFull(br, body); err != nil {
			return received{}, err
		}
		r.body = string(body)
	}
	return r, nil
}

func (b *backend) requests() []received {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]received(nil), b.got...)
}

// only is the single request that arrived.
func (b *backend) only() received {
	b.t.Helper()
	got := b.requests()
	if len(got) != 1 {
		b.t.Fatalf("the backend got %d requests, want exactly 1: %+v", len(got), got)
	}
	return got[0]
}

func (b *backend) connections() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.conns
}

// wants checks status and code of an answer of ours.
func (r reply) wants(t *testing.T, status int, code stock.Code) {
	t.Helper()
	if r.StatusCode != status || !strings.Contains(r.body, `"code":"`+string(code)+`"`) {
		t.Fatalf("answer is %d %s, want %d %s", r.StatusCode, r.body, status, code)
	}
	if got := r.Header.Get("Content-Type"); got != ProblemType {
		t.Errorf("Content-Type is %q, want %q", got, ProblemType)
	}
	if got := r.Header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control is %q, want no-store", got)
	}
}

func prefixes(list ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, p := range list {
		all = append(all, netip.MustParsePrefix(p))
	}
	return all
}

func trust(list ...string) func(*Config, *Parts) {
	return func(c *Config, _ *Parts) { c.TrustedProxies = prefixes(list...) }
}

// counterOf is the sum of a counter over its labels.
func counterOf(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
