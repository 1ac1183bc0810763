package e2e

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/stockgate/stockgate/internal/clockstep"
	"github.com/stockgate/stockgate/internal/faults"
)

// faultKind is a way to go wrong.
type faultKind struct {
	name        string
	least, most time.Duration            // how long it lasts
	draw        func(*rand.Rand, *fault) // what else is to be decided; nil: nothing
	on          func(*fault) []string    // what it touches: two faults do not touch the same at a time
	begin       func(*chaosWorld, *fault) error
	end         func(*chaosWorld, *fault) error // nil: it ends by itself
}

// faultKinds lists them. Those of one gateway come more often than those of a server that all share.
func faultKinds() []faultKind {
	const ms = time.Millisecond
	ofGateway := func(what string) func(*fault) []string {
		return func(f *fault) []string { return []string{fmt.Sprint(what, f.gateway)} }
	}
	ofLink := func(f *fault) []string { return []string{fmt.Sprint(f.link, f.gateway)} }
	ofRedis := func(*fault) []string { return []string{"redis set"} }
	ofDatabase := func(*fault) []string { return []string{"database server"} }
	return []faultKind{
		{"kill gateway", 0, 2500 * ms, nil, ofGateway("process"), (*chaosWorld).killGateway, (*chaosWorld).startGateway},
		{"kill gateway", 0, 300 * ms, nil, ofGateway("process"), (*chaosWorld).killGateway, (*chaosWorld).startGateway},
		{"pause gateway", 1100 * ms, 2500 * ms, nil, ofGateway("process"), (*chaosWorld).freezeGateway, (*chaosWorld).thawGateway}, // longer than F
		{"pause gateway", 3500 * ms, 5500 * ms, nil, ofGateway("process"), (*chaosWorld).freezeGateway, (*chaosWorld).thawGateway}, // longer than D
		{"cut", 200 * ms, 4500 * ms, drawCut(toRedis), ofLink, (*chaosWorld).cut, (*chaosWorld).join},
		{"cut", 200 * ms, 4500 * ms, drawCut(toDatabase), ofLink, (*chaosWorld).cut, (*chaosWorld).join},
		{"cut", 100 * ms, 2500 * ms, drawCut(toBackend), ofLink, (*chaosWorld).cut, (*chaosWorld).join},
		{"cut off", 500 * ms, 4500 * ms, drawCut(toRedis), func(f *fault) []string {
			return []string{fmt.Sprint(toRedis, f.gateway), fmt.Sprint(toDatabase, f.gateway)}
		}, (*chaosWorld).cutOff, (*chaosWorld).joinAll},
		{"delay", 500 * ms, 3000 * ms, drawDelay, ofLink, (*chaosWorld).delay, (*chaosWorld).hurry},
		{"drop replies", 50 * ms, 600 * ms, drawLink, ofLink, (*chaosWorld).dropReplies, (*chaosWorld).letReplies},
		{"drop replies", 50 * ms, 600 * ms, drawLink, ofLink, (*chaosWorld).dropReplies, (*chaosWorld).letReplies},
		{"step clock", 300 * ms, 5000 * ms, drawStep, ofGateway("clock"), (*chaosWorld).stepClock, (*chaosWorld).trueClock},
		{"promote stale replica", 200 * ms, 1500 * ms, drawOf("killing its master", "beside its master"), ofRedis, (*chaosWorld).holdReplicas, (*chaosWorld).promote},
		{"flush scripts", 0, 0, nil, ofRedis, (*chaosWorld).flushScripts, nil},
		{"kill redis", 0, 2500 * ms, nil, ofRedis, (*chaosWorld).killRedis, (*chaosWorld).startRedis},
		{"kill redis", 0, 200 * ms, nil, ofRedis, (*chaosWorld).killRedis, (*chaosWorld).startRedis}, // empty before anyone takes over
		{"pause redis", 100 * ms, 2500 * ms, nil, ofRedis, (*chaosWorld).pauseRedis, (*chaosWorld).resumeRedis},
		{"move slot", 0, 0, nil, ofRedis, (*chaosWorld).moveSlot, nil},
		{"kill database", 0, 1000 * ms, nil, ofDatabase, (*chaosWorld).killDatabase, (*chaosWorld).startDatabase},
		{"pause database", 100 * ms, 2000 * ms, nil, ofDatabase, (*chaosWorld).pauseDatabase, (*chaosWorld).resumeDatabase},
	}
}

// target names what it is done to.
func (k *faultKind) target(f *fault) string {
	on := k.on(f)[0]
	switch on {
	case "redis set":
		return "of " + f.sku
	case "database server":
		return ""
	}
	if f.link != "" {
		return fmt.Sprintf("gateway %d from %s", f.gateway, f.link)
	}
	return fmt.Sprintf("%d", f.gateway)
}

// The ways to be cut off.
const (
	silently = "silently" // connections stay open, nothing passes until it is over
	refused  = "refusing" // connections are reset, new ones refused
)

func drawOf(ways ...string) func(*rand.Rand, *fault) {
	return func(rng *rand.Rand, f *fault) { f.how = ways[rng.IntN(len(ways))] }
}

func drawCut(of link) func(*rand.Rand, *fault) {
	return func(rng *rand.Rand, f *fault) {
		f.link = of
		drawOf(silently, refused)(rng, f)
	}
}

func drawLink(rng *rand.Rand, f *fault) {
	f.link = []link{toRedis, toDatabase, toBackend}[rng.IntN(3)]
}

func drawDelay(rng *rand.Rand, f *fault) {
	drawLink(rng, f)
	f.by = time.Duration(5+rng.IntN(300)) * time.Millisecond
}

func drawStep(rng *rand.Rand, f *fault) {
	steps := []time.Duration{time.Second, 3 * time.Second, 30 * time.Second, time.Hour, 25 * time.Hour, 400 * 24 * time.Hour}
	f.by = steps[rng.IntN(len(steps))] * time.Duration(1-2*rng.IntN(2))
}

func (c *chaosWorld) killGateway(f *fault) error {
	c.gateways[f.gateway].kill()
	return nil
}

func (c *chaosWorld) startGateway(f *fault) error {
	c.gateways[f.gateway].start()
	return nil
}

func (c *chaosWorld) freezeGateway(f *fault) error {
	c.gateways[f.gateway].freeze()
	return nil
}

func (c *chaosWorld) thawGateway(f *fault) error {
	c.gateways[f.gateway].thaw()
	return nil
}

func (c *chaosWorld) cut(f *fault) error { return c.cutLink(f, f.link) }

func (c *chaosWorld) cutLink(f *fault, of link) error {
	return c.links[f.gateway].each(of, func(p *faults.Proxy) error {
		if f.how == silently {
			p.Stall(true)
			return nil
		}
		p.Cut(faults.RST)
		return p.Refuse(true)
	})
}

func (c *chaosWorld) join(f *fault) error { return c.joinLink(f, f.link) }

func (c *chaosWorld) joinLink(f *fault, of link) error {
	return c.links[f.gateway].each(of, func(p *faults.Proxy) error {
		p.Stall(false)
		return p.Refuse(false)
	})
}

func (c *chaosWorld) cutOff(f *fault) error {
	if err := c.cutLink(f, toRedis); err != nil {
		return err
	}
	return c.cutLink(f, toDatabase)
}

func (c *chaosWorld) joinAll(f *fault) error {
	if err := c.joinLink(f, toDatabase); err != nil {
		return err
	}
	return c.joinLink(f, toRedis)
}

func (c *chaosWorld) delay(f *fault) error { return c.delayBy(f, f.by) }
func (c *chaosWorld) hurry(f *fault) error { return c.delayBy(f, 0) }

func (c *chaosWorld) delayBy(f *fault, by time.Duration) error {
	return c.links[f.gateway].each(f.link, func(p *faults.Proxy) error {
		p.Delay(by/2, by/2)
		return nil
	})
}

func (c *chaosWorld) dropReplies(f *fault) error { return c.drop(f, true) }
func (c *chaosWorld) letReplies(f *fault) error  { return c.drop(f, false) }

func (c *chaosWorld) drop(f *fault, on bool) error {
	return c.links[f.gateway].each(f.link, func(p *faults.Proxy) error {
		p.DropReplies(on)
		return nil
	})
}

func (c *chaosWorld) stepClock(f *fault) error { return clockstep.Set(c.clocks[f.gateway], f.by) }
func (c *chaosWorld) trueClock(f *fault) error { return clockstep.Set(c.clocks[f.gateway], 0) }

func (c *chaosWorld) killDatabase(*fault) error   { c.postgres.Kill(); return nil }
func (c *chaosWorld) startDatabase(*fault) error  { c.postgres.Start(); return nil }
func (c *chaosWorld) pauseDatabase(*fault) error  { c.postgres.Pause(); return nil }
func (c *chaosWorld) resumeDatabase(*fault) error { c.postgres.Resume(); return nil }

// hit finds the master that a fault means and keeps it for the fault's end. There may be none just after another fault: then nothing happens.
func (c *chaosWorld) hit(f *fault) bool {
	c.victim = c.set.master(partitionOf(f.sku))
	return c.victim != nil
}

func (c *chaosWorld) holdReplicas(f *fault) error {
	if !c.hit(f) {
		return nil
	}
	return c.victim.HoldReplicas()
}

func (c *chaosWorld) promote(f *fault) error {
	if c.victim == nil {
		return nil
	}
	if f.how == "killing its master" {
		c.victim.Kill()
		return nil
	}
	return c.set.replace(c.victim)
}

func (c *chaosWorld) flushScripts(*fault) error {
	for _, r := range c.set.servers() {
		_, _ = r.Command("SCRIPT", "FLUSH") // sentinels know no such command
	}
	return nil
}

func (c *chaosWorld) killRedis(f *fault) error {
	if c.hit(f) {
		c.victim.Kill()
	}
	return nil
}

func (c *chaosWorld) startRedis(*fault) error {
	if c.victim != nil {
		c.victim.Start()
	}
	return nil
}

func (c *chaosWorld) pauseRedis(f *fault) error {
	if c.hit(f) {
		c.victim.Pause()
	}
	return nil
}

func (c *chaosWorld) resumeRedis(*fault) error {
	if c.victim != nil {
		c.victim.Resume()
	}
	return nil
}

func (c *chaosWorld) moveSlot(f *fault) error {
	if c.kind == sentinelKind {
		return c.set.replace(c.set.master(0))
	}
	return c.set.move(partitionOf(f.sku))
}
