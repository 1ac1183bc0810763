package ledger

import (
	"database/sql"
	"fmt"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// sqliteSession is one transaction of Exec on SQLite. BEGIN IMMEDIATE locks the whole file, so nothing is ever busy and the order of
// locks does not matter; statements cost no round trips, so rows are written one by one.
type sqliteSession struct {
	l   *sqlite
	c   *conn
	now time.Time
}

func (s *sqliteSession) lock(req lockRequest) (lockReply, error) {
	reply := lockReply{stocks: map[string]stockRow{}}
	if err := s.c.exec(s.l.begin(s.c.ctx)); err != nil {
		return reply, err
	}
	s.now = time.Now().UTC().Truncate(time.Microsecond)
	if req.own {
		err := s.c.exec(s.l.expand(`INSERT INTO {partition_state} (p, epoch, run_id, state) SELECT value, 0, '', 'open' FROM json_each($1) WHERE true
			ON CONFLICT DO NOTHING`), jsonList(req.partitions))
		if err != nil {
			return reply, err
		}
	}
	for _, sku := range req.create {
		if err := s.c.exec(s.l.expand(`INSERT INTO {stock} ({stock.sku}, {stock.available}) VALUES ($1, 0) ON CONFLICT DO NOTHING`), sku); err != nil {
			return reply, err
		}
	}
	skus := req.skus
	if len(req.lookups) > 0 {
		reply.needs = map[stock.ID]needs{}
		err := s.c.rows(s.l.expand(lookupQuery+`WHERE l.reservation_id {in ids $1}`),
			[]any{jsonList(idStrings(req.lookups))}, scanLookup(reply.needs))
		if err != nil {
			return reply, err
		}
		for _, n := range reply.needs {
			skus = append(skus, n.skus...)
		}
	}
	if len(skus) == 0 {
		return reply, nil
	}
	query := fmt.Sprintf(`SELECT %[2]s, CASE WHEN typeof(%[3]s) = 'integer' THEN %[3]s END FROM %[1]s WHERE %[2]s COLLATE BINARY {in $1}`,
		s.l.stock.table, s.l.stock.sku, s.l.stock.available)
	return reply, s.c.rows(s.l.expand(query), []any{jsonList(skus)}, scanStock(reply.stocks))
}

func (s *sqliteSession) read(req readRequest, h *held) error {
	h.now = s.now
	err := s.c.rows(s.l.expand(`SELECT `+stateNames+` FROM {sku_state} WHERE sku {in $1}`), []any{jsonList(req.skus)}, scanState(h))
	if err != nil {
		return err
	}
	err = s.c.rows(s.l.expand(rowsQuery), []any{jsonList(idStrings(req.ids)), s.l.cfg.ReplicaTimeout.Microseconds()}, scanHeld(h))
	if err != nil {
		return err
	}
	err = s.c.rows(s.l.expand(`SELECT p, epoch, state, ahead FROM {partition_state} WHERE p {in numbers $1}`),
		[]any{jsonList(req.partitions)}, scanPartition(h))
	if err != nil {
		return err
	}
	err = s.c.rows(s.l.expand(`SELECT p, count(*) FROM {doubtful} WHERE p {in numbers $1} GROUP BY p`), []any{jsonList(req.doubts)}, scanDoubts(h))
	if err != nil {
		return err
	}
	if err := s.readTries(req.tries, h); err != nil {
		return err
	}
	if err := s.readTakes(req.takes, h); err != nil {
		return err
	}
	return s.readOps(req, h)
}

// readTries reads what the ledger has of tries.
func (s *sqliteSession) readTries(keys []tryKey, h *held) error {
	for _, key := range keys {
		err := s.c.rows(s.l.expand(`SELECT reservation_id, try FROM {ledger} WHERE reservation_id = $1 AND try = $2 LIMIT 1`),
			[]any{key.id.String(), int64(key.try)}, scanTried(h))
		if err != nil {
			return err
		}
	}
	return nil
}

// readTakes reads counts; what is not there yet is zero.
func (s *sqliteSession) readTakes(keys []takeKey, h *held) error {
	for _, key := range keys {
		h.takes[key] = &takeState{}
		err := s.c.rows(s.l.expand(`SELECT activity, sku, user_id, qty FROM {user_take} WHERE activity = $1 AND sku = $2 AND user_id = $3`),
			[]any{key.activity, key.sku, key.user}, scanTake(h))
		if err != nil {
			return err
		}
	}
	return nil
}

// readOps looks callers' op ids up in the ledger.
func (s *sqliteSession) readOps(req readRequest, h *held) error {
	for _, key := range req.opKeys {
		err := s.c.rows(s.l.expand(`SELECT sku, kind, op, delta, "after" FROM {ledger} WHERE reservation_id = $1 AND try = 0 AND sku = $2 AND kind = $3 AND op = $4`),
			[]any{stock.ID{}.String(), key.sku, string(key.kind), key.op}, scanOpKey(h))
		if err != nil {
			return err
		}
	}
	for _, key := range req.parts {
		err := s.c.rows(s.l.expand(`SELECT reservation_id, op, sku, delta FROM {ledger} WHERE reservation_id = $1 AND kind = 'release' AND op = $2`),
			[]any{key.id.String(), key.op}, scanPart(h))
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *sqliteSession) write(h *held) error {
	if err := s.writeStock(h); err != nil {
		return err
	}
	made, changed := h.changedRows()
	if err := s.writeRows(made, changed); err != nil {
		return err
	}
	if err := s.writeLines(append(made, changed...)); err != nil {
		return err
	}
	if err := s.writeTakes(h.changedTakes()); err != nil {
		return err
	}
	if err := s.writeAnswers(h.answeredRows()); err != nil {
		return err
	}
	if err := s.writeAhead(h.sellsAhead, h.changedRepairs()); err != nil {
		return err
	}
	return s.writeLedger(h.entries)
}

// writeAhead writes that something sells ahead from now on, and the repairs of surplus reservations.
func (s *sqliteSession) writeAhead(some bool, repairs []repair) error {
	if some {
		if _, err := s.c.each(s.l.expand(`UPDATE {partition_state} SET ahead = 1 WHERE NOT ahead`)); err != nil {
			return err
		}
	}
	for _, r := range repairs {
		_, err := s.c.each(s.l.expand(`INSERT INTO {compensation} AS c (id, kind, reservation_id, sku, qty, state, attempts, next_at, detail,
				created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $6, 0, $7, $8, {now}, {now})
			ON CONFLICT (id) DO UPDATE SET state = excluded.state, next_at = excluded.next_at, detail = excluded.detail,
				attempts = CASE WHEN excluded.state = 'pending' THEN 0 ELSE c.attempts END, updated_at = excluded.updated_at`),
			r.ID, r.Kind, r.Reservation.String(), r.line.SKU, r.line.Qty, string(r.State), r.NextAt.UnixMicro(), r.Detail)
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *sqliteSession) writeStock(h *held) error {
	for _, k := range h.touchedSKUs() {
		if k.moved != 0 {
			if err := s.moveStock(k); err != nil {
				return err
			}
		}
		_, err := s.c.each(s.l.expand(`INSERT INTO {sku_state} (`+stateNames+`, updated_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, {now})
			ON CONFLICT (sku) DO UPDATE SET granted = excluded.granted, ver = excluded.ver, seq = excluded.seq,
				last_available = excluded.last_available, paused = excluded.paused, stock_in = excluded.stock_in, held = excluded.held,
				confirmed = excluded.confirmed, compensating = excluded.compensating, ahead = excluded.ahead,
				doubtful = excluded.doubtful, grant_ver = excluded.grant_ver, updated_at = excluded.updated_at`),
			k.sku, k.granted, k.ver, k.seq, k.last, k.paused, k.stockIn, k.held, k.confirmed, k.compensating,
			k.ahead, k.doubtful, k.grantVer)
		if err != nil {
			return err
		}
	}
	return nil
}

// moveStock is the last wall: exactly one row, with enough units.
func (s *sqliteSession) moveStock(k *skuState) error {
	wall := wall{k.sku: k.available}
	err := s.c.rows(s.l.expand(`UPDATE {stock} SET {stock.available} = {stock.available} + $2
		WHERE {stock.sku} = $1 COLLATE BINARY AND ($2 >= 0 OR {stock.available} >= -$2) RETURNING {stock.sku}, {stock.available}`),
		[]any{k.sku, k.moved}, func(rows *sql.Rows) error { return wall.row(rows, 0) })
	if err != nil {
		return err
	}
	return wall.complete()
}

func (s *sqliteSession) writeRows(made, changed []*rowState) error {
	insert := s.l.expand(`INSERT INTO {reservation} (try, fingerprint, activity, user_id, route, state, outcome, owner, keyed, hold_us,
		reason, order_ref, transition, expires_at, forward_by, created_at, updated_at, open_limit, counts_open, paid, id)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)`)
	update := s.l.expand(`UPDATE {reservation} SET try = $1, fingerprint = $2, activity = $3, user_id = $4, route = $5, state = $6,
		outcome = $7, owner = $8, keyed = $9, hold_us = $10, reason = $11, order_ref = $12, transition = $13, expires_at = $14,
		forward_by = $15, created_at = $16, updated_at = $17, open_limit = $18, counts_open = $19, paid = $20 WHERE id = $21`)
	for _, r := range made {
		if _, err := s.c.each(insert, rowValues(r)...); err != nil {
			return err
		}
	}
	for _, r := range changed {
		n, err := s.c.each(update, rowValues(r)...)
		if err != nil {
			return err
		}
		if n != 1 {
			return errRaced("reservation " + r.ID.String())
		}
	}
	return nil
}

func rowValues(r *rowState) []any {
	return []any{int64(r.Try), int64(r.Fingerprint), r.Activity, r.User, r.Route, r.State.String(), r.Outcome.String(), r.Owner,
		r.Keyed, r.Hold.Microseconds(), r.Reason, r.OrderRef, r.Transition, r.ExpiresAt.UnixMicro(), r.ForwardBy.UnixMicro(),
		r.CreatedAt.UnixMicro(), r.UpdatedAt.UnixMicro(), r.OpenLimit, r.CountsOpen, r.Paid, r.ID.String()}
}

func (s *sqliteSession) writeLines(rows []*rowState) error {
	query := s.l.expand(`INSERT INTO {reservation_line} (` + lineNames + `) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
		ON CONFLICT (reservation_id, sku) DO UPDATE SET qty = excluded.qty, released = excluded.released, parted = excluded.parted,
			activity = excluded.activity, user_limit = excluded.user_limit, counted = excluded.counted`)
	for _, l := range linesOf(rows) {
		_, err := s.c.each(query, l.id.String(), l.SKU, l.Qty, l.released, l.parted, l.Activity, l.Limit, l.counted)
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *sqliteSession) writeTakes(takes []stock.UserTake) error {
	query := s.l.expand(`INSERT INTO {user_take} (activity, sku, user_id, qty) VALUES ($1, $2, $3, $4)
		ON CONFLICT (activity, sku, user_id) DO UPDATE SET qty = excluded.qty`)
	for _, t := range takes {
		if _, err := s.c.each(query, t.Activity, t.SKU, t.User, t.Qty); err != nil {
			return err
		}
	}
	return nil
}

func (s *sqliteSession) writeAnswers(rows []*rowState) error {
	for _, r := range rows {
		a := r.answered
		_, err := s.c.each(s.l.expand(`INSERT INTO {answer} (reservation_id, try, status, headers, body, at) VALUES ($1, $2, $3, $4, $5, $6)
			ON CONFLICT (reservation_id) DO NOTHING`),
			r.ID.String(), int64(a.Try), a.Status, encodeHeaders(a.Headers), notNil(a.Body), a.At.UnixMicro())
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *sqliteSession) writeLedger(entries []entry) error {
	query := s.l.expand(`INSERT INTO {ledger} (sku, seq, reservation_id, try, kind, op, delta, "before", "after", at, reason, actor)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`)
	for i := range entries {
		e := &entries[i]
		_, err := s.c.each(query, e.SKU, e.Seq, e.Reservation.String(), int64(e.Try), string(e.Kind), e.Op, e.Delta, e.Before, e.After,
			e.At.UnixMicro(), e.reason, e.actor)
		if err != nil {
			return err
		}
	}
	return nil
}

// notNil: an empty body is a body.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
