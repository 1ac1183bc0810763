package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"slices"
	"time"
)

const (
	bodyBytesMax = 1 << 20
	// margin is how much earlier than the gateway the shop lets go of an unpaid order, so that clocks which differ a little do no harm.
	margin = 2 * time.Second
)

// conflict is a step that an order's state does not allow.
type conflict string

func (c conflict) Error() string { return string(c) }

// shop serves HTTP.
type shop struct {
	store  *store
	outbox *outbox
	keys   map[string][]byte // secrets by key id
}

func (s *shop) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", s.place)
	mux.HandleFunc("POST /checkout", s.place) // a cart is the same with more lines
	mux.HandleFunc("GET /orders/by-reservation/{reservation}", s.resolve)
	mux.HandleFunc("POST /orders/by-reservation/{reservation}/void", s.makeVoid)
	mux.HandleFunc("GET /orders/count", s.count)
	mux.HandleFunc("GET /orders/{id}", s.steps(func(context.Context, *http.Request, *sql.Tx, *order) error { return nil }))
	mux.HandleFunc("POST /orders/{id}/pay", s.steps(pay))
	mux.HandleFunc("POST /orders/{id}/cancel", s.steps(cancel))
	mux.HandleFunc("POST /orders/{id}/refund", s.steps(refund))
	return mux
}

// place takes an order that passed the gateway.
func (s *shop) place(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyBytesMax))
	if err != nil || !signed(r, body, s.keys) {
		reject(w, http.StatusUnauthorized, "this did not come through the gateway")
		return
	}
	lines, err := parseLines(r.Header.Get("Stockgate-Lines")) // what was deducted; the body may say something else
	if err != nil {
		reject(w, http.StatusBadRequest, err.Error())
		return
	}
	wanted := &order{Reservation: r.Header.Get("Stockgate-Reservation"), User: r.Header.Get("X-User-Id"), Lines: lines, State: open,
		closes: moment(r, "Stockgate-Expires").Add(-margin)}
	o, err := s.store.place(r.Context(), wanted, moment(r, "Stockgate-Forward-By"))
	switch {
	case errors.As(err, new(conflict)):
		reject(w, http.StatusGone, err.Error())
	case err != nil:
		fail(w, err) // the order may exist: no Stockgate-Outcome, so the gateway asks
	default:
		answer(w, http.StatusCreated, o)
	}
}

// place makes one order per reservation. The look at the clock is in the transaction: when "too late" is said, no other copy of the
// request can make the order any more.
func (s *store) place(ctx context.Context, wanted *order, forwardBy time.Time) (o *order, err error) {
	err = s.transaction(ctx, func(tx *sql.Tx) error {
		o, err = find(ctx, tx, "reservation = ?", wanted.Reservation)
		switch {
		case errors.Is(err, errNoOrder) && time.Now().After(forwardBy):
			return conflict("too late: the units may be somebody else's")
		case errors.Is(err, errNoOrder):
			o = wanted
			return o.add(ctx, tx)
		case err == nil && o.State == cancelled:
			return conflict("this order is cancelled")
		}
		return err
	})
	return o, err
}

// resolve tells the gateway what became of a reservation. Asked after its end, an unpaid order is closed by the question (change), so
// the answer stays true: nobody can pay what the gateway gives back.
func (s *shop) resolve(w http.ResponseWriter, r *http.Request) {
	if !signed(r, nil, s.keys) {
		answer(w, http.StatusUnauthorized, map[string]string{"error": "only the gateway may ask"})
		return
	}
	o, err := s.store.change(r.Context(), "reservation = ?", r.PathValue("reservation"), func(*sql.Tx, *order) error { return nil })
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusOK, map[string]string{"state": o.State})
}

// makeVoid ends an order for which there are no units. Only SKUs that sell ahead come to that.
func (s *shop) makeVoid(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyBytesMax))
	if err != nil || !signed(r, body, s.keys) {
		answer(w, http.StatusUnauthorized, map[string]string{"error": "only the gateway may make orders void"})
		return
	}
	o, err := s.store.makeVoid(r.Context(), r.PathValue("reservation"))
	if err != nil {
		fail(w, err) // a 5xx: it may be done, and the gateway asks again
		return
	}
	answer(w, http.StatusOK, o)
}

// makeVoid cancels what there is of a reservation. Its request may still be on its way, so a reservation without an order gets a cancelled
// one, which place finds. stockgate is not told: it has asked.
func (s *store) makeVoid(ctx context.Context, reservation string) (o *order, err error) {
	err = s.transaction(ctx, func(tx *sql.Tx) error {
		o, err = find(ctx, tx, "reservation = ?", reservation)
		switch {
		case errors.Is(err, errNoOrder):
			o = &order{Reservation: reservation, State: cancelled}
			return o.add(ctx, tx)
		case err != nil:
			return err
		}
		o.RefundDue = o.RefundDue || o.State == paid
		o.State = cancelled
		return o.save(ctx, tx)
	})
	return o, err
}

func (s *shop) count(w http.ResponseWriter, r *http.Request) {
	var n int
	if err := s.store.db.QueryRowContext(r.Context(), `SELECT count(*) FROM orders WHERE state <> 'cancelled'`).Scan(&n); err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusOK, map[string]int{"orders": n})
}

// steps serves one step of an order's life.
func (s *shop) steps(step func(ctx context.Context, r *http.Request, tx *sql.Tx, o *order) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		o, err := s.store.change(r.Context(), "id = ?", r.PathValue("id"), func(tx *sql.Tx, o *order) error {
			return step(r.Context(), r, tx, o)
		})
		if err != nil {
			fail(w, err)
			return
		}
		s.outbox.poke()
		answer(w, http.StatusOK, o)
	}
}

// pay books the payment. With a real payment provider: authorise first, capture once this is committed, void if it was refused.
func pay(ctx context.Context, _ *http.Request, tx *sql.Tx, o *order) error {
	switch o.State {
	case paid:
		return nil // it was paid before
	case cancelled:
		return conflict("the order is cancelled, or was not paid in time")
	}
	o.State = paid
	return o.tell(ctx, tx, "confirm", map[string]any{})
}

func cancel(ctx context.Context, _ *http.Request, tx *sql.Tx, o *order) error {
	switch o.State {
	case cancelled:
		return nil
	case paid:
		return conflict("the order is paid: refund it")
	}
	o.State = cancelled
	return o.tell(ctx, tx, "release", map[string]any{"reason": "cancelled", "unless_paid": true})
}

// refund takes lines of a paid order back, once per op; without lines all that is left.
func refund(ctx context.Context, r *http.Request, tx *sql.Tx, o *order) error {
	var asked struct {
		Op    string `json:"op"`
		Lines []line `json:"lines"`
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, bodyBytesMax)).Decode(&asked); err != nil && !errors.Is(err, io.EOF) {
		return conflict("the body is no refund: " + err.Error())
	}
	switch {
	case len(asked.Lines) == 0 && o.State == paid:
		o.State = cancelled
		return o.tell(ctx, tx, "release", map[string]any{"reason": "refunded"})
	case len(asked.Lines) > 0 && asked.Op == "":
		return conflict("a refund of lines needs an op, so that it can be repeated")
	}
	text, err := json.Marshal(asked.Lines)
	if err != nil {
		return err
	}
	var before string
	err = tx.QueryRowContext(ctx, `SELECT lines FROM refunds WHERE order_id = ? AND op = ?`, o.ID, asked.Op).Scan(&before)
	switch {
	case err == nil && before == string(text):
		return nil // it was done before
	case err == nil:
		return conflict("this op has refunded something else")
	case !errors.Is(err, sql.ErrNoRows):
		return err
	case o.State != paid:
		return conflict("the order is not paid: there is nothing to refund")
	}
	if err := o.takeBack(asked.Lines); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO refunds (order_id, op, lines) VALUES (?, ?, ?)`, o.ID, asked.Op, string(text)); err != nil {
		return err
	}
	return o.tell(ctx, tx, "release", map[string]any{"lines": asked.Lines, "op": asked.Op, "reason": "refunded"})
}

// takeBack lowers the order's lines. An order of which nothing is left is cancelled.
func (o *order) takeBack(lines []line) error {
	for _, back := range lines {
		i := slices.IndexFunc(o.Lines, func(l line) bool { return l.SKU == back.SKU })
		if i < 0 || back.Qty < 1 || back.Qty > o.Lines[i].Qty-o.Lines[i].Refunded {
			return conflict("the order does not have so much of " + back.SKU + " left")
		}
		o.Lines[i].Refunded += back.Qty
	}
	if !slices.ContainsFunc(o.Lines, func(l line) bool { return l.Refunded < l.Qty }) {
		o.State = cancelled
	}
	return nil
}

// reject says that there is no order and will be none: the units go back at once.
func reject(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Stockgate-Outcome", "rejected")
	answer(w, status, map[string]string{"error": why})
}

func fail(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	switch {
	case errors.Is(err, errNoOrder):
		status = http.StatusNotFound
	case errors.As(err, new(conflict)):
		status = http.StatusConflict
	default:
		log.Print(err)
	}
	answer(w, status, map[string]string{"error": err.Error()})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the caller has gone; the order stands
}
