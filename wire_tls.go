package main

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/stockgate/stockgate/config"
	"github.com/stockgate/stockgate/gateway"
	"github.com/stockgate/stockgate/internal/certs"
)

// secured is how each side speaks TLS. A source reads its files again by itself, so one that is in use serves a reload, too.
type secured struct {
	public, control, check *certs.Source            // nil: plain HTTP
	upstreams              map[string]*certs.Source // those of https
}

// secure opens the sources that a configuration asks for. What is as it was is the same source as before.
func secure(set *certs.Set, c *config.Config) (secured, error) {
	s := secured{upstreams: map[string]*certs.Source{}}
	var publicErr, controlErr, checkErr error
	s.public, publicErr = listenTLS(set, "tls", c.TLS)
	s.control, controlErr = listenTLS(set, "control.tls", c.Control.TLS)
	s.check, checkErr = listenTLS(set, "check.tls", c.Check.TLS)
	errs := []error{under("tls", publicErr), under("control.tls", controlErr), under("check.tls", checkErr)}
	for name, u := range c.Upstreams {
		source, err := callTLS(set, "upstreams."+name, u)
		if err != nil {
			errs = append(errs, under("upstreams."+name+".tls", err))
		}
		if source != nil {
			s.upstreams[name] = source
		}
	}
	return s, errors.Join(errs...)
}

// under puts the key before what is wrong with its files; nil stays nil.
func under(key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", key, err)
}

// uses reports whether a source of that name is one of these.
func (s secured) uses(name string) bool {
	upstream, of := strings.CutPrefix(name, "upstreams.")
	return !of || s.upstreams[upstream] != nil
}

func listenTLS(set *certs.Set, key string, t config.ListenerTLS) (*certs.Source, error) {
	if t.Cert == "" {
		return nil, nil
	}
	l := certs.Listening{Files: certs.Files{Cert: t.Cert, Key: t.Key, CA: t.ClientCA}, ClientOptional: t.ClientAuth == config.ClientAuthOptional}
	if t.MinVersion == "1.3" {
		l.MinVersion = tls.VersionTLS13
	}
	return set.Listen(key, l)
}

func callTLS(set *certs.Set, key string, u config.Upstream) (*certs.Source, error) {
	at, err := url.Parse(u.URL)
	if err != nil || at.Scheme != "https" {
		return nil, err
	}
	return set.Call(key, certs.Calling{Files: certs.Files{Cert: u.TLS.Cert, Key: u.TLS.Key, CA: u.TLS.CA},
		ServerName: cmp.Or(u.TLS.ServerName, at.Hostname())})
}

var proxyProtocols = map[config.ProxyProtocol]gateway.ProxyProtocol{config.ProxyOff: gateway.ProxyOff,
	config.ProxyOptional: gateway.ProxyOptional, config.ProxyRequired: gateway.ProxyRequired}
