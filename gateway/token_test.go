package gateway

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/gateway/jwt"
	"github.com/stockgate/stockgate/stock"
)

// fixedTokens knows what a token says by its text. What a verifier believes is tested where it is.
type fixedTokens map[string]map[string]jwt.Value

func (f fixedTokens) Verify(token []byte, _ time.Time) (*jwt.Claims, error) {
	switch values, ok := f[string(token)]; {
	case ok:
		return jwt.NewClaims(values), nil
	case string(token) == "early":
		return nil, jwt.ErrPending
	}
	return nil, jwt.ErrSignature
}

var someTokens = fixedTokens{
	"of-u1": {"sub": {Text: []byte("u1")}},
	"of-7":  {"sub": {Text: []byte("7"), Number: true}},
	"empty": {},
}

// asking is a gate whose guarded route takes its user from these places.
func asking(user ...Place) func(*Config, *Parts) {
	return func(c *Config, p *Parts) {
		c.Routes[0].Admit.User = user
		c.Routes[0].Admit.Status = "/order-status"
		p.Tokens = someTokens
	}
}

func TestUserOfAToken(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	f := func(g *gate, headers string, status int, code stock.Code, user string) {
		t.Helper()
		before := len(g.adm.asked())
		got := g.do(orderOf(`{"sku":"a","user":"u1"}`, headers))
		if status != http.StatusCreated {
			got.wants(t, status, code)
			if challenge := got.Header.Get("WWW-Authenticate"); (status == 401) != strings.HasPrefix(challenge, "Bearer ") {
				t.Errorf("%q: WWW-Authenticate is %q", headers, challenge)
			}
			if n := len(g.adm.asked()); n != before {
				t.Errorf("%q: stock was asked for", headers)
			}
			return
		}
		if got.StatusCode != status {
			t.Fatalf("%q: %d %s", headers, got.StatusCode, got.body)
		}
		if asked := g.adm.asked(); asked[len(asked)-1].User != user {
			t.Errorf("%q: the user is %q, want %q", headers, asked[len(asked)-1].User, user)
		}
	}
	only := startGate(t, b.addr(), asking(Token("sub")))
	f(only, "Authorization: Bearer of-u1\r\n", 201, "", "u1")
	f(only, "authorization: bearer  of-7\r\n", 201, "", "7")
	f(only, "", 401, stock.CodeUnauthorized, "")
	f(only, "X-User-Id: u1\r\n", 401, stock.CodeUnauthorized, "")
	f(only, "Authorization: Basic dTE6cHc=\r\n", 401, stock.CodeUnauthorized, "")
	f(only, "Authorization: Bearer forged\r\n", 401, stock.CodeUnauthorized, "")
	f(only, "Authorization: Bearer empty\r\n", 401, stock.CodeUnauthorized, "")
	f(only, "Authorization: Bearer early\r\n", 503, stock.CodeUnavailable, "")
	f(only, "Authorization: Bearer of-u1\r\nAuthorization: Bearer of-u1\r\n", 400, stock.CodeBadRequest, "")
	f(only, "Authorization: Bearer of-u1\r\nConnection: authorization\r\n", 400, stock.CodeBadRequest, "")

	both := startGate(t, b.addr(), asking(Token("sub"), Body("user")))
	f(both, "Authorization: Bearer of-u1\r\n", 201, "", "u1")
	f(both, "", 201, "", "u1")
	f(both, "Authorization: Bearer of-7\r\n", 400, stock.CodeBadRequest, "")
	f(both, "Authorization: Bearer forged\r\n", 401, stock.CodeUnauthorized, "")

	other := startGate(t, b.addr(), asking(Token("sub")), func(c *Config, _ *Parts) { c.TokenHeader = "X-Token" })
	f(other, "X-Token: of-u1\r\n", 201, "", "u1")
	f(other, "X-Token: Bearer of-u1\r\n", 201, "", "u1")
	f(other, "Authorization: Bearer of-u1\r\n", 401, stock.CodeUnauthorized, "")
}

// TestBuyersPageAsksWithAToken: nobody learns of another's order by its request id.
func TestBuyersPageAsksWithAToken(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), asking(Token("sub")))
	page := func(headers string) string {
		return "GET /order-status HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\n" + headers + "\r\n"
	}
	g.do(page("")).wants(t, 401, stock.CodeUnauthorized)
	g.adm.status = nil // it would panic
	g.do(page("Authorization: Bearer forged\r\n")).wants(t, 401, stock.CodeUnauthorized)
}

func TestTokensNeedAVerifier(t *testing.T) {
	t.Parallel()
	g := startGate(t, closedPort(t))
	g.do(getPage).wants(t, 502, stock.CodeBackendFailed) // it serves
	cfg := g.setup.Load().cfg
	cfg.Routes = append([]Route(nil), cfg.Routes...)
	admit := *cfg.Routes[0].Admit
	cfg.Routes[0].Admit = &admit
	admit.User = []Place{Token("sub")}
	if _, err := g.Prepare(cfg, Limiting{}); err == nil || !strings.Contains(err.Error(), "jwt.jwks") {
		t.Errorf("error is %v", err)
	}
	admit.User, admit.Request = nil, []Place{Token("jti")}
	if err := errors.Join(cfg.Routes[0].validate()...); err == nil || !strings.Contains(err.Error(), "user alone") {
		t.Errorf("error is %v", err)
	}
}
