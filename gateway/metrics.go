package gateway

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/stock"
)

// metrics are the collectors of the public side. Labels come from the configuration (route, upstream) and from closed sets (code,
// source, result): nothing that a client sends becomes a label.
type metrics struct {
	requests  *prometheus.CounterVec   // route, code, source
	duration  *prometheus.HistogramVec // route
	upstream  *prometheus.HistogramVec // upstream, result
	full      *prometheus.CounterVec   // upstream
	outcomes  *prometheus.CounterVec   // route, outcome
	panics    prometheus.Counter
	untrusted prometheus.Counter
	broken    prometheus.Counter
	ungreeted *prometheus.CounterVec // reason
	cuts      *prometheus.CounterVec // upstream, by
	upgrades  *prometheus.GaugeVec   // upstream

	// Of the labels in use. mu also guards that no series of a name comes about after it is gone.
	mu        sync.Mutex
	routes    map[string]*routeMetrics
	upstreams map[string]*upstreamMetrics
}

const namespace = "stockgate"

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{routes: map[string]*routeMetrics{}, upstreams: map[string]*upstreamMetrics{},
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "requests_total",
			Help: "Answered requests by route, code (a stable code, or the class of a backend's status) and source of the decision."},
			[]string{"route", "code", "source"}),
		duration: prometheus.NewHistogramVec(histogram("request_duration_seconds", "From the whole request read to the answer ready."),
			[]string{"route"}),
		upstream: prometheus.NewHistogramVec(histogram("upstream_duration_seconds", "Exchanges with a backend, by result."),
			[]string{"upstream", "result"}),
		full: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "upstream_full_total",
			Help: "Requests refused because all connections of an upstream were in use."}, []string{"upstream"}),
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "outcomes_total",
			Help: "What became of admitted requests at the backend."}, []string{"route", "outcome"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "panics_total",
			Help: "Requests that ended in a panic and were answered with 500."}),
		untrusted: prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "untrusted_forwarded_total",
			Help: "Requests with X-Forwarded-* from a peer that is not in trusted_proxies."}),
		broken: prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "unreadable_requests_total",
			Help: "Requests refused before their header and body were read: broken, too large or too slow."}),
		ungreeted: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "ungreeted_connections_total",
			Help: "Connections ended before their first request: no proper PROXY header or TLS handshake in time, or none may be there."},
			[]string{"reason"}),
		cuts: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "answers_broken_off_total",
			Help: "Requests of plain routes that ended without their whole answer, by who ended them: backend, client, idle or shutdown."},
			[]string{"upstream", "by"}),
		upgrades: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: "upgraded_connections",
			Help: "WebSocket connections that are open now."}, []string{"upstream"}),
	}
	for _, c := range []prometheus.Collector{m.requests, m.duration, m.upstream, m.full, m.outcomes, m.panics, m.untrusted, m.broken,
		m.ungreeted, m.cuts, m.upgrades} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// histogram has the buckets of OpenTelemetry's HTTP conventions, and native ones for servers that take them.
func histogram(name, help string) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help,
		Buckets:                        []float64{0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10},
		NativeHistogramBucketFactor:    1.1,
		NativeHistogramMaxBucketNumber: 160,
	}
}

// routeMetrics are a route's collectors. Counters are looked up once per (code, source) and kept.
type routeMetrics struct {
	name     string
	all      *metrics
	gone     bool // guarded by all.mu: no series may come about any more
	duration prometheus.Observer
	outcomes [admission.Unknown + 1]prometheus.Counter
	counters [classes][sources]atomic.Pointer[prometheus.Counter]
}

const (
	sources = 4
	classes = 64 // codes of stock and five classes of status fit in
)

var outcomeNames = [...]string{admission.Accepted: "accepted", admission.Rejected: "rejected", admission.NeverSent: "never_sent",
	admission.Unknown: "unknown"}

// route gives a route's collectors, the same as long as the name is in use.
func (m *metrics) route(name string) *routeMetrics {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.routes[name]; r != nil {
		return r
	}
	r := &routeMetrics{name: name, all: m, duration: m.duration.WithLabelValues(name)}
	for kind := admission.Accepted; kind <= admission.Unknown; kind++ {
		r.outcomes[kind] = m.outcomes.WithLabelValues(name, outcomeNames[kind])
	}
	m.routes[name] = r
	return r
}

// unroutedName stands for requests that match no route.
const unroutedName = "none"

// keep drops the series of all other routes and upstreams: a label is there as long as its name is configured, however often the
// configuration changes. Requests of a dropped route that still run count for nobody.
func (m *metrics) keep(routes, upstreams map[string]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, r := range m.routes {
		if !routes[name] && name != unroutedName {
			r.gone = true
			delete(m.routes, name)
			by := prometheus.Labels{"route": name}
			m.requests.DeletePartialMatch(by)
			m.duration.DeletePartialMatch(by)
			m.outcomes.DeletePartialMatch(by)
		}
	}
	for name := range m.upstreams {
		if !upstreams[name] {
			delete(m.upstreams, name)
			by := prometheus.Labels{"upstream": name}
			m.upstream.DeletePartialMatch(by)
			m.full.DeletePartialMatch(by)
			m.cuts.DeletePartialMatch(by)
			m.upgrades.DeletePartialMatch(by)
		}
	}
}

// answered counts an answer: ours by code, a backend's by the class of its status.
func (r *routeMetrics) answered(code stock.Code, status int, source admission.Source) {
	slot := &r.counters[classIndex(code, status)][sourceIndex(source)]
	counter := slot.Load()
	if counter == nil {
		if counter = r.counter(className(code, status), source); counter == nil {
			return
		}
		slot.Store(counter)
	}
	(*counter).Inc()
}

// counter makes the series of an answer; nil: the route is gone.
func (r *routeMetrics) counter(class string, source admission.Source) *prometheus.Counter {
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	if r.gone {
		return nil
	}
	c := r.all.requests.WithLabelValues(r.name, class, string(source))
	return &c
}

func className(code stock.Code, status int) string {
	if code != "" {
		return string(answerFor(code).code)
	}
	return [...]string{"other", "1xx", "2xx", "3xx", "4xx", "5xx"}[statusClass(status)]
}

func statusClass(status int) int {
	if status < 100 || status > 599 {
		return 0
	}
	return status / 100
}

func classIndex(code stock.Code, status int) int {
	if code == "" {
		return statusClass(status)
	}
	return 6 + answerFor(code).index
}

func sourceIndex(s admission.Source) int {
	switch s {
	case admission.SourceRedis:
		return 1
	case admission.SourceDatabase:
		return 2
	case admission.SourceNone:
		return 3
	}
	return 0
}

// upstreamMetrics are an upstream's collectors.
type upstreamMetrics struct {
	full                      prometheus.Counter
	answered, unsent, unknown prometheus.Observer
	upgrades                  prometheus.Gauge
	cuts                      map[cutReason]prometheus.Counter
}

// ofUpstream gives an upstream's collectors, the same as long as the name is in use.
func (m *metrics) ofUpstream(name string) *upstreamMetrics {
	m.mu.Lock()
	defer m.mu.Unlock()
	if u := m.upstreams[name]; u != nil {
		return u
	}
	u := &upstreamMetrics{full: m.full.WithLabelValues(name),
		answered: m.upstream.WithLabelValues(name, "answered"),
		unsent:   m.upstream.WithLabelValues(name, "never_sent"),
		unknown:  m.upstream.WithLabelValues(name, "unknown"),
		upgrades: m.upgrades.WithLabelValues(name), cuts: map[cutReason]prometheus.Counter{}}
	for _, by := range [...]cutReason{cutByBackend, cutByClient, cutBySilence, cutByShutdown} {
		u.cuts[by] = m.cuts.WithLabelValues(name, string(by))
	}
	m.upstreams[name] = u
	return u
}
