package resolver

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"
)

// bodySum is the SHA-256 of no body.
var bodySum = sha256.Sum256(nil)

// NewSigner signs questions as forwarded requests are signed. A question has no lines, no forward-by and no body, so those parts of the
// signed text are empty: "v1\n" t "\n" method "\n" raw target "\n" reservation "\n" "\n" "\n" hex SHA-256 of nothing.
func NewSigner(keyID string, secret []byte, now func() time.Time) func(method, target, reservation string) string {
	return func(method, target, reservation string) string {
		t := now().Unix()
		mac := hmac.New(sha256.New, secret)
		fmt.Fprintf(mac, "v1\n%d\n%s\n%s\n%s\n\n\n%s", t, method, target, reservation, hex.EncodeToString(bodySum[:]))
		return fmt.Sprintf("t=%d,k=%s,v1=%s", t, keyID, hex.EncodeToString(mac.Sum(nil)))
	}
}
