package resolver

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/internal/orderservice"
	"github.com/stockgate/stockgate/stock"
)

// A catch-all that says "open" or "paid" to everything would confirm what nobody ordered.
func TestACatchAllIsNoticedAndBelievedAgainOnceMended(t *testing.T) {
	t.Parallel()
	for _, lie := range []orderservice.Fault{
		{Status: 200, Body: []byte(`{"state":"paid"}`)},
		{Status: 200, Body: []byte("<html>"), Header: http.Header{"Content-Type": {"text/html"}}},
		{Status: 302, Body: []byte{}, Header: http.Header{"Location": {"/login"}}},
		{Status: 400, Body: []byte("{}")},
	} {
		t.Run(fmt.Sprint(lie.Status, string(lie.Body)), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.orders.AlwaysAsked(lie)
			id := w.rows.add(nil)
			w.mustPass()
			w.wantAsk(id, admission.NoOrder, false)
			w.want(id, stock.StateHeld, stock.OutcomeUnknown, "timeout")
			if w.questions(id) != 0 {
				t.Error("it was asked although it is not believed")
			}
			d := w.Distrusted()
			if len(d) != 1 || d[0].Upstream != "orders" || !strings.Contains(d[0].Detail, "must answer 404") {
				t.Errorf("distrusted: %+v", d)
			}
			if w.metric("resolve_distrusted", "orders") != 1 {
				t.Error("the metric does not show it")
			}
			w.clock.add(ProbeAgainDefault)
			w.mustPass()
			if logged := w.logs.FilterMessageSnippet("is not believed"); logged.Len() != 1 || logged.All()[0].ContextMap()["mend"] == "" {
				t.Errorf("logged %d times", logged.Len())
			}

			w.orders.AlwaysAsked(orderservice.Fault{})
			w.order(id)
			w.mustPass() // not yet its time
			w.want(id, stock.StateHeld, stock.OutcomeUnknown, "timeout")
			w.clock.add(ProbeAgainDefault)
			w.mustPass()
			w.want(id, stock.StateHeld, stock.OutcomeAccepted, "resolved")
			if len(w.Distrusted()) != 0 || w.metric("resolve_distrusted", "orders") != 0 {
				t.Error("it is still shown as distrusted")
			}
		})
	}
}

func TestAnUpstreamThatIsBelievedIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.wantAsk(someID, admission.NoOrder, true)
	w.orders.AlwaysAsked(orderservice.Fault{Body: []byte(`{"state":"open"}`)}) // a deployment went wrong
	w.clock.add(ProbeEveryDefault)
	w.wantAsk(someID, admission.NoOrder, false)
	if len(w.Distrusted()) != 1 {
		t.Error("the catch-all was not noticed")
	}
}

func TestSilenceIsNeitherDistrustedNorTrusted(t *testing.T) {
	t.Parallel()
	for _, silence := range []orderservice.Fault{{Status: 503}, {Status: 500}, {Status: 429}, {Status: 408},
		{Before: orderservice.Trouble{Close: orderservice.CloseRST}}} {
		w := newWorld(t)
		w.orders.AlwaysAsked(silence)
		w.wantAsk(someID, admission.NoOrder, false)
		if d := w.Distrusted(); len(d) != 0 {
			t.Errorf("%+v: distrusted: %+v", silence, d)
		}
		if w.questions(someID) != 0 {
			t.Errorf("%+v: it was asked before it was tried", silence)
		}
		w.orders.AlwaysAsked(orderservice.Fault{})
		w.clock.add(restMin)
		w.wantAsk(someID, admission.NoOrder, true)
	}
}

func TestSilenceDoesNotClearALiar(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.orders.AlwaysAsked(orderservice.Fault{Body: []byte(`{"state":"open"}`)})
	w.wantAsk(someID, admission.NoOrder, false)
	w.orders.AlwaysAsked(orderservice.Fault{Status: 503})
	w.clock.add(time.Minute)
	w.wantAsk(someID, admission.NoOrder, false)
	if len(w.Distrusted()) != 1 || w.metric("resolve_distrusted", "orders") != 1 {
		t.Error("it is no longer shown")
	}
}
