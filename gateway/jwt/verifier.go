package jwt

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/stockgate/stockgate/internal/loop"
)

// ErrPending means that nobody can tell yet whether the token is good, because the keys are still being read.
var ErrPending = errors.New("the keys of the issuer are being read")

// The reasons to refuse a token. They are fit for the one who sent it.
var (
	ErrMalformed = errors.New("the token is no signed JWT of an algorithm that is taken here")
	ErrSignature = errors.New("no key of the issuer has signed the token")
	ErrExpired   = errors.New("the token has expired")
	ErrClaims    = errors.New("the token is not for here: exp, nbf, iat, iss or aud does not fit")
)

// TokenBytesMax is the longest token that is looked at.
const TokenBytesMax = 8 << 10

// Claims are what a token that was verified says. They are shared: not to be changed.
type Claims struct {
	until  time.Time
	values map[string]Value
}

// Value is the text of a claim: a string, or the digits of a whole number.
type Value struct {
	Text   []byte // not to be changed
	Number bool
}

// Value is a claim; false: the token has none of that name, or one that is neither a string nor a number of at most 255 bytes.
func (c *Claims) Value(name string) (Value, bool) {
	v, ok := c.values[name]
	return v, ok
}

// Verifier verifies tokens. It is safe for concurrent use. It has no keys until Run runs.
type Verifier struct {
	cfg        Config
	algorithms []jose.SignatureAlgorithm
	keys       atomic.Pointer[keySet] // nil: not read yet
	known      *table
	loop       *loop.Loop

	cached, verified, refused, pending atomic.Uint64
}

// New makes a Verifier. It reads nothing.
func New(cfg Config) (*Verifier, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	v := &Verifier{cfg: cfg, known: newTable(cfg.Tokens)}
	for _, a := range cfg.Algorithms {
		v.algorithms = append(v.algorithms, jose.SignatureAlgorithm(a))
	}
	v.loop = loop.New("jwks", cfg.Refresh, cfg.Log, v.pass)
	v.loop.Pause(cfg.Pause)
	return v, nil
}

// Run reads the keys now and each Config.Refresh, until ctx ends.
func (v *Verifier) Run(ctx context.Context) { v.loop.Run(ctx) }

// Loop tells how the reading goes.
func (v *Verifier) Loop() *loop.Loop { return v.loop }

// pass reads the keys. If it fails those that are there stay, and it is done again after the pause.
func (v *Verifier) pass(ctx context.Context) error {
	next, err := v.fetch(ctx)
	if err != nil {
		v.loop.Poke()
		return err
	}
	old := v.keys.Swap(next)
	if old != nil && old.text != next.text {
		v.known.clear() // a key may have been withdrawn
	}
	return nil
}

// Verify says what a token says, or why it is not believed: ErrPending, or a reason that the sender may read. It never waits. The token
// is not kept. now is compared with exp, nbf and iat.
func (v *Verifier) Verify(token []byte, now time.Time) (*Claims, error) {
	h := hash(sha256.Sum256(token))
	if c := v.known.get(&h); c != nil {
		if now.After(c.until) {
			v.refused.Add(1)
			return nil, ErrExpired
		}
		v.cached.Add(1)
		return c, nil
	}
	keys := v.keys.Load()
	c, err := v.verify(keys, token, now)
	switch {
	case errors.Is(err, ErrPending):
		v.pending.Add(1)
		v.loop.Poke()
	case err != nil:
		v.refused.Add(1)
	default:
		v.verified.Add(1)
		if v.known.add(&h, c); v.keys.Load() != keys { // the table may have been emptied before
			v.known.clear()
		}
	}
	return c, err
}

func (v *Verifier) verify(keys *keySet, token []byte, now time.Time) (*Claims, error) {
	if len(token) > TokenBytesMax {
		return nil, fmt.Errorf("the token has more than %d bytes", TokenBytesMax)
	}
	parsed, err := jwt.ParseSigned(string(token), v.algorithms)
	if err != nil || len(parsed.Headers) != 1 {
		return nil, ErrMalformed
	}
	if keys == nil {
		return nil, ErrPending
	}
	list, unknown := keys.candidates(parsed.Headers[0])
	if unknown && now.Sub(keys.read) > v.cfg.Pause {
		return nil, ErrPending
	}
	for i := range list {
		var standard jwt.Claims
		var all map[string]json.RawMessage
		if parsed.Claims(list[i].Key, &standard, &all) == nil {
			return v.check(&standard, all, now)
		}
	}
	return nil, ErrSignature
}

// check holds the claims of a token with a good signature against the configuration.
func (v *Verifier) check(c *jwt.Claims, all map[string]json.RawMessage, now time.Time) (*Claims, error) {
	if c.Expiry == nil {
		return nil, ErrClaims
	}
	want := jwt.Expected{Issuer: v.cfg.Issuer, Time: now}
	if v.cfg.Audience != "" {
		want.AnyAudience = jwt.Audience{v.cfg.Audience}
	}
	if err := c.ValidateWithLeeway(want, v.cfg.Leeway); err != nil {
		if errors.Is(err, jwt.ErrExpired) {
			return nil, ErrExpired
		}
		return nil, ErrClaims
	}
	return &Claims{until: c.Expiry.Time().Add(v.cfg.Leeway), values: texts(all)}, nil
}

// texts keeps what may be a name. A token with a crowd of claims keeps none, for nobody knows which are meant.
func texts(all map[string]json.RawMessage) map[string]Value {
	values := map[string]Value{}
	for name, raw := range all {
		if v, ok := textOf(raw); ok && len(v.Text) <= claimBytesMax && len(name) <= claimBytesMax && len(all) <= claimsMax {
			values[name] = v
		}
	}
	return values
}

// textOf reads a string or a number, whose digits stay as they are.
func textOf(raw json.RawMessage) (Value, bool) {
	if len(raw) == 0 {
		return Value{}, false
	}
	switch c := raw[0]; {
	case c == '"':
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return Value{}, false
		}
		return Value{Text: []byte(s)}, true
	case c >= '0' && c <= '9':
		return Value{Text: append([]byte(nil), raw...), Number: true}, true
	}
	return Value{}, false
}

// Stats counts tokens by what became of them, and says how many keys and tokens are known.
type Stats struct {
	Cached, Verified, Refused, Pending uint64
	Keys, Tokens                       int
}

// Stats is a snapshot.
func (v *Verifier) Stats() Stats {
	s := Stats{Cached: v.cached.Load(), Verified: v.verified.Load(), Refused: v.refused.Load(), Pending: v.pending.Load(), Tokens: v.known.len()}
	if keys := v.keys.Load(); keys != nil {
		s.Keys = len(keys.keys)
	}
	return s
}

// NewClaims makes claims for a test of who uses them.
func NewClaims(values map[string]Value) *Claims { return &Claims{values: values} }
