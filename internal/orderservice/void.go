package orderservice

import (
	"errors"
	"io"
	"net/http"
)

// errVoid refuses an order of a reservation that was made void before it came.
var errVoid = errors.New("the reservation was made void")

// ScriptVoids makes the next calls to make an order void go wrong, one fault each; after them AlwaysVoids counts again. Lose answers as
// usual and does nothing.
func (s *Service) ScriptVoids(faults ...Fault) { s.voids.add(faults) }

// AlwaysVoids makes every such call without a scripted fault go wrong like this. The zero Fault mends it.
func (s *Service) AlwaysVoids(f Fault) { s.voids.set(f) }

// void cancels what there is of a reservation and refuses what is still to come: a gateway has forwarded it, and nothing was left.
func (s *Service) void(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyBytesMax))
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	if len(s.cfg.Keys) > 0 {
		if err := verify(r, body, s.cfg.Keys, s.cfg.Now()); err != nil {
			fail(w, http.StatusUnauthorized, err)
			return
		}
	}
	fault := s.voids.take()
	if !fault.Before.suffer(w, s.ended) {
		return
	}
	cancelled := 0
	if !fault.Lose {
		cancelled = s.book.void(r.PathValue("reservation"))
	}
	if !fault.After.suffer(w, s.ended) {
		return
	}
	if fault.overrides() {
		fault.write(w, http.StatusOK)
		return
	}
	writeJSON(w, http.StatusOK, map[string]int{"cancelled": cancelled})
}

// void cancels the orders of a reservation, and lets it have no more. It returns how many were cancelled now.
func (b *book) void(reservation string) (cancelled int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.voided) < b.max {
		b.voided[reservation] = true
	}
	for _, place := range b.of[reservation] {
		if o := b.current(place); o.State != Cancelled {
			o.become(Cancelled, b.now())
			cancelled++
		}
	}
	return cancelled
}
