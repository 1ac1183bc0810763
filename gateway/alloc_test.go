//go:build !race

package gateway

import (
	"bufio"
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"
	"go.uber.org/zap"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/stock"
)

// fixedAdmission decides without allocating, so that only the HTTP side is counted.
type fixedAdmission struct{ decision admission.Decision }

func (f *fixedAdmission) Admit(context.Context, *admission.Wish) admission.Decision {
	if f.decision.Pass != nil {
		f.decision.Pass.SendBefore = time.Now().Add(time.Second)
	}
	return f.decision
}

func (f *fixedAdmission) Book(context.Context, *admission.Pass, admission.Outcome) {}

func (f *fixedAdmission) BookBehind(*admission.Pass, admission.Outcome) {}

func (f *fixedAdmission) Recall(_ context.Context, _ *admission.Wish) (admission.Decision, bool) {
	return admission.Decision{}, false
}

func (f *fixedAdmission) Status(context.Context, *admission.Wish) (*stock.Row, *admission.Refusal) {
	return nil, nil
}

// bench is a handler with one guarded route and a context that holds a parsed request for it.
func bench(tb testing.TB, addr string, d admission.Decision) (*Server, *fasthttp.RequestCtx) {
	tb.Helper()
	s, err := New(Config{
		Upstreams:     []Upstream{{Name: "orders", URL: "http://" + addr}},
		AnswerHeaders: []string{"Content-Type", "Location"},
		Routes: []Route{{Name: "place-order", Methods: []string{"POST"}, Path: "/orders", Upstream: "orders", Admit: &Admit{
			SKU: []Place{Body("sku")}, Qty: []Place{Body("qty")}, User: []Place{Header("X-User-Id"), Body("user")},
			Request: []Place{Header("Idempotency-Key")}}}},
	}, Parts{Admission: &fixedAdmission{d}, Log: zap.NewNop(), Registry: prometheus.NewRegistry()})
	if err != nil {
		tb.Fatal(err)
	}
	client, server := net.Pipe()
	go func() {
		_, _ = client.Write([]byte(orderOf(goodBody, "Idempotency-Key: k-1\r\nUser-Agent: x\r\nAccept: */*\r\n")))
	}()
	ctx := &fasthttp.RequestCtx{}
	ctx.Init2(server, nil, false)
	br := newReader(server)
	if err := ctx.Request.Read(br); err != nil {
		tb.Fatal(err)
	}
	_ = client.Close()
	_ = server.Close()
	return s, ctx
}

// TestRefusalsBarelyAllocate: in a flash sale almost every answer is SOLD_OUT. What is allocated are the SKU, the user and the request
// id, which admission and limits may keep.
func TestRefusalsBarelyAllocate(t *testing.T) {
	s, ctx := bench(t, "127.0.0.1:1", admission.Decision{Source: admission.SourceRedis, Refusal: &admission.Refusal{Code: stock.CodeSoldOut}})
	allocs := testing.AllocsPerRun(200, func() {
		ctx.Response.Reset()
		s.handle(ctx)
	})
	if ctx.Response.StatusCode() != 409 {
		t.Fatalf("answer is %s", &ctx.Response)
	}
	if allocs > 5 {
		t.Errorf("a sold-out answer allocates %v times, the budget is 5", allocs)
	}
}

// TestAdmittedRequestsAllocateLittle: with the exchange at the backend and the kept answer.
func TestAdmittedRequestsAllocateLittle(t *testing.T) {
	b := startBackend(t, answering(created))
	s, ctx := bench(t, b.addr(), admission.Decision{Source: admission.SourceRedis,
		Pass: passFor(&admission.Wish{Lines: []stock.Line{{SKU: "sku-1001", Qty: 2}}})})
	defer s.closeUpstreams()
	before := testing.AllocsPerRun(200, func() { // what the test's own backend allocates for a request
		_, _ = readRaw(newReader(&replayed{text: orderOf(goodBody)}))
	})
	allocs := testing.AllocsPerRun(200, func() {
		ctx.Response.Reset()
		s.handle(ctx)
	})
	if ctx.Response.StatusCode() != 201 {
		t.Fatalf("answer is %s", &ctx.Response)
	}
	t.Logf("%v allocations, of which the test's backend makes at least %v", allocs, before)
	if allocs > before+40 {
		t.Errorf("an admitted request allocates %v times beyond the backend's %v, the budget is 40", allocs-before, before)
	}
}

func BenchmarkSoldOut(b *testing.B) {
	s, ctx := bench(b, "127.0.0.1:1", admission.Decision{Source: admission.SourceRedis, Refusal: &admission.Refusal{Code: stock.CodeSoldOut}})
	b.ReportAllocs()
	for b.Loop() {
		ctx.Response.Reset()
		s.handle(ctx)
	}
}

func newReader(r io.Reader) *bufio.Reader { return bufio.NewReader(r) }

// replayed gives a text once.
type replayed struct{ text string }

func (r *replayed) Read(p []byte) (int, error) {
	if r.text == "" {
		return 0, io.EOF
	}
	n := copy(p, r.text)
	r.text = r.text[n:]
	return n, nil
}
