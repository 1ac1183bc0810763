package admission

import "sync"

// Aheads counts, by partition and epoch, the requests that may have units or an id in Redis of which the database does not know yet: a
// partition may be called drained only once nothing of an earlier epoch is left. It is safe for concurrent use.
type Aheads struct {
	epoch func(p int) int64
	parts []inFlight
}

// inFlight is one partition's count.
type inFlight struct {
	mu       sync.Mutex
	byEpoch  []epochCount // ascending, none is empty: as many as epochs with work under way, mostly one
	smallest [2]epochCount
}

type epochCount struct {
	epoch int64
	n     int
}

// NewAheads makes an Aheads of so many partitions. epoch is what this replica believes a partition's epoch to be: the very value that its
// calls to Redis carry. It must never fall.
func NewAheads(partitions int, epoch func(p int) int64) *Aheads {
	h := &Aheads{epoch: epoch, parts: make([]inFlight, partitions)}
	for p := range h.parts {
		h.parts[p].byEpoch = h.parts[p].smallest[:0]
	}
	return h
}

// Idle reports whether nothing is in flight in partition p under an epoch below epoch. What begins after this replica has learned epoch
// does not count, so once true it stays true.
func (h *Aheads) Idle(p int, epoch int64) bool {
	f := &h.parts[p]
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.byEpoch) == 0 || f.byEpoch[0].epoch >= epoch
}

// enter counts a request in, under the epoch that is current at the latest when it asks Redis afterwards, and gives that epoch. It must
// be left under it, once.
func (h *Aheads) enter(p int) int64 {
	f := &h.parts[p]
	f.mu.Lock()
	defer f.mu.Unlock()
	epoch := h.epoch(p)
	i := len(f.byEpoch)
	for i > 0 && f.byEpoch[i-1].epoch > epoch {
		i--
	}
	if i > 0 && f.byEpoch[i-1].epoch == epoch {
		f.byEpoch[i-1].n++
		return epoch
	}
	f.byEpoch = append(f.byEpoch, epochCount{})
	copy(f.byEpoch[i+1:], f.byEpoch[i:])
	f.byEpoch[i] = epochCount{epoch, 1}
	return epoch
}

// leave counts a request out that entered under epoch.
func (h *Aheads) leave(p int, epoch int64) {
	f := &h.parts[p]
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.byEpoch {
		if f.byEpoch[i].epoch != epoch {
			continue
		}
		if f.byEpoch[i].n--; f.byEpoch[i].n == 0 {
			f.byEpoch = append(f.byEpoch[:i], f.byEpoch[i+1:]...)
		}
		return
	}
}
