package orderservice

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/stockgate/stockgate/stock"
)

// pageMax bounds the orders in one answer.
const pageMax = 10_000

func (s *Service) count(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]int{"orders": s.Count()})
}

// list answers a page of orders; after is how many to leave out, and `next` the after of the next page.
func (s *Service) list(w http.ResponseWriter, r *http.Request) {
	after, errAfter := queryInt(r, "after", 0)
	limit, errLimit := queryInt(r, "limit", pageMax)
	if err := errors.Join(errAfter, errLimit); err != nil {
		reject(w, http.StatusBadRequest, err)
		return
	}
	page := s.book.page(after, min(limit, pageMax))
	answer := struct {
		Orders []Order `json:"orders"`
		Next   int     `json:"next,omitempty"`
	}{Orders: page}
	if len(page) > 0 && len(page) == min(limit, pageMax) {
		answer.Next = after + len(page)
	}
	writeJSON(w, http.StatusOK, answer)
}

func queryInt(r *http.Request, name string, absent int) (int, error) {
	if !r.URL.Query().Has(name) {
		return absent, nil
	}
	n, err := strconv.Atoi(r.URL.Query().Get(name))
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s is %q, must be a number from 0", name, r.URL.Query().Get(name))
	}
	return n, nil
}

// resolve tells a gateway what became of a reservation.
func (s *Service) resolve(w http.ResponseWriter, r *http.Request) {
	if len(s.cfg.Keys) > 0 {
		if err := verify(r, nil, s.cfg.Keys, s.cfg.Now()); err != nil {
			fail(w, http.StatusUnauthorized, err)
			return
		}
	}
	fault := s.asked.take()
	if !fault.Before.suffer(w, s.ended) {
		return
	}
	order, known := s.ByReservation(r.PathValue("reservation"))
	if !fault.After.suffer(w, s.ended) {
		return
	}
	switch {
	case fault.overrides():
		fault.write(w, http.StatusOK)
	case !known || fault.Lose:
		fail(w, http.StatusNotFound, errors.New("no order of this reservation"))
	default:
		writeJSON(w, http.StatusOK, map[string]State{"state": order.State})
	}
}

func (s *Service) move(to State) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		order, err := s.book.move(r.PathValue("order"), to)
		changed(w, order, err)
	}
}

// refund takes lines of a paid order back: {"lines":[{"sku","qty"}],"op"}. op makes it safe to repeat.
func (s *Service) refund(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Op    string       `json:"op"`
		Lines []stock.Line `json:"lines"`
	}
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, bodyBytesMax)).Decode(&asked)
	if err != nil {
		fail(w, http.StatusBadRequest, fmt.Errorf("the body is no refund: %w", err))
		return
	}
	lines, err := merge(asked.Lines)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	order, err := s.book.refund(r.PathValue("order"), asked.Op, lines)
	changed(w, order, err)
}

// changed answers with the order as it is after a change, or says why there was none.
func changed(w http.ResponseWriter, order Order, err error) {
	switch {
	case errors.Is(err, errNoOrder):
		fail(w, http.StatusNotFound, err)
	case err != nil:
		fail(w, http.StatusConflict, err)
	default:
		writeJSON(w, http.StatusOK, order)
	}
}

// reject says that there surely is no order and will be none.
func reject(w http.ResponseWriter, status int, err error) {
	w.Header().Set(outcomeHeader, "rejected")
	fail(w, status, err)
}

func fail(w http.ResponseWriter, status int, err error) {
	writeJSON(w, status, map[string]string{"error": err.Error()})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the client has gone; the order stands
}
