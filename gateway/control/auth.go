package control

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/stock"
)

// access is what a route does to the deployment.
type access uint8

const (
	look access = iota
	change
)

// ActorHeader lets a caller say for whom it acts; it stands in the audit. It is believed: who holds the token is trusted.
const ActorHeader = "Stockgate-Actor"

const actorBytesMax = 128

// The actors of calls that name none.
const (
	actorToken = "control.token"
	actorLocal = "loopback" // no token is configured
)

// guard decides who may call. It is immutable and safe for concurrent use.
type guard struct {
	open              bool // no token is configured: loopback only
	token, readToken  [sha256.Size]byte
	hasReadToken      bool
	crossOriginAttack *http.CrossOriginProtection
}

func newGuard(cfg Config) *guard {
	return &guard{
		open:              cfg.Token == "",
		token:             sha256.Sum256([]byte(cfg.Token)),
		readToken:         sha256.Sum256([]byte(cfg.ReadToken)),
		hasReadToken:      cfg.ReadToken != "",
		crossOriginAttack: http.NewCrossOriginProtection(),
	}
}

// check lets a request through, or says why not.
func (g *guard) check(r *http.Request, need access) *api.Problem {
	if err := g.crossOriginAttack.Check(r); err != nil {
		return refuse(stock.CodeUnauthorized, "changes from a page of another origin are refused: %v", err)
	}
	if g.open {
		return checkLoopbackHost(r)
	}
	if len(r.Header.Values("Authorization")) > 1 {
		return refuse(stock.CodeUnauthorized, "the header Authorization is there twice: which of the two counts is not guessed")
	}
	given, ok := bearer(r)
	if !ok {
		return refuse(stock.CodeUnauthorized, "the header Authorization: Bearer <control.token> is missing")
	}
	// Hashes are compared, so that neither the time nor the length of the token shows; both always, so that neither does which.
	sum := sha256.Sum256([]byte(given))
	all := subtle.ConstantTimeCompare(sum[:], g.token[:])
	some := subtle.ConstantTimeCompare(sum[:], g.readToken[:])
	switch {
	case all == 1:
		return nil
	case some == 1 && g.hasReadToken && need == look:
		return nil
	case some == 1 && g.hasReadToken:
		return refuse(stock.CodeUnauthorized, "control.read_token may look but not change")
	}
	return refuse(stock.CodeUnauthorized, "the bearer token is wrong")
}

// checkLoopbackHost keeps web pages out that reach the loopback listener through a DNS name of their own.
func checkLoopbackHost(r *http.Request) *api.Problem {
	if loopbackAddress(r.Host) {
		return nil
	}
	return refuse(stock.CodeUnauthorized, "without control.token only requests to a loopback host are taken, this one is to %s", shorten(r.Host))
}

func bearer(r *http.Request) (string, bool) {
	scheme, token, found := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(token), found && strings.EqualFold(scheme, "Bearer")
}

type actorKey struct{}

// withActor notes who asked, for the audit.
func (g *guard) withActor(r *http.Request) (*http.Request, *api.Problem) {
	actor := r.Header.Get(ActorHeader)
	switch {
	case len(r.Header.Values(ActorHeader)) > 1:
		return nil, badField(ActorHeader, "there twice", "allowed is once")
	case actor == "" && g.open:
		actor = actorLocal
	case actor == "":
		actor = actorToken
	case len(actor) > actorBytesMax || !visibleASCII(actor):
		return nil, badField(ActorHeader, shorten(actor), "must be 1 to 128 visible ASCII bytes")
	}
	return r.WithContext(context.WithValue(r.Context(), actorKey{}, actor)), nil
}

func actorOf(ctx context.Context) string {
	actor, _ := ctx.Value(actorKey{}).(string)
	return actor
}

// visibleASCII reports whether s is not empty and has nothing but ! to ~.
func visibleASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < '!' || s[i] > '~' {
			return false
		}
	}
	return s != ""
}
