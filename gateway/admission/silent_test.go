package admission

import (
	"context"
	"testing"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// silentFleet is that of a replica whose heartbeats have failed for longer than replica_timeout, after so many looks.
type silentFleet struct {
	fakeFleet
	after int
}

func (f *silentFleet) AllRedisOK() bool { return true }

func (f *silentFleet) HeardLately() bool {
	f.after--
	return f.after >= 0
}

// The others do not wait for a replica that they take for gone: its partitions drain without it, and the database sells there. So it
// forwards nothing before the commit, however long its clock of the database goes on by itself.
func TestASilentReplicaSellsNothingAhead(t *testing.T) {
	b := sellAhead(t, nil)
	b.fleet = &silentFleet{}
	if d := b.admit("k"); d.Pass == nil || d.Pass.behind != nil {
		t.Fatalf("%+v, refusal %+v", d, d.Refusal)
	}
	if b.cache.aheads[0] {
		t.Error("it asked for units to sell ahead")
	}
}

func TestAnOrderThatWaitedUntilItsReplicaFellSilentGoesThrough(t *testing.T) {
	b := sellAhead(t, nil)
	b.fleet = &silentFleet{after: 2} // as it came, and as it asked first
	b.cache.reserve = func(n int, _ *stock.Reservation) (stock.CacheReply, error) {
		if n == 1 {
			return stock.CacheReply{Code: stock.CacheWait, SKU: "s", Ahead: true, Rest: 1, Ver: 1, Epoch: 1}, nil
		}
		return wonAhead, nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if d := b.Admit(ctx, wish("k")); d.Pass == nil || d.Pass.behind != nil {
		t.Fatalf("%+v, refusal %+v", d, d.Refusal)
	}
	if !b.cache.aheads[0] || b.cache.aheads[len(b.cache.aheads)-1] {
		t.Errorf("asked ahead: %v", b.cache.aheads)
	}
}
