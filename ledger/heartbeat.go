package ledger

import (
	"context"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/internal/clockstep"
	"github.com/stockgate/stockgate/internal/loop"
	"github.com/stockgate/stockgate/stock"
)

// Beater writes heartbeats; Store is one.
type Beater interface {
	Beat(ctx context.Context, gatewayID string, redisOK bool, out []bool) (stock.Pulse, error)
}

// HeartbeatConfig sets a Heartbeat. Zero values mean the defaults, where one is named.
type HeartbeatConfig struct {
	// Gateway is this replica's id.
	Gateway string
	// Every is the pause between beats. Defaults to 1 s.
	Every time.Duration
	// Stale is how old the last beat may be for its word on all replicas to count. Defaults to 5 s.
	Stale time.Duration
	// ReplicaTimeout is when the others take this replica for gone. Defaults to 10 s.
	ReplicaTimeout time.Duration
	// RedisOK reports whether this replica reaches Redis and Redis has heard all that it did. Needed; must not block.
	RedisOK func() bool
	// Out tells by partition whether this replica does not reach its Redis node; nil, or a nil answer, means that it reaches all. It must
	// not block. The slice is read before the beat ends, and not kept.
	Out func() []bool
	// Listen is told of every beat, from the goroutine of Run. It must not block: the next beat waits for it.
	Listen func(stock.Pulse)
	// Log may be nil.
	Log *zap.Logger
}

// Heartbeat keeps this replica's row in the gateway table fresh and knows what the last beat told of the fleet.
type Heartbeat struct {
	cfg   HeartbeatConfig
	store Beater
	loop  *loop.Loop
	last  atomic.Pointer[beat]
	clock atomic.Pointer[clockOffset]
}

type beat struct {
	pulse stock.Pulse
	at    time.Time // our own clock, when the beat was sent
}

// NewHeartbeat makes a Heartbeat; Run does the work.
func NewHeartbeat(store Beater, cfg HeartbeatConfig) *Heartbeat {
	if cfg.Every <= 0 {
		cfg.Every = time.Second
	}
	if cfg.Stale <= 0 {
		cfg.Stale = 5 * time.Second
	}
	if cfg.ReplicaTimeout <= 0 {
		cfg.ReplicaTimeout = 10 * time.Second
	}
	h := &Heartbeat{cfg: cfg, store: store}
	h.loop = loop.New("heartbeat", cfg.Every, cfg.Log, h.pass)
	return h
}

// Run beats until ctx ends.
func (h *Heartbeat) Run(ctx context.Context) { h.loop.Run(ctx) }

// Loop is the job, for metrics.
func (h *Heartbeat) Loop() *loop.Loop { return h.loop }

// pass writes one heartbeat.
func (h *Heartbeat) pass(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	var out []bool
	if h.cfg.Out != nil {
		out = h.cfg.Out()
	}
	at := clockstep.Now()
	pulse, err := h.store.Beat(ctx, h.cfg.Gateway, h.cfg.RedisOK(), out)
	if err != nil {
		return err
	}
	h.last.Store(&beat{pulse: pulse, at: at})
	h.measure(pulse.Now, at, time.Since(at))
	if h.cfg.Listen != nil {
		h.cfg.Listen(pulse)
	}
	return nil
}

// Live is how many replicas were alive at the last beat, at least 1. It does not block.
func (h *Heartbeat) Live() int {
	if b := h.last.Load(); b != nil {
		return max(b.pulse.Live, 1)
	}
	return 1
}

// AllRedisOK reports whether every live replica reaches Redis and has told it all. When that was last heard too long ago, or never,
// it is false. It does not block.
func (h *Heartbeat) AllRedisOK() bool {
	b := h.last.Load()
	return b != nil && b.pulse.AllRedisOK && time.Since(b.at) <= h.cfg.Stale
}

// HeardLately reports whether the last beat that succeeded was sent within ReplicaTimeout: after that the others may take this replica for
// gone. The database wrote the row later than it was sent, so they never do so earlier. It does not block.
func (h *Heartbeat) HeardLately() bool {
	b := h.last.Load()
	return b != nil && time.Since(b.at) < h.cfg.ReplicaTimeout
}

// Pulse is what the last beat told of the fleet; before the first one it is the zero Pulse. It does not block. The caller must not change
// what it points to.
func (h *Heartbeat) Pulse() stock.Pulse {
	if b := h.last.Load(); b != nil {
		return b.pulse
	}
	return stock.Pulse{}
}

// AloneSince reports whether a beat sent after that moment, by our own clock, found no other live replica. It does not block.
func (h *Heartbeat) AloneSince(moment time.Time) bool {
	b := h.last.Load()
	return b != nil && b.at.After(moment) && b.pulse.Live == 1
}
