package ledger

import (
	"time"

	"github.com/stockgate/stockgate/stock"
)

// writeAhead notes in all partitions, which are locked, that something sells ahead from now on.
func writeAhead(w *writes, some bool) {
	if some {
		w.add("ahead", `UPDATE stockgate.partition_state SET ahead = true WHERE NOT ahead`)
	}
}

// writeRepairs writes where the repairs of surplus reservations stand. What is surplus again begins anew.
func writeRepairs(w *writes, repairs []repair) {
	if len(repairs) == 0 {
		return
	}
	w.add("repaired", `INSERT INTO stockgate.compensation AS c (id, kind, reservation_id, sku, qty, state, next_at, detail, attempts,
			created_at, updated_at)
		SELECT n.*, 0, now(), now() FROM unnest($1::text[], $2::text[], $3::uuid[], $4::text[], $5::bigint[], $6::text[], $7::timestamptz[],
			$8::text[]) AS n
		ON CONFLICT (id) DO UPDATE SET state = excluded.state, next_at = excluded.next_at, detail = excluded.detail,
			attempts = CASE WHEN excluded.state = 'pending' THEN 0 ELSE c.attempts END, updated_at = excluded.updated_at`,
		textColumn(repairs, func(r *repair) string { return r.ID }),
		textColumn(repairs, func(r *repair) string { return r.Kind }),
		idColumn(repairs, func(r *repair) stock.ID { return r.Reservation }),
		textColumn(repairs, func(r *repair) string { return r.line.SKU }),
		numberColumn(repairs, func(r *repair) int64 { return r.line.Qty }),
		textColumn(repairs, func(r *repair) string { return string(r.State) }),
		timeColumn(repairs, func(r *repair) time.Time { return r.NextAt }),
		textColumn(repairs, func(r *repair) string { return r.Detail }))
}
