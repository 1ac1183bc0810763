package fallback

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A replica writes its row before it reads epochs: those who wait until every live replica has learned one would not wait for it.
func TestEpochsAreReadOnlyAfterTheFirstHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis := newFakeDB(testPartitions, skuNames(10)...), newFakeRedis("one")
		first := newReplica("a", db, redis, nil)
		first.start(t)
		eventually(t, time.Second, "redis_ok", first.RedisOK)
		var beaten atomic.Bool
		late := newReplica("b", db, redis, func(c *WayBackConfig) {
			c.Now = func() time.Time {
				if !beaten.Load() {
					return time.Time{}
				}
				return time.Now()
			}
		})
		late.start(t)
		for range 20 {
			time.Sleep(time.Second) // of the bubble
			synctest.Wait()
			late.Stale(0)
			if epoch, _ := late.Epoch(0); epoch != 0 {
				t.Fatalf("epoch %d was read before a heartbeat was written", epoch)
			}
		}
		beaten.Store(true)
		late.Heard()
		eventually(t, 2*time.Second, "the epoch is learned", func() bool { epoch, _ := late.Epoch(0); return epoch == 1 })
	})
}
