package ledger

import (
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lib/pq"

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
	expect := s.writeStock(&w, h)
	made, changed := h.changedRows()
	s.writeNew(&w, made)
	s.writeChanged(&w, changed)
	writeLines(&w, append(made, changed...))
	writeAnswers(&w, h)
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
func (s *postgresSession) writeStock(w *writes, h *held) wall {
	expect := wall{}
	var moved struct {
		skus   []string
		deltas []int64
	}
	var t skuArrays
	for _, k := range h.touchedSKUs() {
		t.add(k)
		if k.moved != 0 {
			moved.skus, moved.deltas = append(moved.skus, k.sku), append(moved.deltas, k.moved)
			expect[k.sku] = k.available
		}
	}
	names := s.p.stock
	w.add("moved", fmt.Sprintf(`UPDATE %s s SET %s = s.%s + d.delta FROM unnest($1::text[], $2::bigint[]) AS d(sku, delta)
		WHERE s.%s = d.sku AND (d.delta >= 0 OR s.%s >= -d.delta) RETURNING s.%s::text AS sku, s.%s::bigint AS available`,
		names.table, names.available, names.available, names.sku, names.available, names.sku, names.available),
		skuArray(moved.skus), numberArray(moved.deltas))
	if len(t.skus) > 0 {
		w.add("state", `INSERT INTO stockgate.sku_state (sku, granted, ver, seq, last_available, paused, stock_in, held, confirmed,
			compensating, updated_at)
		SELECT t.sku, t.granted, t.ver, t.seq, COALESCE(m.available, t.last), t.paused, t.stock_in, t.held, t.confirmed,
			t.compensating, clock_timestamp()
		FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::boolean[], $7::bigint[], $8::bigint[],
			$9::bigint[], $10::bigint[])
			AS t(sku, granted, ver, seq, last, paused, stock_in, held, confirmed, compensating) LEFT JOIN moved m ON m.sku = t.sku
		ON CONFLICT (sku) DO UPDATE SET granted = excluded.granted, ver = excluded.ver, seq = excluded.seq,
			last_available = excluded.last_available, paused = excluded.paused, stock_in = excluded.stock_in, held = excluded.held,
			confirmed = excluded.confirmed, compensating = excluded.compensating, updated_at = excluded.updated_at`,
			skuArray(t.skus), numberArray(t.granted), numberArray(t.ver), numberArray(t.seq), numberArray(t.last), pq.BoolArray(t.paused),
			numberArray(t.stockIn), numberArray(t.held), numberArray(t.confirmed), numberArray(t.compensating))
	}
	return expect
}

// skuArrays are the columns of sku_state.
type skuArrays struct {
	skus                                                            []string
	paused                                                          []bool
	granted, ver, seq, last, stockIn, held, confirmed, compensating []int64
}

func (t *skuArrays) add(k *skuState) {
	t.skus, t.paused = append(t.skus, k.sku), append(t.paused, k.paused)
	t.granted, t.ver, t.seq, t.last = append(t.granted, k.granted), append(t.ver, k.ver), append(t.seq, k.seq), append(t.last, k.last)
	t.stockIn, t.held = append(t.stockIn, k.stockIn), append(t.held, k.held)
	t.confirmed, t.compensating = append(t.confirmed, k.confirmed), append(t.compensating, k.compensating)
}

// writeNew inserts rows that were not there. If one is there now, the unique index says so and the batch is repeated.
func (s *postgresSession) writeNew(w *writes, rows []*rowState) {
	if len(rows) == 0 {
		return
	}
	w.add("made", `INSERT INTO stockgate.reservation (id, try, fingerprint, activity, user_id, route, state, outcome, owner, keyed,
			hold_us, reason, order_ref, transition, expires_at, forward_by, created_at, updated_at)
		SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
			$9::text[], $10::boolean[], $11::bigint[], $12::text[], $13::text[], $14::bigint[], $15::timestamptz[], $16::timestamptz[],
			$17::timestamptz[], $18::timestamptz[])`, rowColumns(rows)...)
}

// writeChanged updates rows that are locked.
func (s *postgresSession) writeChanged(w *writes, rows []*rowState) {
	if len(rows) == 0 {
		w.add("changed", "SELECT 1 WHERE false")
		return
	}
	w.add("changed", `UPDATE stockgate.reservation r SET try = n.try, fingerprint = n.fingerprint, activity = n.activity,
			user_id = n.user_id, route = n.route, state = n.state, outcome = n.outcome, owner = n.owner, keyed = n.keyed,
			hold_us = n.hold_us, reason = n.reason, order_ref = n.order_ref, transition = n.transition, expires_at = n.expires_at,
			forward_by = n.forward_by, created_at = n.created_at, updated_at = n.updated_at
		FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
			$9::text[], $10::boolean[], $11::bigint[], $12::text[], $13::text[], $14::bigint[], $15::timestamptz[], $16::timestamptz[],
			$17::timestamptz[], $18::timestamptz[]) AS n(id, try, fingerprint, activity, user_id, route, state, outcome, owner, keyed,
			hold_us, reason, order_ref, transition, expires_at, forward_by, created_at, updated_at)
		WHERE r.id = n.id RETURNING r.id`, rowColumns(rows)...)
}

// rowColumns are the columns of reservations, as arrays, in the order of the table.
func rowColumns(rows []*rowState) []any {
	n := len(rows)
	ids := make([]stock.ID, n)
	var tries, prints, holds, transitions []int64
	var activities, users, routes, states, outcomes, owners, reasons, refs []string
	var keyed []bool
	var expires, forward, made, changed []time.Time
	for i, r := range rows {
		ids[i] = r.ID
		tries, prints = append(tries, int64(r.Try)), append(prints, int64(r.Fingerprint))
		holds, transitions = append(holds, r.Hold.Microseconds()), append(transitions, r.Transition)
		activities, users, routes = append(activities, r.Activity), append(users, r.User), append(routes, r.Route)
		states, outcomes = append(states, r.State.String()), append(outcomes, r.Outcome.String())
		owners, reasons, refs = append(owners, r.Owner), append(reasons, r.Reason), append(refs, r.OrderRef)
		keyed = append(keyed, r.Keyed)
		expires, forward = append(expires, r.ExpiresAt), append(forward, r.ForwardBy)
		made, changed = append(made, r.CreatedAt), append(changed, r.UpdatedAt)
	}
	return []any{idArray(ids), numberArray(tries), numberArray(prints), textArray(activities), textArray(users), textArray(routes),
		textArray(states), textArray(outcomes), textArray(owners), pq.BoolArray(keyed), numberArray(holds), textArray(reasons),
		textArray(refs), numberArray(transitions), timeArray(expires), timeArray(forward), timeArray(made), timeArray(changed)}
}

// writeLines writes the lines of new and reopened rows, and what was released of others. A reopened row has the same lines as
// before, or had none.
func writeLines(w *writes, rows []*rowState) {
	var ids []stock.ID
	var skus []string
	var quantities, released []int64
	for _, r := range rows {
		for i, l := range r.Lines {
			if r.relined {
				ids, skus = append(ids, r.ID), append(skus, l.SKU)
				quantities, released = append(quantities, l.Qty), append(released, r.Released[i])
			}
		}
	}
	if len(ids) == 0 {
		return
	}
	w.add("lines", `INSERT INTO stockgate.reservation_line (reservation_id, sku, qty, released)
		SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[])
		ON CONFLICT (reservation_id, sku) DO UPDATE SET qty = excluded.qty, released = excluded.released`,
		idArray(ids), skuArray(skus), numberArray(quantities), numberArray(released))
}

// writeAnswers keeps answers. The first one stays.
func writeAnswers(w *writes, h *held) {
	var ids []stock.ID
	var tries, statuses []int64
	var headers, bodies [][]byte
	var at []time.Time
	for _, r := range h.answeredRows() {
		a := r.answered
		ids, tries, statuses = append(ids, r.ID), append(tries, int64(a.Try)), append(statuses, int64(a.Status))
		headers, bodies, at = append(headers, encodeHeaders(a.Headers)), append(bodies, notNil(a.Body)), append(at, a.At)
	}
	if len(ids) == 0 {
		return
	}
	w.add("answers", `INSERT INTO stockgate.answer (reservation_id, try, status, headers, body, at)
		SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::integer[], $4::bytea[], $5::bytea[], $6::timestamptz[])
		ON CONFLICT (reservation_id) DO NOTHING`,
		idArray(ids), numberArray(tries), numberArray(statuses), pq.ByteaArray(headers), pq.ByteaArray(bodies), timeArray(at))
}

// writeLedger appends the ledger rows.
func writeLedger(w *writes, entries []entry) {
	if len(entries) == 0 {
		return
	}
	n := len(entries)
	ids := make([]stock.ID, n)
	skus, kinds, ops := make([]string, n), make([]string, n), make([]string, n)
	reasons, actors := make([]string, n), make([]string, n)
	seqs, tries, deltas, before, after := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	at := make([]time.Time, n)
	for i := range entries {
		e := &entries[i]
		ids[i], skus[i], seqs[i], tries[i] = e.Reservation, e.SKU, e.Seq, int64(e.Try)
		kinds[i], ops[i], reasons[i], actors[i] = string(e.Kind), e.Op, e.reason, e.actor
		deltas[i], before[i], after[i], at[i] = e.Delta, e.Before, e.After, e.At
	}
	w.add("appended", `INSERT INTO stockgate.ledger (sku, seq, reservation_id, try, kind, op, delta, before, after, at, reason, actor)
		SELECT * FROM unnest($1::text[], $2::bigint[], $3::uuid[], $4::bigint[], $5::text[], $6::text[], $7::bigint[], $8::bigint[],
			$9::bigint[], $10::timestamptz[], $11::text[], $12::text[])`,
		skuArray(skus), numberArray(seqs), idArray(ids), numberArray(tries), textArray(kinds), textArray(ops), numberArray(deltas),
		numberArray(before), numberArray(after), timeArray(at), textArray(reasons), textArray(actors))
}

// timeArray is an array of moments as PostgreSQL reads it.
func timeArray(times []time.Time) string {
	b := make([]byte, 0, len(times)*30+2)
	b = append(b, '{')
	for i, t := range times {
		if i > 0 {
			b = append(b, ',')
		}
		b = t.UTC().AppendFormat(b, `"2006-01-02 15:04:05.999999Z"`)
	}
	return string(append(b, '}'))
}

// notNil: an empty body is a body.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
