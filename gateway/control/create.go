package control

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/stock"
)

// KeyHeader is the request id of a direct reservation: the same id again gets the same answer.
const KeyHeader = "Idempotency-Key"

// createReservation takes units for a caller that makes the order by itself: no request is forwarded. It goes the way of the buyers'
// requests, with the same limits and refusals, and the answer is kept for the same request id. There is no outcome to wait for, so it
// is booked as accepted at once and ends by confirm, release or time.
func (s *Server) createReservation(r *http.Request) (any, error) {
	wish, hold, err := s.readWish(r)
	if err != nil {
		return nil, err
	}
	d, refused := s.decide(r.Context(), wish)
	switch {
	case refused != nil:
		return nil, refused
	case d.Refusal != nil:
		return nil, ofRefusal(&d)
	case d.Replay != nil:
		return &keptAnswer{answer: d.Replay, resolved: d.Resolved, replayed: true}, nil
	}
	return s.bookDirect(r.Context(), d.Pass, hold)
}

// decide asks the admission. What has more than the rules allow is refused, unless it is the retry of one that was admitted before they
// changed.
func (s *Server) decide(ctx context.Context, w *admission.Wish) (admission.Decision, *api.Problem) {
	refused := s.overMaxQty(w.Lines)
	if refused == nil {
		return s.deps.Admission.Admit(ctx, w), nil
	}
	if d, known := s.deps.Admission.Recall(ctx, w); known {
		return d, nil
	}
	return admission.Decision{}, refused
}

// bookDirect completes an admitted wish. What cannot be completed is given back: nobody has heard of it.
func (s *Server) bookDirect(ctx context.Context, p *admission.Pass, hold time.Duration) (any, error) {
	view := viewPass(p)
	if hold > 0 {
		until, err := s.lengthen(ctx, p.Reservation, hold)
		if err != nil {
			s.deps.Admission.Book(ctx, p, admission.Outcome{Kind: admission.NeverSent})
			return nil, err
		}
		view.ExpiresAt = until.UTC()
	}
	body, err := json.Marshal(view)
	if err != nil { // the types of package api always marshal
		return nil, err
	}
	answer := &stock.Answer{Status: http.StatusCreated, Body: append(body, '\n'), Try: p.Reservation.Try,
		Headers: []stock.Header{{Name: "Content-Type", Value: "application/json"}}}
	kept := *answer // Book takes its one over
	s.deps.Admission.Book(ctx, p, admission.Outcome{Kind: admission.Accepted, Answer: &kept})
	return &keptAnswer{answer: answer}, nil
}

// lengthen gives a new reservation the hold that its caller wants, and says until when that is.
func (s *Server) lengthen(ctx context.Context, r *stock.Reservation, hold time.Duration) (time.Time, error) {
	if problem := s.checkHold(r, hold); problem != nil {
		return time.Time{}, problem
	}
	op := &stock.Op{Kind: stock.OpExtend, ID: r.ID, Hold: hold, Reason: "wanted", Actor: actorOf(ctx)}
	if err := s.run(ctx, op); err != nil {
		return time.Time{}, err
	}
	if err := ofNotice(op, stock.StateHeld); err != nil {
		return time.Time{}, err
	}
	return op.Result.Row.ExpiresAt, nil
}

func viewPass(p *admission.Pass) api.Reservation {
	return viewReservation(&stock.Row{Reservation: *p.Reservation, State: stock.StateHeld, Outcome: stock.OutcomeAccepted,
		ExpiresAt: p.ExpiresAt, ForwardBy: p.ForwardBy})
}

// readWish reads a direct reservation.
func (s *Server) readWish(r *http.Request) (*admission.Wish, time.Duration, error) {
	body, err := readObject(r, "lines"+listOfLines, "sku", "qty", "user", "activity", "hold")
	if err != nil {
		return nil, 0, err
	}
	w := &admission.Wish{Route: stock.RouteAPI}
	if w.Lines, err = wishedLines(body); err != nil {
		return nil, 0, err
	}
	if w.User, err = body.text("user", userBytesMax); err != nil {
		return nil, 0, err
	}
	if w.Activity, err = body.text("activity", activityBytesMax); err != nil {
		return nil, 0, err
	}
	if w.RequestID, err = keyOf(r); err != nil {
		return nil, 0, err
	}
	hold, err := body.duration("hold")
	return w, hold, err
}

// wishedLines is the lines of a body, or its one line.
func wishedLines(body object) ([]stock.Line, error) {
	lines, err := body.lines("lines")
	if err != nil {
		return nil, err
	}
	_, one := body["sku"]
	_, qty := body["qty"]
	switch {
	case lines != nil && (one || qty):
		return nil, badField("lines", "there beside sku or qty", "allowed is one of the two")
	case lines == nil:
		line, err := body.line()
		if err != nil {
			return nil, err
		}
		lines = []stock.Line{line}
	}
	return lines, nil
}

// overMaxQty refuses lines that have more than the rules allow in one order; nil: they have not.
func (s *Server) overMaxQty(lines []stock.Line) *api.Problem {
	for _, l := range lines {
		if most, key := s.deps.Sale.MaxQty(l.SKU); l.Qty > most {
			p := badField("qty", strconv.FormatInt(l.Qty, 10), fmt.Sprintf("allowed of %s is a whole number from 1 to %d", l.SKU, most))
			p.Limit, p.Value = key, strconv.FormatInt(most, 10)
			return p
		}
	}
	return nil
}

// keyOf is the request id in the header, "" if there is none: then one is drawn, and there is no replay.
func keyOf(r *http.Request) (string, error) {
	values := r.Header.Values(KeyHeader)
	switch {
	case len(values) == 0:
		return "", nil
	case len(values) > 1:
		return "", badField(KeyHeader, "there twice", "allowed is once")
	}
	id, ok := requestID(values[0])
	if !ok {
		return "", badRequestID(KeyHeader, values[0])
	}
	return id, nil
}

// ofRefusal translates what admission refused. The codes mean what they mean on the public side.
func ofRefusal(d *admission.Decision) *api.Problem {
	f := d.Refusal
	p := refuse(f.Code, "%s", f.Detail)
	p.Limit, p.Value, p.SKU, p.RetryAfter = f.Limit, f.Value, f.SKU, f.RetryAfter
	if p.Detail == "" && f.Limit != "" {
		p.Detail = fmt.Sprintf("limit %s = %s", f.Limit, f.Value)
	}
	if !d.Reservation.IsZero() {
		p.Reservation = d.Reservation.String()
	}
	if !f.Starts.IsZero() {
		p.Starts = f.Starts.UTC()
		p.RetryAfter = cmp.Or(f.RetryAfter, max(time.Until(f.Starts), time.Second))
	}
	return p
}

// keptAnswer is an answer that is, or was, kept for the same request id.
type keptAnswer struct {
	answer             *stock.Answer
	replayed, resolved bool
}

func (k *keptAnswer) write(w http.ResponseWriter) {
	h := w.Header()
	for _, kept := range k.answer.Headers {
		h.Add(kept.Name, kept.Value)
	}
	switch {
	case k.resolved:
		h.Set("Stockgate-Replayed", "resolved")
	case k.replayed:
		h.Set("Stockgate-Replayed", "stored")
	}
	w.WriteHeader(k.answer.Status)
	_, _ = w.Write(k.answer.Body) // the caller has gone; nothing is left to tell
}
