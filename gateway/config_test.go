package gateway

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

func TestConfigMistakesAreAllNamed(t *testing.T) {
	t.Parallel()
	sku := &Admit{SKU: []Place{Body("sku")}}
	f := func(cfg Config, says ...string) {
		t.Helper()
		_, err := New(cfg, Parts{Log: zap.NewNop(), Registry: prometheus.NewRegistry()})
		if err == nil {
			t.Fatalf("no error, want %q", says)
		}
		for _, s := range says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("error %q does not say %q", err, s)
			}
		}
	}
	up := []Upstream{{Name: "u", URL: "http://h"}}
	f(Config{Upstreams: []Upstream{{Name: "u", URL: "ftp://h"}, {Name: "u", URL: "http://h/p"}}},
		"upstreams.u.url", "scheme must be http or https", "is there twice", "only scheme, host and port")
	f(Config{Upstreams: up, Routes: []Route{{Name: "r", Path: "x", Upstream: "v"}, {Name: "r", Path: "/*", Upstream: "u"}}},
		`upstream "v" is not configured`, "must begin with a slash", `"r" is there twice`)
	f(Config{Upstreams: up, Routes: []Route{{Name: "r", Methods: []string{"post"}, Path: "/x", Upstream: "u"}}}, "in capitals")
	f(Config{Upstreams: up, Routes: []Route{{Name: "r", Methods: []string{"HEAD"}, Path: "/x", Upstream: "u", Admit: sku}}},
		"HEAD, which must never take stock")
	f(Config{Upstreams: up, Routes: []Route{{Name: "r", Path: "/x", Upstream: "u", Admit: &Admit{}}}}, "admit.sku is missing")
	f(Config{AnswerHeaders: []string{"set-cookie"}}, "Set-Cookie")
	f(Config{Upstreams: []Upstream{{Name: "u", URL: "http://h", MaxConnections: -1}}}, "max_connections is -1")
	f(Config{Upstreams: up, Routes: []Route{{Name: "all", Path: "/*", Upstream: "u"}, {Name: "r", Path: "/x", Upstream: "u", Admit: sku}}},
		"routes.r can be walked around", "routes.all")
	f(Config{Upstreams: up, Routes: []Route{{Name: "one", Path: "/x/y", Upstream: "u"}, {Name: "r", Path: "/x/*", Upstream: "u", Admit: sku}}},
		"routes.r can be walked around", "routes.one")
	f(Config{Upstreams: up, Routes: []Route{{Name: "one", Path: "/x", Upstream: "u"}, {Name: "r", Path: "/x/*", Upstream: "u", Admit: sku}}},
		"routes.r can be walked around", "routes.one")
	f(Config{Upstreams: up, Routes: []Route{{Name: "one", Path: "/X/*", Upstream: "u"}, {Name: "r", Path: "/x/*", Upstream: "u", Admit: sku}}},
		"routes.r can be walked around", "routes.one")
}
