package fallback

// chain is a doubly linked list whose links live inside its members, so that a member can be taken out from anywhere in O(1) and
// nothing is allocated. The zero chain is empty. A member is in at most one chain per link.
type chain[T any] struct {
	first, last *link[T]
	n           int
}

// link is a member's place in a chain. of names the member and is set once.
type link[T any] struct {
	prev, next *link[T]
	in         bool
	of         T
}

func (c *chain[T]) pushBack(l *link[T]) {
	l.in, l.prev, l.next = true, c.last, nil
	if c.last == nil {
		c.first = l
	} else {
		c.last.next = l
	}
	c.last = l
	c.n++
}

func (c *chain[T]) pushFront(l *link[T]) {
	l.in, l.prev, l.next = true, nil, c.first
	if c.first == nil {
		c.last = l
	} else {
		c.first.prev = l
	}
	c.first = l
	c.n++
}

// remove takes l out; it does nothing if l is in no chain.
func (c *chain[T]) remove(l *link[T]) {
	if !l.in {
		return
	}
	if l.prev == nil {
		c.first = l.next
	} else {
		l.prev.next = l.next
	}
	if l.next == nil {
		c.last = l.prev
	} else {
		l.next.prev = l.prev
	}
	l.in, l.prev, l.next = false, nil, nil
	c.n--
}
