package ledger

import (
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// The lines come as one text, one a line: "sku qty released parted limit counted activity". SKUs have no blanks; an activity may have
// some, so it is the last, but no line ends.
const rowsQuery = `SELECT r.id, r.try, r.fingerprint, r.activity, r.user_id, r.route, r.state, r.outcome, r.owner, r.keyed, r.hold_us,
	r.reason, r.order_ref, r.transition, r.open_limit, r.counts_open, r.paid, r.expires_at, r.forward_by, r.created_at, r.updated_at,
	g.id IS NOT NULL,
	(SELECT string_agg(l.sku || ' ' || l.qty || ' ' || l.released || ' ' || l.parted || ' ' || l.user_limit ||
			CASE WHEN l.counted THEN ' 1 ' ELSE ' 0 ' END || l.activity, '
' ORDER BY l.sku)
		FROM {reservation_line} l WHERE l.reservation_id = r.id),
	a.try, a.status, a.headers, a.body, a.at, {now}
FROM {reservation} r
LEFT JOIN {answer} a ON a.reservation_id = r.id
LEFT JOIN {gateway} g ON g.id = r.owner AND g.seen_at > {before $2}
WHERE r.id {in ids $1}`

// scanRow reads one row of rowsQuery.
func scanRow(rows *sql.Rows) (*stock.Row, error) {
	row, err := scanRowState(rows)
	if err != nil {
		return nil, err
	}
	return &row.Row, nil
}

// scanRowState is scanRow with what only decisions need.
func scanRowState(rows *sql.Rows) (*rowState, error) {
	var (
		r                             rowState
		id, state, outcome            string
		try, fingerprint, hold        int64
		expires, forward, made, since instant
		now                           instant
		lines                         sql.NullString
		answer                        scannedAnswer
	)
	err := rows.Scan(&id, &try, &fingerprint, &r.Activity, &r.User, &r.Route, &state, &outcome, &r.Owner, &r.Keyed, &hold,
		&r.Reason, &r.OrderRef, &r.Transition, &r.OpenLimit, &r.CountsOpen, &r.Paid, &expires, &forward, &made, &since, &r.OwnerAlive, &lines,
		&answer.try, &answer.status, &answer.headers, &answer.body, &answer.at, &now)
	if err != nil {
		return nil, err
	}
	r.stored = true
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
	return &r, r.scanLines(lines.String)
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

// scanLines reads the lines of a row.
func (r *rowState) scanLines(text string) error {
	if text == "" {
		return nil
	}
	for line := range strings.SplitSeq(text, "\n") {
		if err := r.scanLine(line); err != nil {
			return fmt.Errorf("line %q of reservation %s: %w", line, r.ID, err)
		}
	}
	r.Terms, r.Counted = keptTerms(r.Terms), keptCounts(r.Counted)
	return nil
}

func (r *rowState) scanLine(line string) error {
	f := strings.SplitN(line, " ", 7)
	if len(f) != 7 {
		return fmt.Errorf("it has %d fields, want 7", len(f))
	}
	var n [4]int64 // qty, released, parted, limit
	for i := range n {
		var err error
		if n[i], err = strconv.ParseInt(f[1+i], 10, 64); err != nil {
			return err
		}
	}
	r.Lines = append(r.Lines, stock.Line{SKU: f[0], Qty: n[0]})
	r.Released, r.parted = append(r.Released, n[1]), append(r.parted, n[2])
	r.Terms = append(r.Terms, stock.LineTerms{Activity: f[6], Limit: n[3]})
	r.Counted = append(r.Counted, f[5] == "1")
	return nil
}

// keptTerms are terms as a row has them: nil if they say nothing.
func keptTerms(terms []stock.LineTerms) []stock.LineTerms {
	for _, t := range terms {
		if t != (stock.LineTerms{}) {
			return terms
		}
	}
	return nil
}

// keptCounts is nil if no line is counted.
func keptCounts(counted []bool) []bool {
	for _, c := range counted {
		if c {
			return counted
		}
	}
	return nil
}
