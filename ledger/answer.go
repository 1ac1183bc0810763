package ledger

import (
	"bytes"
	"strings"

	"github.com/stockgate/stockgate/stock"
)

// headerFits: a header that comes back from encodeHeaders and decodeHeaders as it went in.
func headerFits(h stock.Header) bool {
	return h.Name != "" && !strings.ContainsAny(h.Name, ":\r\n") && !strings.ContainsAny(h.Value, "\r\n")
}

// encodeHeaders writes headers as on the wire. Values may be any bytes but line ends.
func encodeHeaders(headers []stock.Header) []byte {
	b := bytes.NewBuffer([]byte{}) // no headers are an empty block, not NULL
	for _, h := range headers {
		b.WriteString(h.Name)
		b.WriteString(": ")
		b.WriteString(h.Value)
		b.WriteString("\r\n")
	}
	return b.Bytes()
}

func decodeHeaders(block []byte) []stock.Header {
	var headers []stock.Header
	for line := range strings.SplitSeq(string(block), "\r\n") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			headers = append(headers, stock.Header{Name: name, Value: value})
		}
	}
	return headers
}
