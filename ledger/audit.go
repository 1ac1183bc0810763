package ledger

import (
	"context"
	"database/sql"

	"github.com/stockgate/stockgate/stock"
)

const auditQuery = `SELECT sku, seq, reservation_id, try, kind, op, delta, "before", "after", at, reason, actor FROM {ledger} `

// History is at most limit ledger rows of a SKU or of a reservation with their reason and actor, newest first, beginning after the row
// named, of which SKU, Seq and At count; the zero one is the beginning.
func (s *Store) History(ctx context.Context, of stock.AuditOf, after stock.AuditRow, limit int) ([]stock.AuditRow, error) {
	if (of.SKU == "") == of.Reservation.IsZero() {
		return nil, badMember("history: exactly one of SKU and reservation is to be named")
	}
	query, args := ofSKU(of.SKU, after)
	if of.SKU == "" {
		query, args = s.ofReservation(of.Reservation, after)
	}
	var rows []stock.AuditRow
	err := s.read(ctx, func(c *conn) error {
		return c.rows(s.d.expand(auditQuery+query), append(args, limit), func(r *sql.Rows) error {
			var row stock.AuditRow
			var err error
			row.LedgerRow, err = scanLedger(r, &row.Reason, &row.Actor)
			rows = append(rows, row)
			return err
		})
	})
	return rows, err
}

func ofSKU(sku string, after stock.AuditRow) (string, []any) {
	if after.Seq == 0 {
		return `WHERE sku = $1 ORDER BY seq DESC LIMIT $2`, []any{sku}
	}
	return `WHERE sku = $1 AND seq < $2 ORDER BY seq DESC LIMIT $3`, []any{sku, after.Seq}
}

// ofReservation: its lines' chains side by side. Rows of one transaction have one time, seq says which of a SKU came last.
func (s *Store) ofReservation(id stock.ID, after stock.AuditRow) (string, []any) {
	const order = ` ORDER BY at DESC, sku {bytes} DESC, seq DESC LIMIT `
	if after.Seq == 0 {
		return `WHERE reservation_id = {id $1}` + order + `$2`, []any{id.String()}
	}
	return `WHERE reservation_id = {id $1} AND (at, sku, seq) < ({instant $2}, $3, $4)` + order + `$5`,
		[]any{id.String(), s.d.instant(after.At), after.SKU, after.Seq}
}
