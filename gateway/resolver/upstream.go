package resolver

import (
	"context"
	"io"
	"net/http"
	"strings"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/internal/ordercall"
	"github.com/stockgate/stockgate/stock"
)

const (
	bodyBytesMax = 64 << 10
)

// upstream is one order service: how it is asked, and what is known of how it answers.
type upstream struct {
	Upstream
	base    context.Context // ends with the Resolver
	http    *http.Transport // bounded connections; it follows no redirect and keeps no cookies
	slots   chan struct{}   // one a question under way
	flights flights
	circuit circuit
	trust   trust
	metrics *upstreamMetrics
	log     *zap.Logger
}

func newUpstream(base context.Context, u Upstream, cfg *Config, m *upstreamMetrics) *upstream {
	up := &upstream{Upstream: u, base: base, slots: make(chan struct{}, cfg.Asks), metrics: m,
		log: cfg.Log.With(zap.String("upstream", u.Name))}
	up.circuit = circuit{now: cfg.Now, jitter: shorter}
	up.flights.of = map[stock.ID]*flight{}
	up.trust = trust{now: cfg.Now, every: cfg.ProbeEvery, again: cfg.ProbeAgain}
	up.http = ordercall.Transport(u.TLS, cfg.Asks+1) // and the probe's
	return up
}

// ask asks about a reservation, or shares the answer of a question that was begun after the call. patient waits for a free place, else
// there is no answer if all are taken. It returns when ctx ends at the latest; the question goes on for those who share it.
func (u *upstream) ask(ctx context.Context, id stock.ID, patient bool) answer {
	if f := u.flights.now(id); f != nil {
		if got := f.wait(ctx); got.lasts() {
			return got
		}
	}
	return u.fly(ctx, id, patient)
}

// fly begins a question once the upstream may be asked, or shares one that somebody else has begun meanwhile.
func (u *upstream) fly(ctx context.Context, id stock.ID, patient bool) answer {
	if no := u.believe(ctx); no.result != "" {
		u.metrics.asked(no.result)
		return no
	}
	if !u.place(ctx, patient) {
		u.metrics.asked(resultBusy)
		return answer{resultBusy, "all places for questions are taken"}
	}
	f, first := u.flights.join(id)
	switch {
	case !first:
		<-u.slots
	case !u.circuit.allow():
		<-u.slots
		u.metrics.asked(resultResting)
		u.flights.land(id, f, answer{resultResting, "it has failed too often in a row"})
	default:
		go func() {
			defer func() { <-u.slots }()
			got := u.question(id)
			u.metrics.asked(got.result)
			u.flights.land(id, f, got)
		}()
	}
	return f.wait(ctx)
}

func (u *upstream) place(ctx context.Context, patient bool) bool {
	if !patient {
		select {
		case u.slots <- struct{}{}:
			return true
		default:
			return false
		}
	}
	select {
	case u.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// question is one exchange. The circuit hears how it went. A panic (of Sign) is the question's own.
func (u *upstream) question(id stock.ID) (got answer) {
	defer func() {
		if r := recover(); r != nil {
			u.log.Error("a question to the order service panicked", zap.Stringer("reservation", id), zap.Any("panic", r))
			u.heard(true)
			got = answer{resultUnreachable, "the question panicked"}
		}
	}()
	r := u.get(id)
	u.heard(r.down())
	return r.answer()
}

// heard tells the circuit and logs where it turns.
func (u *upstream) heard(down bool) {
	switch {
	case u.base.Err() != nil: // we broke it off ourselves
	case down && u.circuit.failed():
		u.log.Warn("the order service does not answer; it is asked less often until it does")
	case !down && u.circuit.good():
		u.log.Info("the order service answers again")
	}
}

// get sends one GET and reads what comes back.
func (u *upstream) get(id stock.ID) reply {
	ctx, cancel := context.WithTimeout(u.base, u.timeout())
	defer cancel()
	name := id.String()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(u.URL, "/")+strings.ReplaceAll(u.Resolve, ordercall.Placeholder, name), nil)
	if err != nil {
		return reply{err: err}
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "stockgate")
	req.Header.Set("Stockgate-Reservation", name)
	if u.Sign != nil {
		req.Header.Set("Stockgate-Signature", u.Sign(req.Method, req.URL.RequestURI(), name, nil))
	}
	resp, err := u.http.RoundTrip(req) // not a Client: what it adds is redirects and cookies
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, bodyBytesMax+1))
	return reply{status: resp.StatusCode, body: body, whole: len(body) <= bodyBytesMax, err: err}
}
