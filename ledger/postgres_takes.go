package ledger

import (
	"database/sql"
	"fmt"
	"strings"

	"github.com/lib/pq"

	"github.com/stockgate/stockgate/stock"
)

// lockTakes makes the counts that are not there yet and locks all of them: one that is not there cannot be locked, and two transactions
// that both found none would both let the user in. New ones are made before any is locked, so whoever waits for one that another
// transaction makes holds none that the other still wants.
func (s *postgresSession) lockTakes(keys []takeKey, h *held) {
	list := takeKeyList(keys)
	s.script.run(`INSERT INTO stockgate.user_take (activity, sku, user_id, qty) SELECT activity, sku, user_id, 0 `+
		`FROM (VALUES %s) AS k(activity, sku, user_id) ON CONFLICT DO NOTHING`, list)
	s.script.query(scanTake(h), `SELECT t.activity, t.sku, t.user_id, t.qty FROM (VALUES %s) AS k(activity, sku, user_id) `+
		`JOIN stockgate.user_take t ON t.activity = k.activity AND t.sku = k.sku AND t.user_id = k.user_id `+
		`ORDER BY t.activity COLLATE "C", t.sku, t.user_id COLLATE "C" FOR NO KEY UPDATE OF t`, list)
}

func scanTake(h *held) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var key takeKey
		var t takeState
		err := rows.Scan(&key.activity, &key.sku, &key.user, &t.qty)
		h.takes[key] = &t
		return err
	}
}

func scanPart(h *held) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var id, op, sku string
		var delta int64
		if err := rows.Scan(&id, &op, &sku, &delta); err != nil {
			return err
		}
		parsed, err := stock.ParseID(id)
		key := partKey{parsed, op}
		if h.parts[key] == nil {
			h.parts[key] = map[string]int64{}
		}
		h.parts[key][sku] = delta
		return err
	}
}

// takeKeyList spells counts into a statement. Activities and users are others' text: quoted.
func takeKeyList(keys []takeKey) string {
	var b strings.Builder
	for i, k := range keys {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "(%s, %s, %s)", pq.QuoteLiteral(k.activity), pq.QuoteLiteral(k.sku), pq.QuoteLiteral(k.user))
	}
	return b.String()
}

// partKeyList spells the op ids of releases by lines into a statement.
func partKeyList(keys []partKey) string {
	var b strings.Builder
	for i, k := range keys {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "('%s'::uuid, %s)", k.id, pq.QuoteLiteral(k.op))
	}
	return b.String()
}

// writeTakes writes the counts that have changed. They are locked, so all of them are there.
func writeTakes(w *writes, takes []stock.UserTake) {
	if len(takes) == 0 {
		return
	}
	w.add("counted", `UPDATE stockgate.user_take t SET qty = n.qty
		FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) AS n(activity, sku, user_id, qty)
		WHERE t.activity = n.activity AND t.sku = n.sku AND t.user_id = n.user_id`,
		textColumn(takes, func(t *stock.UserTake) string { return t.Activity }),
		textColumn(takes, func(t *stock.UserTake) string { return t.SKU }),
		textColumn(takes, func(t *stock.UserTake) string { return t.User }),
		numberColumn(takes, func(t *stock.UserTake) int64 { return t.Qty }))
}
