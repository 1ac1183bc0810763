package ledger

import (
	"fmt"
	"regexp"
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
//	{order}      sorts the stock table's SKUs as its index has them: in the column's own collation; in SQLite byte for byte
//	{lock partition_state}   waits for whoever holds rows of it FOR SHARE and keeps others from it, in turn; reading goes on
//	{for update} {for share} lock the rows that are read; SQLite locks the whole file anyway
//	{yields}     lets the text before it be compared as the column on the other side is. Our SKUs are COLLATE "C" in PostgreSQL, the shop's
//	             are whatever they are: an index is used only by comparisons in its own collation, and two that differ are an error.
//	             So joins say {bytes} of the stock table's column to find ours, and {yields} of ours to find the stock row.
type queries struct {
	rows string // reservations with lines, kept answer and whether the owner is alive; the list of ids is $1, replica_timeout $2
}

func newQueries(d dialect) queries {
	return queries{rows: d.expand(rowsQuery)}
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
	{regexp.MustCompile(`\{order\}`), "", "COLLATE BINARY"},
	{regexp.MustCompile(`\{yields\}`), `COLLATE "default"`, ""},
	{regexp.MustCompile(`\{before (\$\d+)\}`), "now() - ${1}::bigint * interval '1 microsecond'", sqliteNow + " - ${1}"},
	{regexp.MustCompile(`\{after (\$\d+)\}`), "now() + ${1}::bigint * interval '1 microsecond'", sqliteNow + " + ${1}"},
	{regexp.MustCompile(`\{instant (\$\d+)\}`), "${1}::timestamptz", "${1}"},
	{regexp.MustCompile(`\{id (\$\d+)\}`), "${1}::uuid", "${1}"},
	{regexp.MustCompile(`\{in (\$\d+)\}`), "= ANY(${1}::text[])", "IN (SELECT value FROM json_each(${1}))"},
	{regexp.MustCompile(`\{in ids (\$\d+)\}`), "= ANY(${1}::uuid[])", "IN (SELECT value FROM json_each(${1}))"},
	{regexp.MustCompile(`\{in numbers (\$\d+)\}`), "= ANY(${1}::bigint[])", "IN (SELECT value FROM json_each(${1}))"},
	{regexp.MustCompile(`\{for update\}`), "FOR UPDATE", ""},
	{regexp.MustCompile(`\{for share\}`), "FOR SHARE", ""},
	{regexp.MustCompile(`\{lock ([a-z_]+)\}`), "LOCK TABLE stockgate.${1} IN EXCLUSIVE MODE", "SELECT 1"},
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
