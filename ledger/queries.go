package ledger

import (
	"database/sql"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// Queries are written once for both databases, with marks that a dialect replaces:
//
//	{name}       one of stockgate's tables: stockgate.name or stockgate_name
//	{stock} {stock.sku} {stock.available}   the stock table and its columns, quoted
//	{now}        the database's clock
//	{before $1}  the database's clock less $1 microseconds, {after $1} plus $1 microseconds
//	{instant $1} $1 as a moment, {id $1} as a reservation id
//	{in $1}      = any of a list of strings, {in ids $1} of reservation ids, {in numbers $1} of numbers
//	{bytes}      compares the text before it byte for byte
type queries struct {
	rows string // reservations with lines, kept answer and whether the owner is alive; the list of ids is $1, replica_timeout $2
}

func newQueries(d dialect) queries {
	return queries{rows: d.expand(rowsQuery)}
}

// The lines come as one text, "sku qty released,…": SKUs have no blanks and no commas.
const rowsQuery = `SELECT r.id, r.try, r.fingerprint, r.activity, r.user_id, r.route, r.state, r.outcome, r.owner, r.keyed, r.hold_us,
	r.reason, r.order_ref, r.transition, r.expires_at, r.forward_by, r.created_at, r.updated_at, g.id IS NOT NULL,
	(SELECT string_agg(l.sku || ' ' || l.qty || ' ' || l.released, ',' ORDER BY l.sku)
		FROM {reservation_line} l WHERE l.reservation_id = r.id),
	a.try, a.status, a.headers, a.body, a.at, {now}
FROM {reservation} r
LEFT JOIN {answer} a ON a.reservation_id = r.id
LEFT JOIN {gateway} g ON g.id = r.owner AND g.seen_at > {before $2}
WHERE r.id {in ids $1}`

// scanRow reads one row of rowsQuery.
func scanRow(rows *sql.Rows) (*stock.Row, error) {
	var (
		r                             stock.Row
		id, state, outcome            string
		try, fingerprint, hold        int64
		expires, forward, made, since instant
		now                           instant
		lines                         sql.NullString
		answer                        scannedAnswer
	)
	err := rows.Scan(&id, &try, &fingerprint, &r.Activity, &r.User, &r.Route, &state, &outcome, &r.Owner, &r.Keyed, &hold,
		&r.Reason, &r.OrderRef, &r.Transition, &expires, &forward, &made, &since, &r.OwnerAlive, &lines,
		&answer.try, &answer.status, &answer.headers, &answer.body, &answer.at, &now)
	if err != nil {
		return nil, err
	}
	r.Try, r.Fingerprint, r.Hold = stock.Try(try), uint64(fingerprint), time.Duration(hold)*time.Microsecond
	r.ExpiresAt, r.ForwardBy, r.CreatedAt, r.UpdatedAt = expires.Time, forward.Time, made.Time, since.Time
	r.Now = now.Time
	r.Answer = answer.answer()
	if r.ID, err = stock.ParseID(id); err != nil {
		return nil, err
	}
	if r.State, err = stock.ParseState(state); err != nil {
		return nil, err
	}
	if r.Outcome, err = stock.ParseOutcome(outcome); err != nil {
		return nil, err
	}
	return &r, scanLines(&r, lines.String)
}

// scannedAnswer is the answer of a row, all NULL if none is kept.
type scannedAnswer struct {
	try, status   sql.NullInt64
	headers, body []byte
	at            instant
}

func (a *scannedAnswer) answer() *stock.Answer {
	if !a.try.Valid {
		return nil
	}
	return &stock.Answer{Status: int(a.status.Int64), Headers: decodeHeaders(a.headers), Body: a.body,
		Try: stock.Try(a.try.Int64), At: a.at.Time}
}

// scanLines reads the lines of a row: "sku qty released,…".
func scanLines(r *stock.Row, text string) error {
	if text == "" {
		return nil
	}
	for line := range strings.SplitSeq(text, ",") {
		f := strings.Split(line, " ")
		if len(f) != 3 {
			return fmt.Errorf("line %q of reservation %s", line, r.ID)
		}
		qty, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			return fmt.Errorf("line %q of reservation %s: %w", line, r.ID, err)
		}
		released, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil {
			return fmt.Errorf("line %q of reservation %s: %w", line, r.ID, err)
		}
		r.Lines, r.Released = append(r.Lines, stock.Line{SKU: f[0], Qty: qty}), append(r.Released, released)
	}
	return nil
}

// instant is a moment as either database keeps it: PostgreSQL as timestamptz, SQLite as microseconds since 1970. NULL is the zero
// time. Both are exact to the microsecond.
type instant struct{ time.Time }

// Scan implements sql.Scanner.
func (i *instant) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		i.Time = time.Time{}
	case time.Time:
		i.Time = v.UTC()
	case int64:
		i.Time = time.UnixMicro(v).UTC()
	default:
		return fmt.Errorf("a moment came as %T", src)
	}
	return nil
}

// idStrings are ids as the databases take them.
func idStrings(ids []stock.ID) []string {
	s := make([]string, len(ids))
	for i, id := range ids {
		s[i] = id.String()
	}
	return s
}

// marks are the marks with a blank or an argument; what is left in braces is a table.
var marks = []struct {
	mark             *regexp.Regexp
	postgres, sqlite string
}{
	{regexp.MustCompile(`\{now\}`), "now()", sqliteNow},
	{regexp.MustCompile(`\{bytes\}`), `COLLATE "C"`, "COLLATE BINARY"},
	{regexp.MustCompile(`\{before (\$\d+)\}`), "now() - ${1}::bigint * interval '1 microsecond'", sqliteNow + " - ${1}"},
	{regexp.MustCompile(`\{after (\$\d+)\}`), "now() + ${1}::bigint * interval '1 microsecond'", sqliteNow + " + ${1}"},
	{regexp.MustCompile(`\{instant (\$\d+)\}`), "${1}::timestamptz", "${1}"},
	{regexp.MustCompile(`\{id (\$\d+)\}`), "${1}::uuid", "${1}"},
	{regexp.MustCompile(`\{in (\$\d+)\}`), "= ANY(${1}::text[])", "IN (SELECT value FROM json_each(${1}))"},
	{regexp.MustCompile(`\{in ids (\$\d+)\}`), "= ANY(${1}::uuid[])", "IN (SELECT value FROM json_each(${1}))"},
	{regexp.MustCompile(`\{in numbers (\$\d+)\}`), "= ANY(${1}::bigint[])", "IN (SELECT value FROM json_each(${1}))"},
	{regexp.MustCompile(`\{([a-z_]+)\}`), "stockgate.${1}", "stockgate_${1}"},
}

// expander replaces marks, each query once: they are constants, so what it remembers is bounded.
type expander struct {
	names stockNames
	with  func(mark int) string // what takes the place of a mark
	done  sync.Map              // query with marks → query
}

func (e *expander) expand(q string) string {
	if done, ok := e.done.Load(q); ok {
		return done.(string)
	}
	out := strings.NewReplacer("{stock}", e.names.table, "{stock.sku}", e.names.sku, "{stock.available}", e.names.available).Replace(q)
	for i := range marks {
		out = marks[i].mark.ReplaceAllString(out, e.with(i))
	}
	e.done.Store(q, out)
	return out
}
