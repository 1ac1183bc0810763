package jwt

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
)

// Algorithms are those that can be configured: signatures by a private key.
func Algorithms() []string {
	return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
}

// Config says whose tokens are believed. Zero values mean the defaults.
type Config struct {
	// JWKS is where the keys are: a path, or a URL with https (http for a loopback address only). Needed.
	JWKS string
	// Issuer and Audience are what iss must be and aud must have; "": not looked at.
	Issuer, Audience string
	// Algorithms that are taken. Default to RS256 and ES256.
	Algorithms []string
	// Leeway is how far clocks may differ. Whole seconds. Negative: none. Defaults to 30 s.
	Leeway time.Duration
	// Refresh is the time between two reads of the keys, Pause the least there may be. Default to 5 min and 10 s.
	Refresh, Pause time.Duration
	// Tokens is how many verified tokens are remembered at most. Defaults to 50 000.
	Tokens int
	// Client fetches a URL. Defaults to one that follows no redirect and gives up after 5 s.
	Client *http.Client
	// Log may be nil.
	Log *zap.Logger
}

const (
	fetchTimeout = 5 * time.Second
	jwksBytesMax = 1 << 20
	jwksKeysMax  = 64

	claimsMax     = 32  // that are kept of a token
	claimBytesMax = 255 // of one that is kept
)

// WithDefaults is a copy with every zero field filled in.
func (c Config) WithDefaults() Config {
	fill(&c.Leeway, 30*time.Second)
	c.Leeway = max(0, c.Leeway)
	fill(&c.Refresh, 5*time.Minute)
	fill(&c.Pause, 10*time.Second)
	fill(&c.Tokens, 50_000)
	if len(c.Algorithms) == 0 {
		c.Algorithms = []string{"RS256", "ES256"}
	}
	if c.Client == nil {
		c.Client = &http.Client{Timeout: fetchTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c *Config) validate() error {
	if c.JWKS == "" {
		return errors.New("jwt.jwks is missing")
	}
	if isURL(c.JWKS) {
		if err := checkURL(c.JWKS); err != nil {
			return fmt.Errorf("jwt.jwks: %w", err)
		}
	}
	for _, a := range c.Algorithms {
		if !slices.Contains(Algorithms(), a) {
			return fmt.Errorf("jwt.algorithms has %q, allowed are %s", a, strings.Join(Algorithms(), ", "))
		}
	}
	if c.Refresh < 0 || c.Pause < 0 || c.Tokens < 0 {
		return errors.New("jwt.refresh and jwt.tokens must not be negative")
	}
	return nil
}

func isURL(s string) bool { return strings.Contains(s, "://") }

// checkURL: who can change what comes over the wire can sign tokens.
func checkURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return errors.New("the URL cannot be read")
	case u.Scheme == "https" && u.Host != "":
		return nil
	case u.Scheme == "http" && loopback(u.Hostname()):
		return nil
	}
	return errors.New("must be a path or begin with https:// (http:// for a loopback address only)")
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
