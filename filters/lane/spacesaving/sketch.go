package spacesaving

// Sketch counts keys. It is not safe for concurrent use.
//
// Invariant: heap[slots[i].at] = i; in the heap no count is above those of its children; index has the keys of slots[:len(heap)].
type Sketch struct {
	slots []slot
	heap  []int32 // slots by count, the smallest first
	index map[string]int32
	total int64
}

// slot is a watched key.
type slot struct {
	key   string
	seen  Estimate
	place int32 // in the heap
}

// Estimate says how often a key came since the last Reset: at most Count, at least Count − Error.
type Estimate struct{ Count, Error int64 }

// AtLeast is how often the key came for sure.
func (e Estimate) AtLeast() int64 { return e.Count - e.Error }

// New makes a sketch that watches m keys, 1 … 1<<24.
func New(m int) *Sketch {
	return &Sketch{slots: make([]slot, 0, m), heap: make([]int32, 0, m), index: make(map[string]int32, m)}
}

// Add counts a key and returns what is known of it. The sketch keeps the string.
func (s *Sketch) Add(key string) Estimate {
	s.total++
	i, known := s.index[key]
	if !known {
		i = s.room()
		s.slots[i].key = key
		s.slots[i].seen.Error = s.slots[i].seen.Count
		s.index[key] = i
	}
	s.slots[i].seen.Count++
	s.sink(s.slots[i].place)
	return s.slots[i].seen
}

// room is a slot for a new key: an unused one, or that of the key with the smallest count.
func (s *Sketch) room() int32 {
	if n := int32(len(s.slots)); int(n) < cap(s.slots) {
		s.slots = append(s.slots, slot{place: n})
		s.heap = append(s.heap, n)
		s.lift(n)
		return n
	}
	i := s.heap[0]
	delete(s.index, s.slots[i].key)
	return i
}

// lift moves a slot whose count is 0 to where it belongs.
func (s *Sketch) lift(at int32) {
	for at > 0 && s.count((at-1)/2) > s.count(at) {
		s.swap(at, (at-1)/2)
		at = (at - 1) / 2
	}
}

// sink moves a slot whose count has risen to where it belongs.
func (s *Sketch) sink(at int32) {
	for {
		child := 2*at + 1
		if int(child) >= len(s.heap) {
			return
		}
		if int(child+1) < len(s.heap) && s.count(child+1) < s.count(child) {
			child++
		}
		if s.count(at) <= s.count(child) {
			return
		}
		s.swap(at, child)
		at = child
	}
}

func (s *Sketch) count(at int32) int64 { return s.slots[s.heap[at]].seen.Count }

func (s *Sketch) swap(a, b int32) {
	s.heap[a], s.heap[b] = s.heap[b], s.heap[a]
	s.slots[s.heap[a]].place, s.slots[s.heap[b]].place = a, b
}

// Each calls f with every watched key, in no order, until f returns false.
func (s *Sketch) Each(f func(key string, seen Estimate) bool) {
	for i := range s.slots {
		if !f(s.slots[i].key, s.slots[i].seen) {
			return
		}
	}
}

// Size is m, how many keys are watched.
func (s *Sketch) Size() int { return cap(s.heap) }

// Total is N, how many keys were added since the last Reset.
func (s *Sketch) Total() int64 { return s.total }

// Reset forgets all keys and keeps the memory.
func (s *Sketch) Reset() {
	clear(s.index)
	clear(s.slots)
	s.slots, s.heap, s.total = s.slots[:0], s.heap[:0], 0
}
