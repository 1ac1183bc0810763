package resolver

import (
	"context"
	"sync"

	"github.com/stockgate/stockgate/stock"
)

// flights are the questions under way, at most one an id. Their number is bounded by the upstream's places.
type flights struct {
	mu     sync.Mutex
	of     map[stock.ID]*flight
	flying sync.WaitGroup
	closed bool
}

// flight is one question. got is valid once done is closed.
type flight struct {
	done chan struct{}
	got  answer
}

// now is the question under way about id; nil: none is.
func (f *flights) now(id stock.ID) *flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.of[id]
}

// join gives the question under way about id, or a new one, which whoever is first must land.
func (f *flights) join(id stock.ID) (joined *flight, first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if there := f.of[id]; there != nil {
		return there, false
	}
	joined = &flight{done: make(chan struct{})}
	if f.closed {
		joined.got = answer{resultGivenUp, "the process ends"}
		close(joined.done)
		return joined, false
	}
	f.of[id] = joined
	f.flying.Add(1)
	return joined, true
}

// land gives everyone the answer.
func (f *flights) land(id stock.ID, landed *flight, got answer) {
	defer f.flying.Done()
	f.mu.Lock()
	defer f.mu.Unlock()
	landed.got = got
	delete(f.of, id)
	close(landed.done)
}

// close begins no more questions and waits for those under way.
func (f *flights) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.flying.Wait()
}

func (f *flight) wait(ctx context.Context) answer {
	select {
	case <-f.done:
		return f.got
	case <-ctx.Done():
		return answer{resultGivenUp, ctx.Err().Error()}
	}
}
