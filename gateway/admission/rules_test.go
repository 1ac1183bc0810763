package admission

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// Who waits under a request id may be a winner whose reply was lost: the news that the SKU is sold out is no answer to it, Redis is.
func TestASoldOutFactIsNoAnswerToAnID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, func(c *Config) {
			c.StockWait = func(string) (time.Duration, string) { return time.Minute, "hotspot.lane.max_wait" }
		})
		var soldOut atomic.Bool
		b.cache.reserve = func(int, *stock.Reservation) (stock.CacheReply, error) {
			if soldOut.Load() {
				return stock.CacheReply{Code: stock.CacheWon, SKU: "s", Ver: 9}, nil // since before
			}
			return stock.CacheReply{Code: stock.CacheWait, SKU: "s", Base: 1, Ver: 1}, nil
		}
		decided := make(chan Decision, 1)
		go func() { decided <- b.admit("k") }()
		synctest.Wait()
		soldOut.Store(true)
		b.Observe([]stock.Fact{{SKU: "s", Ver: 9}})
		if d := <-decided; d.Pass == nil {
			t.Errorf("decision = %+v", d.Refusal)
		}
	})
}

// F runs from the first statement of the transaction, not from its end: a settle that took 1.5 s leaves half a second to send.
func TestTheTimeToSendBeginsWithTheFirstStatement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		b.ledger.do = func(n int, op *stock.Op) error {
			time.Sleep(1500 * time.Millisecond) // of the bubble
			return verdict(stock.VerdictDone, 9)(n, op)
		}
		d := b.admit("k")
		if d.Pass == nil {
			t.Fatalf("decision = %+v", d.Refusal)
		}
		if left := time.Until(d.Pass.SendBefore); left != 500*time.Millisecond {
			t.Errorf("it may be sent for another %s, want 500ms", left)
		}
	})
}
