package luascripts

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// connect makes the go-redis client of one server. It does not dial. dialer, if not nil, finds the server.
//
// Each setting is there because its default hurts: retries run a script twice; five dial attempts 100 ms apart make a refused
// connection look slow; without ContextTimeoutEnabled a deadline is not kept; pools grow past PoolSize unless MaxActiveConns says
// so. RESP2 and no identity: no push messages and no extra commands on a new connection.
//
// go-redis's own log is switched off, for the whole process: it writes a line to stderr for each failed dial, and all it would say
// comes back as an error.
func connect(cfg Config, address string, dialer dialer) *redis.Client {
	logging.Disable()
	return redis.NewClient(connectOptions(cfg, address, dialer))
}

func connectOptions(cfg Config, address string, dialer dialer) *redis.Options {
	return &redis.Options{
		Addr:                     address,
		Dialer:                   dialer,
		Protocol:                 2,
		Username:                 cfg.Username,
		Password:                 cfg.Password,
		TLSConfig:                cfg.TLS,
		MaxRetries:               -1,
		DialerRetries:            1,
		DialTimeout:              cfg.Timeout,
		ReadTimeout:              cfg.Timeout,
		WriteTimeout:             cfg.Timeout,
		PoolTimeout:              cfg.Timeout,
		ContextTimeoutEnabled:    true,
		PoolSize:                 cfg.PoolSize,
		MaxActiveConns:           cfg.PoolSize,
		PipelinePoolSize:         -1,
		WriteBufferSize:          64 << 10, // a full batch in one write
		ReadBufferSize:           16 << 10,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// dialer opens a connection; nil is go-redis's own, which goes to the address given.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// agingInterval is how often the embedded Redis lets its keys age: it has no clock of its own for that.
const agingInterval = 10 * time.Second

// embedded is a miniredis in this process.
type embedded struct {
	server *miniredis.Miniredis
	stop   chan struct{}
	ended  chan struct{}
}

func startEmbedded() (*embedded, error) {
	server, err := miniredis.Run()
	if err != nil {
		return nil, fmt.Errorf("embedded Redis: %w", err)
	}
	e := &embedded{server: server, stop: make(chan struct{}), ended: make(chan struct{})}
	go e.age()
	return e, nil
}

func (e *embedded) age() {
	defer close(e.ended)
	tick := time.NewTicker(agingInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			e.server.FastForward(agingInterval)
		case <-e.stop:
			return
		}
	}
}

func (e *embedded) close() {
	close(e.stop)
	<-e.ended
	e.server.Close()
}
