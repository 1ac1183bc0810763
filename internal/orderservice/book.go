package orderservice

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Why an order is not changed.
var (
	errNoOrder   = errors.New("no such order")
	errCancelled = errors.New("the order is cancelled")
	errNotPaid   = errors.New("the order is not paid, so there is nothing to refund")
	errTooMuch   = errors.New("the order does not have so much left")
	errOpReused  = errors.New("this op has refunded other lines")
)

// book is the memory of all orders.
type book struct {
	max    int
	now    func() time.Time
	closes func(Order) bool // nil: no order is closed by time

	mu     sync.Mutex
	orders []Order
	of     map[string][]int // places of a reservation's orders
	voided map[string]bool  // reservations that may have no order any more; at most max
}

// add records an order and numbers it. Unique: a reservation that has one gets that one again, as it was answered first, whatever has
// become of it since. One that was made void gets none.
func (b *book) add(o Order, unique bool) (Order, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	places := b.of[o.Reservation]
	if unique && o.Reservation != "" && len(places) > 0 {
		return b.orders[places[0]].asMade(), nil
	}
	if o.Reservation != "" && b.voided[o.Reservation] {
		return Order{}, errVoid
	}
	if len(b.orders) >= b.max {
		return Order{}, fmt.Errorf("this sample keeps at most %d orders", b.max)
	}
	o.Order = strconv.Itoa(len(b.orders) + 1)
	o.become(Open, o.At)
	if o.Reservation != "" {
		b.of[o.Reservation] = append(places, len(b.orders))
	}
	b.orders = append(b.orders, o)
	return o, nil
}

// current is the order at a place as it stands now: one that nobody has paid in time is closed before anyone sees it.
func (b *book) current(place int) *Order {
	o := &b.orders[place]
	if o.State == Open && b.closes != nil && !o.Expires.IsZero() && !b.now().Before(o.Expires) && b.closes(*o) {
		o.become(Cancelled, o.Expires)
	}
	return o
}

// find gives the order of a number.
func (b *book) find(order string) (*Order, error) {
	n, err := strconv.Atoi(order)
	if err != nil || n < 1 || n > len(b.orders) || strconv.Itoa(n) != order {
		return nil, errNoOrder
	}
	return b.current(n - 1), nil
}

// move sets the state of an order; cancelled is final.
func (b *book) move(order string, to State) (Order, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, err := b.find(order)
	switch {
	case err != nil:
		return Order{}, err
	case o.State == to:
		return *o, nil
	case o.State == Cancelled:
		return *o, errCancelled
	}
	o.become(to, b.now())
	return *o, nil
}

// refund takes lines of a paid order back. The same op with the same lines is done once.
func (b *book) refund(order, op string, lines []Line) (Order, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, err := b.find(order)
	if err != nil {
		return Order{}, err
	}
	for _, done := range o.Refunds {
		if op != "" && done.Op == op {
			if !slices.Equal(done.Lines, lines) {
				return *o, errOpReused
			}
			return *o, nil
		}
	}
	switch {
	case o.State == Cancelled:
		return *o, errCancelled
	case o.State != Paid:
		return *o, errNotPaid
	case !o.refund(Refund{Op: op, Lines: lines, At: b.now()}):
		return *o, errTooMuch
	}
	return *o, nil
}

// byReservation is the order that counts of a reservation's: a paid one, else an open one, else the last.
func (b *book) byReservation(reservation string) (found Order, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, place := range b.of[reservation] {
		o := b.current(place)
		if o.State == Paid {
			return *o, true
		}
		if !known || found.State == Cancelled {
			found, known = *o, true
		}
	}
	return found, known
}

// count is how many orders stand.
func (b *book) count() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for place := range b.orders {
		if b.current(place).State != Cancelled {
			n++
		}
	}
	return n
}

// page is a copy of at most limit orders after the first after.
func (b *book) page(after, limit int) []Order {
	b.mu.Lock()
	defer b.mu.Unlock()
	after = min(after, len(b.orders))
	end := min(after+limit, len(b.orders))
	for place := after; place < end; place++ {
		b.current(place)
	}
	return slices.Clone(b.orders[after:end])
}
