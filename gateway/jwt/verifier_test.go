package jwt

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rsaKey is made once; it takes a while.
var rsaKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

func ecKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// sign makes a token. kid "": it names no key.
func sign(t *testing.T, key any, algorithm jose.SignatureAlgorithm, kid string, claims any) []byte {
	t.Helper()
	options := (&jose.SignerOptions{}).WithType("JWT")
	if kid != "" {
		options = options.WithHeader("kid", kid)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, options)
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return []byte(text)
}

type claims = map[string]any

// good are claims that pass, with changes.
func good(changes claims) claims {
	c := claims{"sub": "u1", "iss": "https://id.example", "aud": []string{"shop", "other"}, "exp": time.Now().Add(time.Hour).Unix()}
	for k, v := range changes {
		if c[k] = v; v == nil {
			delete(c, k)
		}
	}
	return c
}

func setOf(t *testing.T, keys ...jose.JSONWebKey) []byte {
	t.Helper()
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func public(key crypto.Signer, kid string) jose.JSONWebKey {
	return jose.JSONWebKey{Key: key.Public(), KeyID: kid, Use: "sig"}
}

// file writes keys to a file of the test's.
func file(t *testing.T, keys ...jose.JSONWebKey) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jwks.json")
	if err := os.WriteFile(path, setOf(t, keys...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func config(jwks string) Config {
	return Config{JWKS: jwks, Issuer: "https://id.example", Audience: "shop", Leeway: -1}
}

// verifier has read its keys once.
func verifier(t *testing.T, cfg Config) *Verifier {
	t.Helper()
	v, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.pass(context.Background()); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestGoodTokens(t *testing.T) {
	t.Parallel()
	ec := ecKey(t)
	v := verifier(t, config(file(t, public(rsaKey(), "r"), public(ec, "e"))))
	f := func(token []byte, name, want string, number bool) {
		t.Helper()
		for range 2 { // the second time from the table
			c, err := v.Verify(token, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			if got, ok := c.Value(name); !ok || string(got.Text) != want || got.Number != number {
				t.Errorf("%s is %q, %v", name, got.Text, got)
			}
		}
	}
	f(sign(t, rsaKey(), jose.RS256, "r", good(nil)), "sub", "u1", false)
	f(sign(t, rsaKey(), jose.RS256, "", good(nil)), "sub", "u1", false)
	f(sign(t, ec, jose.ES256, "e", good(claims{"aud": "shop"})), "sub", "u1", false)
	f(sign(t, ec, jose.ES256, "", good(claims{"id": int64(9007199254740993)})), "id", "9007199254740993", true)
	if s := v.Stats(); s.Verified != 4 || s.Cached != 4 || s.Keys != 2 || s.Tokens != 4 {
		t.Errorf("stats are %+v", s)
	}
	c, err := v.Verify(sign(t, ec, jose.ES256, "e", good(claims{"id": true, "sub": nil})), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"id", "sub", "aud"} {
		if _, ok := c.Value(name); ok {
			t.Errorf("claim %s has a value", name)
		}
	}
}

// TestForgedTokens: none, a public key as a shared secret, a key of somebody else, a key for something else.
func TestForgedTokens(t *testing.T) {
	t.Parallel()
	ec, foreign := ecKey(t), ecKey(t)
	encryption := public(foreign, "enc")
	encryption.Use = "enc"
	pinned := public(rsaKey(), "ps")
	pinned.Algorithm = "PS256"
	cfg := config(file(t, public(rsaKey(), "r"), public(ec, "e"), encryption, pinned, jose.JSONWebKey{Key: []byte("0123456789abcdef0123456789abcdef"), KeyID: "hs"}))
	cfg.Pause = time.Hour
	v := verifier(t, cfg)
	if n := v.Stats().Keys; n != 3 {
		t.Errorf("%d keys were taken, want the 3 public ones for signatures", n)
	}
	f := func(name string, token []byte, want error) {
		t.Helper()
		if _, err := v.Verify(token, time.Now()); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	part := base64.RawURLEncoding.EncodeToString
	body, _ := json.Marshal(good(nil))
	for _, none := range []string{"none", "None", "nOnE", ""} {
		f("alg "+none, []byte(part([]byte(`{"alg":"`+none+`"}`))+"."+part(body)+"."), ErrMalformed)
	}
	der, err := x509.MarshalPKIXPublicKey(rsaKey().Public())
	if err != nil {
		t.Fatal(err)
	}
	f("HS256 with the RSA key", sign(t, der, jose.HS256, "r", good(nil)), ErrMalformed)
	f("HS256 with a secret of the set", sign(t, []byte("0123456789abcdef0123456789abcdef"), jose.HS256, "hs", good(nil)), ErrMalformed)
	f("another key's signature", sign(t, foreign, jose.ES256, "e", good(nil)), ErrSignature)
	f("an unknown key", sign(t, foreign, jose.ES256, "x", good(nil)), ErrSignature)
	f("no key id", sign(t, foreign, jose.ES256, "", good(nil)), ErrSignature)
	f("a key for encryption", sign(t, foreign, jose.ES256, "enc", good(nil)), ErrSignature)
	f("a key for another algorithm", sign(t, rsaKey(), jose.RS256, "ps", good(nil)), ErrSignature)
	f("an algorithm that is not taken", sign(t, rsaKey(), jose.RS512, "r", good(nil)), ErrMalformed)
	token := string(sign(t, ec, jose.ES256, "e", good(nil)))
	first, rest, _ := strings.Cut(token, ".")
	_, signature, _ := strings.Cut(rest, ".")
	other, _ := json.Marshal(good(claims{"sub": "admin"}))
	f("other claims", []byte(first+"."+part(other)+"."+signature), ErrSignature)
	f("no signature", []byte(first+"."+part(body)+"."), ErrSignature)
	f("no token", []byte("x"), ErrMalformed)
	f("empty", nil, ErrMalformed)
	if _, err := v.Verify([]byte(strings.Repeat("x", TokenBytesMax+1)), time.Now()); err == nil {
		t.Error("a token without bounds is looked at")
	}
	if s := v.Stats(); s.Tokens != 0 {
		t.Errorf("%d refused tokens are remembered", s.Tokens)
	}
}

func TestClaimsMustFit(t *testing.T) {
	t.Parallel()
	ec := ecKey(t)
	now := time.Now()
	v := verifier(t, config(file(t, public(ec, "e"))))
	lenient := config(file(t, public(ec, "e")))
	lenient.Leeway = time.Minute
	w := verifier(t, lenient)
	f := func(changes claims, want, wantLenient error) {
		t.Helper()
		token := sign(t, ec, jose.ES256, "e", good(changes))
		if _, err := v.Verify(token, now); !errors.Is(err, want) {
			t.Errorf("%v: %v, want %v", changes, err, want)
		}
		if _, err := w.Verify(token, now); !errors.Is(err, wantLenient) {
			t.Errorf("%v with leeway: %v, want %v", changes, err, wantLenient)
		}
	}
	f(claims{"exp": nil}, ErrClaims, ErrClaims)
	f(claims{"exp": now.Add(-30 * time.Second).Unix()}, ErrExpired, nil)
	f(claims{"exp": now.Add(-2 * time.Minute).Unix()}, ErrExpired, ErrExpired)
	f(claims{"nbf": now.Add(30 * time.Second).Unix()}, ErrClaims, nil)
	f(claims{"nbf": now.Add(2 * time.Minute).Unix()}, ErrClaims, ErrClaims)
	f(claims{"iss": "https://other.example"}, ErrClaims, ErrClaims)
	f(claims{"iss": nil}, ErrClaims, ErrClaims)
	f(claims{"aud": "other"}, ErrClaims, ErrClaims)
	f(claims{"aud": nil}, ErrClaims, ErrClaims)
	token := sign(t, ec, jose.ES256, "e", good(nil))
	if _, err := v.Verify(token, now); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Verify(token, now.Add(2*time.Hour)); !errors.Is(err, ErrExpired) {
		t.Errorf("a remembered token that has expired: %v", err)
	}
}

// issuer serves keys over HTTP.
type issuer struct {
	*httptest.Server
	text  atomic.Pointer[[]byte] // nil: it is down
	asked chan struct{}
}

func startIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{asked: make(chan struct{}, 1000)}
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		text := i.text.Load()
		if text == nil {
			w.WriteHeader(http.StatusServiceUnavailable)
		} else {
			_, _ = w.Write(*text)
		}
		i.asked <- struct{}{}
	}))
	t.Cleanup(i.Close)
	return i
}

// TestKeysRotate: unknown key ids are looked for without a request that waits, keys stay while the URL is down, and a key that was
// withdrawn takes its tokens along.
func TestKeysRotate(t *testing.T) {
	t.Parallel()
	first, second := ecKey(t), ecKey(t)
	i := startIssuer(t)
	cfg := config(i.URL)
	cfg.Pause, cfg.Refresh, cfg.Client = time.Millisecond, time.Hour, i.Client()
	v, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); v.Run(ctx) }()
	defer func() { cancel(); <-done }()
	old, fresh := sign(t, first, jose.ES256, "1", good(nil)), sign(t, second, jose.ES256, "2", good(nil))
	until := func(token []byte, want error) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); ; {
			_, err := v.Verify(token, time.Now())
			if errors.Is(err, want) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("still %v, want %v", err, want)
			}
			time.Sleep(time.Millisecond)
		}
	}
	until(old, ErrPending)
	text := setOf(t, public(first, "1"))
	i.text.Store(&text)
	until(old, nil)
	i.text.Store(nil)
	until(fresh, ErrPending) // it is looked for
	until(old, nil)
	rotated := setOf(t, public(second, "2"))
	i.text.Store(&rotated)
	until(fresh, nil)
	if _, err := v.Verify(old, time.Now()); err == nil {
		t.Error("a token whose key was withdrawn is believed")
	}
}

// TestReadsKeepTheirPause, whatever tokens come in.
func TestReadsKeepTheirPause(t *testing.T) {
	t.Parallel()
	i := startIssuer(t)
	text := setOf(t, public(ecKey(t), "1"))
	i.text.Store(&text)
	cfg := config(i.URL)
	cfg.Pause, cfg.Client = time.Hour, i.Client()
	v, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); v.Run(ctx) }()
	<-i.asked
	for n := range 100 {
		kid := fmt.Sprint("forged-", n)
		if _, err := v.Verify(sign(t, ecKey(t), jose.ES256, kid, good(nil)), time.Now().Add(30*time.Minute)); err == nil {
			t.Fatal("a forged token is believed")
		}
	}
	cancel()
	<-done
	if n := len(i.asked); n != 0 {
		t.Errorf("the keys were read %d times more", n)
	}
}

// TestWhatIsNoKeySet leaves the keys as they were.
func TestWhatIsNoKeySet(t *testing.T) {
	t.Parallel()
	f := func(text string) {
		t.Helper()
		path := filepath.Join(t.TempDir(), "jwks.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		v, err := New(config(path))
		if err != nil {
			t.Fatal(err)
		}
		if v.pass(context.Background()) == nil {
			t.Errorf("%.40q is a key set", text)
		}
	}
	f("")
	f("[]")
	f(`{"keys":[]}`)
	f(`{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}`)
	f(`{"keys":[{"kty":"xyz"}]}`)
	f(strings.Repeat(" ", jwksBytesMax+1))
	private, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: ecKey(t), KeyID: "1"}}})
	if err != nil {
		t.Fatal(err)
	}
	f(string(private))
}

func TestTheTableIsBounded(t *testing.T) {
	t.Parallel()
	table := newTable(100)
	kept := hash{255}
	table.add(&kept, &Claims{})
	for n := range 10_000 {
		h := hash{byte(n), byte(n >> 8), 1}
		table.add(&h, &Claims{})
		if table.get(&kept) == nil {
			t.Fatalf("a token that is used all the time was forgotten after %d", n)
		}
		if table.len() > 100 {
			t.Fatalf("%d tokens are remembered, the bound is 100", table.len())
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	f := func(change func(*Config), want string) {
		t.Helper()
		cfg := config("/etc/jwks.json")
		change(&cfg)
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	f(func(c *Config) { c.JWKS = "" }, "jwt.jwks is missing")
	f(func(c *Config) { c.JWKS = "http://id.example/jwks" }, "https://")
	f(func(c *Config) { c.JWKS = "ftp://id.example/jwks" }, "https://")
	f(func(c *Config) { c.Algorithms = []string{"HS256"} }, "HS256")
	f(func(c *Config) { c.Algorithms = []string{"none"} }, "none")
	f(func(c *Config) { c.Tokens = -1 }, "negative")
	for _, jwks := range []string{"https://id.example/jwks", "http://127.0.0.1:9/jwks", "http://[::1]:9/jwks", "jwks.json"} {
		if _, err := New(Config{JWKS: jwks}); err != nil {
			t.Errorf("%s: %v", jwks, err)
		}
	}
}

// TestRememberedTokensCostNoMemory: the hot path hashes and looks up.
func TestRememberedTokensCostNoMemory(t *testing.T) {
	ec := ecKey(t)
	v := verifier(t, config(file(t, public(ec, "e"))))
	token, now := sign(t, ec, jose.ES256, "e", good(nil)), time.Now()
	if n := testing.AllocsPerRun(100, func() { _, _ = v.Verify(token, now) }); n > 0 {
		t.Errorf("a remembered token allocates %v times", n)
	}
}

func BenchmarkRemembered(b *testing.B) {
	benchmark(b, func(v *Verifier, token []byte) { _, _ = v.Verify(token, time.Now()) })
}

func BenchmarkVerified(b *testing.B) {
	benchmark(b, func(v *Verifier, token []byte) { _, _ = v.verify(v.keys.Load(), token, time.Now()) })
}

func benchmark(b *testing.B, f func(v *Verifier, token []byte)) {
	b.Helper()
	v, err := New(config("x"))
	if err != nil {
		b.Fatal(err)
	}
	v.keys.Store(&keySet{keys: []jose.JSONWebKey{public(rsaKey(), "r")}, read: time.Now()})
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: rsaKey()}, (&jose.SignerOptions{}).WithHeader("kid", "r"))
	if err != nil {
		b.Fatal(err)
	}
	text, err := jwt.Signed(signer).Claims(good(nil)).Serialize()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		f(v, []byte(text))
	}
}
