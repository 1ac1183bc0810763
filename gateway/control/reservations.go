package control

import (
	"net/http"

	"github.com/stockgate/stockgate/stock"
)

// getReservation answers one reservation.
func (s *Server) getReservation(r *http.Request) (any, error) {
	id, err := pathID(r)
	if err != nil {
		return nil, err
	}
	found, err := s.deps.Store.Find(r.Context(), []stock.ID{id})
	if err != nil {
		return nil, ofRead(err)
	}
	row := found[id]
	if row == nil {
		return nil, unknownReservation(id)
	}
	return viewWhole(row), nil
}

// endReservation confirms or releases.
func (s *Server) endReservation(kind stock.OpKind, reason string) endpoint {
	return func(r *http.Request) (any, error) {
		op, err := s.readEnd(r, kind, reason)
		if err != nil {
			return nil, err
		}
		if err := s.run(r.Context(), op); err != nil {
			return nil, err
		}
		if err := ofEndVerdict(op); err != nil {
			return nil, err
		}
		return viewReservation(op.Result.Row), nil
	}
}

func (s *Server) readEnd(r *http.Request, kind stock.OpKind, reason string) (*stock.Op, error) {
	op := &stock.Op{Kind: kind, Actor: actorOf(r.Context())}
	var err error
	if op.ID, err = pathID(r); err != nil {
		return nil, err
	}
	body, err := readObject(r, "order_ref", "reason")
	if err != nil {
		return nil, err
	}
	if op.OrderRef, err = body.text("order_ref", orderRefBytesMax); err != nil {
		return nil, err
	}
	if op.Reason, err = body.text("reason", reasonBytesMax); err != nil {
		return nil, err
	}
	if op.Reason == "" {
		op.Reason = reason
	}
	return op, nil
}

// endState is where confirm and release lead. A reservation that is there already was ended before: the same answer again.
var endState = map[stock.OpKind]stock.State{stock.OpConfirm: stock.StateConfirmed, stock.OpRelease: stock.StateReleased}

// ofEndVerdict translates what the database decided about a confirm or release. Strong SKUs are forwarded only after their commit,
// so a reservation without a row was never seen by the order service: there is nothing in Redis to look for.
func ofEndVerdict(op *stock.Op) error {
	row := op.Result.Row
	switch v := op.Result.Verdict; {
	case v == stock.VerdictUnknownReservation:
		return unknownReservation(op.ID)
	case row != nil && (v == stock.VerdictDone || row.State == endState[op.Kind]):
		return nil
	case v == stock.VerdictStale && row != nil:
		return refuse(stock.CodeReleased, "reservation %s is %s (%s)", op.ID, row.State, shorten(row.Reason))
	case v == stock.VerdictCorrupt, v == stock.VerdictUnknownSKU:
		return refuse(stock.CodeCorruptStock, "the stock row of %s is gone or holds what units cannot be put back to; nothing was changed", op.ID)
	case v == stock.VerdictShort, v == stock.VerdictSoldOut, v == stock.VerdictPaused:
		return refuse(stock.CodeReleased, "reservation %s is released, and there is not enough stock to take it again", op.ID)
	default:
		return refuse(stock.CodeInternal, "verdict %s on %s", v, op.ID)
	}
}

func unknownReservation(id stock.ID) error {
	return refuse(stock.CodeUnknownReservation, "there is no reservation %s", id)
}

func pathID(r *http.Request) (stock.ID, error) {
	id, err := stock.ParseID(r.PathValue("id"))
	if err != nil {
		return id, badField("id", shorten(r.PathValue("id")), "must be 32 hex digits")
	}
	return id, nil
}
