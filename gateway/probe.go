package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"

	"github.com/valyala/fasthttp"
)

// probe asks whether the upstream is there, for its breaker: a connection of its own, TLS and all, and on it the health path, if there
// is one. Any answer from 200 to 399 will do.
func (u *upstream) probe(ctx context.Context) error {
	dial := (&net.Dialer{}).DialContext
	if u.tls != nil {
		dial = u.tls.DialTLS
	}
	conn, err := dial(ctx, "tcp", u.client.Addr)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer func() { _ = conn.Close() }()
	if u.health == "" {
		return nil
	}
	return askHealth(conn, u.client.Addr, u.health)
}

func askHealth(conn net.Conn, host, path string) error {
	_, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: "+host+"\r\nUser-Agent: stockgate\r\nConnection: close\r\n\r\n")
	if err != nil {
		return err
	}
	var h fasthttp.ResponseHeader
	if err := readHeader(&h, bufio.NewReaderSize(conn, usualHeaderBytes)); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if status := h.StatusCode(); status >= 400 {
		return fmt.Errorf("%s: %w", path, statusError(status))
	}
	return nil
}
