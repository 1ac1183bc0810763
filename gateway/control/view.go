package control

import (
	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

func viewFact(f stock.Fact) api.Fact {
	return api.Fact{
		SKU:       f.SKU,
		Available: f.Available,
		Granted:   f.Granted,
		Paused:    f.Paused,
		Ver:       f.Ver,
		Epoch:     f.Epoch,
	}
}

func viewSKU(s ledger.SKUInfo) api.SKU {
	return api.SKU{
		Fact:         viewFact(s.Fact),
		Held:         s.Held,
		Confirmed:    s.Confirmed,
		Compensating: s.Compensating,
		StockIn:      s.StockIn,
		Changed:      s.Changed,
		Corrupt:      s.Corrupt,
		Doubtful:     s.Doubtful,
		Consistency:  consistencyOf(s.Fact),
	}
}

// consistencyOf is how a SKU is sold now; the rules of the sale may say otherwise until its grant is there, or back.
func consistencyOf(f stock.Fact) string {
	if f.Ahead {
		return api.Eventual
	}
	return api.Strong
}

func viewRegisters(r stock.Registers) *api.Registers {
	if !r.Loaded {
		return &api.Registers{}
	}
	if r.Base < 0 || r.Rest < 0 || r.Out < 0 { // what cannot be read comes as −1
		return &api.Registers{Loaded: true, Corrupt: true}
	}
	return &api.Registers{
		Loaded: true,
		Base:   r.Base,
		Rest:   r.Rest,
		Out:    r.Out,
		Free:   r.Free(),
		Ver:    r.Ver,
		Epoch:  r.Epoch,
		Paused: r.Paused,
		Ahead:  r.Ahead,
	}
}

// viewReservation leaves out what moves without a transition, so that confirming or releasing twice gives the same body.
func viewReservation(row *stock.Row) api.Reservation {
	view := api.Reservation{
		ID:        row.ID.String(),
		State:     row.State.String(),
		Outcome:   row.Outcome.String(),
		Reason:    row.Reason,
		OrderRef:  row.OrderRef,
		User:      row.User,
		Activity:  row.Activity,
		Route:     row.Route,
		Lines:     make([]api.Line, len(row.Lines)),
		ExpiresAt: row.ExpiresAt.UTC(),
		ForwardBy: row.ForwardBy.UTC(),
	}
	for i, line := range row.Lines {
		view.Lines[i] = api.Line{SKU: line.SKU, Qty: line.Qty}
		if i < len(row.Released) {
			view.Lines[i].Released = row.Released[i]
		}
	}
	return view
}

// viewWhole adds what only a look at the reservation tells.
func viewWhole(row *stock.Row) api.Reservation {
	view := viewReservation(row)
	view.CreatedAt, view.UpdatedAt = row.CreatedAt.UTC(), row.UpdatedAt.UTC()
	view.InFlight = row.InFlight()
	if row.Answer != nil {
		view.AnswerStatus = row.Answer.Status
	}
	return view
}

func viewList(rows []*stock.Row) api.ReservationList {
	list := api.ReservationList{Reservations: make([]api.Reservation, len(rows))}
	for i, row := range rows {
		list.Reservations[i] = viewWhole(row)
	}
	return list
}
