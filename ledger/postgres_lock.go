package ledger

import (
	"database/sql"
	"fmt"
	"strings"

	"github.com/lib/pq"

	"github.com/stockgate/stockgate/stock"
)

// postgresSession is one transaction of Exec on PostgreSQL. Round trips:
//
//	1  BEGIN, time-outs, partitions locked, look-up of lines, stock rows locked     (not sent if no stock row is locked: goes with 2)
//	2  sku_state locked, users' counts made and locked, reservations locked, epochs, op ids, and the reservations in full if they are known to be there
//	3  a batch of new reservations that found a row: those rows in full
//	4  everything written, in one statement                      (not sent if nothing changed)
//	5  COMMIT
//
// 1 to 3 are statements without arguments, several in one message: each has a snapshot of its own, which is why last_available, lines
// and answers are read by statements of their own after the locks. What is spelled into them are ids (hex), checked SKUs and
// numbers; the exceptions, callers' op ids, activities and users, are quoted. 4 has arguments, as arrays.
type postgresSession struct {
	p      *postgres
	c      *conn
	script script
	now    instant
}

// script collects statements that go to the server in one message.
type script struct {
	text strings.Builder
	each []func(*sql.Rows) error
}

// run adds a statement without rows.
func (s *script) run(format string, args ...any) {
	fmt.Fprintf(&s.text, format, args...)
	s.text.WriteString(";\n")
}

// query adds a statement with rows, each of which goes to fn.
func (s *script) query(fn func(*sql.Rows) error, format string, args ...any) {
	s.run(format, args...)
	s.each = append(s.each, fn)
}

// send runs what was collected and begins anew.
func (s *script) send(c *conn) error {
	text, each := s.text.String(), s.each
	s.text.Reset()
	s.each = nil
	return c.sets(text, nil, each)
}

func (s *postgresSession) lock(req lockRequest) (lockReply, error) {
	reply := lockReply{stocks: map[string]stockRow{}}
	s.script.text.WriteString(s.p.begin(s.c.ctx) + "\n")
	s.script.each = append(s.script.each, func(rows *sql.Rows) error {
		var set [5]sql.RawBytes // what set_config says
		return rows.Scan(&s.now, &set[0], &set[1], &set[2], &set[3], &set[4])
	})
	s.lockPartitions(req)
	if len(req.skus)+len(req.lookups) == 0 {
		return reply, nil // BEGIN goes with what read asks
	}
	s.lockStock(req, &reply)
	return reply, s.script.send(s.c)
}

// lockPartitions locks partitions before anything else. One that is going to be written is made first, if Redis was never loaded with it;
// one that is not there stands still by itself. Those that are locked only so that they stand still are locked to be written too if any is:
// two statements would break the order of locks.
func (s *postgresSession) lockPartitions(req lockRequest) {
	if len(req.partitions) == 0 {
		return
	}
	ps, strength := numberArray(req.partitions), "SHARE"
	if req.own {
		strength = "NO KEY UPDATE"
		s.script.run(`INSERT INTO stockgate.partition_state (p, epoch, run_id, state) SELECT p, 0, '', 'open' FROM unnest('%s'::integer[]) AS n(p) `+
			`ON CONFLICT DO NOTHING`, ps)
	}
	s.script.query(func(*sql.Rows) error { return nil }, `SELECT p FROM stockgate.partition_state WHERE p = ANY('%s'::integer[]) `+
		`ORDER BY p FOR `+strength, ps)
}

func (s *postgresSession) lockStock(req lockRequest, reply *lockReply) {
	names := s.p.stock
	if len(req.create) > 0 {
		s.script.run(`INSERT INTO %s (%s, %s) SELECT sku, 0 FROM unnest('%s'::text[]) AS n(sku) ON CONFLICT DO NOTHING`,
			names.table, names.sku, names.available, skuArray(req.create))
	}
	skus := fmt.Sprintf("'%s'::text[]", skuArray(req.skus))
	if len(req.lookups) > 0 {
		reply.needs = map[stock.ID]needs{}
		ids := idArray(req.lookups)
		s.script.query(scanLookup(reply.needs), s.p.expand(lookupQuery)+`WHERE l.reservation_id = ANY('%s'::uuid[])`, ids)
		// "default" gives way to whatever collation the stock table's column has, as parameters do; our columns' own "C" does not, and
		// then no index of the shop's can be used.
		skus = fmt.Sprintf("ARRAY(SELECT sku COLLATE \"default\" FROM stockgate.reservation_line WHERE reservation_id = ANY('%s'::uuid[]) "+
			"UNION SELECT unnest(%s))", ids, skus)
	}
	skip := ""
	if !req.wait {
		skip = "SKIP LOCKED"
	}
	// NO KEY: rows of the shop may refer to the stock row.
	s.script.query(scanStock(reply.stocks), `SELECT s.%s::text, s.%s::bigint FROM %s s WHERE s.%s = ANY(%s) `+
		`ORDER BY s.%s COLLATE "C" FOR NO KEY UPDATE %s`, names.sku, names.available, names.table, names.sku, skus, names.sku, skip)
	if !req.wait {
		reply.busy = map[string]bool{}
		s.script.query(scanBusy(reply), `SELECT s.%s::text FROM %s s WHERE s.%s = ANY(%s)`, names.sku, names.table, names.sku, skus)
	}
}

// lookupQuery reads what the ops about reservations that are named by id need.
const lookupQuery = `SELECT l.reservation_id, l.sku, l.activity, l.user_limit, r.user_id, r.open_limit
	FROM {reservation_line} l JOIN {reservation} r ON r.id = l.reservation_id `

func scanLookup(found map[stock.ID]needs) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var text string
		r := stock.Reservation{Lines: make([]stock.Line, 1), Terms: make([]stock.LineTerms, 1)}
		if err := rows.Scan(&text, &r.Lines[0].SKU, &r.Terms[0].Activity, &r.Terms[0].Limit, &r.User, &r.OpenLimit); err != nil {
			return err
		}
		id, err := stock.ParseID(text)
		n := found[id]
		found[id] = needs{append(n.skus, r.Lines[0].SKU), append(n.takes, takeKeys(&r)...)}
		return err
	}
}

func scanStock(stocks map[string]stockRow) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var sku string
		var available sql.NullInt64
		if err := rows.Scan(&sku, &available); err != nil {
			return err
		}
		stocks[sku] = stockRow{available: available.Int64, whole: available.Valid}
		return nil
	}
}

// scanBusy: a stock row that is there, but was not locked, is somebody else's.
func scanBusy(reply *lockReply) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var sku string
		if err := rows.Scan(&sku); err != nil {
			return err
		}
		if _, ours := reply.stocks[sku]; !ours {
			reply.busy[sku] = true
		}
		return nil
	}
}

func (s *postgresSession) read(req readRequest, h *held) error {
	if len(req.skus) > 0 {
		s.script.query(scanState(h), `SELECT `+stateNames+` FROM stockgate.sku_state WHERE sku = ANY('%s'::text[]) ORDER BY sku FOR NO KEY UPDATE`, skuArray(req.skus))
	}
	if len(req.takes) > 0 {
		s.lockTakes(req.takes, h)
	}
	found := false
	if len(req.ids) > 0 {
		s.script.query(func(*sql.Rows) error { found = true; return nil }, `SELECT id FROM stockgate.reservation `+
			`WHERE id = ANY('%s'::uuid[]) ORDER BY id FOR NO KEY UPDATE`, idArray(req.ids))
		if req.full {
			s.readRows(req, h)
		}
	}
	if len(req.partitions) > 0 {
		s.script.query(scanPartition(h), `SELECT p, epoch, state, ahead FROM stockgate.partition_state WHERE p = ANY('%s'::integer[])`,
			numberArray(req.partitions))
	}
	if len(req.doubts) > 0 {
		s.script.query(scanDoubts(h), `SELECT p, count(*) FROM stockgate.doubtful WHERE p = ANY('%s'::integer[]) GROUP BY p`, numberArray(req.doubts))
	}
	if len(req.opKeys) > 0 {
		s.script.query(scanOpKey(h), `SELECT sku, kind, op, delta, after FROM stockgate.ledger WHERE reservation_id = '%s' AND try = 0 `+
			`AND (sku, kind, op) IN (%s)`, stock.ID{}, opKeyList(req.opKeys))
	}
	if len(req.parts) > 0 {
		s.script.query(scanPart(h), `SELECT reservation_id, op, sku, delta FROM stockgate.ledger WHERE kind = 'release' `+
			`AND (reservation_id, op) IN (%s)`, partKeyList(req.parts))
	}
	if len(s.script.each) > 0 {
		if err := s.script.send(s.c); err != nil {
			return err
		}
	}
	h.now = s.now.Time
	if found && !req.full {
		s.readRows(req, h)
		return s.script.send(s.c)
	}
	return nil
}

// readRows reads reservations in full, and what the ledger has of tries. It has to be done by statements after the one that locks them.
func (s *postgresSession) readRows(req readRequest, h *held) {
	if len(req.tries) > 0 {
		s.script.query(scanTried(h), `SELECT DISTINCT reservation_id, try FROM stockgate.ledger WHERE (reservation_id, try) IN (%s)`,
			tryKeyList(req.tries))
	}
	query := strings.NewReplacer("$1", "'"+idArray(req.ids)+"'", "$2", fmt.Sprint(s.p.cfg.ReplicaTimeout.Microseconds())).
		Replace(s.p.rows)
	s.script.query(scanHeld(h), "%s", query)
}

func scanHeld(h *held) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		row, err := scanRowState(rows)
		if err == nil {
			h.rows[row.ID] = row
		}
		return err
	}
}

// stateNames are the columns of sku_state, in the order of scanState.
const stateNames = `sku, granted, ver, seq, last_available, paused, stock_in, held, confirmed, compensating, ahead, doubtful, grant_ver`

// scanState reads sku_state. A SKU without a stock row has one too, if stockgate knew it before.
func scanState(h *held) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var k skuState
		err := rows.Scan(&k.sku, &k.granted, &k.ver, &k.seq, &k.last, &k.paused, &k.stockIn, &k.held, &k.confirmed, &k.compensating,
			&k.ahead, &k.doubtful, &k.grantVer)
		if err != nil {
			return err
		}
		if locked := h.skus[k.sku]; locked != nil && !locked.unlocked {
			k.present, k.whole, k.available = locked.present, locked.whole, locked.available
		} else if locked != nil {
			k.unlocked, k.present, k.whole, k.available = true, true, true, k.last
		} else {
			k.whole, k.available = true, k.last
		}
		h.skus[k.sku] = &k
		return nil
	}
}

func scanPartition(h *held) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var p partition
		err := rows.Scan(&p.p, &p.epoch, &p.state, &p.ahead)
		h.partitions[p.p] = &p
		return err
	}
}

// scanDoubts comes after scanPartition; where replicas are doubtful, an epoch has begun, so the partition is there.
func scanDoubts(h *held) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var p, n int
		err := rows.Scan(&p, &n)
		if h.partitions[p] != nil {
			h.partitions[p].doubts = n
		}
		return err
	}
}

func scanTried(h *held) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var id string
		var try int64
		if err := rows.Scan(&id, &try); err != nil {
			return err
		}
		parsed, err := stock.ParseID(id)
		h.tried[tryKey{parsed, stock.Try(try)}] = true
		return err
	}
}

// tryKeyList spells tries into a statement.
func tryKeyList(keys []tryKey) string {
	var b strings.Builder
	for i, k := range keys {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "('%s'::uuid, %d)", k.id, int64(k.try))
	}
	return b.String()
}

func scanOpKey(h *held) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var key opKey
		var done doneOp
		err := rows.Scan(&key.sku, &key.kind, &key.op, &done.delta, &done.after)
		h.ops[key] = done
		return err
	}
}

// opKeyList spells op ids into a statement. They are callers' text: quoted.
func opKeyList(keys []opKey) string {
	var b strings.Builder
	for i, k := range keys {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "(%s, %s, %s)", pq.QuoteLiteral(k.sku), pq.QuoteLiteral(string(k.kind)), pq.QuoteLiteral(k.op))
	}
	return b.String()
}
