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
