package luascripts

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockgate/stockgate/stock"
)

// manyOpen puts n entries into open and due of partition 0, as reserves would.
func (r *rig) manyOpen(n int) {
	r.Helper()
	ctx := context.Background()
	line, at := []itemLine{{}}, float64(time.Now().Add(time.Hour).UnixMilli())
	for from := 0; from < n; from += 5000 {
		pipe := r.raw.Pipeline()
		for i := from; i < min(n, from+5000); i++ {
			res := wish(i, stock.Try(i+1), "s", 1)
			pipe.HSet(ctx, r.keys[0].open.(string), res.ID.String(), appendEntry(nil, res, line, i%2 == 0))
			pipe.ZAdd(ctx, r.keys[0].due.(string), redis.Z{Score: at, Member: res.ID.String()})
		}
		if _, err := pipe.Exec(ctx); err != nil {
			r.Fatal(err)
		}
	}
}

// All that is open is read in pages of a bounded size, and so are lost deadlines mended: no command grows with what is open.
func TestManyOpenEntriesAreReadInPages(t *testing.T) {
	t.Parallel()
	const all, limit = 200_000, 500
	r := newRig(t, Config{PinRunID: true}, nil)
	r.open(1)
	r.manyOpen(all)
	ctx := context.Background()
	r.raw.ConfigResetStat(ctx)
	seen, ahead, pages := make(map[stock.ID]bool, all), 0, 0
	for after := ""; pages == 0 || after != ""; pages++ {
		page, next, err := r.OpenEntries(ctx, 0, after, limit)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) > 2*limit {
			t.Fatalf("page %d has %d entries", pages, len(page))
		}
		for _, e := range page {
			if !seen[e.ID] && e.Ahead {
				ahead++
			}
			seen[e.ID] = true
		}
		after = next
	}
	if len(seen) != all || ahead != all/2 {
		t.Errorf("%d entries, %d of them ahead, in %d pages", len(seen), ahead, pages)
	}
	r.raw.Del(ctx, r.keys[0].due.(string))
	if due, err := r.Due(ctx, 0, 10); err != nil || len(due) != 0 {
		t.Errorf("%v, %v", due, err)
	}
	if n := r.raw.ZCard(ctx, r.keys[0].due.(string)).Val(); n != all {
		t.Errorf("%d deadlines were written anew", n)
	}
	calls := r.commandCalls()
	for _, whole := range []string{"hkeys", "hvals", "hgetall", "zrange"} {
		if calls[whole] > 0 {
			t.Errorf("%s was used", whole)
		}
	}
	if calls["hscan"] < all/limit/2 {
		t.Errorf("%d calls of HSCAN: nothing was counted", calls["hscan"])
	}
}

// Entries that come and go while pages are read disturb nobody: what stays is seen.
func TestPagesWhileEntriesComeAndGo(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{PinRunID: true}, nil)
	r.open(1)
	r.load("s", 100_000)
	r.manyOpen(3000)
	seen := make(map[stock.ID]bool)
	for after, n := "", 0; ; n++ {
		page, next, err := r.OpenEntries(context.Background(), 0, after, 50)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			seen[e.ID] = true
		}
		var some []*stock.Reservation
		var gone []stock.Closing
		for i := range 128 {
			some = append(some, wish(1_000_000+200*n+i, 1, "s", 1))
			gone = append(gone, lost(wish(1_000_000+200*(n-3)+i, 1, "s", 1)))
		}
		r.batch(some...)
		r.closeNow(gone)
		if after = next; after == "" {
			break
		}
	}
	for i := range 3000 {
		if res := wish(i, 1, "s", 1); !seen[res.ID] {
			t.Fatal(fmt.Errorf("entry %d was not seen", i))
		}
	}
}
