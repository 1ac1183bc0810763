package filters

import (
	"fmt"
	"strconv"

	"github.com/valyala/fasthttp"
)

// Quota is what a limit tells the client about itself. A token bucket of B tokens refilled at R a second is told as B requests in
// B/R seconds: the same in the long run, and B at once.
type Quota struct {
	Name      string // name of the limit; [A-Za-z0-9._-] only, because it is written unescaped
	Limit     int64  // tokens of a full bucket, at least 1
	Window    int64  // seconds that an empty bucket takes to fill, at least 1
	Remaining int64  // whole tokens left, 0 … Limit
	Next      int64  // seconds until a token is there; 0 if one is
	Full      int64  // seconds until the bucket is full
}

// HeaderStyle says in which form quotas are told to clients.
type HeaderStyle uint8

// The forms. The draft has changed names before and may again; each form is one value here.
const (
	HeadersOff     HeaderStyle = iota
	HeadersDraft10             // RateLimit and RateLimit-Policy of draft-ietf-httpapi-ratelimit-headers-10
	HeadersLegacy              // X-RateLimit-Limit, -Remaining, -Reset (seconds) of the tightest limit
)

var styleNames = [...]string{"off", "draft10", "legacy"}

func (s HeaderStyle) String() string {
	if int(s) < len(styleNames) {
		return styleNames[s]
	}
	return fmt.Sprintf("style(%d)", uint8(s))
}

// ParseHeaderStyle reads the value of rate_limit_headers: off, draft10 or legacy.
func ParseHeaderStyle(s string) (HeaderStyle, error) {
	for i, name := range styleNames {
		if name == s {
			return HeaderStyle(i), nil
		}
	}
	return HeadersOff, fmt.Errorf("rate_limit_headers is %q, allowed are off, draft10, legacy", s)
}

// WriteQuotas sets the rate-limit headers of an answer. Without quotas it sets none.
func WriteQuotas(h *fasthttp.ResponseHeader, style HeaderStyle, quotas []Quota) {
	if len(quotas) == 0 {
		return
	}
	switch style {
	case HeadersDraft10:
		writeDraft10(h, quotas)
	case HeadersLegacy:
		writeLegacy(h, tightest(quotas))
	}
}

func writeDraft10(h *fasthttp.ResponseHeader, quotas []Quota) {
	var room [512]byte // grows on the heap beyond about a dozen limits
	b := room[:0]
	for i := range quotas {
		b = appendPolicy(appendComma(b, i), &quotas[i])
	}
	h.SetBytesV("RateLimit-Policy", b)
	b = b[:0]
	for i := range quotas {
		b = appendState(appendComma(b, i), &quotas[i])
	}
	h.SetBytesV("RateLimit", b)
}

func appendComma(b []byte, i int) []byte {
	if i == 0 {
		return b
	}
	return append(b, ", "...)
}

// appendPolicy writes `"name";q=100;w=2`.
func appendPolicy(b []byte, q *Quota) []byte {
	b = appendName(b, q.Name)
	b = appendParameter(b, ";q=", q.Limit)
	return appendParameter(b, ";w=", q.Window)
}

// appendState writes `"name";r=5` or, with nothing left, `"name";r=0;t=3`.
func appendState(b []byte, q *Quota) []byte {
	b = appendName(b, q.Name)
	b = appendParameter(b, ";r=", q.Remaining)
	if q.Remaining > 0 {
		return b
	}
	return appendParameter(b, ";t=", q.Next)
}

func appendName(b []byte, name string) []byte {
	b = append(b, '"')
	b = append(b, name...)
	return append(b, '"')
}

func appendParameter(b []byte, key string, value int64) []byte {
	return strconv.AppendInt(append(b, key...), value, 10)
}

func writeLegacy(h *fasthttp.ResponseHeader, q *Quota) {
	var room [20]byte
	h.SetBytesV("X-RateLimit-Limit", strconv.AppendInt(room[:0], q.Limit, 10))
	h.SetBytesV("X-RateLimit-Remaining", strconv.AppendInt(room[:0], q.Remaining, 10))
	h.SetBytesV("X-RateLimit-Reset", strconv.AppendInt(room[:0], q.Full, 10))
}

// tightest is the quota with the fewest requests left, because the legacy form has room for one; among equals the one that takes
// longest to give another.
func tightest(quotas []Quota) *Quota {
	best := &quotas[0]
	for i := 1; i < len(quotas); i++ {
		q := &quotas[i]
		if q.Remaining < best.Remaining || q.Remaining == best.Remaining && q.Next > best.Next {
			best = q
		}
	}
	return best
}
