package fallback

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/stockgate/stockgate/stock"
)

// queueModel is what a queue promises, in the dumbest form: who waits in which order, and who is out.
type queueModel struct {
	q       *Queue[*job]
	waiting []*job // in the order in which they may go, per class and SKU
	out     [][]*job
}

func (m *queueModel) outSKUs() map[string]int {
	busy := map[string]int{}
	for i, batch := range m.out {
		for _, j := range batch {
			for _, sku := range j.op.SKUs(nil) {
				busy[sku] = i + 1
			}
		}
	}
	return busy
}

// take checks a batch against the promises.
func (m *queueModel) take(t *rapid.T, limit int) {
	busy := m.outSKUs()
	batch, _, _ := m.q.tryTake(limit)
	if len(batch) > limit {
		t.Fatalf("%d jobs, at most %d were asked for", len(batch), limit)
	}
	free := 0
	for _, j := range m.waiting {
		if sku := j.op.SKUs(nil); len(sku) == 0 || !slices.ContainsFunc(sku, func(s string) bool { return busy[s] > 0 }) {
			free++
		}
	}
	if len(batch) < min(limit, free) && !m.hasTwoSKUs() {
		t.Fatalf("%d jobs were handed out, %d could go", len(batch), min(limit, free))
	}
	class := stock.ClassForwarded
	for _, j := range batch {
		if j.op.Class < class {
			t.Fatal("the classes are out of order")
		}
		class = j.op.Class
		m.leavesFIFO(t, j, busy)
	}
	if len(batch) > 0 {
		m.out = append(m.out, batch)
	}
}

func (m *queueModel) hasTwoSKUs() bool {
	return slices.ContainsFunc(m.waiting, func(j *job) bool { return len(j.op.SKUs(nil)) > 1 })
}

// leavesFIFO fails if j's SKUs are out in another batch, or if one of its class and first SKU waited before it.
func (m *queueModel) leavesFIFO(t *rapid.T, j *job, busy map[string]int) {
	skus := j.op.SKUs(nil)
	for _, sku := range skus {
		if busy[sku] > 0 {
			t.Fatalf("%s is out twice", sku)
		}
	}
	for i, w := range m.waiting {
		if w == j {
			m.waiting = slices.Delete(m.waiting, i, i+1)
			return
		}
		if w.op.Class == j.op.Class && slices.Equal(w.op.SKUs(nil), skus) {
			t.Fatalf("%v of class %d overtook another", skus, j.op.Class)
		}
	}
	t.Fatal("handed out what does not wait")
}

func (m *queueModel) pick(t *rapid.T) []*job {
	if len(m.out) == 0 {
		t.Skip("nothing is out")
	}
	i := rapid.IntRange(0, len(m.out)-1).Draw(t, "batch")
	batch := m.out[i]
	m.out = slices.Delete(m.out, i, i+1)
	return batch
}

func TestQueueKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &queueModel{q: NewQueue[*job](QueueConfig{})}
		sku := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				var j *job
				class := stock.Class(rapid.IntRange(0, 2).Draw(t, "class"))
				switch rapid.IntRange(0, 9).Draw(t, "kind") {
				case 0:
					j = &job{op: &stock.Op{Kind: stock.OpBook, Class: class}}
				case 1:
					a, b := sku.Draw(t, "sku"), sku.Draw(t, "other")
					if a == b {
						t.Skip("one SKU")
					}
					j = settle(class, min(a, b), max(a, b))
				default:
					j = settle(class, sku.Draw(t, "sku"))
				}
				if err := m.q.Push(j); err != nil {
					t.Fatal(err)
				}
				m.waiting = append(m.waiting, j)
			},
			"take": func(t *rapid.T) { m.take(t, rapid.IntRange(1, 8).Draw(t, "limit")) },
			"done": func(t *rapid.T) { m.q.Done(m.pick(t)) },
			"requeue": func(t *rapid.T) {
				batch := m.pick(t)
				m.q.Requeue(batch, 0)
				m.waiting = append(slices.Clone(batch), m.waiting...)
			},
			"withdraw": func(t *rapid.T) {
				if len(m.waiting) == 0 {
					t.Skip("nothing waits")
				}
				i := rapid.IntRange(0, len(m.waiting)-1).Draw(t, "waiting")
				if !m.q.Withdraw(m.waiting[i]) {
					t.Fatal("what waits cannot be withdrawn")
				}
				m.waiting = slices.Delete(m.waiting, i, i+1)
			},
			"": func(t *rapid.T) { m.counts(t) },
		})
		m.drain(t)
	})
}

func (m *queueModel) counts(t *rapid.T) {
	s, out := m.q.Stats(), 0
	for _, b := range m.out {
		out += len(b)
	}
	waiting := s.Waiting[0] + s.Waiting[1] + s.Waiting[2]
	if waiting != len(m.waiting) || s.InFlight != out {
		t.Fatalf("%d wait and %d are out, the model has %d and %d", waiting, s.InFlight, len(m.waiting), out)
	}
}

// drain takes everything out: nothing may be stuck, and nothing may be left behind.
func (m *queueModel) drain(t *rapid.T) {
	for _, b := range m.out {
		m.q.Done(b)
	}
	m.out = nil
	for len(m.waiting) > 0 {
		was := len(m.waiting)
		m.take(t, 3)
		if len(m.waiting) == was {
			t.Fatalf("%d jobs are stuck: %s", was, names(m.waiting))
		}
		m.q.Done(m.out[0])
		m.out = nil
	}
	m.q.mu.Lock()
	defer m.q.mu.Unlock()
	if left := fmt.Sprint(len(m.q.nodes), len(m.q.lanes), m.q.rings[0].n, m.q.rings[1].n, m.q.rings[2].n); left != "0 0 0 0 0" {
		t.Fatalf("left behind (nodes, lanes, rings): %s", left)
	}
}
