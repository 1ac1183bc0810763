package gateway

import (
	"sync"
	"time"
)

// stream is what may go on for very long: a tunnel, or an answer that did not end at once.
type stream interface {
	// hasten ends it by a moment, also if its goroutines are busy. It does not block, and is called again and again.
	hasten(by time.Time)
}

// streams are those that are under way, for a shutdown. A stream that waits looks by itself whether it must end; one that always has
// something to copy, or waits for a side that takes nothing, has to be reached from outside. There are no more than connections.
type streams struct {
	mu   sync.Mutex
	open map[stream]struct{}
}

func (s *streams) add(x stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[stream]struct{}{}
	}
	s.open[x] = struct{}{}
}

// remove waits for a hasten of x that is under way: behind it none begins. It is safe to repeat.
func (s *streams) remove(x stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, x)
}

func (s *streams) hasten(by time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for x := range s.open {
		x.hasten(by)
	}
}
