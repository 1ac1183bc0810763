package storetest

import (
	"math/rand/v2"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// wish is a reservation of lines: sku, qty, sku, qty …
func wish(lines ...any) *stock.Reservation {
	var list []stock.Line
	for i := 0; i < len(lines); i += 2 {
		list = append(list, stock.Line{SKU: lines[i].(string), Qty: int64(lines[i+1].(int))})
	}
	merged, err := stock.MergeLines(list)
	if err != nil {
		panic(err)
	}
	r := &stock.Reservation{Fingerprint: stock.Fingerprint(merged), Lines: merged, Hold: time.Minute, Owner: "gw-1", Route: "place-order",
		User: "u1", Keyed: true, Try: newTry()}
	for i := range r.ID {
		r.ID[i] = byte(rand.Uint32())
	}
	return r
}

func newTry() stock.Try { return stock.Try(rand.Uint64() | 1) }

// again is the same wish under another try.
func again(r *stock.Reservation) *stock.Reservation {
	c := *r
	c.Try = newTry()
	return &c
}

// instead is a wish for other lines under the same id.
func instead(r *stock.Reservation, lines ...any) *stock.Reservation {
	c := wish(lines...)
	c.ID = r.ID
	return c
}

func settle(r *stock.Reservation) *stock.Op { return &stock.Op{Kind: stock.OpSettle, Reservation: r} }

func accept(r *stock.Reservation, a *stock.Answer) *stock.Op {
	return &stock.Op{Kind: stock.OpBook, ID: r.ID, Try: r.Try, Outcome: stock.OutcomeAccepted, Answer: a}
}

func acceptPaid(r *stock.Reservation, a *stock.Answer) *stock.Op {
	op := accept(r, a)
	op.Confirm = true
	return op
}

func reject(r *stock.Reservation, a *stock.Answer) *stock.Op {
	return &stock.Op{Kind: stock.OpBook, ID: r.ID, Try: r.Try, Outcome: stock.OutcomeRejected, Answer: a, Reason: "refused"}
}

func unknown(r *stock.Reservation, reason string) *stock.Op {
	return &stock.Op{Kind: stock.OpBook, ID: r.ID, Try: r.Try, Outcome: stock.OutcomeUnknown, Reason: reason}
}

func neverSent(r *stock.Reservation) *stock.Op {
	return &stock.Op{Kind: stock.OpRelease, ID: r.ID, Try: r.Try, Reservation: r, Reason: "never_sent"}
}

func cancel(r *stock.Reservation) *stock.Op {
	return &stock.Op{Kind: stock.OpRelease, ID: r.ID, Reason: "cancelled", Actor: "shop"}
}

func confirm(r *stock.Reservation) *stock.Op { return &stock.Op{Kind: stock.OpConfirm, ID: r.ID} }
func sweep(r *stock.Reservation) *stock.Op   { return &stock.Op{Kind: stock.OpSweep, Reservation: r} }

func expire(r *stock.Reservation, at time.Time) *stock.Op {
	return &stock.Op{Kind: stock.OpExpire, ID: r.ID, Try: r.Try, ExpiresAt: at}
}

func adjust(sku string, delta int64, id string) *stock.Op {
	return &stock.Op{Kind: stock.OpAdjust, SKU: sku, Delta: delta, OpID: id}
}

func of(kind stock.OpKind, sku string) *stock.Op { return &stock.Op{Kind: kind, SKU: sku} }

func answer(status int) *stock.Answer {
	return &stock.Answer{Status: status, Body: []byte{0, 1, 0xff, '{', '}'},
		Headers: []stock.Header{{Name: "Content-Type", Value: "application/json"}, {Name: "X-Odd", Value: "caf\xe9: \x01"}}}
}
