package control

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/stockgate/stockgate/internal/certs"
)

// Config says how the control listener behaves. Zero values are completed by WithDefaults.
type Config struct {
	// Listen is the address to serve on, as in net.Listen. It also decides whether Token may be empty. Defaults to 127.0.0.1:9090.
	Listen string
	// TLS is how the listener speaks TLS; nil: it does not. Defaults to nil.
	TLS *certs.Source
	// Token is what a caller must send as a bearer token. Empty: nobody needs one; allowed on loopback only. Defaults to empty.
	Token string
	// ReadToken opens what does not change anything. Empty: only Token does. Defaults to empty.
	ReadToken string
	// Timeout bounds one call, its commit included. Defaults to 5s.
	Timeout time.Duration
	// ImportTimeout bounds an import as a whole, its body included. Defaults to 2m.
	ImportTimeout time.Duration
	// RedisTimeout bounds the look at Redis that a GET of stock adds; past it the answer goes without. Defaults to 250ms.
	RedisTimeout time.Duration
	// BodyBytes bounds the body of every call but import. Defaults to 64 KiB.
	BodyBytes int64
	// ImportBytes and ImportLines bound the body of an import. Defaults to 16 MiB and 100 000.
	ImportBytes int64
	ImportLines int
	// MaxInFlight bounds how many /v1 calls are served at a time; further ones get 503 QUEUE_FULL. Defaults to 256.
	MaxInFlight int
	// OmitEnvoyHeader leaves X-Envoy-Ratelimited off refusals, so that a mesh repeats them. Defaults to false.
	OmitEnvoyHeader bool
}

// WithDefaults is a completed copy.
func (c Config) WithDefaults() Config {
	c.Listen = cmp.Or(c.Listen, "127.0.0.1:9090")
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	c.ImportTimeout = cmp.Or(c.ImportTimeout, 2*time.Minute)
	c.RedisTimeout = cmp.Or(c.RedisTimeout, 250*time.Millisecond)
	c.BodyBytes = cmp.Or(c.BodyBytes, 64<<10)
	c.ImportBytes = cmp.Or(c.ImportBytes, 16<<20)
	c.ImportLines = cmp.Or(c.ImportLines, 100_000)
	c.MaxInFlight = cmp.Or(c.MaxInFlight, 256)
	return c
}

// Check returns everything that is wrong with a completed Config, each with its key in the configuration.
func (c Config) Check() error {
	return errors.Join(c.checkTokens(), c.checkBounds())
}

func (c Config) checkTokens() error {
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return fmt.Errorf("control.listen %q: %w", c.Listen, err)
	}
	switch {
	case c.Token == "" && !loopbackAddress(c.Listen):
		return fmt.Errorf("control.token is empty, allowed only if control.listen is a loopback address; it is %q", c.Listen)
	case c.Token == "" && c.ReadToken != "":
		return errors.New("control.read_token is set but control.token is empty: everybody could change what only some may see")
	case c.Token != "" && c.Token == c.ReadToken:
		return errors.New("control.read_token is the same as control.token: who may look could also change")
	}
	return nil
}

func (c Config) checkBounds() error {
	var problems []error
	positive := func(key string, v int64) {
		if v < 1 {
			problems = append(problems, fmt.Errorf("control.%s is %d, must be at least 1", key, v))
		}
	}
	positive("timeout", int64(c.Timeout))
	positive("import_timeout", int64(c.ImportTimeout))
	positive("redis_timeout", int64(c.RedisTimeout))
	positive("body", c.BodyBytes)
	positive("import_body", c.ImportBytes)
	positive("import_lines", int64(c.ImportLines))
	positive("max_in_flight", int64(c.MaxInFlight))
	return errors.Join(problems...)
}

// loopbackAddress reports whether host:port can be reached from this machine only. A missing host means all interfaces.
func loopbackAddress(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}
