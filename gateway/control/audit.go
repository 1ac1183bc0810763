package control

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/stock"
)

// readLedger answers a page of the ledger of a SKU or of a reservation, newest first.
func (s *Server) readLedger(r *http.Request) (any, error) {
	q, err := queryOf(r, "sku", "reservation", "after", "limit")
	if err != nil {
		return nil, err
	}
	of, err := auditOf(q)
	if err != nil {
		return nil, err
	}
	limit, err := q.limit()
	if err != nil {
		return nil, err
	}
	after, err := ledgerAfter(q.Get("after"))
	if err != nil {
		return nil, err
	}
	return s.ledgerPage(r.Context(), of, after, limit)
}

func auditOf(q query) (of stock.AuditOf, err error) {
	switch {
	case q.named("sku") == q.named("reservation"):
		return of, refuse(stock.CodeBadRequest, "name one of sku and reservation")
	case q.named("sku"):
		of.SKU = q.Get("sku")
		if err := stock.CheckSKU(of.SKU); err != nil {
			p := refuse(stock.CodeBadRequest, "%v", err)
			p.Field = "sku"
			return of, p
		}
		return of, nil
	}
	of.Reservation, err = parseID("reservation", q.Get("reservation"))
	return of, err
}

func (s *Server) ledgerPage(ctx context.Context, of stock.AuditOf, after stock.AuditRow, limit int) (api.LedgerPage, error) {
	rows, err := s.deps.Records.History(ctx, of, after, limit)
	if err != nil {
		return api.LedgerPage{}, ofRead(err)
	}
	page := api.LedgerPage{Rows: make([]api.LedgerRow, len(rows))}
	for i := range rows {
		page.Rows[i] = viewLedger(&rows[i])
	}
	if len(rows) == limit {
		page.Next = ledgerText(&rows[limit-1])
	}
	return page, nil
}

func viewLedger(row *stock.AuditRow) api.LedgerRow {
	view := api.LedgerRow{SKU: row.SKU, Seq: row.Seq, Kind: string(row.Kind), Op: row.Op, Delta: row.Delta, Before: row.Before,
		After: row.After, Reason: row.Reason, Actor: row.Actor, At: row.At.UTC()}
	if !row.Reservation.IsZero() {
		view.Reservation, view.Try = row.Reservation.String(), row.Try.String()
	}
	return view
}

// ledgerText is a place in the ledger, as it stands in next and after. The SKU is last, because it may have dots.
func ledgerText(r *stock.AuditRow) string {
	return strconv.FormatInt(r.At.UnixMicro(), 10) + "." + strconv.FormatInt(r.Seq, 10) + "." + r.SKU
}

func ledgerAfter(text string) (stock.AuditRow, error) {
	var after stock.AuditRow
	if text == "" {
		return after, nil
	}
	parts := strings.SplitN(text, ".", 3)
	if len(parts) != 3 || stock.CheckSKU(parts[2]) != nil {
		return after, badAfter(text)
	}
	micros, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil {
		return after, badAfter(text)
	}
	seq, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || seq < 1 {
		return after, badAfter(text)
	}
	after.SKU, after.Seq, after.At = parts[2], seq, time.UnixMicro(micros).UTC()
	return after, nil
}
