package gateway

import (
	"slices"
	"strings"
	"time"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/stock"
)

// newIdentity reads what names a reservation from a request without a body: a buyer's page that asks for its order.
func newIdentity(a *Admit, tokenHeader string) *extractor {
	x := &extractor{
		user:            wanted{"user", inQuery(a.User), checkUser},
		activity:        wanted{"activity", inQuery(a.Activity), checkActivity},
		request:         wanted{"request", inQuery(a.Request), checkRequest},
		requestRequired: true,
		tokenHeader:     tokenHeader,
	}
	for _, w := range [...]*wanted{&x.user, &x.activity, &x.request} {
		x.noteParts(w)
	}
	return x
}

// inQuery is where a field of an order stands in a request without a body. The segments of another path mean nothing here.
func inQuery(places []Place) []Place {
	var out []Place
	for _, p := range places {
		switch p.Kind {
		case PlaceBody:
			p = Query(strings.Join(p.Path, "."))
		case PlaceForm:
			p = Query(p.Name)
		case PlacePath, PlaceLine:
			continue
		}
		if !slices.ContainsFunc(out, func(o Place) bool { return o.String() == p.String() }) {
			out = append(out, p)
		}
	}
	return out
}

// identify reads the names of a reservation.
func (x *extractor) identify(r *reader, o *order) *problem {
	if p := x.prepareHead(r); p != nil {
		return p
	}
	if p := r.readName(&x.activity, &o.activity, false); p != nil {
		return p
	}
	return x.readBuyer(r, o)
}

// serveStatus tells a buyer's page what became of its order. It takes nothing and asks no backend.
func (e *exchange) serveStatus() {
	r := &e.reader
	r.head, r.target, r.token = &e.head, e.target, e.tokenReader()
	if p := e.route.status.identify(r, &e.order); p != nil {
		e.refuse(p)
		return
	}
	if !e.enter() {
		return
	}
	row, refusal := e.s.admission.Status(e.s.base, e.wanted())
	e.source = admission.SourceDatabase
	switch {
	case refusal != nil:
		e.refuse(e.ofRefusal(refusal))
	case row == nil:
		e.refuse(&problem{code: stock.CodeUnknownReservation})
	default:
		e.reservation = row.ID
		e.tell(row)
	}
}

// tell answers with what is known of a reservation.
func (e *exchange) tell(row *stock.Row) {
	resp := &e.ctx.Response
	resp.Header.SetContentType("application/json")
	resp.Header.Set("Cache-Control", "no-store")
	resp.SetBodyRaw(appendStatus(nil, row))
}

// appendStatus writes the JSON body.
func appendStatus(b []byte, row *stock.Row) []byte {
	b = appendJSONString(append(b, `{"reservation":`...), row.ID.String())
	b = appendMember(b, "state", buyersState(row))
	b = appendMember(b, "outcome", row.Outcome.String())
	b = appendMember(b, "order_ref", row.OrderRef)
	if row.State == stock.StateHeld && !row.ExpiresAt.IsZero() {
		b = appendMember(b, "expires_at", row.ExpiresAt.UTC().Format(time.RFC3339Nano))
	}
	return append(b, "}\n"...)
}

// buyersState is a reservation's state in words for a page: held says that there is an order, so what nobody knows yet has words of
// its own.
func buyersState(row *stock.Row) string {
	switch {
	case row.InFlight():
		return "in_flight"
	case row.State == stock.StateHeld && row.Outcome == stock.OutcomeUnknown:
		return "unknown"
	}
	return row.State.String()
}
