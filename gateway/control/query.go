package control

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stockgate/stockgate/stock"
)

// query is the parameters of a call, each known and there at most once.
type query struct{ url.Values }

func queryOf(r *http.Request, known ...string) (query, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return query{}, refuse(stock.CodeBadRequest, "the query cannot be read: %v", err)
	}
	for name, all := range values {
		if !slices.Contains(known, name) {
			return query{}, badField("query parameter", shorten(name), "known are "+cmp.Or(strings.Join(known, ", "), "none"))
		}
		if len(all) > 1 {
			return query{}, badField(name, "there twice", "allowed is once")
		}
	}
	return query{values}, nil
}

// named reports whether a parameter is there and not empty.
func (q query) named(name string) bool { return q.Get(name) != "" }

// flag is true for true, and false for false or nothing.
func (q query) flag(name string) (bool, error) {
	switch text := q.Get(name); text {
	case "true":
		return true, nil
	case "", "false":
		return false, nil
	default:
		return false, badField(name, shorten(text), "must be true or false")
	}
}

func (q query) text(name string, most int) (string, error) {
	text := q.Get(name)
	if len(text) > most || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		return "", badField(name, shorten(text), fmt.Sprintf("must be at most %d bytes of UTF-8 without control characters", most))
	}
	return text, nil
}

// limit is how many entries a page may have.
func (q query) limit() (int, error) {
	if !q.Has("limit") {
		return listLimitDefault, nil
	}
	limit, err := strconv.Atoi(q.Get("limit"))
	if err != nil || limit < 1 || limit > listLimitMax {
		return 0, badField("limit", shorten(q.Get("limit")), "must be 1 to "+strconv.Itoa(listLimitMax))
	}
	return limit, nil
}

// cursor reads what cursorText wrote; nothing is the beginning.
func (q query) cursor() (stock.Cursor, error) {
	text := q.Get("after")
	if text == "" {
		return stock.Cursor{}, nil
	}
	at, id, _ := strings.Cut(text, ".")
	micros, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return stock.Cursor{}, badAfter(text)
	}
	parsed, err := stock.ParseID(id)
	if err != nil {
		return stock.Cursor{}, badAfter(text)
	}
	return stock.Cursor{UpdatedAt: time.UnixMicro(micros).UTC(), ID: parsed}, nil
}

func badAfter(text string) error {
	return badField("after", shorten(text), "must be the next of the page before")
}

// cursorText is a place in a list of reservations, as it stands in next and after. Both databases are exact to the microsecond.
func cursorText(c stock.Cursor) string {
	return strconv.FormatInt(c.UpdatedAt.UnixMicro(), 10) + "." + c.ID.String()
}
