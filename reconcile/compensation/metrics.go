package compensation

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stockgate/stockgate/stock"
)

const namespace = "stockgate"

// ended is how a repair ended, as metrics name it.
type ended string

// The ways to end.
const (
	endedMadeGood  ended = "made_good"
	endedMadeVoid  ended = "made_void"
	endedElsewhere ended = "elsewhere" // somebody else has moved the reservation on
	endedDead      ended = "dead"
)

// metrics are the collectors. Labels come from the configuration (upstream) and from closed sets.
type metrics struct {
	states  *prometheus.GaugeVec
	surplus prometheus.Gauge
	ended   *prometheus.CounterVec
	voids   *prometheus.CounterVec

	mu    sync.Mutex
	names map[string]bool // of the upstreams in voids
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		states: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: "compensations",
			Help: "Repairs by where they stand, counted by the replica that has the job's lease. Alert on dead."}, []string{"state"}),
		surplus: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: "surplus",
			Help: "Orders forwarded ahead for which nothing was left to deduct, made neither good nor void yet. Alert if it stays above 0."}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "compensations_ended_total",
			Help: "Repairs that ended, by how."}, []string{"how"}),
		voids: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "compensation_voids_total",
			Help: "Calls that ask an order service to make an order void, by what they came to."}, []string{"upstream", "result"}),
	}
	for _, c := range []prometheus.Collector{m.states, m.surplus, m.ended, m.voids} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	for _, how := range []ended{endedMadeGood, endedMadeVoid, endedElsewhere, endedDead} {
		m.ended.WithLabelValues(string(how))
	}
	m.show(nil)
	return m, nil
}

// keep has the series of these upstreams and no others. They are all made at once, so that a rate is there from the start.
func (m *metrics) keep(names map[string]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.names {
		if !names[name] {
			m.voids.DeletePartialMatch(prometheus.Labels{"upstream": name})
		}
	}
	for name := range names {
		for _, r := range results {
			m.voids.WithLabelValues(name, string(r))
		}
	}
	m.names = names
}

func (m *metrics) show(counts map[stock.CompensationState]int64) {
	open := int64(0)
	for _, s := range []stock.CompensationState{stock.CompensationPending, stock.CompensationProcessing, stock.CompensationDone, stock.CompensationDead} {
		m.states.WithLabelValues(string(s)).Set(float64(counts[s]))
		if s != stock.CompensationDone {
			open += counts[s]
		}
	}
	m.surplus.Set(float64(open))
}

func (m *metrics) end(how ended) { m.ended.WithLabelValues(string(how)).Inc() }

// voided counts a call, unless its upstream is gone meanwhile.
func (m *metrics) voided(upstream string, how result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.names[upstream] {
		return
	}
	m.voids.WithLabelValues(upstream, string(how)).Inc()
}
