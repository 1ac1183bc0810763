package orderservice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/stockgate/stockgate/internal/httpserve"
)

const (
	bodyBytesMax  = 1 << 20
	headerTimeout = 10 * time.Second
	grace         = 5 * time.Second // for the answers in flight at the end
)

// Config says how the service behaves.
type Config struct {
	// Unique keeps one order per reservation: a second request for it gets the first order again.
	Unique bool
	// Keys are the secrets of the gateways by key id. Empty: signatures are not looked at.
	Keys map[string][]byte
	// Closes reports whether an order that is unpaid at its Stockgate-Expires is cancelled then, so that nobody can pay for what the
	// gateway gives back. Nil: such an order stays open and can be paid late.
	Closes func(Order) bool
	// OrdersMax bounds how many orders are kept. Defaults to 1 000 000.
	OrdersMax int
	// Now is the clock that forward-by and signatures are compared with. Defaults to time.Now.
	Now func() time.Time
}

// Service is the sample order service. It is an http.Handler and safe for concurrent use.
type Service struct {
	cfg    Config
	book   *book
	script script // of orders
	asked  script // of questions by reservation
	voids  script // of calls to make an order void
	mux    *http.ServeMux
	end    sync.Once
	ended  chan struct{} // closed by End: hanging answers let go
}

// New makes an empty service.
func New(cfg Config) *Service {
	cfg.OrdersMax = cmp.Or(cfg.OrdersMax, 1_000_000)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Service{cfg: cfg, mux: http.NewServeMux(), ended: make(chan struct{})}
	s.book = &book{max: cfg.OrdersMax, now: cfg.Now, closes: cfg.Closes, of: map[string][]int{}, voided: map[string]bool{}}
	s.mux.HandleFunc("POST /orders", s.place)
	s.mux.HandleFunc("POST /checkout", s.place)
	s.mux.HandleFunc("GET /orders", s.list)
	s.mux.HandleFunc("GET /orders/count", s.count)
	s.mux.HandleFunc("GET /orders/by-reservation/{reservation}", s.resolve)
	s.mux.HandleFunc("POST /orders/by-reservation/{reservation}/void", s.void)
	s.mux.HandleFunc("POST /orders/{order}/pay", s.move(Paid))
	s.mux.HandleFunc("POST /orders/{order}/refund", s.refund)
	s.mux.HandleFunc("DELETE /orders/{order}", s.move(Cancelled))
	return s
}

// ServeHTTP serves one request.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Serve serves ln until ctx ends, then lets go of hanging answers and waits for all of them. It owns ln and is called once.
func (s *Service) Serve(ctx context.Context, ln net.Listener) error {
	stop := context.AfterFunc(ctx, s.End)
	defer stop()
	return httpserve.Serve(ctx, &http.Server{Handler: s, ReadHeaderTimeout: headerTimeout}, ln, grace)
}

// End lets go of everything that hangs or is delayed, now and later. Serve does it by itself; who uses the Service as a handler
// calls it before closing his server.
func (s *Service) End() { s.end.Do(func() { close(s.ended) }) }

// Script makes the next orders go wrong, one fault each; after them Always counts again.
func (s *Service) Script(faults ...Fault) { s.script.add(faults) }

// Always makes every order without a scripted fault go wrong like this. The zero Fault mends the service.
func (s *Service) Always(f Fault) { s.script.set(f) }

// ScriptAsked makes the next questions by reservation go wrong, one fault each; after them AlwaysAsked counts again. Lose says that
// there is no order, whatever there is.
func (s *Service) ScriptAsked(faults ...Fault) { s.asked.add(faults) }

// AlwaysAsked makes every question by reservation without a scripted fault go wrong like this: with Status 200 and a Body the service is
// a catch-all. The zero Fault mends it.
func (s *Service) AlwaysAsked(f Fault) { s.asked.set(f) }

// ByReservation is the order that counts of a reservation's: a paid one, else an open one, else the last. False: there is none.
func (s *Service) ByReservation(reservation string) (Order, bool) {
	return s.book.byReservation(reservation)
}

// Orders is a copy of every order that was accepted, also those cancelled since.
func (s *Service) Orders() []Order { return s.book.page(0, s.cfg.OrdersMax) }

// Count is how many orders stand: accepted and not cancelled.
func (s *Service) Count() int { return s.book.count() }

// place takes an order.
func (s *Service) place(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyBytesMax))
	if err != nil {
		reject(w, http.StatusBadRequest, err)
		return
	}
	fault := s.script.take()
	if !fault.Before.suffer(w, s.ended) {
		return
	}
	order, status, err := Order{}, http.StatusCreated, error(nil)
	if !fault.Lose {
		order, status, err = s.accept(r, body)
	}
	if !fault.After.suffer(w, s.ended) {
		return
	}
	fault.answer(w, order, status, err)
}

// accept checks an order and records it.
func (s *Service) accept(r *http.Request, body []byte) (Order, int, error) {
	if len(s.cfg.Keys) > 0 {
		if err := verify(r, body, s.cfg.Keys, s.cfg.Now()); err != nil {
			return Order{}, http.StatusUnauthorized, err
		}
	}
	if err := inTime(r, s.cfg.Now()); err != nil {
		return Order{}, http.StatusGone, err
	}
	lines, user, err := readWish(r, body)
	if err != nil {
		return Order{}, http.StatusUnprocessableEntity, err
	}
	expires, err := headerTime(r, expiresHeader)
	if err != nil {
		return Order{}, http.StatusBadRequest, err
	}
	order, err := s.book.add(Order{
		Lines:       lines,
		User:        user,
		Reservation: r.Header.Get(reservationHeader),
		Key:         r.Header.Get("Idempotency-Key"),
		At:          s.cfg.Now(),
		Expires:     expires,
	}, s.cfg.Unique)
	switch {
	case errors.Is(err, errVoid):
		return Order{}, http.StatusConflict, err
	case err != nil:
		return Order{}, http.StatusServiceUnavailable, err
	}
	return order, http.StatusCreated, nil
}

// inTime refuses what comes after its time: the gateway may have given the units to somebody else since.
func inTime(r *http.Request, now time.Time) error {
	by, err := headerTime(r, forwardByHeader)
	if late := now.Sub(by); err == nil && !by.IsZero() && late > 0 {
		err = fmt.Errorf("came %s after %s", late.Round(time.Millisecond), forwardByHeader)
	}
	return err
}

// headerTime reads a moment in Unix milliseconds; zero: the header is absent.
func headerTime(r *http.Request, name string) (time.Time, error) {
	given := r.Header.Get(name)
	if given == "" {
		return time.Time{}, nil
	}
	ms, err := strconv.ParseInt(given, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s is %q, must be Unix milliseconds", name, given)
	}
	return time.UnixMilli(ms), nil
}

func (f Fault) answer(w http.ResponseWriter, order Order, status int, err error) {
	f.addHeaders(w)
	switch {
	case f.overrides():
		f.write(w, status)
	case err != nil:
		reject(w, status, err)
	default:
		writeJSON(w, status, order)
	}
}
