package gateway

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/stock"
)

// TestC083_RefusedWithExpect: who is limited, or comes too late, hears so after the body; the next request on the connection is read right.
func TestC083_RefusedWithExpect(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	limited := startGate(t, b.addr(), onceAnAddress(t))
	soldOut := startGate(t, b.addr())
	var refused atomic.Int32
	soldOut.adm.decide = func(w *admission.Wish) admission.Decision {
		if refused.Add(1) > 1 {
			return admission.Decision{Source: admission.SourceRedis, Pass: passFor(w)}
		}
		return admission.Decision{Source: admission.SourceRedis, Refusal: &admission.Refusal{Code: stock.CodeSoldOut}}
	}
	f := func(g *gate, first, then int) {
		t.Helper()
		w := dialWire(t, g.addr)
		for _, status := range []int{first, then} {
			head, body, _ := strings.Cut(orderOf(goodBody, "Expect: 100-continue\r\n"), "\r\n\r\n")
			w.send(head + "\r\n\r\n")
			if line, err := w.br.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
				t.Fatalf("instead of 100 came %q, %v", line, err)
			}
			_, _ = w.br.ReadString('\n')
			w.send(body)
			if got := w.receive("POST"); got.StatusCode != status {
				t.Fatalf("answer is %d %s, want %d", got.StatusCode, got.body, status)
			}
		}
	}
	f(limited, 201, 429)
	f(soldOut, 409, 201)
}

// TestC086_OnePanicAmongMany: of 500 orders from 20 clients one panics. It gets 500, and all others are served.
func TestC086_OnePanicAmongMany(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr())
	var n atomic.Int32
	g.adm.decide = func(w *admission.Wish) admission.Decision {
		if n.Add(1) == 250 {
			panic("in the middle of a decision")
		}
		return admission.Decision{Source: admission.SourceRedis, Pass: passFor(w)}
	}
	const clients, each = 20, 25
	var statuses [600]atomic.Int32
	var wg sync.WaitGroup
	for range clients {
		w := dialWire(t, g.addr)
		wg.Go(func() {
			for range each {
				w.send(orderOf(goodBody))
				got := w.receive("POST")
				statuses[got.StatusCode].Add(1)
				if got.StatusCode == 500 {
					w = dialWire(t, g.addr)
				}
			}
		})
	}
	wg.Wait()
	if ok, failed := statuses[201].Load(), statuses[500].Load(); ok != clients*each-1 || failed != 1 {
		t.Errorf("%d orders were served, %d got 500", ok, failed)
	}
	if got := counterOf(t, g.reg, "stockgate_panics_total"); got != 1 {
		t.Errorf("%v panics were counted", got)
	}
}
