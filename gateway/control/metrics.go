package control

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are the listener's own. Labels come from the route table and from HTTP's statuses, never from a request.
type metrics struct {
	calls  *prometheus.HistogramVec
	panics prometheus.Counter
}

func newMetrics(registry *prometheus.Registry) (*metrics, error) {
	m := &metrics{
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "stockgate_control_call_seconds",
			Help:    "Calls of the control API by route, method and HTTP status.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"route", "method", "code"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "stockgate_control_panics_total",
			Help: "Control calls that panicked; each was answered 500 and logged.",
		}),
	}
	for _, c := range []prometheus.Collector{m.calls, m.panics} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// watch measures the calls of one route.
func (m *metrics) watch(pattern string, next http.Handler) http.Handler {
	return promhttp.InstrumentHandlerDuration(m.calls.MustCurryWith(prometheus.Labels{"route": pattern}), next)
}
