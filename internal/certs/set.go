package certs

import (
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Set holds the sources of a process by their use, and shows them as metrics. The zero value is not usable; make one with NewSet.
type Set struct {
	log *zap.Logger
	mu  sync.Mutex
	of  map[string]kept
}

// kept is a source and what it was made from.
type kept struct {
	from   any // a Listening or a Calling
	source *Source
}

// NewSet makes an empty Set.
func NewSet(log *zap.Logger) *Set { return &Set{log: log, of: map[string]kept{}} }

// Listen gives the source of a listener. The same use with the same settings is the same source; other settings replace it.
func (s *Set) Listen(use string, l Listening) (*Source, error) {
	return s.get(use, l, func() (*Source, error) { return Listen(use, l, s.log) })
}

// Call is Listen for a client.
func (s *Set) Call(use string, c Calling) (*Source, error) {
	return s.get(use, c, func() (*Source, error) { return Call(use, c, s.log) })
}

func (s *Set) get(use string, from any, open func() (*Source, error)) (*Source, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, ok := s.of[use]; ok && k.from == from {
		return k.source, nil
	}
	source, err := open()
	if err != nil {
		return nil, err
	}
	s.of[use] = kept{from, source}
	return source, nil
}

// Keep forgets the sources of all uses that used does not name: their files are not looked at for metrics any more.
func (s *Set) Keep(used func(use string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for use := range s.of {
		if !used(use) {
			delete(s.of, use)
		}
	}
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("stockgate_"+name, help, labels, nil)
}

var (
	descEnds     = desc("tls_certificate_expiry_timestamp_seconds", "When the certificate in use runs out.", "use")
	descUnusable = desc("tls_files_unusable", "1: the files have changed and cannot be used, the old ones go on. Alert on it.", "use")
)

// Describe implements prometheus.Collector. It sends nothing: what there is depends on the configuration.
func (s *Set) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector. It looks at the files.
func (s *Set) Collect(ch chan<- prometheus.Metric) {
	for _, source := range s.sources() {
		source.Config()
		if ends := source.current.Load().ends; !ends.IsZero() {
			ch <- prometheus.MustNewConstMetric(descEnds, prometheus.GaugeValue, float64(ends.Unix()), source.use)
		}
		unusable := 0.0
		if source.unusable.Load() {
			unusable = 1
		}
		ch <- prometheus.MustNewConstMetric(descUnusable, prometheus.GaugeValue, unusable, source.use)
	}
}

// sources are those that have files, in the order of their names.
func (s *Set) sources() []*Source {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*Source
	for _, k := range s.of {
		if k.source.files != (Files{}) {
			all = append(all, k.source)
		}
	}
	slices.SortFunc(all, func(a, b *Source) int { return strings.Compare(a.use, b.use) })
	return all
}
