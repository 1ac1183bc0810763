package e2e

import (
	"database/sql"
	"fmt"
	"testing"

	_ "github.com/lib/pq" // the shop writes its own table
)

// The shop's own stock table: stockgate sells from it, and what the shop changes there by itself is written down as external and reaches
// Redis although no order comes by.
func TestShopsOwnStockTable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	shop, err := sql.Open("postgres", w.dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = shop.Close() })
	exec := func(query string) {
		t.Helper()
		if _, err := shop.Exec(query); err != nil {
			t.Fatal(err)
		}
	}
	exec(`CREATE SCHEMA shop`)
	exec(`CREATE TABLE shop."Products" (id serial, code text PRIMARY KEY, on_hand int NOT NULL DEFAULT 0, name text)`)
	exec(`INSERT INTO shop."Products" (code, on_hand, name) VALUES ('p-1', 5, 'a thing')`)
	w.stockTable = `{table: shop.Products, sku: code, available: on_hand}`
	g := w.gateway()
	g.awaitRedis()

	replies := w.sale(distinct("p-1", "first", 12), 8, nil)
	requireTally(t, replies, map[string]int{"201 ": 5, "409 SOLD_OUT": 7})
	exec(`UPDATE shop."Products" SET on_hand = on_hand + 3 WHERE code = 'p-1'`)
	w.eventually("Redis hears of the delivery", func() string {
		status, body := g.get("/v1/stock/p-1")
		var v struct{ Redis struct{ Base int } }
		if err := decode(body, &v); err != nil || v.Redis.Base != 3 {
			return fmt.Sprintf("%d %s", status, body)
		}
		return ""
	})
	more := w.sale(distinct("p-1", "second", 6), 6, nil)
	requireTally(t, more, map[string]int{"201 ": 3, "409 SOLD_OUT": 3})
	var left int
	if err := shop.QueryRow(`SELECT on_hand FROM shop."Products" WHERE code = 'p-1'`).Scan(&left); err != nil || left != 0 {
		t.Errorf("the shop's table says %d, %v", left, err)
	}
}
