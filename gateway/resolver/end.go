package resolver

import (
	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/stock"
)

// Reasons written to row and ledger, beside those of stock that rules depend on.
const (
	reasonResolved = "resolved"
	reasonNoOrder  = "no_order"
)

// ending is what an answer makes of a row; the zero one is nothing.
type ending struct {
	op   *stock.Op
	name string // for the metric
}

// endingOf decides. soldIfOpen: on this route an order that exists is a paid one. row was read before the question was asked, so its
// clock makes "no order" final rather too late than too early.
func endingOf(row *stock.DueRow, state admission.BackendState, soldIfOpen, final bool) ending {
	if row.Surplus && (state == admission.Paid || state == admission.Open) {
		return ending{accept(row, false), endedAccepted} // it has no units: package compensation makes the order good or void
	}
	switch state {
	case admission.Paid:
		return ending{confirm(row), endedConfirmed}
	case admission.Open:
		return endingOfOpen(row, soldIfOpen)
	case admission.Cancelled:
		return ending{expire(row, stock.OutcomeAccepted, stock.ReasonCancelled), endedCancelled}
	}
	if !final {
		return ending{}
	}
	answered := stock.OutcomeRejected
	if row.Outcome == stock.OutcomeAccepted {
		answered = stock.OutcomeAccepted // the client was told so; the order is gone since
	}
	return ending{expire(row, answered, reasonNoOrder), endedNoOrder}
}

func endingOfOpen(row *stock.DueRow, sold bool) ending {
	switch {
	case row.Outcome == stock.OutcomeUnknown:
		if sold {
			return ending{accept(row, true), endedConfirmed}
		}
		return ending{accept(row, false), endedAccepted}
	case sold:
		return ending{confirm(row), endedConfirmed}
	case row.Now.Before(row.ExpiresAt):
		return ending{} // extended meanwhile
	}
	return ending{expire(row, stock.OutcomeAccepted, stock.ReasonExpired), endedExpired}
}

func accept(row *stock.DueRow, sold bool) *stock.Op {
	return &stock.Op{Kind: stock.OpBook, Class: stock.ClassPrededuct, ID: row.ID, Try: row.Try, Outcome: stock.OutcomeAccepted, Confirm: sold,
		Reason: reasonResolved}
}

func confirm(row *stock.DueRow) *stock.Op {
	return &stock.Op{Kind: stock.OpConfirm, Class: stock.ClassPrededuct, ID: row.ID, Reason: reasonResolved}
}

// expire releases the row if it is still as it was read.
func expire(row *stock.DueRow, answered stock.Outcome, reason string) *stock.Op {
	return &stock.Op{Kind: stock.OpExpire, Class: stock.ClassPrededuct, ID: row.ID, Try: row.Try, ExpiresAt: row.ExpiresAt,
		Outcome: row.Outcome, Asked: true, Answered: answered, Reason: reason}
}
