package control

import (
	"context"
	"net/http"
	"strconv"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/stock"
)

// historyShown is how many ledger rows a look at a reservation tells; GET /v1/ledger has the rest.
const historyShown = 100

// getReservation answers one reservation, with its ledger rows if asked for.
func (s *Server) getReservation(r *http.Request) (any, error) {
	q, err := queryOf(r, "history")
	if err != nil {
		return nil, err
	}
	history, err := q.flag("history")
	if err != nil {
		return nil, err
	}
	row, err := s.rowOf(r)
	if err != nil {
		return nil, err
	}
	view := viewWhole(row)
	if !history {
		return view, nil
	}
	page, err := s.ledgerPage(r.Context(), stock.AuditOf{Reservation: row.ID}, stock.AuditRow{}, historyShown)
	if err != nil {
		return nil, err
	}
	view.History, view.HistoryNext = page.Rows, page.Next
	return view, nil
}

// rowOf is the reservation that the path names, if it has a row: a look settles nothing.
func (s *Server) rowOf(r *http.Request) (*stock.Row, error) {
	id, err := pathID(r)
	if err != nil {
		return nil, err
	}
	row, err := s.find(r.Context(), id)
	if err == nil && row == nil {
		err = unknownReservation(id)
	}
	return row, err
}

// find is the row of an id, nil if it has none.
func (s *Server) find(ctx context.Context, id stock.ID) (*stock.Row, error) {
	found, err := s.deps.Store.Find(ctx, []stock.ID{id})
	if err != nil {
		return nil, ofRead(err)
	}
	return found[id], nil
}

func unknownReservation(id stock.ID) error {
	return refuse(stock.CodeUnknownReservation, "there is no reservation %s", id)
}

func pathID(r *http.Request) (stock.ID, error) { return parseID("id", r.PathValue("id")) }

func parseID(field, text string) (stock.ID, error) {
	id, err := stock.ParseID(text)
	if err != nil {
		return id, badField(field, shorten(text), "must be 32 hex digits")
	}
	return id, nil
}

// findReservations lists what people know reservations by: a user, an order reference, a request id, or that their outcome is unknown.
func (s *Server) findReservations(r *http.Request) (any, error) {
	q, err := queryOf(r, "user", "order_ref", "request", "unknown", "after", "limit")
	if err != nil {
		return nil, err
	}
	unknown, err := q.flag("unknown")
	if err != nil {
		return nil, err
	}
	limit, err := q.limit()
	if err != nil {
		return nil, err
	}
	switch {
	case q.named("request") && !q.named("order_ref") && !unknown && !q.named("after"):
		return s.byRequest(r, q)
	case unknown && !q.named("user") && !q.named("order_ref") && !q.named("request"):
		return s.unknowns(r, q, limit)
	case q.named("user") != q.named("order_ref") && !unknown && !q.named("request"):
		return s.search(r, q, limit)
	}
	return nil, refuse(stock.CodeBadRequest, "name one of user, order_ref, request (with its user, if it had one), or unknown=true")
}

// search finds by user or by order reference.
func (s *Server) search(r *http.Request, q query, limit int) (any, error) {
	after, err := q.cursor()
	if err != nil {
		return nil, err
	}
	user, err := q.text("user", userBytesMax)
	if err != nil {
		return nil, err
	}
	ref, err := q.text("order_ref", orderRefBytesMax)
	if err != nil {
		return nil, err
	}
	rows, next, err := s.deps.Records.Search(r.Context(), stock.Search{User: user, OrderRef: ref}, after, limit)
	if err != nil {
		return nil, ofRead(err)
	}
	list := viewList(rows)
	if len(rows) == limit {
		list.Next = cursorText(next)
	}
	return list, nil
}

// byRequest finds by the request id that a client sent. The id of a reservation takes the route and the activity that the request named,
// which people do not know: all that there can be are tried.
func (s *Server) byRequest(r *http.Request, q query) (any, error) {
	user, err := q.text("user", userBytesMax)
	if err != nil {
		return nil, err
	}
	request, ok := requestID(q.Get("request"))
	if !ok {
		return nil, badRequestID("request", q.Get("request"))
	}
	ids := s.deps.Candidates(user, request)
	found, err := s.deps.Store.Find(r.Context(), ids)
	if err != nil {
		return nil, ofRead(err)
	}
	rows := make([]*stock.Row, 0, len(found))
	for _, id := range ids {
		if row := found[id]; row != nil {
			rows = append(rows, row)
			delete(found, id) // a candidate may come twice
		}
	}
	return viewList(rows), nil
}

const (
	duePage     = 500 // due rows read at a time for the list of unknowns
	duePagesMax = 20  // pages that one call reads: what is due and known is in between
)

// unknowns lists the held and surplus reservations of unknown outcome, oldest first. Those in flight are among them, and said to be.
func (s *Server) unknowns(r *http.Request, q query, limit int) (any, error) {
	from, err := q.cursor()
	if err != nil {
		return nil, err
	}
	last := stock.DueRow{CreatedAt: from.UpdatedAt, ID: from.ID}
	list := api.ReservationList{Reservations: []api.Reservation{}}
	for range duePagesMax {
		due, err := s.deps.Records.Due(r.Context(), s.deps.Routes(), last, duePage)
		if err != nil {
			return nil, ofRead(err)
		}
		more, err := s.unknownOf(r, due, limit-len(list.Reservations), &last)
		if err != nil {
			return nil, err
		}
		list.Reservations = append(list.Reservations, more...)
		if len(list.Reservations) < limit && len(due) < duePage {
			return list, nil
		}
		if len(list.Reservations) == limit {
			break
		}
	}
	list.Next = cursorText(stock.Cursor{UpdatedAt: last.CreatedAt, ID: last.ID})
	return list, nil
}

// unknownOf views at most limit of the due rows that are of unknown outcome; last is the last one that was looked at.
func (s *Server) unknownOf(r *http.Request, due []stock.DueRow, limit int, last *stock.DueRow) ([]api.Reservation, error) {
	var ids []stock.ID
	age := map[stock.ID]int64{}
	for i := range due {
		if len(ids) == limit {
			break
		}
		*last = due[i]
		if due[i].Outcome == stock.OutcomeUnknown {
			ids = append(ids, due[i].ID)
			age[due[i].ID] = max(due[i].Now.Sub(due[i].CreatedAt).Milliseconds(), 1)
		}
	}
	found, err := s.deps.Store.Find(r.Context(), ids)
	if err != nil {
		return nil, ofRead(err)
	}
	views := make([]api.Reservation, 0, len(ids))
	for _, id := range ids {
		if row := found[id]; row != nil && (row.State == stock.StateHeld || row.State == stock.StateSurplus) && row.Outcome == stock.OutcomeUnknown {
			view := viewWhole(row)
			view.Age = age[id]
			views = append(views, view)
		}
	}
	return views, nil
}

// requestID is the id in a header or a parameter, without the quotes that the draft of the header asks for and most clients leave out.
func requestID(text string) (string, bool) {
	if n := len(text); n >= 2 && text[0] == '"' && text[n-1] == '"' {
		text = text[1 : n-1]
	}
	return text, len(text) <= requestBytesMax && visibleASCII(text)
}

func badRequestID(field, text string) error {
	return badField(field, shorten(text), "must be 1 to "+strconv.Itoa(requestBytesMax)+" visible ASCII bytes")
}
