package main

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stockgate/stockgate/gateway/breaker"
	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/internal/loop"
	"github.com/stockgate/stockgate/stock"
)

// appCollector shows what the parts count anyway. It reads their counters when it is scraped, so the hot path pays nothing for it.
// Labels come from the configuration and from closed sets.
type appCollector struct{ a *app }

func newAppCollector(a *app) appCollector { return appCollector{a} }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("stockgate_"+name, help, labels, nil)
}

var (
	descBuild            = desc("build_info", "1; the labels tell what runs.", "version", "go_version")
	descReplicas         = desc("live_replicas", "Replicas heard of within replica_timeout, as of the last heartbeat.")
	descBreaker          = desc("breaker_state", "Redis nodes whose breaker is in that state.", "state")
	descOpened           = desc("breaker_opened_total", "Times that the breaker of a Redis node opened.")
	descUpstreamBreaker  = desc("upstream_breaker_state", "1 for the state that the breaker of an upstream is in: closed, open, probing or trial.", "upstream", "state")
	descUpstreamOpened   = desc("upstream_breaker_opened_total", "Times that the breaker of an upstream opened.", "upstream")
	descUpstreamDenied   = desc("upstream_breaker_refused_total", "Requests refused because the breaker of an upstream was not closed; nothing was taken or sent.", "upstream")
	descTokens           = desc("jwt_tokens_total", "Tokens of buyers, by result: cached, verified, refused, or pending while keys are read.", "result")
	descTokenKeys        = desc("jwt_keys", "Public keys of the issuer; 0: they were not read yet.")
	descTokensKept       = desc("jwt_tokens_remembered", "Verified tokens that are remembered.")
	descWaiting          = desc("queue_waiting", "Ops that wait for a transaction, by class.", "class")
	descInFlight         = desc("queue_in_flight", "Ops in transactions now.")
	descRefused          = desc("queue_refused_total", "Ops turned away by a bound, by class.", "class")
	descLate             = desc("queue_late_total", "Ops dropped at their deadline, by class.", "class")
	descTransactions     = desc("transactions_total", "Transactions of the group commit.")
	descOps              = desc("transaction_ops_total", "Ops in those transactions.")
	descLocked           = desc("transaction_locked_total", "Ops put back because others had locked their stock row.")
	descRepeated         = desc("transaction_repeated_total", "Transactions rolled back and repeated: deadlock, serialization, lock time-out.")
	descLostCommits      = desc("transaction_unknown_total", "Transactions whose COMMIT reply was lost; each is repeated by id.")
	descFailed           = desc("transaction_failed_total", "Transactions that surely had no effect and were not repeated.")
	descParked           = desc("transaction_parked_total", "Ops given up because they make the store fail each time: alert on it.")
	descPool             = desc("database_connections", "Connections to the database: busy, idle, and the most that there may be.", "state")
	descPoolWaits        = desc("database_connection_waits_total", "Calls that had to wait for a connection to the database.")
	descScripts          = desc("redis_calls_total", "Scripts sent to Redis.")
	descReserved         = desc("redis_reservations_total", "Reservations in them.")
	descStale            = desc("redis_stale_total", "Replies that said stale: another epoch or run id.")
	descCorrupt          = desc("redis_corrupt_total", "Registers or entries in Redis that were not what they must be: alert on it.")
	descDropped          = desc("redis_closes_dropped_total", "Closings and facts given up; sweeper and tailer heal it.")
	descConnections      = desc("redis_connections", "Open connections to Redis.")
	descLimitPassed      = desc("limit_passed_total", "Requests that a limit let pass.", "limit")
	descLimitRefused     = desc("limit_refused_total", "Requests that a limit refused.", "limit")
	descLimitShadow      = desc("limit_would_refuse_total", "Requests that a limit in shadow let pass without a token.", "limit")
	descLimitKeys        = desc("limit_keys", "Keys that a limit keeps a bucket for.", "limit")
	descLimitOverflow    = desc("limit_overflowed_total", "Requests of keys that shared one strict bucket, because the table was full.", "limit")
	descLimitLeases      = desc("limit_leases", "Keys of a limit of scope fleet that lease their tokens from Redis.", "limit")
	descLimitAsks        = desc("limit_asks_total", "Times that Redis was asked about tokens of a key: answered, or failed, and the key went on with its share.", "limit", "result")
	descLaneHeld         = desc("lane_held", "Requests that hold a slot of a lane.", "lane")
	descLaneWaiting      = desc("lane_waiting", "Requests that wait for a slot of a lane.", "lane")
	descLaneRefused      = desc("lane_refused_total", "Requests that a lane refused.", "lane", "reason")
	descLanesHot         = desc("hot_lanes", "SKUs that were found to be hot and have a lane of their own.")
	descLanesFading      = desc("hot_lanes_fading", "Lanes of SKUs that are not hot any more, kept until all slots and tokens are back.")
	descLaneChanges      = desc("hot_lane_changes_total", "Lanes that hot SKUs got and lost.", "change")
	descLanesCrowded     = desc("hot_lanes_crowded_total", "Requests for hot SKUs that went through the shared lane because hotspot.detect.lanes were taken.")
	descPending          = desc("bookings_pending", "Outcomes that wait for the database.")
	descJobSuccess       = desc("job_last_success_timestamp_seconds", "When a background job last ended well; 0: never.", "job")
	descJobFailures      = desc("job_failures_total", "Passes of a background job that failed.", "job")
	descUnknown          = desc("unknown_reservations", "Held reservations of unknown outcome, those in flight included, as of the last audit.")
	descTakesDropped     = desc("redis_takes_dropped_total", "Users' quantities of limited SKUs that Redis was not told of; the database decides about them.")
	descUnknownAge       = desc("unknown_oldest_seconds", "How long the oldest of them has been so: alert when it passes the order service's order_delay.")
	descAheadPending     = desc("ahead_pending", "Orders forwarded ahead that are not settled yet; at ahead.pending orders wait for their commit.")
	descAheadSurplus     = desc("ahead_surplus_total", "Orders forwarded ahead that found nothing left to deduct; each is compensated.")
	descAheadAstray      = desc("ahead_astray_total", "Orders forwarded ahead whose reservation was another's or was ended: compare with the order service, and alert on it.")
	descDraining         = desc("partitions_draining", "Partitions that do not sell ahead now, by state: draining or drained.", "state")
	descDoubts           = desc("doubts", "Silent replicas, and losses of commits by the database, after which units of a grant may have been sold; counted for each partition: alert on it.")
	descStuck            = desc("expiry_stuck", "Reservations past their time that cannot be ended: a stock row is gone or corrupt, or their route is not configured. Alert on it.")
	descBroken           = desc("invariant_violations", "Violations of an invariant that the last audit found; absent: not checked online.", "invariant")
	descAudited          = desc("audited_skus", "SKUs in the last audit.")
	descClockOffset      = desc("clock_offset_seconds", "How far the database's clock is ahead of this gateway's. Windows and forward-by follow the database's.")
	descClockUncertainty = desc("clock_offset_uncertainty_seconds", "How wrong stockgate_clock_offset_seconds may be: half of the time that the measuring took.")
	descRules            = desc("rules_version", "Version of the rules of the sale that this gateway uses; 0: its own, the database was not reached yet.")
	descReloadOK         = desc("config_last_reload_success", "1: the configuration file, as last looked at, is in use; 0: it cannot be used, and what was before goes on. Alert on it.")
	descReloadAt         = desc("config_last_reload_success_timestamp_seconds", "Since when the configuration that is in use is.")
	descReloads          = desc("config_reloads_total", "Changed configuration files, by what became of them: taken, or refused.", "result")
	descNotAudited       = desc("audit_left_out_skus", "SKUs left out of the last audit, because their ledger is too long to read online.")
)

// Describe sends nothing: what there is depends on the configuration. The registry then checks each scrape.
func (c appCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c appCollector) Collect(out chan<- prometheus.Metric) {
	e := emitter{out}
	e.gauge(descBuild, 1, version, runtime.Version())
	e.gauge(descReplicas, float64(c.a.beat.Live()))
	if offset, uncertainty, measured := c.a.beat.Offset(); measured {
		e.gauge(descClockOffset, offset.Seconds())
		e.gauge(descClockUncertainty, uncertainty.Seconds())
	}
	e.gauge(descRules, float64(c.a.sale.current.Load().version))
	c.reloads(e)
	c.database(e)
	c.upstreams(e)
	c.tokens(e)
	if c.a.redis != nil {
		c.redis(e)
	}
	if c.a.readyCore() != nil {
		c.traffic(e)
	}
	for _, l := range c.a.loops() {
		s := l.Stats()
		e.gauge(descJobSuccess, seconds(s.LastSuccess), l.Name())
		e.counter(descJobFailures, s.Failures, l.Name())
	}
	c.audit(e)
}

func (c appCollector) reloads(e emitter) {
	if c.a.reloader == nil {
		return
	}
	tries, ok := c.a.reloader.counts()
	success := 0.0
	if ok {
		success = 1
	}
	e.gauge(descReloadOK, success)
	e.gauge(descReloadAt, seconds(c.a.reloader.loaded.Load().at))
	for result, n := range tries {
		e.counter(descReloads, n, result)
	}
}

var classNames = [stock.ClassesOfWork]string{"forwarded", "prededuct", "database"}

func (c appCollector) database(e emitter) {
	q := c.a.queue.Stats()
	for class, name := range classNames {
		e.gauge(descWaiting, float64(q.Waiting[class]), name)
		e.counter(descRefused, q.Refused[class], name)
		e.counter(descLate, q.Late[class], name)
	}
	e.gauge(descInFlight, float64(q.InFlight))
	d := c.a.deducter.Stats()
	e.counter(descTransactions, d.Transactions)
	e.counter(descOps, d.Ops)
	e.counter(descLocked, d.Locked)
	e.counter(descRepeated, d.Repeated)
	e.counter(descLostCommits, d.Unknown)
	e.counter(descFailed, d.Failed)
	e.counter(descParked, d.Parked)
	pool := c.a.store.Pool()
	e.gauge(descPool, float64(pool.Busy), "busy")
	e.gauge(descPool, float64(pool.Idle), "idle")
	e.gauge(descPool, float64(pool.Most), "max")
	e.counter(descPoolWaits, pool.Waited)
}

func (c appCollector) redis(e emitter) {
	nodes, opened := c.a.redis.breaker.Stats()
	for _, state := range []string{"closed", "open", "probing"} {
		now := 0.0
		for _, b := range nodes {
			if b.State.String() == state {
				now++
			}
		}
		e.gauge(descBreaker, now, state)
	}
	e.counter(descOpened, opened)
	s := c.a.redis.client.Stats()
	e.counter(descScripts, uint64(s.Calls))
	e.counter(descReserved, uint64(s.Reservations))
	e.counter(descStale, uint64(s.Stale))
	e.counter(descCorrupt, uint64(s.Corrupt))
	e.counter(descDropped, uint64(s.ClosingsDropped+s.FactsDropped))
	e.counter(descTakesDropped, uint64(s.TakesDropped))
	e.gauge(descConnections, float64(s.Connections))
	drains := c.a.redis.wayBack.Drains()
	e.gauge(descDraining, float64(drains.Draining), stock.PartitionDraining)
	e.gauge(descDraining, float64(drains.Drained), stock.PartitionDrained)
	e.gauge(descDoubts, float64(drains.Doubtful))
}

func (c appCollector) traffic(e emitter) {
	core := c.a.readyCore()
	for _, l := range c.a.filters.Limits.Stats() {
		e.counter(descLimitPassed, l.Passed, l.Limit)
		e.counter(descLimitRefused, l.Refused, l.Limit)
		e.counter(descLimitShadow, l.WouldRefuse, l.Limit)
		e.counter(descLimitOverflow, l.Overflowed, l.Limit)
		e.gauge(descLimitKeys, float64(l.Keys), l.Limit)
		e.gauge(descLimitLeases, float64(l.Leases), l.Limit)
		e.counter(descLimitAsks, l.Answered, l.Limit, "answered")
		e.counter(descLimitAsks, l.Failed, l.Limit, "failed")
	}
	for _, l := range c.a.filters.Lanes.Stats() {
		e.gauge(descLaneHeld, float64(l.Held), l.Lane)
		e.gauge(descLaneWaiting, float64(l.Waiting), l.Lane)
		e.counter(descLaneRefused, l.OverRate, l.Lane, "rate")
		e.counter(descLaneRefused, l.QueueFull, l.Lane, "queue")
		e.counter(descLaneRefused, l.Late, l.Lane, "max_wait")
		e.counter(descLaneRefused, l.SoldOut, l.Lane, "sold_out")
	}
	tally, hot, fading := c.a.filters.Lanes.Detected()
	e.gauge(descLanesHot, float64(len(hot)))
	e.gauge(descLanesFading, float64(fading))
	e.counter(descLaneChanges, tally.Promoted, "promoted")
	e.counter(descLaneChanges, tally.Demoted, "demoted")
	e.counter(descLanesCrowded, tally.Crowded)
	pending, _ := core.admitter.Pending()
	e.gauge(descPending, float64(pending))
	ahead := core.admitter.Aheads()
	e.gauge(descAheadPending, float64(ahead.Pending))
	e.counter(descAheadSurplus, uint64(ahead.Surplus))
	e.counter(descAheadAstray, uint64(ahead.Astray))
}

func (c appCollector) audit(e emitter) {
	for _, v := range c.a.audit.verdicts() {
		if v.State != api.InvariantUnchecked {
			e.gauge(descBroken, float64(v.Violations), v.Name)
		}
	}
	count, oldest, _ := c.a.audit.shown()
	e.gauge(descUnknown, float64(count))
	if core := c.a.readyCore(); core != nil {
		e.gauge(descStuck, float64(core.expirer.Stuck()))
	}
	e.gauge(descUnknownAge, oldest.Seconds())
	checked, tooLarge := c.a.audit.coverage()
	e.gauge(descAudited, float64(checked))
	e.gauge(descNotAudited, float64(tooLarge))
}

// upstreams shows the breakers.
func (c appCollector) upstreams(e emitter) {
	for _, u := range c.a.server.Upstreams() {
		if !u.HasBreaker {
			continue
		}
		for _, state := range breaker.StateNames() {
			now := 0.0
			if u.Breaker.State.String() == state {
				now = 1
			}
			e.gauge(descUpstreamBreaker, now, u.Name, state)
		}
		e.counter(descUpstreamOpened, u.Breaker.Opened, u.Name)
		e.counter(descUpstreamDenied, u.Breaker.Denied, u.Name)
	}
}

// tokens shows what became of buyers' tokens.
func (c appCollector) tokens(e emitter) {
	if c.a.tokens == nil {
		return
	}
	s := c.a.tokens.Stats()
	e.counter(descTokens, s.Cached, "cached")
	e.counter(descTokens, s.Verified, "verified")
	e.counter(descTokens, s.Refused, "refused")
	e.counter(descTokens, s.Pending, "pending")
	e.gauge(descTokenKeys, float64(s.Keys))
	e.gauge(descTokensKept, float64(s.Tokens))
}

// loops are the background jobs of this gateway.
func (a *app) loops() []*loop.Loop {
	list := []*loop.Loop{a.beat.Loop(), a.sale.loop, a.audit.loop, a.compensation.Loop()}
	list = append(list, a.resolver.Loops()...)
	if a.tokens != nil {
		list = append(list, a.tokens.Loop())
	}
	if r := a.redis; r != nil {
		list = append(list, r.wayBack.Loops()...)
		list = append(list, r.sweeper.Loop())
		list = append(list, r.tailer.Loops()...)
	}
	if core := a.readyCore(); core != nil {
		list = append(list, core.expirer.Loops()...)
	}
	return list
}

// emitter sends metrics; a label that does not fit would be a bug, and shows as a failed scrape.
type emitter struct{ out chan<- prometheus.Metric }

func (e emitter) gauge(d *prometheus.Desc, v float64, labels ...string) {
	e.out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (e emitter) counter(d *prometheus.Desc, v uint64, labels ...string) {
	e.out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixNano()) / 1e9
}
