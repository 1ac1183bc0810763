package orderservice

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
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

func (s *Service) resolve(w http.ResponseWriter, r *http.Request) {
	state, known := s.book.stateOf(r.PathValue("reservation"))
	if !known {
		fail(w, http.StatusNotFound, errors.New("no order of this reservation"))
		return
	}
	writeJSON(w, http.StatusOK, map[string]State{"state": state})
}

func (s *Service) move(to State) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		order, known := s.book.move(r.PathValue("order"), to)
		if !known {
			fail(w, http.StatusNotFound, errors.New("no such order"))
			return
		}
		if order.State != to {
			fail(w, http.StatusConflict, fmt.Errorf("the order is %s", order.State))
			return
		}
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
