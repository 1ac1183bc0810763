package resolver

import "github.com/prometheus/client_golang/prometheus"

const namespace = "stockgate"

// metrics are the collectors. Labels come from the configuration (upstream) and from closed sets (result).
type metrics struct {
	asks, ended       *prometheus.CounterVec
	distrusted, stuck *prometheus.GaugeVec
}

// upstreamMetrics are those of one upstream.
type upstreamMetrics struct {
	of   *metrics
	name string
}

// endings are what the job does, as the metric names it.
const (
	endedAccepted  = "accepted"
	endedConfirmed = "confirmed"
	endedCancelled = "cancelled"
	endedExpired   = "expired"
	endedNoOrder   = "no_order"
)

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		asks: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "resolve_asks_total",
			Help: "Questions to an order service about a reservation, by what they came to."}, []string{"upstream", "result"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "resolve_ended_total",
			Help: "Reservations that the resolver moved on by an order service's word."}, []string{"upstream", "result"}),
		distrusted: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: "resolve_distrusted",
			Help: "1: the order service answers for reservations that do not exist, so its word is not believed. Alert on it."},
			[]string{"upstream"}),
		stuck: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: "resolve_stuck",
			Help: "Held reservations past hold_max of which the order service says nothing. Alert on it."}, []string{"upstream"}),
	}
	for _, c := range []prometheus.Collector{m.asks, m.ended, m.distrusted, m.stuck} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// of makes an upstream's series, all of them, so that a rate is there from the start.
func (m *metrics) upstream(name string) *upstreamMetrics {
	for _, r := range results {
		m.asks.WithLabelValues(name, string(r))
	}
	for _, r := range []string{endedAccepted, endedConfirmed, endedCancelled, endedExpired, endedNoOrder} {
		m.ended.WithLabelValues(name, r)
	}
	m.distrusted.WithLabelValues(name).Set(0)
	m.stuck.WithLabelValues(name).Set(0)
	return &upstreamMetrics{m, name}
}

// forget drops an upstream's series.
func (m *metrics) forget(name string) {
	by := prometheus.Labels{"upstream": name}
	for _, of := range []*prometheus.MetricVec{m.asks.MetricVec, m.ended.MetricVec, m.distrusted.MetricVec, m.stuck.MetricVec} {
		of.DeletePartialMatch(by)
	}
}

func (m *upstreamMetrics) asked(r result) { m.of.asks.WithLabelValues(m.name, string(r)).Inc() }
func (m *upstreamMetrics) end(how string) { m.of.ended.WithLabelValues(m.name, how).Inc() }
func (m *upstreamMetrics) stuck(n int)    { m.of.stuck.WithLabelValues(m.name).Set(float64(n)) }

func (m *upstreamMetrics) distrust(yes bool) {
	v := 0.0
	if yes {
		v = 1
	}
	m.of.distrusted.WithLabelValues(m.name).Set(v)
}
