package ordercall

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Placeholder is where the id of the reservation goes in a path.
const Placeholder = "{reservation}"

// Signer gives the value of Stockgate-Signature for a call. body is nil if there is none.
type Signer func(method, target, reservation string, body []byte) string

// NewSigner signs calls as forwarded requests are signed. A call has neither Stockgate-Lines nor Stockgate-Forward-By, so those parts of
// the signed text are empty: "v1\n" t "\n" method "\n" raw target "\n" reservation "\n" "\n" "\n" hex SHA-256 of the body.
func NewSigner(keyID string, secret []byte, now func() time.Time) Signer {
	return func(method, target, reservation string, body []byte) string {
		t, sum := now().Unix(), sha256.Sum256(body)
		mac := hmac.New(sha256.New, secret)
		fmt.Fprintf(mac, "v1\n%d\n%s\n%s\n%s\n\n\n%s", t, method, target, reservation, hex.EncodeToString(sum[:]))
		return fmt.Sprintf("t=%d,k=%s,v1=%s", t, keyID, hex.EncodeToString(mac.Sum(nil)))
	}
}

// Check says what is wrong with the path of a call, which stands under name (such as resolve) of an upstream at base. No path is right:
// the upstream takes no such calls.
func Check(upstream, name, base, path string) error {
	if path == "" {
		return nil
	}
	key := "upstreams." + upstream
	if !strings.HasPrefix(path, "/") || !strings.Contains(path, Placeholder) {
		return fmt.Errorf("%s.%s is %q, must be a path with %s in it", key, name, path, Placeholder)
	}
	parsed, err := url.Parse(base + path)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	if parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == "" {
		return fmt.Errorf("%s.url is %q, must be http:// or https:// and a host", key, base)
	}
	return nil
}
