package admission

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/stockgate/stockgate/stock"
)

// wanted is a reservation on its way through Admit.
type wanted struct {
	stock.Reservation
	key       string    // request id, the client's or the drawn one
	limitKeys []string  // of each line, the key of its limit in the configuration; nil: no line has a limit
	first     int       // partition of the first line
	parts     []int     // all partitions, ascending, if there are several; nil: there is only first
	waits     time.Time // when it began to wait for stock; zero: it has not

	// Of a cart over several partitions. taken: the first so many of parts have, or may have, an open entry of Try. former: tries
	// that were given back before; their entries may not be closed yet.
	taken  int
	former []stock.Try

	on eventual // what selling ahead needs; zero where nothing is sold ahead
}

// draw names the reservation and the try. The id takes what the request names, never what follows from the clock: a retry across the
// edge of a window must name the same reservation.
func (a *Admitter) draw(w *Wish) (*wanted, error) {
	try, err := drawTry()
	if err != nil {
		return nil, err
	}
	key := w.RequestID
	if key == "" {
		drawn, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("draw a request id: %w", err)
		}
		key = drawn.String()
	}
	r := &wanted{key: key, Reservation: stock.Reservation{
		ID: a.idOf(w, key), Try: try, Fingerprint: stock.Fingerprint(w.Lines), User: w.User, Route: w.Route,
		Lines: append([]stock.Line(nil), w.Lines...), Owner: a.cfg.Gateway, Keyed: w.RequestID != ""}}
	r.spread(a.cfg.Partitions)
	return r, nil
}

func (a *Admitter) idOf(w *Wish, key string) stock.ID {
	return stock.DeriveID(a.cfg.Deployment, w.Route, w.Activity, w.User, key)
}

// spread finds the partitions of the lines.
func (r *wanted) spread(partitions int) {
	r.first = stock.Partition(r.Lines[0].SKU, partitions)
	for _, l := range r.Lines[1:] {
		p := stock.Partition(l.SKU, partitions)
		if r.parts == nil && p != r.first {
			r.parts = append(r.parts, r.first)
		}
		if r.parts != nil && !slices.Contains(r.parts, p) {
			r.parts = append(r.parts, p)
		}
	}
	slices.Sort(r.parts)
}

// takeTerms asks the sale for the terms of each line and writes down what the reservation keeps of them. It gives the refusal of the
// first line that is not on sale, or nil.
func (a *Admitter) takeTerms(r *wanted, named string) *Refusal {
	for i, l := range r.Lines {
		t, refused := a.sale.Terms(l.SKU, named)
		if refused != nil {
			own := *refused
			own.SKU = ofCart(r.Lines, l.SKU)
			return &own
		}
		r.keepTerms(i, t)
	}
	return nil
}

// keepTerms adds the terms of line i. Of several lines the shortest hold counts, and the strictest limit of open reservations.
func (r *wanted) keepTerms(i int, t Terms) {
	if i == 0 {
		r.Activity, r.Hold, r.OpenLimit = t.Activity, t.Hold, t.OpenLimit
	}
	if t.Activity != r.Activity {
		r.Activity = "" // several: the lines' own terms tell
	}
	r.Hold = min(r.Hold, t.Hold)
	r.on.some, r.on.all = r.on.some || t.Eventual, t.Eventual && (i == 0 || r.on.all)
	if t.OpenLimit > 0 && (r.OpenLimit == 0 || t.OpenLimit < r.OpenLimit) {
		r.OpenLimit = t.OpenLimit
	}
	if t.Activity == "" && t.Limit == 0 {
		return
	}
	if r.Terms == nil {
		r.Terms = make([]stock.LineTerms, len(r.Lines))
	}
	r.Terms[i] = stock.LineTerms{Activity: t.Activity, Limit: t.Limit}
	if t.Limit == 0 {
		return
	}
	if r.limitKeys == nil {
		r.limitKeys = make([]string, len(r.Lines))
	}
	r.limitKeys[i] = t.LimitKey
}

// lineOf is the number of the line of a SKU; of a SKU that is not named, the first.
func (r *wanted) lineOf(sku string) int {
	for i := range r.Lines {
		if r.Lines[i].SKU == sku {
			return i
		}
	}
	return 0
}

// firstLine is the SKU of the first line that is of partition p.
func (r *wanted) firstLine(p, partitions int) string {
	for i := range r.Lines {
		if stock.Partition(r.Lines[i].SKU, partitions) == p {
			return r.Lines[i].SKU
		}
	}
	return r.Lines[0].SKU
}

// ofCart is the SKU to name in a refusal: none where the request has only one.
func ofCart(lines []stock.Line, sku string) string {
	if len(lines) < 2 {
		return ""
	}
	return sku
}

func drawTry() (stock.Try, error) {
	var b [8]byte
	for {
		if _, err := rand.Read(b[:]); err != nil {
			return 0, fmt.Errorf("draw a try: %w", err)
		}
		if t := stock.Try(binary.BigEndian.Uint64(b[:])); t != 0 {
			return t, nil
		}
	}
}
