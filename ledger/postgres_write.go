package ledger

import (
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// writes is one statement that writes everything: WITH part AS (INSERT …), part AS (UPDATE …) … Each part works on its own arrays.
type writes struct {
	parts []string
	args  []any
}

// add adds a part. $1… in sql are args.
func (w *writes) add(name, sql string, args ...any) {
	for i := len(args); i >= 1; i-- { // from the end: $12 is not $1 and a 2
		sql = strings.ReplaceAll(sql, "$"+strconv.Itoa(i), "\x00"+strconv.Itoa(len(w.args)+i))
	}
	w.parts = append(w.parts, name+" AS ("+strings.ReplaceAll(sql, "\x00", "$")+")")
	w.args = append(w.args, args...)
}

func (s *postgresSession) write(h *held) error {
	var w writes
	expect := s.writeStock(&w, h.touchedSKUs())
	made, changed := h.changedRows()
	writeMade(&w, made)
	writeChanged(&w, changed)
	writeTakes(&w, h.changedTakes())
	writeAnswers(&w, h.answeredRows())
	writeAhead(&w, h.sellsAhead)
	writeRepairs(&w, h.changedRepairs())
	writeLedger(&w, h.entries)
	query := "WITH " + strings.Join(w.parts, ",\n") + "\nSELECT sku, available FROM moved UNION ALL SELECT '', count(*) FROM changed"
	err := s.c.rows(query, w.args, func(rows *sql.Rows) error { return expect.row(rows, len(changed)) })
	if err != nil {
		return err
	}
	return expect.complete()
}

// wall holds what the last wall must have let through: exactly one stock row per SKU, with exactly this value.
type wall map[string]int64

func (e wall) row(rows *sql.Rows, changed int) error {
	var sku string
	var n int64
	if err := rows.Scan(&sku, &n); err != nil {
		return err
	}
	if sku == "" {
		if n != int64(changed) {
			return errRaced(fmt.Sprintf("one of %d reservations", changed))
		}
		return nil
	}
	want, expected := e[sku]
	if !expected || want != n {
		return badMember("stock of %s became %d where %d was to be written: something else changes the row as it is written", sku, n, want)
	}
	delete(e, sku)
	return nil
}

func (e wall) complete() error {
	for sku, want := range e {
		return badMember("stock of %s could not be made %d: no row has both this SKU and enough units", sku, want)
	}
	return nil
}

// writeStock moves units and writes sku_state: last_available is what the stock row then holds.
func (s *postgresSession) writeStock(w *writes, touched []*skuState) wall {
	expect := wall{}
	var moved []*skuState
	for _, k := range touched {
		if k.moved != 0 {
			moved = append(moved, k)
			expect[k.sku] = k.available
		}
	}
	names := s.p.stock
	w.add("moved", fmt.Sprintf(`UPDATE %s s SET %s = s.%s + d.delta FROM unnest($1::text[], $2::bigint[]) AS d(sku, delta)
		WHERE s.%s = d.sku AND (d.delta >= 0 OR s.%s >= -d.delta) RETURNING s.%s::text AS sku, s.%s::bigint AS available`,
		names.table, names.available, names.available, names.sku, names.available, names.sku, names.available),
		textColumn(moved, func(k **skuState) string { return (*k).sku }), skuNumbers(moved, func(k *skuState) int64 { return k.moved }))
	if len(touched) > 0 {
		writeState(w, touched)
	}
	return expect
}

func writeState(w *writes, touched []*skuState) {
	w.add("state", `INSERT INTO stockgate.sku_state (`+stateNames+`, updated_at)
		SELECT t.sku, t.granted, t.ver, t.seq, COALESCE(m.available, t.last), t.paused, t.stock_in, t.held, t.confirmed,
			t.compensating, t.ahead, t.doubtful, t.grant_ver, clock_timestamp()
		FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::boolean[], $7::bigint[], $8::bigint[],
			$9::bigint[], $10::bigint[], $11::boolean[], $12::bigint[], $13::bigint[])
			AS t(sku, granted, ver, seq, last, paused, stock_in, held, confirmed, compensating, ahead, doubtful, grant_ver) LEFT JOIN moved m ON m.sku = t.sku
		ON CONFLICT (sku) DO UPDATE SET granted = excluded.granted, ver = excluded.ver, seq = excluded.seq,
			last_available = excluded.last_available, paused = excluded.paused, stock_in = excluded.stock_in, held = excluded.held,
			confirmed = excluded.confirmed, compensating = excluded.compensating, ahead = excluded.ahead, doubtful = excluded.doubtful,
			grant_ver = excluded.grant_ver, updated_at = excluded.updated_at`,
		textColumn(touched, func(k **skuState) string { return (*k).sku }),
		skuNumbers(touched, func(k *skuState) int64 { return k.granted }),
		skuNumbers(touched, func(k *skuState) int64 { return k.ver }),
		skuNumbers(touched, func(k *skuState) int64 { return k.seq }),
		skuNumbers(touched, func(k *skuState) int64 { return k.last }),
		boolColumn(touched, func(k **skuState) bool { return (*k).paused }),
		skuNumbers(touched, func(k *skuState) int64 { return k.stockIn }),
		skuNumbers(touched, func(k *skuState) int64 { return k.held }),
		skuNumbers(touched, func(k *skuState) int64 { return k.confirmed }),
		skuNumbers(touched, func(k *skuState) int64 { return k.compensating }),
		boolColumn(touched, func(k **skuState) bool { return (*k).ahead }),
		skuNumbers(touched, func(k *skuState) int64 { return k.doubtful }),
		skuNumbers(touched, func(k *skuState) int64 { return k.grantVer }))
}

func skuNumbers(skus []*skuState, of func(*skuState) int64) []byte {
	return numberColumn(skus, func(k **skuState) int64 { return of(*k) })
}

// The columns of reservations, in the order of rowColumns.
const (
	rowNames = `id, try, fingerprint, activity, user_id, route, state, outcome, owner, keyed, hold_us, reason, order_ref, transition,
		expires_at, forward_by, created_at, updated_at, open_limit, counts_open, paid`
	rowArrays = `unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
		$10::boolean[], $11::bigint[], $12::text[], $13::text[], $14::bigint[], $15::timestamptz[], $16::timestamptz[],
		$17::timestamptz[], $18::timestamptz[], $19::bigint[], $20::boolean[], $21::boolean[])`
)

// writeMade inserts rows that were not there, and their lines. If one is there now, the unique index says so and the batch is
// repeated.
func writeMade(w *writes, rows []*rowState) {
	if len(rows) == 0 {
		return
	}
	w.add("made", `INSERT INTO stockgate.reservation (`+rowNames+`) SELECT * FROM `+rowArrays, rowColumns(rows)...)
	if lines := linesOf(rows); len(lines) > 0 {
		w.add("lines", `INSERT INTO stockgate.reservation_line (`+lineNames+`) SELECT * FROM `+lineArrays, lineColumns(lines)...)
	}
}

// writeChanged updates rows that are locked, and writes the lines of those that were reopened or released: a reopened row has the same
// lines as before, or had none.
func writeChanged(w *writes, rows []*rowState) {
	if len(rows) == 0 {
		w.add("changed", "SELECT 1 WHERE false")
		return
	}
	w.add("changed", `UPDATE stockgate.reservation r SET try = n.try, fingerprint = n.fingerprint, activity = n.activity,
			user_id = n.user_id, route = n.route, state = n.state, outcome = n.outcome, owner = n.owner, keyed = n.keyed,
			hold_us = n.hold_us, reason = n.reason, order_ref = n.order_ref, transition = n.transition, expires_at = n.expires_at,
			forward_by = n.forward_by, created_at = n.created_at, updated_at = n.updated_at, open_limit = n.open_limit,
			counts_open = n.counts_open, paid = n.paid
		FROM `+rowArrays+` AS n(`+rowNames+`) WHERE r.id = n.id RETURNING r.id`, rowColumns(rows)...)
	if lines := linesOf(rows); len(lines) > 0 {
		w.add("relined", `INSERT INTO stockgate.reservation_line (`+lineNames+`) SELECT * FROM `+lineArrays+`
			ON CONFLICT (reservation_id, sku) DO UPDATE SET qty = excluded.qty, released = excluded.released, parted = excluded.parted,
				activity = excluded.activity, user_limit = excluded.user_limit, counted = excluded.counted`, lineColumns(lines)...)
	}
}

func rowColumns(rows []*rowState) []any {
	number := func(of func(*rowState) int64) any {
		return numberColumn(rows, func(r **rowState) int64 { return of(*r) })
	}
	text := func(of func(*rowState) string) any {
		return textColumn(rows, func(r **rowState) string { return of(*r) })
	}
	moment := func(of func(*rowState) time.Time) any {
		return timeColumn(rows, func(r **rowState) time.Time { return of(*r) })
	}
	return []any{
		idColumn(rows, func(r **rowState) stock.ID { return (*r).ID }),
		number(func(r *rowState) int64 { return int64(r.Try) }),
		number(func(r *rowState) int64 { return int64(r.Fingerprint) }),
		text(func(r *rowState) string { return r.Activity }),
		text(func(r *rowState) string { return r.User }),
		text(func(r *rowState) string { return r.Route }),
		text(func(r *rowState) string { return r.State.String() }),
		text(func(r *rowState) string { return r.Outcome.String() }),
		text(func(r *rowState) string { return r.Owner }),
		boolColumn(rows, func(r **rowState) bool { return (*r).Keyed }),
		number(func(r *rowState) int64 { return r.Hold.Microseconds() }),
		text(func(r *rowState) string { return r.Reason }),
		text(func(r *rowState) string { return r.OrderRef }),
		number(func(r *rowState) int64 { return r.Transition }),
		moment(func(r *rowState) time.Time { return r.ExpiresAt }),
		moment(func(r *rowState) time.Time { return r.ForwardBy }),
		moment(func(r *rowState) time.Time { return r.CreatedAt }),
		moment(func(r *rowState) time.Time { return r.UpdatedAt }),
		number(func(r *rowState) int64 { return r.OpenLimit }),
		boolColumn(rows, func(r **rowState) bool { return (*r).CountsOpen }),
		boolColumn(rows, func(r **rowState) bool { return (*r).Paid }),
	}
}

// The columns of lines, in the order of lineColumns.
const (
	lineNames  = `reservation_id, sku, qty, released, parted, activity, user_limit, counted`
	lineArrays = `unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::bigint[], $8::boolean[])`
)

// rowLine is a line with what became of it.
type rowLine struct {
	id stock.ID
	stock.Line
	stock.LineTerms
	released, parted int64
	counted          bool
}

// linesOf are the lines to write of rows, in the order of locks.
func linesOf(rows []*rowState) []rowLine {
	var lines []rowLine
	for _, r := range rows {
		for i, l := range r.Lines {
			if r.relined {
				lines = append(lines, rowLine{id: r.ID, Line: l, LineTerms: r.TermsOf(i), released: r.Released[i], parted: r.parted[i],
					counted: i < len(r.Counted) && r.Counted[i]})
			}
		}
	}
	return lines
}

func lineColumns(lines []rowLine) []any {
	return []any{
		idColumn(lines, func(l *rowLine) stock.ID { return l.id }),
		textColumn(lines, func(l *rowLine) string { return l.SKU }),
		numberColumn(lines, func(l *rowLine) int64 { return l.Qty }),
		numberColumn(lines, func(l *rowLine) int64 { return l.released }),
		numberColumn(lines, func(l *rowLine) int64 { return l.parted }),
		textColumn(lines, func(l *rowLine) string { return l.Activity }),
		numberColumn(lines, func(l *rowLine) int64 { return l.Limit }),
		boolColumn(lines, func(l *rowLine) bool { return l.counted }),
	}
}

// writeAnswers keeps answers. The first one stays.
func writeAnswers(w *writes, rows []*rowState) {
	if len(rows) == 0 {
		return
	}
	w.add("answers", `INSERT INTO stockgate.answer (reservation_id, try, status, headers, body, at)
		SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bytea[], $5::bytea[], $6::timestamptz[])
		ON CONFLICT (reservation_id) DO NOTHING`,
		idColumn(rows, func(r **rowState) stock.ID { return (*r).ID }),
		numberColumn(rows, func(r **rowState) int64 { return int64((*r).answered.Try) }),
		numberColumn(rows, func(r **rowState) int64 { return int64((*r).answered.Status) }),
		bytesColumn(rows, func(r **rowState) []byte { return encodeHeaders((*r).answered.Headers) }),
		bytesColumn(rows, func(r **rowState) []byte { return (*r).answered.Body }),
		timeColumn(rows, func(r **rowState) time.Time { return (*r).answered.At }))
}

// writeLedger appends the ledger rows.
func writeLedger(w *writes, entries []entry) {
	if len(entries) == 0 {
		return
	}
	w.add("appended", `INSERT INTO stockgate.ledger (sku, seq, reservation_id, try, kind, op, delta, before, after, at, reason, actor)
		SELECT * FROM unnest($1::text[], $2::bigint[], $3::uuid[], $4::bigint[], $5::text[], $6::text[], $7::bigint[], $8::bigint[],
			$9::bigint[], $10::timestamptz[], $11::text[], $12::text[])`,
		textColumn(entries, func(e *entry) string { return e.SKU }),
		numberColumn(entries, func(e *entry) int64 { return e.Seq }),
		idColumn(entries, func(e *entry) stock.ID { return e.Reservation }),
		numberColumn(entries, func(e *entry) int64 { return int64(e.Try) }),
		textColumn(entries, func(e *entry) string { return string(e.Kind) }),
		textColumn(entries, func(e *entry) string { return e.Op }),
		numberColumn(entries, func(e *entry) int64 { return e.Delta }),
		numberColumn(entries, func(e *entry) int64 { return e.Before }),
		numberColumn(entries, func(e *entry) int64 { return e.After }),
		timeColumn(entries, func(e *entry) time.Time { return e.At }),
		textColumn(entries, func(e *entry) string { return e.reason }),
		textColumn(entries, func(e *entry) string { return e.actor }))
}
