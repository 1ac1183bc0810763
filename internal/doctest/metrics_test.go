package doctest

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const namespace = "stockgate"

// metric is one metric as code or page know it.
type metric struct {
	kind   string // counter, gauge, histogram; "" = cannot be seen where it is made
	labels []string
}

// docs/metrics.md lists the metrics that the code makes, and no others, with their labels.
func TestMetricsAreThoseOfTheCode(t *testing.T) {
	t.Parallel()
	made, listed := code(t).metrics(), listedMetrics(t)
	if len(made) < 20 {
		t.Fatalf("found only %d metrics in the code: is the search still right?", len(made))
	}
	for name, m := range made {
		l, ok := listed[name]
		switch {
		case !ok:
			t.Errorf("the code makes %s, docs/metrics.md does not list it", name)
		case m.kind != "" && m.kind != l.kind:
			t.Errorf("%s is a %s, docs/metrics.md says %s", name, m.kind, l.kind)
		case !slices.Equal(m.labels, l.labels):
			t.Errorf("%s has the labels %q, docs/metrics.md says %q", name, m.labels, l.labels)
		}
	}
	for name := range listed {
		if _, ok := made[name]; !ok {
			t.Errorf("docs/metrics.md lists %s, the code does not make it", name)
		}
	}
}

// Every metric that any page names is one, or a part of a histogram.
func TestNamedMetricsExist(t *testing.T) {
	t.Parallel()
	made := code(t).metrics()
	name := regexp.MustCompile(`\b` + namespace + `_[a-z0-9_]+\b`)
	part := regexp.MustCompile(`_(bucket|sum|count)$`)
	for _, p := range pages(t) {
		for _, word := range p.inlineCode() {
			for _, n := range name.FindAllString(word, -1) {
				_, known := made[n]
				_, isPart := made[part.ReplaceAllString(n, "")]
				if !known && !isPart {
					t.Errorf("%s names %s, which is no metric", p.name, n)
				}
			}
		}
	}
}

var metricRow = regexp.MustCompile("(?m)^\\| `(" + namespace + "_[a-z0-9_]+)` \\| ([a-z]+) \\| ([^|]*) \\| ([^|]+) \\|$")

func listedMetrics(t *testing.T) map[string]metric {
	t.Helper()
	listed := map[string]metric{}
	for _, m := range metricRow.FindAllStringSubmatch(readPage(t, "docs/metrics.md").text, -1) {
		var labels []string
		if m[3] != "none" {
			for label := range strings.SplitSeq(m[3], ", ") {
				labels = append(labels, strings.Trim(label, "`"))
			}
		}
		if _, twice := listed[m[1]]; twice {
			t.Errorf("docs/metrics.md lists %s twice", m[1])
		}
		listed[m[1]] = metric{m[2], labels}
	}
	return listed
}

// metrics finds what the code makes, in the forms that it uses: prometheus.New…Vec and New… with options, prometheus.NewDesc, and a
// file's own helpers histogram(name, help) and desc(name, help, labels…).
func (s *source) metrics() map[string]metric {
	found := map[string]metric{}
	for name, file := range s.files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				addMetric(found, call)
			}
			return true
		})
	}
	return found
}

var makers = map[string]string{"NewCounter": "counter", "NewCounterVec": "counter", "NewCounterFunc": "counter", "NewGauge": "gauge",
	"NewGaugeVec": "gauge", "NewGaugeFunc": "gauge", "NewHistogram": "histogram", "NewHistogramVec": "histogram"}

func addMetric(found map[string]metric, call *ast.CallExpr) {
	switch f := call.Fun.(type) {
	case *ast.SelectorExpr:
		if kind := makers[f.Sel.Name]; kind != "" && len(call.Args) > 0 {
			if name := optionsName(call.Args[0]); name != "" {
				m := metric{kind: kind}
				if strings.HasSuffix(f.Sel.Name, "Vec") {
					m.labels = literals(call.Args[1])
				}
				found[name] = m
			}
		}
	case *ast.Ident:
		if f.Name == "desc" && len(call.Args) >= 2 {
			if name, ok := literal(call.Args[0]); ok {
				m := metric{}
				for _, arg := range call.Args[2:] {
					label, _ := literal(arg)
					m.labels = append(m.labels, label)
				}
				found[namespace+"_"+name] = m
			}
		}
	}
}

// optionsName is the full name in a literal of …Opts, or in a call of histogram(name, help).
func optionsName(e ast.Expr) string {
	if call, ok := e.(*ast.CallExpr); ok && len(call.Args) > 0 {
		if f, ok := call.Fun.(*ast.Ident); ok && f.Name == "histogram" {
			name, _ := literal(call.Args[0])
			return namespace + "_" + name
		}
	}
	options, ok := e.(*ast.CompositeLit)
	if !ok {
		return ""
	}
	name, spaced := "", false
	for _, element := range options.Elts {
		pair, ok := element.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		switch pair.Key.(*ast.Ident).Name {
		case "Name":
			name, _ = literal(pair.Value)
		case "Namespace":
			spaced = true
		}
	}
	if spaced && name != "" {
		return namespace + "_" + name
	}
	return name
}

func literals(e ast.Expr) []string {
	var all []string
	if list, ok := e.(*ast.CompositeLit); ok {
		for _, element := range list.Elts {
			s, _ := literal(element)
			all = append(all, s)
		}
	}
	return all
}

func literal(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(lit.Value)
	return s, err == nil
}
