package e2e

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/clockstep"
	"github.com/stockgate/stockgate/internal/orderservice"
	"github.com/stockgate/stockgate/internal/testservices"
)

// chaosHold is how long orders are held for payment: longer than forward_within + order_delay.
const chaosHold = 4 * time.Second

// chaosWorld is a deployment whose every gateway has links of its own to its servers. It is started once for all seeds of a kind.
type chaosWorld struct {
	*world
	kind   string
	set    redisSet
	links  []links  // of the gateways, by their number
	clocks []string // files with the steps of their clocks
	victim *testservices.Redis
	direct *sql.DB // the shop's own way to its stock table
}

func newChaosWorld(t *testing.T, kind string) *chaosWorld {
	t.Helper()
	c := &chaosWorld{kind: kind, set: startRedisSet(t, kind)}
	c.world = newWorld(t, func(w *world) {
		w.closes = func(orderservice.Order) bool { return true }
		w.unique = kind == sentinelKind
		w.lookAt = c.set.lookAt()
		w.hold, w.defaults, w.maxWait, w.orderDelay = chaosHold.String(), ", hold_max: 20s", "1s", "1s"
		w.upstream = fmt.Sprintf(", timeout: 1s, unique: %t, resolve: \"/orders/by-reservation/{reservation}\", "+
			"void: \"/orders/by-reservation/{reservation}/void\"", w.unique)
		w.extra = chaosRules
	})
	c.direct = c.sql()
	c.http.Timeout = 3 * time.Second // a gateway that is paused does not answer for as long
	for i := range chaosGateways {
		c.addGateway(i)
	}
	for _, g := range c.gateways {
		g.start()
	}
	for _, g := range c.gateways {
		g.awaitReady()
	}
	return c
}

const chaosRules = `
forward_within: 1s
skus:
  - {match: "evt-*", consistency: eventual}
  - {match: "evl-*", consistency: eventual}
activities:
  - {id: sale, starts: 2020-01-01T00:00:00Z, ends: 2099-01-01T00:00:00Z, skus: ["lim-*", "evl-*"], purchase_limit: 2, hold: 4s}
`

// addGateway makes gateway i, which finds every server behind a proxy of its own.
func (c *chaosWorld) addGateway(i int) {
	servers := c.set.servers()
	l, instead := c.newLinks(servers)
	var addresses []string
	for _, r := range servers {
		addresses = append(addresses, instead[r.Addr])
	}
	c.redisKeys = c.set.keys(addresses)
	c.toPostgres, c.backendURL = l[toDatabase][0], "http://"+l[toBackend][0].Addr()
	g := c.newGateway(testservices.FreePort(c.t), testservices.FreePort(c.t))
	c.toPostgres = nil // the test itself goes straight to the servers
	clock := filepath.Join(c.t.TempDir(), fmt.Sprintf("clock-%d", i))
	g.env = []string{clockstep.Variable + "=" + clock}
	c.links, c.clocks = append(c.links, l), append(c.clocks, clock)
}

// heal takes every fault back and returns once every gateway is ready.
func (c *chaosWorld) heal() {
	c.t.Helper()
	for i, l := range c.links {
		if err := l.heal(); err != nil {
			c.t.Fatal(err)
		}
		if err := clockstep.Set(c.clocks[i], 0); err != nil {
			c.t.Fatal(err)
		}
	}
	c.set.heal()
	for _, g := range c.gateways {
		if g.cmd == nil {
			g.start()
		}
		g.thaw()
	}
	for _, g := range c.gateways {
		g.awaitReady()
	}
}

// keepLogs writes the gateways' logs so far to the folder STOCKGATE_CHAOS_LOGS, if it is set.
func (c *chaosWorld) keepLogs(seed uint64) {
	dir := os.Getenv("STOCKGATE_CHAOS_LOGS")
	if dir == "" {
		return
	}
	for i, g := range c.gateways {
		name := filepath.Join(dir, fmt.Sprintf("seed-%d-gateway-%d.log", seed, i))
		if err := os.WriteFile(name, []byte(g.log.String()), 0o600); err != nil {
			c.t.Error(err)
		}
	}
}
