package ordercall

import (
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"github.com/stockgate/stockgate/internal/certs"
)

const (
	headerBytesMax = 64 << 10
	idleTimeout    = 15 * time.Second
)

// Transport carries calls to one order service over at most parallel connections. It follows no redirect and keeps no cookies. secure is
// how it speaks TLS with https; nil: with the system's authorities. A server that is not the right one is an error of dialing: nothing
// was sent.
func Transport(secure *certs.Source, parallel int) *http.Transport {
	t := &http.Transport{
		DialContext:            (&net.Dialer{}).DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		MaxConnsPerHost:        parallel,
		MaxIdleConnsPerHost:    parallel,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: headerBytesMax,
		DisableCompression:     true,
	}
	if secure != nil {
		t.DialTLSContext = secure.DialTLS
	}
	return t
}
