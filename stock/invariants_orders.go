package stock

// The reasons of a released row that rules depend on.
const (
	ReasonNeverSent = "never_sent" // nothing of the request was written to the backend
	ReasonExpired   = "expired"    // its time was over
	ReasonCancelled = "cancelled"  // the order service had an order, and has made it void
)

// CheckI4 holds: one reservation has one order, and so has one request id.
func CheckI4(s *Snapshot) []Violation {
	type request struct{ user, key string }
	f := findings{invariant: 4}
	byReservation, byRequest := map[ID]string{}, map[request]string{}
	for i := range s.Orders {
		o := &s.Orders[i]
		if !o.Reservation.IsZero() {
			if first, known := byReservation[o.Reservation]; known && first != o.Ref {
				f.add(o.SKU, o.Reservation, "orders %s and %s", first, o.Ref)
			}
			byReservation[o.Reservation] = o.Ref
		}
		if o.Key == "" {
			continue
		}
		r := request{o.User, o.Key}
		if first, known := byRequest[r]; known && first != o.Ref {
			f.add(o.SKU, o.Reservation, "request id %q of user %q has orders %s and %s", o.Key, o.User, first, o.Ref)
		}
		byRequest[r] = o.Ref
	}
	return f.list
}

// requestName is what one request id is unique in.
type requestName struct{ route, activity, user, request string }

func (r *Reply) name() requestName { return requestName{r.Route, r.Activity, r.User, r.Request} }

// CheckI4Replies holds: over all its retries a request id names one reservation, gets one answer of the backend, and is not sold out
// after it has won.
func CheckI4Replies(s *Snapshot) []Violation {
	f := findings{invariant: 4}
	reservations, wins := map[requestName]ID{}, map[requestName]*Reply{}
	for i := range s.Replies {
		r := &s.Replies[i]
		if r.Request == "" {
			continue
		}
		if !r.Reservation.IsZero() {
			if first, known := reservations[r.name()]; known && first != r.Reservation {
				f.add(r.SKU, r.Reservation, "request id %q names reservation %s too", r.Request, first)
			}
			reservations[r.name()] = r.Reservation
		}
		if r.Won() {
			f.sameAnswer(wins[r.name()], r)
			wins[r.name()] = earlier(wins[r.name()], r)
		}
	}
	for i := range s.Replies {
		r := &s.Replies[i]
		win := wins[r.name()]
		if r.Request == "" || win == nil || (r.Code != CodeSoldOut && r.Code != CodePurchaseLimit) {
			continue
		}
		if r.Sent.After(win.Done) {
			f.add(r.SKU, win.Reservation, "request id %q had won, a retry got %s", r.Request, r.Code)
		}
	}
	return f.list
}

// sameAnswer compares two successes of one request id; first may be nil.
func (f *findings) sameAnswer(first, r *Reply) {
	if first == nil || first.Answer == "" || r.Answer == "" {
		return
	}
	if first.Status != r.Status || first.Answer != r.Answer {
		f.add(r.SKU, r.Reservation, "request id %q got %d %s and %d %s", r.Request, first.Status, first.Answer, r.Status, r.Answer)
	}
}

func earlier(a, b *Reply) *Reply {
	if a == nil || b.Done.Before(a.Done) {
		return b
	}
	return a
}

// CheckI4Won holds: who was told that the order was placed has an order, by the reservation that the answer names.
func CheckI4Won(s *Snapshot) []Violation {
	f := findings{invariant: 4}
	ordered := make(map[ID]bool, len(s.Orders))
	for i := range s.Orders {
		ordered[s.Orders[i].Reservation] = true
	}
	for i := range s.Replies {
		r := &s.Replies[i]
		if r.Won() && !r.Reservation.IsZero() && !ordered[r.Reservation] {
			f.add(r.SKU, r.Reservation, "user %q was told %d, the backend has no order", r.User, r.Status)
		}
	}
	return f.list
}

// CheckI6 holds: no reservation of unknown outcome is released by time.
func CheckI6(s *Snapshot) []Violation {
	f := findings{invariant: 6}
	for i := range s.Reservations {
		r := &s.Reservations[i]
		if r.State == StateReleased && r.Outcome == OutcomeUnknown && r.Reason == ReasonExpired {
			f.add(r.firstSKU(), r.ID, "its outcome was unknown and it was released by time")
		}
	}
	return f.list
}

// CheckI6Ledger holds: no try was released by time whose outcome is unknown now; an outcome that was known once is not forgotten. Of a
// try that was followed by another one the row tells nothing any more.
func CheckI6Ledger(s *Snapshot) []Violation {
	f := findings{invariant: 6}
	rows := s.rowsByID()
	for i := range s.SKUs {
		for j := range s.SKUs[i].Ledger {
			l := &s.SKUs[i].Ledger[j]
			r := rows[l.Reservation]
			if l.Kind == KindExpire && r != nil && r.Try == l.Try && r.Outcome == OutcomeUnknown {
				f.add(l.SKU, r.ID, "its outcome is unknown and the ledger has it released by time at seq %d", l.Seq)
			}
		}
	}
	return f.list
}

// CheckI6Orders holds: what was undone as surely never run has no order: void, released before it was sent, or rejected by the backend.
func CheckI6Orders(s *Snapshot) []Violation {
	f := findings{invariant: 6}
	rows := s.rowsByID()
	for i := range s.Orders {
		o := &s.Orders[i]
		r := rows[o.Reservation]
		if r == nil {
			continue
		}
		switch {
		case r.State == StateVoid:
			f.add(o.SKU, r.ID, "it is void, the backend has order %s", o.Ref)
		case r.State == StateReleased && r.Reason == ReasonNeverSent:
			f.add(o.SKU, r.ID, "it was released as never sent, the backend has order %s", o.Ref)
		case r.State == StateReleased && r.Outcome == OutcomeRejected && !o.Cancelled:
			f.add(o.SKU, r.ID, "it was released as rejected, the backend has order %s", o.Ref)
		}
	}
	return f.list
}

// CheckI6Replies holds: a request id whose every answer said that no order was placed has no order.
func CheckI6Replies(s *Snapshot) []Violation {
	type request struct{ user, key string }
	f := findings{invariant: 6}
	refused := map[request]Code{} // "" once some answer left it open
	for i := range s.Replies {
		r := &s.Replies[i]
		name := request{r.User, r.Request}
		if last, known := refused[name]; r.Request == "" || known && last == "" {
			continue
		}
		refused[name] = ""
		if r.refused() {
			refused[name] = r.Code
		}
	}
	for i := range s.Orders {
		o := &s.Orders[i]
		if code := refused[request{o.User, o.Key}]; o.Key != "" && code != "" {
			f.add(o.SKU, o.Reservation, "request id %q was only ever refused (%s), the backend has order %s", o.Key, code, o.Ref)
		}
	}
	return f.list
}

// refused reports whether the answer says that no order was placed for the request. An answer of the backend, none at all, or one
// about another request in flight leaves it open.
func (r *Reply) refused() bool {
	switch r.Code {
	case "", CodeInFlight, CodeOutcomeUnknown, CodeInternal, CodeReleased, CodeKeyReused, CodeRequestTimeout:
		return false
	}
	return r.Status != 0
}

// CheckI8 holds: every order has a reservation, and the ledger has all its units deducted for it, not later than the order was made. An
// order of a SKU that was ever granted may have been forwarded ahead, on Redis's word: CheckI8Ahead looks at it.
func CheckI8(s *Snapshot) []Violation {
	f := findings{invariant: 8}
	rows := s.rowsByID()
	deductions := s.deductions()
	skus, ahead := s.skusByName(), s.soldAhead()
	for i := range s.Orders {
		o := &s.Orders[i]
		if skus[o.SKU] == nil || ahead[o.SKU] {
			continue // not in this snapshot, or forwarded before it was deducted
		}
		if o.Reservation.IsZero() || rows[o.Reservation] == nil {
			f.add(o.SKU, o.Reservation, "order %s of %d units has no reservation", o.Ref, o.Qty)
			continue
		}
		d := deductions[lineName{o.Reservation, o.SKU}]
		if d == nil || d.units < o.Qty {
			f.add(o.SKU, o.Reservation, "order %s is of %d units, deducted were %d", o.Ref, o.Qty, d.most())
		} else if !o.At.IsZero() && d.first.At.After(o.At) {
			f.add(o.SKU, o.Reservation, "order %s was made %s before the deduction", o.Ref, d.first.At.Sub(o.At))
		}
	}
	return f.list
}

// CheckI8Ahead holds: at rest, every order of a SKU that was ever granted has a reservation, and the ledger has all its units deducted for
// it or says that it is surplus. When it was deducted proves nothing.
func CheckI8Ahead(s *Snapshot) []Violation {
	f := findings{invariant: 8}
	rows, deductions, ahead, surplus := s.rowsByID(), s.deductions(), s.soldAhead(), s.surplus()
	for i := range s.Orders {
		o := &s.Orders[i]
		switch {
		case !ahead[o.SKU]:
		case o.Reservation.IsZero() || rows[o.Reservation] == nil:
			f.add(o.SKU, o.Reservation, "order %s of %d units has no reservation", o.Ref, o.Qty)
		case !surplus[o.Reservation] && deductions[lineName{o.Reservation, o.SKU}].most() < o.Qty:
			f.add(o.SKU, o.Reservation, "order %s is of %d units, deducted were %d", o.Ref, o.Qty, deductions[lineName{o.Reservation, o.SKU}].most())
		}
	}
	return f.list
}

// soldAhead are the SKUs that units were ever granted of.
func (s *Snapshot) soldAhead() map[string]bool {
	ahead := map[string]bool{}
	for i := range s.SKUs {
		for j := range s.SKUs[i].Ledger {
			if s.SKUs[i].Ledger[j].Kind == KindGrant {
				ahead[s.SKUs[i].SKU] = true
			}
		}
	}
	return ahead
}

// surplus are the reservations that were ever found to have nothing to take.
func (s *Snapshot) surplus() map[ID]bool {
	surplus := map[ID]bool{}
	for i := range s.SKUs {
		for j := range s.SKUs[i].Ledger {
			if r := &s.SKUs[i].Ledger[j]; r.Kind == KindSurplus {
				surplus[r.Reservation] = true
			}
		}
	}
	return surplus
}

type lineName struct {
	id  ID
	sku string
}

// deduction is the most that was taken at a time for one line, and the row that took first.
type deduction struct {
	units int64
	first *LedgerRow
}

func (d *deduction) most() int64 {
	if d == nil {
		return 0
	}
	return d.units
}

// deductions finds every row that took units for a reservation.
func (s *Snapshot) deductions() map[lineName]*deduction {
	all := map[lineName]*deduction{}
	for i := range s.SKUs {
		for j := range s.SKUs[i].Ledger {
			r := &s.SKUs[i].Ledger[j]
			if r.Reservation.IsZero() || r.Delta >= 0 {
				continue
			}
			name := lineName{r.Reservation, r.SKU}
			if all[name] == nil {
				all[name] = &deduction{first: r}
			}
			all[name].units = max(all[name].units, -r.Delta)
		}
	}
	return all
}
