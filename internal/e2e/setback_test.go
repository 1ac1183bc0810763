package e2e

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/stock"
)

// "If Redis's (epoch, ver) is above the database's (a restored or failed-over database): raise the database's above it, sell nothing ahead,
// reconcile first." Strong SKUs go on, eventual ones as in a drained partition, until an operator has cleared the doubts.
func TestARestoredDatabaseSellsNothingAheadBeforeItIsReconciled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sellAhead, func(w *world) { w.extra = "skus: [{match: strong, consistency: strong}]" })
	g := w.gateway()
	g.setStock("sku-1", 100)
	g.setStock("strong", 100)
	w.awaitRedisDecides(t)
	requireTally(t, w.sale(distinct("sku-1", "kept", 20), 8, nil), map[string]int{"201 ": 20})
	g.term()
	backup := w.backUp(t)
	w.redis.Kill() // it comes back under another epoch, of which the backup does not know
	w.redis.Start()
	w.gateways = nil
	g = w.gateway()
	w.awaitRedisDecides(t)
	wants := distinct("sku-1", "lost", 10)
	lost := w.sale(wants, 8, nil)
	w.sellOut(t, wants, &lost)
	g.term()

	w.dsn, w.gateways = backup, nil
	g = w.gateway()
	var doubts api.DoubtList
	w.eventually("every partition is doubted", func() string {
		if doubts = g.doubts(); len(doubts.Doubts) < 64 || doubts.Doubts[0].Gateway != stock.DoubtDatabase {
			return fmt.Sprint(doubts)
		}
		return ""
	})
	w.eventually("an eventual SKU is sold by the database alone", func() string {
		name := fmt.Sprint("drained-", w.orders.Count())
		if got := g.buy(want{sku: "sku-1", user: name, key: name}); !got.Won() || got.source != "database" {
			return got.String()
		}
		return ""
	})
	during := w.sale(append(distinct("strong", "strong", 20), distinct("sku-1", "during", 20)...), 8, nil)
	for i, r := range during {
		if eventual := i >= 20; !r.Won() || eventual && r.source != "database" {
			t.Errorf("answer %s from %q", r, r.source)
		}
	}
	for _, d := range doubts.Doubts {
		g.call("DELETE", fmt.Sprintf("/v1/doubts/%d", d.Partition), `{"reason":"orders compared"}`)
	}
	w.eventually("it sells ahead again", func() string {
		name := fmt.Sprint("again-", w.orders.Count())
		if got := g.buy(want{sku: "sku-1", user: name, key: name}); !got.Won() || got.source != "redis" || g.stock("sku-1").Granted == 0 {
			return got.String()
		}
		return ""
	})
	if left := g.doubts(); len(left.Doubts) > 0 {
		t.Errorf("doubts %+v", left)
	}
}

func (g *gateway) doubts() (list api.DoubtList) {
	g.w.t.Helper()
	status, body := g.get("/v1/doubts")
	if err := json.Unmarshal([]byte(body), &list); status != http.StatusOK || err != nil {
		g.w.t.Fatalf("doubts: %d %s: %v", status, body, err)
	}
	return list
}

// backUp copies the database, which nobody may be connected to, and gives the copy's DSN.
func (w *world) backUp(t *testing.T) string {
	t.Helper()
	name := strings.TrimSuffix(w.dsn[strings.LastIndex(w.dsn, "/")+1:], "?sslmode=disable")
	db, err := sql.Open("postgres", w.postgres.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	w.eventually("a backup", func() string {
		if _, err := db.Exec("CREATE DATABASE backup TEMPLATE " + name); err != nil {
			return err.Error()
		}
		return ""
	})
	return w.postgres.DSN("backup")
}
