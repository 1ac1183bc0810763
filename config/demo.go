package config

import "path/filepath"

// Addresses of the demo, all on the local machine: buyers, operators, and the sample order service.
const (
	DemoListen  = "127.0.0.1:8080"
	DemoControl = "127.0.0.1:9090"
	DemoOrders  = "127.0.0.1:3000"
)

// DemoSKU and DemoStock are what the demo sells.
const (
	DemoSKU   = "sku-1001"
	DemoStock = 100
)

// DemoAddresses are where the demo listens: host:port each.
type DemoAddresses struct{ Listen, Control, Orders string }

// DemoDefaults are the addresses that the documentation names.
func DemoDefaults() DemoAddresses {
	return DemoAddresses{Listen: DemoListen, Control: DemoControl, Orders: DemoOrders}
}

// Demo is the configuration of serve --demo: Redis inside the process, SQLite in the folder dir, no limits, no activity, and orders
// at POST /orders {"sku", "qty", "user"}. The sample order service can be asked what became of a reservation, so time alone never
// ends one: what was bought stays held until it is confirmed or released.
func Demo(dir string, at DemoAddresses) *Config {
	c := Default()
	c.Listen, c.Control.Listen = at.Listen, at.Control
	c.Redis.Mode, c.Redis.Addresses = RedisEmbedded, nil
	c.Database.Driver, c.Database.DSN = DriverSQLite, Secret(filepath.Join(dir, "stockgate.db"))
	c.Log.Format = "console"
	orders := NewUpstream("http://" + at.Orders)
	orders.Resolve, orders.Unique = "/orders/by-reservation/{reservation}", true
	c.Upstreams = map[string]Upstream{"orders": orders}
	c.Routes = []Route{{
		Name: "place-order", Match: Match{Methods: []string{"POST"}, Path: "/orders"}, Upstream: "orders",
		Admit: &Admit{
			SKU:     []Source{{Kind: SourceBody, Path: []string{"sku"}}},
			Qty:     []Source{{Kind: SourceBody, Path: []string{"qty"}}},
			User:    []Source{{Kind: SourceBody, Path: []string{"user"}}},
			Request: []Source{{Kind: SourceHeader, Name: "Idempotency-Key"}},
			Confirm: ConfirmAPI,
			Canary:  100,
		},
	}}
	return c
}
