package jwt

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// keySet is the issuer's keys as they were last read. It is never changed.
type keySet struct {
	keys []jose.JSONWebKey
	text string    // as it was read
	read time.Time // when the read began
}

// fetch reads the keys. It blocks for fetchTimeout at most.
func (v *Verifier) fetch(ctx context.Context) (*keySet, error) {
	began := time.Now()
	text, err := v.load(ctx)
	if err != nil {
		return nil, err
	}
	keys, err := parseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("jwt.jwks: %w", err)
	}
	return &keySet{keys: keys, text: string(text), read: began}, nil
}

func (v *Verifier) load(ctx context.Context) ([]byte, error) {
	if isURL(v.cfg.JWKS) {
		return v.download(ctx)
	}
	file, err := os.Open(v.cfg.JWKS)
	if err != nil {
		return nil, fmt.Errorf("jwt.jwks: %w", err)
	}
	defer func() { _ = file.Close() }()
	return bounded(file)
}

func (v *Verifier) download(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, v.cfg.JWKS, nil)
	if err != nil {
		return nil, fmt.Errorf("jwt.jwks: %w", err)
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	resp, err := v.cfg.Client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("jwt.jwks: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("jwt.jwks: status %d", resp.StatusCode)
	}
	return bounded(resp.Body)
}

func bounded(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, jwksBytesMax+1))
	if err != nil {
		return nil, fmt.Errorf("jwt.jwks: %w", err)
	}
	if len(text) > jwksBytesMax {
		return nil, fmt.Errorf("jwt.jwks has more than %d bytes", jwksBytesMax)
	}
	return text, nil
}

// parseKeys takes the public keys for signatures. What else is there belongs to others, or is of a kind that is not known here.
func parseKeys(text []byte) ([]jose.JSONWebKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("it is no JSON Web Key Set: %w", err)
	}
	var keys []jose.JSONWebKey
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(raw) == nil && publicKey(key.Key) && (key.Use == "" || key.Use == "sig") {
			keys = append(keys, key)
		}
	}
	switch {
	case len(keys) == 0:
		return nil, errors.New("it has no public key for signatures")
	case len(keys) > jwksKeysMax:
		return nil, fmt.Errorf("it has %d keys, allowed are %d", len(keys), jwksKeysMax)
	}
	return keys, nil
}

func publicKey(key any) bool {
	switch key.(type) {
	case *rsa.PublicKey, *ecdsa.PublicKey, ed25519.PublicKey:
		return true
	}
	return false
}

// candidates are the keys that may have signed under a header. named: the token names a key that is not there.
func (s *keySet) candidates(h jose.Header) (keys []jose.JSONWebKey, unknown bool) {
	for _, key := range s.keys {
		if h.KeyID != "" && key.KeyID != h.KeyID {
			continue
		}
		if serves(&key, h.Algorithm) {
			keys = append(keys, key)
		} else if h.KeyID != "" {
			return nil, false // it is known, and is for another algorithm
		}
	}
	return keys, len(keys) == 0 && h.KeyID != ""
}

// serves reports whether a key is for an algorithm.
func serves(key *jose.JSONWebKey, algorithm string) bool {
	if key.Algorithm != "" && key.Algorithm != algorithm {
		return false
	}
	switch key.Key.(type) {
	case *rsa.PublicKey:
		return algorithm[0] == 'R' || algorithm[0] == 'P'
	case *ecdsa.PublicKey:
		return algorithm[:2] == "ES"
	}
	return algorithm == string(jose.EdDSA)
}
