package gateway

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"
)

// signed is what a signature covers.
type signed struct {
	method, target, lines, body []byte
	reservation                 string
	forwardBy                   int64 // Unix ms
}

// appendSignature appends the value of Stockgate-Signature:
//
//	t=<unix>,k=<key id>,v1=<hex HMAC-SHA256 of "v1\n" t "\n" method "\n" raw target "\n" reservation "\n" lines "\n"
//	forward_by "\n" hex SHA-256(body)>
//
// t lets a backend refuse what was recorded long ago, k lets keys be changed without a gap.
func appendSignature(dst []byte, key *SignKey, s *signed, now time.Time) []byte {
	unix := now.Unix()
	dst = strconv.AppendInt(append(dst, "t="...), unix, 10)
	dst = append(append(append(dst, ",k="...), key.ID...), ",v1="...)

	bodySum := sha256.Sum256(s.body)
	text := make([]byte, 0, 256+len(s.target))
	text = strconv.AppendInt(append(text, "v1\n"...), unix, 10)
	text = append(append(append(text, '\n'), s.method...), '\n')
	text = append(append(text, s.target...), '\n')
	text = append(append(text, s.reservation...), '\n')
	text = append(append(text, s.lines...), '\n')
	text = append(strconv.AppendInt(text, s.forwardBy, 10), '\n')
	text = hex.AppendEncode(text, bodySum[:])

	mac := hmac.New(sha256.New, key.Secret)
	mac.Write(text)
	return hex.AppendEncode(dst, mac.Sum(nil))
}
