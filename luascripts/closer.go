package luascripts

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/stock"
)

// How often a failed close is sent before it is given up, and how long it waits in between: together longer than a heartbeat, so
// that a new epoch is learned in between. Sending again is harmless, and a lost close would keep its units from being sold until
// the sweeper comes by.
const (
	closeAttempts  = 6
	closeDelay     = 50 * time.Millisecond // doubled each time
	closeDelayMost = time.Second
)

// An import changes a hundred thousand SKUs at once. If every partition sent its share as soon as it can, all connections would carry
// batches of a hundred facts, the buyers' calls would wait behind them for longer than the time-out, and the breaker would open.
const (
	bulkFacts = 64 // in one batch: orders of buyers hardly make so many
	bulkCalls = 3  // of such batches at a time; Redis works on one
)

// closer coalesces the closings and facts of one partition, like reserver does reservations. Of several facts of a SKU only the
// newest waits, but what each of them says of users does.
//
// Invariant: running is true exactly while a goroutine is between the start of run and its last take.
type closer struct {
	c *Client
	p int

	mu      sync.Mutex
	pending []stock.Closing       // FIFO
	latest  map[string]stock.Fact // without Takes
	users   []take                // FIFO
	running bool

	dropped atomic.Int64 // closings given up, since Open

	// Of the running goroutine alone.
	closings []stock.Closing
	facts    []stock.Fact
	takes    []take
	cmd      command
}

// Close is CloseNow in the background: it never blocks. What it cannot keep, because redis.pending_max are waiting already, the
// client is shutting down, or several attempts have failed, is dropped and counted (Stats); the sweeper and the tailer heal that.
// The slices may be used again at once.
func (c *Client) Close(p int, closings []stock.Closing, facts []stock.Fact) {
	if err := c.partition(p); err != nil {
		c.dropClose(len(closings), len(facts), err)
		return
	}
	c.closing[p].add(closings, facts)
}

func (c *Client) dropClose(closings, facts int, cause error) {
	c.stats.closingsDropped.Add(int64(closings))
	c.stats.factsDropped.Add(int64(facts))
	c.log.Warn("a close was dropped", zap.Int("closings", closings), zap.Int("facts", facts), zap.Error(cause))
}

// Dropped counts the closings of partition p that Close has given up: Redis has not heard of them. It does not block.
func (c *Client) Dropped(p int) int64 { return c.closing[p].dropped.Load() }

func (v *closer) drop(closings int) {
	v.dropped.Add(int64(closings))
	v.c.stats.closingsDropped.Add(int64(closings))
}

func (v *closer) add(closings []stock.Closing, facts []stock.Fact) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.running && !v.launch() {
		v.drop(len(closings))
		v.c.stats.factsDropped.Add(int64(len(facts)))
		return
	}
	room := max(0, v.c.cfg.PendingMax-len(v.pending))
	for i := range facts {
		if checkFact(&facts[i]) != nil || !v.keepLocked(facts[i]) {
			v.c.stats.factsDropped.Add(1)
			room = 0 // an entry is not closed without its fact: the way back tells both
			continue
		}
		v.keepTakesLocked(facts[i : i+1])
	}
	if room < len(closings) {
		v.drop(len(closings) - room)
		closings = closings[:room]
	}
	v.pending = append(v.pending, closings...)
}

// keepLocked lets f wait if it is newer than what waits for its SKU. false: there is no room for it.
func (v *closer) keepLocked(f stock.Fact) bool {
	waits, ok := v.latest[f.SKU]
	if ok && !f.Newer(waits) {
		return true
	}
	if !ok && len(v.latest) >= v.c.cfg.PendingMax {
		return false
	}
	f.Takes = nil // they may be part of what the caller uses again
	v.latest[f.SKU] = f
	return true
}

// keepTakesLocked lets wait what a fact says of users, as far as there is room. What is dropped heals by itself: without a register
// the database alone counts, and one that stands too high ends with takeTTL.
func (v *closer) keepTakesLocked(fact []stock.Fact) {
	v.users = appendTakes(v.users, fact)
	if over := len(v.users) - v.c.cfg.PendingMax; over > 0 {
		v.c.stats.takesDropped.Add(int64(over))
		v.users = v.users[:v.c.cfg.PendingMax]
	}
}

// launch starts the goroutine. mu is held.
func (v *closer) launch() bool {
	if !v.c.begin() {
		return false
	}
	if v.latest == nil {
		v.latest = make(map[string]stock.Fact)
	}
	v.running = true
	go v.run()
	return true
}

func (v *closer) waiting() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.pending) + len(v.latest) + len(v.users)
}

func (v *closer) run() {
	defer v.c.running.Done()
	for v.take() {
		v.deliver()
	}
}

// take moves the next batch into closings, facts and takes. false: there is none and the goroutine has to end.
func (v *closer) take() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := min(len(v.pending), v.c.cfg.BatchMax)
	if len(v.latest) > v.c.cfg.BatchMax {
		n = 0 // facts go first: see closeAll
	}
	v.closings = append(v.closings[:0], v.pending[:n]...)
	v.pending = v.pending[:copy(v.pending, v.pending[n:])]
	v.facts = v.facts[:0]
	for sku, f := range v.latest {
		if len(v.facts) == v.c.cfg.BatchMax {
			break
		}
		v.facts = append(v.facts, f)
		delete(v.latest, sku)
	}
	u := min(len(v.users), takesMax)
	v.takes = append(v.takes[:0], v.users[:u]...)
	v.users = slices.Delete(v.users, 0, u)
	v.running = len(v.closings) > 0 || len(v.facts) > 0 || len(v.takes) > 0
	return v.running
}

// dropPending gives up the closings that wait, too, if facts are given up: one of theirs may be among them.
func (v *closer) dropPending() (n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.facts) > 0 {
		n = len(v.pending)
		v.pending = v.pending[:0]
	}
	return n
}

// floods reports whether the batch is one of many that nobody waits for.
func (v *closer) floods() bool {
	return len(v.facts) >= bulkFacts && len(v.closings) == 0 && len(v.takes) == 0
}

// deliver sends the batch until it is acknowledged or given up. Nothing else of the partition overtakes it in this replica, but
// that is not needed: closes may come in any order.
func (v *closer) deliver() {
	delay := closeDelay
	for attempt := 1; ; attempt++ {
		stale, err := v.send()
		if err == nil && !stale {
			return
		}
		if attempt == closeAttempts || !v.pause(delay) {
			n := len(v.closings) + v.dropPending()
			v.dropped.Add(int64(n))
			v.c.dropClose(n, len(v.facts), err)
			v.c.stats.takesDropped.Add(int64(len(v.takes)))
			return
		}
		delay = min(2*delay, closeDelayMost)
	}
}

func (v *closer) send() (stale bool, err error) {
	if v.floods() {
		v.c.bulk <- struct{}{} // a place is free again after one call, which has a time-out
		defer func() { <-v.c.bulk }()
	}
	defer func() {
		if cause := recover(); cause != nil { // a bug must not end the process; the sweeper does what is left
			v.c.log.Error("close panicked", zap.Int("partition", v.p), zap.Any("panic", cause), zap.Stack("stack"))
			err = badReply("close", cause)
		}
	}()
	return v.c.closeBatch(context.Background(), v.p, &v.cmd, v.closings, v.facts, v.takes)
}

// pause waits, or says that the client is ending.
func (v *closer) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-v.c.ending:
		return false
	}
}
