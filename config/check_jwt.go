package config

import (
	"net"
	"net/url"
	"slices"
	"strings"
)

// jwtAlgorithms are signatures by a private key. There is no none and no HMAC: keys that anybody can read must not make tokens.
var jwtAlgorithms = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

func (ch *checker) checkJWT() {
	j := ch.JWT
	if rule, shown := checkJWKS(j.JWKS); rule != "" {
		ch.failIf(true, "jwt.jwks", rule, shown)
	}
	for i, a := range j.Algorithms {
		ch.failIf(!slices.Contains(jwtAlgorithms, a), elementPath("jwt.algorithms", i, ""), "must be one of "+strings.Join(jwtAlgorithms, ", "),
			quote(a))
	}
	rule := checkHeaderName(j.Header)
	ch.failIf(j.Header != "" && rule != nil, "jwt.header", "must name a header of letters, digits and -, not Stockgate-", quote(j.Header))
}

// checkJWKS gives what is wrong with where the keys are, "" if nothing, and the value without any password. Who can change what comes over
// the wire could sign tokens.
func checkJWKS(s string) (rule, shown string) {
	const where = "must be a path, or begin with https:// (http:// for a loopback address only)"
	if !strings.Contains(s, "://") {
		return "", ""
	}
	u, err := url.Parse(s)
	if err != nil {
		return where, ""
	}
	ip := net.ParseIP(u.Hostname())
	secure := u.Scheme == "https" || u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback())
	switch {
	case u.User != nil:
		return "must not hold a user or password", quote(u.Redacted())
	case u.Host == "" || !secure:
		return where, quote(s)
	}
	return "", ""
}

// checkClaims: a claim says who asks, and only where it can be verified.
func (ch *checker) checkClaims(key string, sources []Source) {
	token := slices.ContainsFunc(sources, func(s Source) bool { return s.Kind == SourceJWT })
	ch.failIf(token && !strings.HasSuffix(key, ".user"), key, "must not be jwt.<claim>, which only user may be", "")
	ch.failIf(token && ch.JWT.JWKS == "", key, "has jwt.<claim>, which needs jwt.jwks", "", "jwt.jwks")
}
