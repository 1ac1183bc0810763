package gateway

import (
	"bytes"
	"errors"
	"time"

	"github.com/stockgate/stockgate/gateway/jwt"
	"github.com/stockgate/stockgate/stock"
)

// Tokens verifies the signed tokens of buyers. It must not block. *jwt.Verifier is one.
type Tokens interface {
	Verify(token []byte, now time.Time) (*jwt.Claims, error)
}

var _ Tokens = (*jwt.Verifier)(nil)

// TokenHeaderDefault is where a token is looked for.
const TokenHeaderDefault = "Authorization"

// tokenReader takes a request's token and remembers what it says for the rest of the request.
type tokenReader struct {
	verifier Tokens // nil: no place asks for a token
	header   string
	now      time.Time

	looked bool
	claims *jwt.Claims // nil: there is no token
}

// look reads a claim. A token that is there and is not believed is refused, also where another place has the field.
func (t *tokenReader) look(h *head, claim string) (value, bool, *problem) {
	if !t.looked {
		if p := t.verify(h); p != nil {
			return value{}, false, p
		}
		t.looked = true
	}
	if t.claims == nil {
		return value{}, false, nil
	}
	v, ok := t.claims.Value(claim)
	if !ok {
		return value{}, false, unauthorized("invalid_token", "the token has no "+claim+" that is a text or a whole number")
	}
	kind := valueText
	if v.Number {
		kind = valueNumber
	}
	return value{text: v.Text, kind: kind}, true, nil
}

func (t *tokenReader) verify(h *head) *problem {
	text, found, again := h.find(t.header)
	if again {
		return badRequest(t.header, "header "+t.header+" is there twice, or in a spelling that some take for it")
	}
	token, found := t.bare(text, found)
	if !found {
		return nil
	}
	claims, err := t.verifier.Verify(token, t.now)
	switch {
	case errors.Is(err, jwt.ErrPending):
		return &problem{code: stock.CodeUnavailable, limit: "jwt.jwks", detail: err.Error()}
	case err != nil:
		return unauthorized("invalid_token", err.Error())
	}
	t.claims = claims
	return nil
}

// bare is the token without its scheme. Authorization of another scheme holds no token; another header may have it without any.
func (t *tokenReader) bare(text []byte, found bool) ([]byte, bool) {
	const scheme = "bearer "
	if len(text) > len(scheme) && begins(text, scheme) {
		return bytes.TrimLeft(text[len(scheme):], " "), true
	}
	return text, found && !named([]byte(t.header), TokenHeaderDefault)
}

// unauthorized names what is wrong as RFC 6750 does; fault "": there is no token.
func unauthorized(fault, detail string) *problem {
	challenge := `Bearer realm="stockgate"`
	if fault != "" {
		challenge += `, error="` + fault + `"`
	}
	return &problem{code: stock.CodeUnauthorized, field: "user", detail: detail, challenge: challenge}
}
