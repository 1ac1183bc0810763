package admission

import (
	"context"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// duplicate answers a request whose id Redis knows.
func (a *Admitter) duplicate(ctx context.Context, r *wanted, reply stock.CacheReply) Decision {
	if reply.KnownFingerprint != r.Fingerprint {
		a.giveBack(r)
		return keyReused(&r.Reservation, SourceRedis)
	}
	row, err := a.lookUp(ctx, r.ID)
	switch {
	case err != nil:
		a.giveBack(r)
		return refuse(SourceRedis, refuseErr(err))
	case row == nil && reply.KnownOpen:
		a.giveBack(r)
		return a.inFlight(&r.Reservation, SourceRedis)
	case row == nil, row.Reopens():
		// What Redis remembers has come to nothing: this try may have the id, if there is stock.
		return a.withoutRedis(ctx, r, false)
	}
	a.giveBack(r)
	return a.fromRow(ctx, r, SourceRedis, row)
}

// lookUp gives the row of an id, nil if there is none. It waits for the database no longer than for a transaction.
func (a *Admitter) lookUp(ctx context.Context, id stock.ID) (*stock.Row, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.cfg.QueueWait)
	defer cancel()
	return a.finder.find(ctx, id)
}

func (a *Admitter) inFlight(r *stock.Reservation, s Source) Decision {
	return Decision{Source: s, Reservation: r.ID, Refusal: &Refusal{Code: stock.CodeInFlight, RetryAfter: time.Second}}
}

// keyReused refuses other lines under a used id, and names the reservation that the id is of: its owner knows it already.
func keyReused(r *stock.Reservation, s Source) Decision {
	return Decision{Source: s, Reservation: r.ID, Refusal: &Refusal{Code: stock.CodeKeyReused}}
}

// fromRow answers a request whose id belongs to another try's row. If nobody knows what became of that one's order, it may find out
// and may take the row over.
func (a *Admitter) fromRow(ctx context.Context, r *wanted, s Source, row *stock.Row) Decision {
	if d, known := a.known(r, s, row); known {
		return d
	}
	return a.resolve(ctx, r, s, row)
}

// known answers from a row whose outcome is known, or whose gateway still works on it. Otherwise known is false.
func (a *Admitter) known(r *wanted, s Source, row *stock.Row) (d Decision, known bool) {
	switch {
	case row == nil:
		return refuse(s, &Refusal{Code: stock.CodeUnavailable}), true
	case row.Fingerprint != r.Fingerprint:
		return keyReused(&r.Reservation, s), true
	case row.Answer != nil:
		return Decision{Source: SourceNone, Reservation: row.ID, Replay: row.Answer, Row: row}, true
	case row.InFlight():
		return a.inFlight(&row.Reservation, s), true
	case row.State == stock.StateConfirmed, row.State == stock.StateHeld && row.Outcome == stock.OutcomeAccepted:
		return Decision{Source: s, Reservation: row.ID, Replay: resolved(row), Resolved: true, Row: row}, true
	case row.State == stock.StateReleased, row.State == stock.StateVoid:
		return Decision{Source: s, Reservation: row.ID, Refusal: &Refusal{Code: stock.CodeReleased}}, true
	}
	return Decision{}, false
}

// resolved is the answer for an order that is known to exist although the backend's own answer is not kept: it was lost and the order
// service or an operator said how it ended, or it is older than answers.keep. It says nothing that changes: one request id has one answer.
func resolved(row *stock.Row) *stock.Answer {
	return &stock.Answer{Status: 200, Headers: []stock.Header{{Name: "Content-Type", Value: "application/json"}}, Try: row.Try,
		Body: []byte(`{"reservation":"` + row.ID.String() + `","ordered":true}`)}
}
