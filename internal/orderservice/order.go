package orderservice

import (
	"slices"
	"strconv"
	"sync"
	"time"
)

// State is where an order stands, in the words that a gateway resolves an unknown by.
type State string

// The states.
const (
	Open      State = "open"
	Paid      State = "paid"
	Cancelled State = "cancelled"
)

// Line is a quantity of one SKU in an order.
type Line struct {
	SKU string `json:"sku"`
	Qty int64  `json:"qty"`
}

// Order is one accepted order. Lines must not be changed.
type Order struct {
	Order       string    `json:"order"` // from 1, in the order of acceptance
	Lines       []Line    `json:"lines"` // merged, by SKU bytes, at least one
	User        string    `json:"user,omitempty"`
	Reservation string    `json:"reservation,omitempty"` // Stockgate-Reservation as it came
	Key         string    `json:"key,omitempty"`         // Idempotency-Key as it came
	State       State     `json:"state"`
	At          time.Time `json:"at"`
}

// book is the memory of all orders.
type book struct {
	mu     sync.Mutex
	max    int
	orders []Order
	live   int              // not cancelled
	of     map[string][]int // places of a reservation's orders
}

func newBook(max int) *book { return &book{max: max, of: map[string][]int{}} }

// add records an order and numbers it. Unique: a reservation that has one gets that one again. False: the book is full.
func (b *book) add(o Order, unique bool) (Order, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	places := b.of[o.Reservation]
	if unique && o.Reservation != "" && len(places) > 0 {
		return b.orders[places[0]], true
	}
	if len(b.orders) >= b.max {
		return Order{}, false
	}
	o.Order, o.State = strconv.Itoa(len(b.orders)+1), Open
	if o.Reservation != "" {
		b.of[o.Reservation] = append(places, len(b.orders))
	}
	b.orders = append(b.orders, o)
	b.live++
	return o, true
}

// move sets the state of an order, if it exists and is not cancelled; cancelled is final.
func (b *book) move(order string, to State) (Order, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err := strconv.Atoi(order)
	if err != nil || n < 1 || n > len(b.orders) || strconv.Itoa(n) != order {
		return Order{}, false
	}
	o := &b.orders[n-1]
	if o.State != Cancelled {
		o.State = to
		if to == Cancelled {
			b.live--
		}
	}
	return *o, true
}

// stateOf is the state of a reservation's orders together: paid if one is, else open if one is.
func (b *book) stateOf(reservation string) (State, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	places := b.of[reservation]
	all := Cancelled
	for _, place := range places {
		switch b.orders[place].State {
		case Paid:
			return Paid, true
		case Open:
			all = Open
		}
	}
	return all, len(places) > 0
}

func (b *book) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.live
}

// page is a copy of at most limit orders after the first after.
func (b *book) page(after, limit int) []Order {
	b.mu.Lock()
	defer b.mu.Unlock()
	after = min(after, len(b.orders))
	return slices.Clone(b.orders[after:min(after+limit, len(b.orders))])
}
