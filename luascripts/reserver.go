package luascripts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/stock"
)

// reserver coalesces the reservations of one partition: while a call is in flight, what arrives waits and is the next batch. When
// idle a call goes at once. It runs in a goroutine of its own only while there is something to do.
//
// Invariant: running is true exactly while a goroutine is between the start of run and its last take.
type reserver struct {
	c *Client
	p int

	mu      sync.Mutex
	pending []*item // FIFO from head on
	head    int
	running bool

	// Of the running goroutine alone, used again for every batch.
	batch []*item
	skus  []skuRef
	heads []head
	cmd   command
}

// skuRef is one distinct SKU of a batch: the line that named it first.
type skuRef struct {
	it *item
	l  *itemLine
}

// enqueue adds it to the next batch, or refuses it.
func (v *reserver) enqueue(it *item) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.pending)-v.head >= v.c.cfg.PendingMax {
		return &stock.LimitError{Code: stock.CodeQueueFull, Limit: "redis.pending_max", Value: strconv.Itoa(v.c.cfg.PendingMax)}
	}
	if !v.running {
		if !v.c.begin() {
			return gone(stock.ErrNotExecuted, errEnding)
		}
		v.running = true
		go v.run()
	}
	v.pending = append(v.pending, it)
	return nil
}

var errEnding = errors.New("the client is shutting down")

func (v *reserver) waiting() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.pending) - v.head
}

func (v *reserver) run() {
	defer v.c.running.Done()
	for {
		// The slot comes first: while all are taken the batch grows.
		n := v.c.servers.of(v.p)
		n.slots <- struct{}{}
		more := v.take()
		if more {
			v.send(n)
		}
		n.release()
		if !more {
			return
		}
	}
}

// take moves the oldest pending items whose callers still wait into batch. false: there are none and the goroutine has to end.
func (v *reserver) take() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.batch = v.batch[:0]
	lines := 0
	for v.head < len(v.pending) && len(v.batch) < v.c.cfg.BatchMax {
		it := v.pending[v.head]
		if lines += len(it.lines); lines > linesMax && len(v.batch) > 0 {
			break
		}
		v.pending[v.head] = nil
		v.head++
		if it.state.CompareAndSwap(stateWaiting, stateSent) {
			v.batch = append(v.batch, it)
		} else {
			v.c.items.put(it) // its caller has left
		}
	}
	if v.head == len(v.pending) {
		v.pending, v.head = v.pending[:0], 0
	} else if v.head > v.c.cfg.PendingMax {
		v.pending, v.head = v.pending[:copy(v.pending, v.pending[v.head:])], 0
	}
	v.running = len(v.batch) > 0 || len(v.pending) > 0
	return v.running
}

// send makes one call to n for the batch and answers every item.
func (v *reserver) send(n *node) {
	if len(v.batch) == 0 {
		return
	}
	defer v.survive()
	epoch, runID, ok := v.c.known(v.p)
	if !ok {
		v.answerStale()
		return
	}
	v.encode(epoch, runID)
	v.c.stats.reservations.Add(int64(len(v.batch)))
	reply, err := v.c.guarded(context.Background(), n, &v.c.scripts.reserve, &v.cmd)
	if err != nil {
		v.failAll(err)
		return
	}
	v.decode(reply)
}

// survive answers a batch whose call has panicked: one broken request must not end the process or hang its neighbours.
func (v *reserver) survive() {
	cause := recover()
	if cause == nil {
		return
	}
	v.c.log.Error("reserve panicked", zap.Int("partition", v.p), zap.Any("panic", cause), zap.Stack("stack"))
	v.failAll(&failure{class: stock.ErrUnknown, cause: fmt.Errorf("panic: %v", cause)})
}

func (v *reserver) failAll(err error) {
	for i, it := range v.batch {
		if it != nil {
			v.batch[i] = nil
			it.fail(&v.c.items, err)
		}
	}
}

func (v *reserver) answerStale() {
	v.c.sawStale(v.p)
	for i, it := range v.batch {
		it.reply = stock.CacheReply{Code: stock.CacheStale}
		v.finish(i)
	}
}

// finish hands item i its answer. It is not touched again.
func (v *reserver) finish(i int) {
	it := v.batch[i]
	v.batch[i] = nil
	it.answer(&v.c.items)
}

// encode writes the call as reserve.lua wants it.
func (v *reserver) encode(epoch int64, runID string) {
	v.number()
	k, cmd := &v.c.keys[v.p], &v.cmd
	cmd.start(k.part, k.open, k.due, k.out)
	for _, s := range v.skus {
		cmd.keyOfBytes(k.sku, s.it.sku(s.l))
	}
	for _, it := range v.batch {
		cmd.keyOfBytes(k.id, it.id[:])
	}
	v.encodeTakeKeys()
	cmd.int(epoch)
	cmd.text(runID)
	cmd.int(keyTTL.Milliseconds())
	v.encodeNumbers()
	from := len(cmd.buf)
	for _, it := range v.batch {
		cmd.buf = append(cmd.buf, it.entry()...)
	}
	cmd.cut(from)
	for _, s := range v.skus {
		cmd.bytes(s.it.sku(s.l))
	}
}

// encodeTakeKeys adds the keys of the take registers that limited lines are held against.
func (v *reserver) encodeTakeKeys() {
	for _, it := range v.batch {
		for i := range it.lines {
			if l := &it.lines[i]; l.limit > 0 {
				v.cmd.keyOfBytes(v.c.keys[v.p].take, it.take(l))
			}
		}
	}
}

// encodeNumbers adds the JSON array of all numbers.
func (v *reserver) encodeNumbers() {
	from := len(v.cmd.buf)
	b := strconv.AppendInt(append(v.cmd.buf, '['), int64(len(v.skus)), 10)
	b = strconv.AppendInt(append(b, ','), int64(len(v.batch)), 10)
	for _, it := range v.batch {
		b = strconv.AppendInt(append(b, ','), int64(len(it.entry())), 10)
		b = strconv.AppendInt(append(b, ','), it.ttl, 10)
		b = strconv.AppendInt(append(b, ','), int64(len(it.lines)), 10)
		for i := range it.lines {
			b = strconv.AppendInt(append(b, ','), int64(it.lines[i].at)+1, 10)
			b = append(append(b, ','), it.qty(&it.lines[i])...)
		}
	}
	v.cmd.buf = append(v.appendLimits(b), ']')
	v.cmd.cut(from)
}

// appendLimits appends place and limit of each limited line, in the order of encodeTakeKeys.
func (v *reserver) appendLimits(b []byte) []byte {
	at := 3 // Lua's index of the first number behind S and N
	for _, it := range v.batch {
		at += 3
		for i := range it.lines {
			if l := &it.lines[i]; l.limit > 0 {
				b = strconv.AppendInt(append(b, ','), int64(at), 10)
				b = strconv.AppendInt(append(b, ','), l.limit, 10)
			}
			at += 2
		}
	}
	return b
}

// number gives each distinct SKU of the batch its place. A plain search over hashes: a batch has at most 512 lines and mostly one
// SKU, and a map would keep copies of the names.
func (v *reserver) number() {
	v.skus = v.skus[:0]
	for _, it := range v.batch {
		for i := range it.lines {
			it.lines[i].at = v.place(it, &it.lines[i])
		}
	}
}

func (v *reserver) place(it *item, l *itemLine) int {
	for n, s := range v.skus {
		if s.l.hash == l.hash && bytes.Equal(s.it.sku(s.l), it.sku(l)) {
			return n
		}
	}
	v.skus = append(v.skus, skuRef{it, l})
	return len(v.skus) - 1
}
