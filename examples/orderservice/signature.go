package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// signatureAgeMax is for how long a recorded request is worth something. It only has to be longer than clocks differ.
const signatureAgeMax = 5 * time.Minute

// signed reports whether a gateway that knows one of the keys has sent exactly this request a short while ago.
func signed(r *http.Request, body []byte, keys map[string][]byte) bool {
	part := map[string]string{}
	for field := range strings.SplitSeq(r.Header.Get("Stockgate-Signature"), ",") {
		name, value, _ := strings.Cut(field, "=")
		part[name] = value
	}
	at, err := strconv.ParseInt(part["t"], 10, 64)
	if err != nil || time.Since(time.Unix(at, 0)).Abs() > signatureAgeMax {
		return false
	}
	secret, known := keys[part["k"]]
	given, err := hex.DecodeString(part["v1"])
	if !known || err != nil {
		return false
	}
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "v1\n%s\n%s\n%s\n%s\n%s\n%s\n%x", part["t"], r.Method, r.RequestURI, r.Header.Get("Stockgate-Reservation"),
		r.Header.Get("Stockgate-Lines"), r.Header.Get("Stockgate-Forward-By"), sha256.Sum256(body))
	return hmac.Equal(given, mac.Sum(nil))
}

// parseLines reads Stockgate-Lines: "sku-1";q=2, "sku-2";q=1. A SKU has no byte that would be escaped there.
func parseLines(header string) ([]line, error) {
	var lines []line
	for member := range strings.SplitSeq(header, ",") {
		sku, qty, _ := strings.Cut(strings.TrimSpace(member), ";q=")
		n, err := strconv.ParseInt(qty, 10, 64)
		if err != nil || len(sku) < 3 || sku[0] != '"' || sku[len(sku)-1] != '"' {
			return nil, fmt.Errorf("Stockgate-Lines has %q", member)
		}
		lines = append(lines, line{SKU: sku[1 : len(sku)-1], Qty: n})
	}
	return lines, nil
}

// moment reads a header in Unix milliseconds; absent is long ago.
func moment(r *http.Request, header string) time.Time {
	ms, _ := strconv.ParseInt(r.Header.Get(header), 10, 64)
	return time.UnixMilli(ms)
}
