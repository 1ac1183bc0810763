package compensation

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"
)

// Signer gives the value of Stockgate-Signature for a call.
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
