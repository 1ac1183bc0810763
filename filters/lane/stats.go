package lane

import "time"

// Stats says what one lane holds and what it has done. The counters only rise.
type Stats struct {
	Lane    string // hotspot.shared or hotspot.overrides[<sku>]
	Held    int    // slots taken now
	Waiting int    // places in the queue taken now
	Counters
}

// Counters say what became of requests. Every request that entered is in exactly one of Passed, OverRate, QueueFull, Late,
// SoldOut, Gone, or still waits.
type Counters struct {
	Passed    uint64        // got a slot, at once or after a wait
	Waited    uint64        // queued, whatever came of it
	WaitTime  time.Duration // sum over those that have stopped waiting
	OverRate  uint64        // refused: rate
	QueueFull uint64        // refused: queue
	Late      uint64        // refused: max_wait
	SoldOut   uint64        // refused: sold out
	Gone      uint64        // gave up because Request.Done was closed
}

func (l *lane) snapshot() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{Lane: l.set.path, Held: l.set.Concurrency - l.free, Waiting: l.waiting, Counters: l.Counters}
}
