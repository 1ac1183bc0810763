package httpserve

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// Serve serves ln with server until ctx ends, then stops accepting and lets the requests in flight finish for at most grace; what is
// left is cut. It returns when no connection is left: nil after ctx ended, else what broke the listener. It owns ln and sets
// server.ConnState; a server is used once.
func Serve(ctx context.Context, server *http.Server, ln net.Listener, grace time.Duration) error {
	idle := &unused{conns: map[net.Conn]struct{}{}}
	server.ConnState = idle.track
	done := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		idle.close()
		done <- finish(server, grace)
	})
	err := server.Serve(ln)
	if stop() { // ctx goes on: the listener broke by itself
		return errors.Join(err, server.Close())
	}
	return <-done
}

func finish(server *http.Server, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	err := server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return server.Close()
	}
	return err
}

// unused holds the connections that have not sent a byte yet.
type unused struct {
	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
}

func (u *unused) track(conn net.Conn, state http.ConnState) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case state != http.StateNew:
		delete(u.conns, conn)
	case u.closed:
		_ = conn.Close()
	default:
		u.conns[conn] = struct{}{}
	}
}

func (u *unused) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	for conn := range u.conns {
		_ = conn.Close()
	}
}
