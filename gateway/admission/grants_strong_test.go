package admission

import (
	"testing"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// I10: a SKU that sells ahead although its rules are strong by now goes on to be granted units until its partition has drained, which a
// doubt can put off for long. Else what is available could not be bought.
func TestASKUThatStillSellsAheadIsGrantedUnits(t *testing.T) {
	b := setup(t, func(c *Config) {
		c.StockWait = func(string) (time.Duration, string) { return 30 * time.Millisecond, "w" }
	})
	b.cache.reserve = func(int, *stock.Reservation) (stock.CacheReply, error) {
		return stock.CacheReply{Code: stock.CacheWait, SKU: "s", Ahead: true, Rest: 5, Ver: 4, Epoch: 1, IDsLoaded: true}, nil
	}
	b.ledger.do = verdict(stock.VerdictSoldOut, 0)
	b.admit("")
	b.rest(t)
	if got := b.kinds(); got != "grant" {
		t.Errorf("ops: %q, want a grant", got)
	}
}

func TestAWishForManyUnitsDoesNotOverflow(t *testing.T) {
	if got := waitingFor(3000, stock.MaxQuantity); got != stock.MaxQuantity {
		t.Error(got)
	}
	if got := waitingFor(3, 4) + waitingFor(0, 4); got != 12 {
		t.Error(got)
	}
}
