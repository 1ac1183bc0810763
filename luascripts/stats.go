package luascripts

import "sync/atomic"

// counters are what a Client counts while it runs.
type counters struct {
	calls, reservations, claims, scriptsSent, stale, corrupt atomic.Int64
	closings, closingsDropped                                atomic.Int64
	factsDropped, takesDropped                               atomic.Int64
}

// Stats are totals since Open, but for the last two, which are of now.
type Stats struct {
	Calls           int64 // scripts sent to Redis
	Reservations    int64 // reservations in them, peeks included
	Claims          int64 // claims in them
	ScriptsSent     int64 // times that a script's text was sent because the server did not have it
	Stale           int64 // replies that said stale
	Corrupt         int64 // registers or entries that were not what they must be: alert on it
	Closings        int64 // closings acknowledged
	ClosingsDropped int64 // closings given up: a full queue or repeated failure; the sweeper heals it
	FactsDropped    int64 // facts given up likewise, or out of range; the tailer heals it
	TakesDropped    int64 // what facts said of users, given up likewise; it heals by itself
	Pending         int64 // reservations, peeks, claims, closings, facts and takes waiting for a call
	Connections     int64 // open connections, at most Config.PoolSize per node
}

// Stats tells the totals. It locks each partition's queue for a moment.
func (c *Client) Stats() Stats {
	n := &c.stats
	s := Stats{Calls: n.calls.Load(), Reservations: n.reservations.Load(), Claims: n.claims.Load(), ScriptsSent: n.scriptsSent.Load(), Stale: n.stale.Load(),
		Corrupt: n.corrupt.Load(), Closings: n.closings.Load(), ClosingsDropped: n.closingsDropped.Load(),
		FactsDropped: n.factsDropped.Load(), TakesDropped: n.takesDropped.Load()}
	for _, node := range c.servers.all() {
		s.Connections += int64(node.rdb.PoolStats().TotalConns)
	}
	for p := range c.reserve {
		s.Pending += int64(c.reserve[p].waiting() + c.claims[p].waiting() + c.closing[p].waiting())
	}
	return s
}

// sawStale counts a stale reply of partition p and hints at it.
func (c *Client) sawStale(p int) {
	c.stats.stale.Add(1)
	c.stale(p)
}
