package control

import (
	"context"

	"github.com/stockgate/stockgate/stock"
)

// runNotice runs a notice about a reservation. An order that was forwarded ahead may be known in Redis's open only, and its order service
// may confirm or release it before it is settled. So what has no row is looked for there, settled, and then the notice is run again. It
// returns the op that was run last.
func (s *Server) runNotice(ctx context.Context, op *stock.Op) (*stock.Op, error) {
	again := *op // as it is before the deducter has it
	if err := s.run(ctx, op); err != nil {
		return nil, err
	}
	if op.Result.Verdict != stock.VerdictUnknownReservation {
		return op, nil
	}
	if settled, err := s.settleOpen(ctx, op.ID); !settled {
		return op, err
	}
	return &again, s.run(ctx, &again)
}

// settleOpen settles what is known in open only. The error is a refusal: with Redis away nobody knows what is open there.
func (s *Server) settleOpen(ctx context.Context, id stock.ID) (settled bool, err error) {
	if s.deps.Open == nil {
		return false, nil
	}
	settled, err = s.deps.Open.SettleOpen(ctx, id)
	if err != nil {
		return false, refuse(stock.CodeUnavailable, "reservation %s has no row, and what Redis knows of it cannot be asked or settled now: %v", id, err)
	}
	return settled, nil
}

// settledRow is rowOf, with what is known in open settled first.
func (s *Server) settledRow(ctx context.Context, id stock.ID) (*stock.Row, error) {
	row, err := s.find(ctx, id)
	if err != nil || row != nil {
		return row, err
	}
	settled, err := s.settleOpen(ctx, id)
	if err != nil {
		return nil, err
	}
	if settled {
		if row, err = s.find(ctx, id); err != nil || row != nil {
			return row, err
		}
	}
	return nil, unknownReservation(id)
}
