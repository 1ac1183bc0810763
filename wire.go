package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"

	"github.com/stockgate/stockgate/config"
	"github.com/stockgate/stockgate/fallback"
	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/filters/builtin"
	"github.com/stockgate/stockgate/filters/ratelimit"
	"github.com/stockgate/stockgate/gateway"
	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/gateway/control"
	"github.com/stockgate/stockgate/gateway/jwt"
	"github.com/stockgate/stockgate/gateway/resolver"
	"github.com/stockgate/stockgate/gateway/shadow"
	"github.com/stockgate/stockgate/internal/certs"
	"github.com/stockgate/stockgate/internal/clockstep"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/luascripts"
	"github.com/stockgate/stockgate/reconcile/compensation"
	"github.com/stockgate/stockgate/stock"
)

const (
	// transactionTime is how long one transaction may take once it has started: lock and statement time-outs, and its commit. It ends
	// the transaction, too: who has waited that long undoes it, and nothing of it may come after.
	transactionTime = 4 * time.Second
	// bookWait is how long a client waits for the commit of its outcome; then it gets the backend's answer, and the commit is repeated.
	bookWait = 250 * time.Millisecond
	// embeddedTimeout is the least redis.timeout of the embedded Redis.
	embeddedTimeout = 2 * time.Second
)

// app is one gateway: everything that is there before the database was reached, and core, which is there afterwards. The public side is
// there from the start: what it cannot admit yet it refuses, so that no request waits for the database unseen.
type app struct {
	cfg       *config.Config                // as it was at the start; of what a reload may change use config
	live      atomic.Pointer[config.Config] // in use
	level     zap.AtomicLevel
	reloader  *reloader // nil: there is no file
	log       *zap.Logger
	gatewayID string
	started   time.Time
	registry  *prometheus.Registry
	readiness *control.Readiness
	certs     *certs.Set
	secured   secured

	store        *ledger.Store
	queue        *fallback.Queue[*ledger.Work]
	deducter     *ledger.Deducter
	beat         *ledger.Heartbeat
	redis        *redisSide        // nil: redis.mode none
	drainer      *fallback.WayBack // redis.mode none alone
	sale         *sale
	resolver     *resolver.Resolver
	compensation *compensation.Job
	shadow       *shadow.Counter
	audit        *auditor
	filters      *builtin.Set
	shadowLimits *ratelimit.Filter
	chain        *filters.Chain // of filters
	shadowChain  *filters.Chain // of shadowLimits
	server       *gateway.Server
	tokens       *jwt.Verifier // nil: none are taken

	beaten  chan struct{}                   // closed with the first heartbeat
	ready   atomic.Pointer[core]            // nil until the database was reached
	onReady func(ctx context.Context) error // nil: nothing more to do
	control *control.Server
	public  net.Listener
	private net.Listener
	checks  net.Listener // nil: check mode is off
}

// redisSide is what only a gateway with Redis has.
type redisSide struct {
	breaker *fallback.Breakers
	client  *luascripts.Client
	wayBack *fallback.WayBack
	sweeper *fallback.Sweeper
	tailer  *ledger.Tailer
	served  *ledger.Served
	aheads  *admission.Aheads
}

// core is what needs the deployment's id.
type core struct {
	meta     ledger.Meta
	admitter *admission.Admitter
	expirer  *ledger.Expirer
}

// newApp wires what can be wired before anything is reached, and binds both addresses, so that a port that is taken shows at once.
func newApp(cfg *config.Config, log *zap.Logger) (*app, error) {
	id, err := uuid.NewRandom()
	if err != nil {
		return nil, fmt.Errorf("draw a gateway id: %w", err)
	}
	a := &app{cfg: cfg, gatewayID: id.String(), started: time.Now(), registry: prometheus.NewRegistry(), readiness: control.NewReadiness(),
		beaten: make(chan struct{}), level: zap.NewAtomicLevel()}
	a.live.Store(cfg)
	a.log = log.With(zap.String("gateway", a.gatewayID[:8]))
	a.certs = certs.NewSet(a.log)
	if a.secured, err = secure(a.certs, cfg); err != nil {
		return nil, err
	}
	if a.store, err = ledger.Open(ledgerConfig(cfg)); err != nil {
		return nil, err
	}
	a.queue = fallback.NewQueue[*ledger.Work](queueConfig(cfg))
	a.deducter = ledger.NewDeducter(a.store, a.queue, ledger.DeducterConfig{Workers: cfg.Database.Commit.Workers,
		Batch: cfg.Database.Commit.Batch, ExecTimeout: transactionTime, Log: a.log})
	if err := a.wireRedis(); err != nil {
		return nil, err
	}
	a.wireHeartbeat()
	if err := a.wireSale(); err != nil {
		return nil, err
	}
	a.audit = newAuditor(a)
	if err := a.wirePublic(); err != nil {
		return nil, err
	}
	if err := a.wireControl(); err != nil {
		return nil, err
	}
	return a, a.listen()
}

// readyCore is the core, nil before the database was reached.
func (a *app) readyCore() *core { return a.ready.Load() }

func (a *app) listen() error {
	var err error
	if a.private, err = net.Listen("tcp", a.cfg.Control.Listen); err != nil {
		return fmt.Errorf("control.listen: %w", err)
	}
	if a.public, err = net.Listen("tcp", a.cfg.Listen); err != nil {
		return errors.Join(fmt.Errorf("listen: %w", err), a.private.Close())
	}
	if a.cfg.Check.Listen == "" {
		return nil
	}
	if a.checks, err = net.Listen("tcp", a.cfg.Check.Listen); err != nil {
		return errors.Join(fmt.Errorf("check.listen: %w", err), a.private.Close(), a.public.Close())
	}
	return nil
}

// epochsOf breaks the circle of client and way back: the client asks for epochs, the way back works with the client.
type epochsOf struct{ wayBack *fallback.WayBack }

// Epoch implements luascripts.Epochs.
func (e *epochsOf) Epoch(p int) (int64, string) { return e.wayBack.Epoch(p) }

// Stale takes the client's hints.
func (e *epochsOf) Stale(p int) { e.wayBack.Stale(p) }

// nodeGuards gives the client a breaker for each node.
type nodeGuards struct{ *fallback.Breakers }

// Do implements luascripts.Guard; the client asks the node's own breaker.
func (g nodeGuards) Do(call func() error) error { return g.Of("").Do(call) }

// Of implements luascripts.NodeGuards.
func (g nodeGuards) Of(node string) luascripts.Guard { return g.Breakers.Of(node) }

func (a *app) wireRedis() error {
	if a.cfg.Redis.Mode == config.RedisNone {
		a.wireNoRedis()
		return nil
	}
	cfg, err := redisConfig(a.cfg)
	if err != nil {
		return err
	}
	r, epochs := &redisSide{}, &epochsOf{}
	bc := breakerConfig(a.cfg)
	bc.OnChange, bc.Log = a.breakerChanged, a.log
	r.breaker = fallback.NewBreakers(bc, r.ping)
	if r.client, err = luascripts.Open(cfg, epochs, nodeGuards{r.breaker}, a.log); err != nil {
		return err
	}
	usable := func(p int) bool { return r.breaker.Closed(r.client.NodeOf(p)) }
	r.served = ledger.NewServed(0)
	r.aheads = admission.NewAheads(a.cfg.Redis.Partitions, func(p int) int64 {
		epoch, _ := epochs.Epoch(p)
		return epoch
	})
	r.wayBack = fallback.NewWayBack(a.store, r.client, a.deducter, fallback.WayBackConfig{Holder: a.gatewayID,
		Partitions: a.cfg.Redis.Partitions, AnswersKeep: a.cfg.Answers.Keep.Std(), ReplicaTimeout: a.cfg.ReplicaTimeout.Std(),
		Lookback: a.cfg.Breaker.Window.Std() + 5*time.Second, Usable: usable, Now: a.databaseNow, Check: a.checkRedis,
		Dropped: r.client.Dropped, AloneSince: func(t time.Time) bool { return a.beat.AloneSince(t) }, Served: r.served.All, Idle: r.aheads.Idle, Pulse: func() stock.Pulse { return a.beat.Pulse() },
		Eventual:    func(sku string) bool { return a.sale.book().Eventual(sku) },
		AnyEventual: func() bool { return a.sale.book().AnyEventual() }, RulesVersion: func() int64 { return a.sale.version() }, Log: a.log})
	epochs.wayBack = r.wayBack
	r.sweeper = fallback.NewSweeper(a.store, r.client, a.deducter, fallback.SweeperConfig{Holder: a.gatewayID,
		Partitions: a.cfg.Redis.Partitions, Usable: usable, Claims: func() bool { return a.sale.AnyEventual() }, Log: a.log})
	r.tailer = ledger.NewTailer(a.store, r.client, a.deducter, ledger.TailerConfig{Partitions: a.cfg.Redis.Partitions,
		Served: r.served, Usable: usable, Now: a.databaseNow, Log: a.log})
	a.redis = r
	return nil
}

func (a *app) wireHeartbeat() {
	first := sync.OnceFunc(func() { close(a.beaten) })
	a.beat = ledger.NewHeartbeat(a.store, ledger.HeartbeatConfig{Gateway: a.gatewayID, Log: a.log, Stale: a.cfg.ReplicaTimeout.Std() / 2,
		ReplicaTimeout: a.cfg.ReplicaTimeout.Std(),
		// A replica without Redis tells it nothing, so where others have one their ids are not all there.
		RedisOK: func() bool { return a.redis != nil && a.redis.wayBack.RedisOK() },
		Out:     func() []bool { return a.reaches().Out() },
		Listen: func(p stock.Pulse) {
			defer first()
			a.queue.SetReplicas(p.Live)
			if a.readyCore() != nil {
				a.filters.Limits.SetReplicas(p.Live, clockstep.Now())
			}
			a.reaches().Heard()
		}})
}

// wireSale wires what the rules of the sale and the order services' word come from.
func (a *app) wireSale() error {
	var err error
	if a.sale, err = newSale(a.cfg, a.store, a.beat.Now, a.log); err != nil {
		return err
	}
	if a.redis != nil {
		a.sale.anyAhead = a.redis.wayBack.AnyAhead
	}
	a.compensation, err = compensation.New(compensationConfig(a.cfg, a.secured, a.gatewayID, a.sale.now, a.log), compensation.Parts{Store: a.store,
		Worker: a.deducter, Committed: a.committed, Metrics: a.registry})
	if err != nil {
		return err
	}
	a.resolver, err = resolver.New(resolverConfig(a.cfg, a.secured, a.gatewayID, a.sale.now, a.log), resolver.Parts{Store: a.store, Worker: a.deducter,
		Committed: a.committed, Metrics: a.registry})
	if err != nil {
		return err
	}
	a.shadow, err = shadow.New(shadow.Config{}, shadow.Parts{Sale: a.sale, Facts: shadowFacts{a.store}, Log: a.log, Registry: a.registry})
	return err
}

func (a *app) wireControl() error {
	deps := control.Deps{Deducter: a.deducter, Store: a.store, Records: a.store, Repairs: a.store, Admission: lateAdmission{a}, Sale: a.sale,
		Committed: a.committed, Told: a.told, Status: a.status, Readiness: a.readiness, Registry: a.registry, Log: a.log,
		Routes: func() []string { return a.resolvable() }, Deployment: a.deployment, Reload: a.reloadByAPI, Configuration: a.configuration,
		Candidates: func(user, request string) []stock.ID {
			return a.sale.candidates(a.deployment(), guardedRoutes(a.config()), user, request)
		}}
	if a.redis != nil {
		deps.Cache, deps.Open = a.redis.client, lateAdmission{a}
	}
	if err := a.registerMetrics(); err != nil {
		return err
	}
	var err error
	a.control, err = control.New(controlConfig(a.cfg, a.secured), deps)
	return err
}

// deployment is its id, "" before the database was reached.
func (a *app) deployment() string {
	if core := a.readyCore(); core != nil {
		return core.meta.Deployment
	}
	return ""
}

func (a *app) registerMetrics() error {
	return errors.Join(
		a.registry.Register(collectors.NewGoCollector()),
		a.registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})),
		a.registry.Register(newAppCollector(a)),
		a.registry.Register(a.certs),
	)
}

// newCore wires what admits orders.
func (a *app) newCore(meta ledger.Meta) *core {
	c := &core{meta: meta}
	parts := admission.Parts{Ledger: a.deducter, Rows: a.store, Facts: a.store, Fleet: fleetOf{a.beat, a.store}, Sale: a.sale, Emptied: a.filters.Lanes.Drain, Backend: control.WithDirect(a.resolver), Log: a.log}
	var publish ledger.Publisher
	if a.redis != nil {
		parts.Cache, parts.Epochs, publish = a.redis.client, a.redis.wayBack, a.redis.client
		parts.Served, parts.Aheads = a.redis.served.Touch, a.redis.aheads
		parts.Drained = func(p int) bool { return a.redis.wayBack.State(p).State == stock.PartitionDrained }
	}
	c.admitter = admission.New(admission.Config{Deployment: meta.Deployment, Gateway: a.gatewayID, Partitions: meta.Partitions,
		ForwardWithin: a.cfg.ForwardWithin.Std(), QueueWait: a.cfg.Fallback.Queue.MaxWait.Std(), Transaction: transactionTime,
		BookWait: bookWait, AheadMax: min(a.cfg.Ahead.Pending, a.cfg.Answers.Pending), Replicas: a.beat.Live, PendingMax: a.cfg.Answers.Pending, FindMax: a.cfg.Fallback.Queue.Total, LoadRate: a.cfg.Redis.Loads.PerSecond(),
		StockWait: a.filters.Lanes.MaxWait}, parts)
	c.expirer = ledger.NewExpirer(a.store, a.deducter, publish, ledger.ExpirerConfig{Holder: a.gatewayID,
		Partitions: meta.Partitions, Routes: expiringRoutes(a.cfg), Asked: a.resolver.Routes(), Log: a.log})
	return c
}

// fleetOf is what admission may know of the other gateways.
type fleetOf struct {
	*ledger.Heartbeat
	store *ledger.Store
}

// Alive implements admission.Fleet.
func (f fleetOf) Alive(ctx context.Context, gateway string) (alive, known bool) {
	live, err := f.store.Alive(ctx, []string{gateway})
	return live[gateway], err == nil
}

// wirePublic wires the public side.
func (a *app) wirePublic() error {
	var err error
	late := lateAdmission{a}
	limited := filterConfig(a.cfg, late.soldOut)
	if a.redis != nil {
		limited.Limits.Lessor = a.redis.client
	}
	limited.Lanes.OnChange = laneChanges(a.log)
	if a.filters, err = builtin.New(limited); err != nil {
		return err
	}
	// Shadow takes nothing that real orders need: it leases no tokens.
	if a.shadowLimits, err = ratelimit.New(filterConfig(a.cfg, late.soldOut).Limits); err != nil {
		return err
	}
	if a.tokens, err = tokens(a.cfg, a.log); err != nil {
		return err
	}
	var verifier gateway.Tokens
	if a.tokens != nil {
		verifier = a.tokens
	}
	a.wireChains(a.shadowLimits)
	a.server, err = gateway.New(gatewayConfig(a.cfg, a.secured), gateway.Parts{Tokens: verifier, Admission: late, Limits: a.chain,
		QuotaStyle: quotaStyle(a.cfg.RateLimitHeaders), Rules: a.sale, Shadow: a.shadow, ShadowLimits: a.shadowChain, Now: a.sale.now,
		Log: a.log, Registry: a.registry})
	return err
}

// lateAdmission refuses until there is a core.
type lateAdmission struct{ a *app }

// Admit implements gateway.Admission.
func (l lateAdmission) Admit(ctx context.Context, w *admission.Wish) admission.Decision {
	if core := l.a.readyCore(); core != nil {
		return core.admitter.Admit(ctx, w)
	}
	return admission.Decision{Source: admission.SourceNone, Refusal: starting()}
}

func starting() *admission.Refusal {
	return &admission.Refusal{Code: stock.CodeUnavailable, Detail: "This gateway is starting and has not reached its database yet."}
}

// Book implements gateway.Admission. There is a core: it gave the pass.
func (l lateAdmission) Book(ctx context.Context, p *admission.Pass, o admission.Outcome) {
	l.a.readyCore().admitter.Book(ctx, p, o)
}

// BookBehind implements gateway.Admission.
func (l lateAdmission) BookBehind(p *admission.Pass, o admission.Outcome) {
	l.a.readyCore().admitter.BookBehind(p, o)
}

// Status implements gateway.Admission.
func (l lateAdmission) Status(ctx context.Context, w *admission.Wish) (*stock.Row, *admission.Refusal) {
	if core := l.a.readyCore(); core != nil {
		return core.admitter.Status(ctx, w)
	}
	return nil, starting()
}

// Recall implements gateway.Admission.
func (l lateAdmission) Recall(ctx context.Context, w *admission.Wish) (admission.Decision, bool) {
	if core := l.a.readyCore(); core != nil {
		return core.admitter.Recall(ctx, w)
	}
	return admission.Decision{}, false
}

// SettleOpen implements control.Open. Before there is a core nobody has asked Redis.
func (l lateAdmission) SettleOpen(ctx context.Context, id stock.ID) (settled bool, err error) {
	if core := l.a.readyCore(); core != nil {
		return core.admitter.SettleOpen(ctx, id)
	}
	return false, stock.ErrUnavailable
}

func (l lateAdmission) soldOut(sku string, qty int64) bool {
	core := l.a.readyCore()
	return core != nil && core.admitter.SoldOut(sku, qty)
}
