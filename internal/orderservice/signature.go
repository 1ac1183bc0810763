package orderservice

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers that a gateway adds to what it forwards.
const (
	reservationHeader = "Stockgate-Reservation"
	linesHeader       = "Stockgate-Lines"
	forwardByHeader   = "Stockgate-Forward-By"
	expiresHeader     = "Stockgate-Expires"
	signatureHeader   = "Stockgate-Signature"
	outcomeHeader     = "Stockgate-Outcome"
)

// signatureAgeMax bounds how far a signature's time may be from the clock here, so that a recorded request is worth nothing later.
const signatureAgeMax = 5 * time.Minute

// signature is a parsed Stockgate-Signature: t=<unix>,k=<key id>,v1=<hex HMAC-SHA256>.
type signature struct {
	at  int64 // Unix seconds
	key string
	mac []byte
}

func parseSignature(s string) (signature, error) {
	var sig signature
	var err error
	seen := 0
	for part := range strings.SplitSeq(s, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "t":
			sig.at, err = strconv.ParseInt(value, 10, 64)
		case "k":
			sig.key = value
		case "v1":
			sig.mac, err = hex.DecodeString(value)
		default:
			continue // later versions may add to it
		}
		if err != nil {
			return sig, fmt.Errorf("%s: %s is %q", signatureHeader, name, value)
		}
		seen++
	}
	if seen != 3 {
		return sig, fmt.Errorf("%s must have t, k and v1 once each", signatureHeader)
	}
	return sig, nil
}

// verify checks that a gateway which holds one of the keys has sent exactly this request. keys maps key ids to secrets.
func verify(r *http.Request, body []byte, keys map[string][]byte, now time.Time) error {
	sig, err := parseSignature(r.Header.Get(signatureHeader))
	if err != nil {
		return err
	}
	secret, known := keys[sig.key]
	if !known {
		return fmt.Errorf("%s is by key %q, which is not known here", signatureHeader, sig.key)
	}
	if age := now.Sub(time.Unix(sig.at, 0)); age.Abs() > signatureAgeMax {
		return fmt.Errorf("%s is %s old, allowed are %s", signatureHeader, age.Round(time.Second), signatureAgeMax)
	}
	if !hmac.Equal(sig.mac, sign(secret, sig.at, r, body)) {
		return errors.New(signatureHeader + " does not fit the request")
	}
	return nil
}

// sign is the HMAC over the text that both sides write down in the same way.
func sign(secret []byte, at int64, r *http.Request, body []byte) []byte {
	sum := sha256.Sum256(body)
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "v1\n%d\n%s\n%s\n%s\n%s\n%s\n%s", at, r.Method, r.RequestURI, r.Header.Get(reservationHeader),
		r.Header.Get(linesHeader), r.Header.Get(forwardByHeader), hex.EncodeToString(sum[:]))
	return mac.Sum(nil)
}
