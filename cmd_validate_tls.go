package main

import (
	"maps"
	"slices"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/config"
	"github.com/stockgate/stockgate/internal/certs"
)

// tlsProblems are the TLS files that serve would not start with: they are missing or broken, or a certificate is not that of its key.
func tlsProblems(file string, c *config.Config) (ps config.Problems) {
	set := certs.NewSet(zap.NewNop())
	look := func(key string, err error) {
		if err != nil {
			ps = append(ps, config.Problem{File: file, Line: c.Line(key), Key: key, Rule: err.Error()})
		}
	}
	listen := func(key string, t config.ListenerTLS) {
		_, err := listenTLS(set, key, t)
		look(key, err)
	}
	listen("tls", c.TLS)
	listen("control.tls", c.Control.TLS)
	listen("check.tls", c.Check.TLS)
	_, err := tlsConfig(c.Redis.TLS)
	look("redis.tls", err)
	for _, name := range slices.Sorted(maps.Keys(c.Upstreams)) {
		key := "upstreams." + name
		_, err := callTLS(set, key, c.Upstreams[name])
		look(key+".tls", err)
	}
	return ps
}
