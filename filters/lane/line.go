package lane

import "time"

// waiter is a request that waits for a slot. All but wake and timer are guarded by the lane's lock.
type waiter struct {
	wake    chan struct{} // holds one signal: look again
	timer   *time.Timer
	line    *line // nil: not in a queue
	keyed   bool  // never asks whether the SKU is sold out
	granted bool  // has a slot
	prev    *waiter
	next    *waiter // also links the spare ones
}

func newWaiter() *waiter {
	w := &waiter{wake: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	w.timer.Stop()
	return w
}

// signal makes the waiter look again. It never blocks: one signal that is still unread is as good as two.
func (w *waiter) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// line is what a lane knows of one SKU: the slots it holds and its requests that wait, oldest first.
//
// Invariant: a line is in the ring exactly while it has waiters, and known to the lane exactly while it has waiters or slots.
type line struct {
	sku        string
	held       int
	length     int
	head, tail *waiter
	before     *line // ring
	after      *line // ring; also links the spare ones
}

func (ln *line) push(w *waiter) {
	w.line, w.prev, w.next = ln, ln.tail, nil
	if ln.tail == nil {
		ln.head = w
	} else {
		ln.tail.next = w
	}
	ln.tail = w
	ln.length++
}

func (ln *line) remove(w *waiter) {
	if w.prev == nil {
		ln.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		ln.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.line, w.prev, w.next = nil, nil, nil
	ln.length--
}

// ring is the circle of lines that wait. The zero ring is empty.
type ring struct {
	turn *line // whose turn it is
}

// add puts a line where its turn comes last.
func (r *ring) add(ln *line) {
	if r.turn == nil {
		ln.before, ln.after = ln, ln
		r.turn = ln
		return
	}
	last := r.turn.before
	ln.before, ln.after = last, r.turn
	last.after, r.turn.before = ln, ln
}

func (r *ring) remove(ln *line) {
	if ln.after == ln {
		r.turn = nil
	} else if r.turn == ln {
		r.turn = ln.after
	}
	ln.before.after, ln.after.before = ln.after, ln.before
	ln.before, ln.after = nil, nil
}

// next is the line that gets the next slot: the first from the turn on that holds fewer than share. nil: none. Its successor has
// the turn then. While a slot is free at most one line can hold half of them or more, so the search ends at the second.
func (r *ring) next(share int) *line {
	for ln := r.turn; ln != nil; {
		if ln.held < share {
			r.turn = ln.after
			return ln
		}
		if ln = ln.after; ln == r.turn {
			return nil
		}
	}
	return nil
}
