package ledger

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// clockDB is a database whose clock is ahead, with a way to it and a way back.
type clockDB struct {
	mu                 sync.Mutex
	ahead, there, back time.Duration
}

func (db *clockDB) Beat(context.Context, string, bool, []bool) (stock.Pulse, error) {
	db.mu.Lock()
	ahead, there, back := db.ahead, db.there, db.back
	db.mu.Unlock()
	time.Sleep(there)
	now := time.Now().Add(ahead)
	time.Sleep(back)
	return stock.Pulse{Live: 1, Now: now}, nil
}

func (db *clockDB) become(ahead, there time.Duration) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.ahead, db.there = ahead, there
}

func TestTheOffsetOfTheClocksIsWithinItsBound(t *testing.T) {
	const ms = time.Millisecond
	f := func(name string, ahead, there, back, uncertainty time.Duration) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := &clockDB{ahead: ahead, there: there, back: back}
				h := NewHeartbeat(db, HeartbeatConfig{RedisOK: func() bool { return true }})
				if _, _, ok := h.Offset(); ok {
					t.Fatal("an offset before the first beat")
				}
				runLoop(t, h.Run)
				after(10 * time.Second)
				offset, bound, ok := h.Offset()
				if !ok || bound != uncertainty || (offset-ahead).Abs() > bound {
					t.Errorf("offset %s ± %s, want %s ± %s", offset, bound, ahead, uncertainty)
				}
			})
		})
	}
	f("the same way there and back", 3*time.Second, 20*ms, 20*ms, 21*ms)
	f("all of it there", -time.Minute, 100*ms, 0, 51*ms)
	f("all of it back", time.Hour, 0, 100*ms, 51*ms)
}

func TestASlowBeatKeepsTheExactOffset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &clockDB{ahead: time.Second, there: time.Millisecond, back: time.Millisecond}
		h := NewHeartbeat(db, HeartbeatConfig{RedisOK: func() bool { return true }})
		runLoop(t, h.Run)
		after(2 * time.Second)
		db.become(time.Second, 500*time.Millisecond)
		after(3 * time.Second)
		if offset, bound, _ := h.Offset(); offset != time.Second || bound != 2*time.Millisecond {
			t.Errorf("offset %s ± %s after slow beats", offset, bound)
		}
		if ahead := time.Until(h.Now()); (ahead - time.Second).Abs() > 2*time.Millisecond { // a sale must not open before its moment
			t.Errorf("after slow beats the database's clock is said to be %s ahead", ahead)
		}
		for _, moved := range []time.Duration{
			9 * time.Second,                      // no measurement of before agrees
			9*time.Second + 100*time.Millisecond, // agrees still, but not for ever
		} {
			db.become(moved, 500*time.Millisecond)
			after(30 * time.Second)
			offset, bound, _ := h.Offset()
			if ahead := time.Until(h.Now()); (offset-moved).Abs() > bound || ahead != offset {
				t.Errorf("offset %s ± %s, by the clock %s, want %s", offset, bound, ahead, moved)
			}
		}
	})
}
