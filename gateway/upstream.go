package gateway

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
	"go.uber.org/zap"

	"github.com/stockgate/stockgate/gateway/breaker"
	"github.com/stockgate/stockgate/internal/certs"
	"github.com/stockgate/stockgate/internal/crashpoint"
	"github.com/stockgate/stockgate/stock"
)

// upstream is a backend: its connections, and the slots that bound how many requests are there at once.
type upstream struct {
	name    string
	client  *fasthttp.HostClient // its pool of connections; messages are written and read here
	slots   chan struct{}
	tls     *certs.Source // nil: plain
	timeout time.Duration
	dialing time.Duration
	body    int
	key     *SignKey
	metrics *upstreamMetrics

	breaker                   *breaker.Breaker // nil: none
	health                    string           // path that its probe asks; "": it only connects
	breakerKey, breakerDetail string

	streamIdle  time.Duration
	upgradeIdle time.Duration
	upgrades    chan struct{} // a slot for each upgraded connection, besides its slot as a request

	// wide holds readers for the rare reply whose header does not fit in the usual buffer.
	wide sync.Pool
}

const (
	usualHeaderBytes = 16 << 10
	interimMax       = 8 // 1xx answers before the real one
)

func newUpstream(c Upstream, m *upstreamMetrics, log *zap.Logger) (*upstream, error) {
	parsed, err := url.Parse(c.URL)
	if err != nil {
		return nil, fmt.Errorf("upstreams.%s.url: %w", c.Name, err)
	}
	u := &upstream{name: c.Name, slots: make(chan struct{}, c.MaxConnections), tls: secureFor(parsed, c.TLS), timeout: c.Timeout, dialing: c.DialTimeout,
		body: c.BodyBytes, metrics: m, streamIdle: c.StreamIdle, upgradeIdle: c.UpgradeIdle, upgrades: make(chan struct{}, max(c.MaxUpgrades, 0))}
	if len(c.SignKeys) > 0 {
		u.key = &c.SignKeys[0]
	}
	u.client = &fasthttp.HostClient{
		Addr:                      hostPort(parsed),
		DialTimeout:               u.dial, // it speaks TLS itself, as fasthttp keeps the first settings it is given
		MaxConns:                  c.MaxConnections,
		MaxIdleConnDuration:       c.IdleTimeout,
		ConnPoolStrategy:          fasthttp.LIFO, // few warm connections instead of many that the backend is about to close
		MaxIdemponentCallAttempts: 1,             // nothing is ever sent twice (Do is not used; said for its reader)
		ReadBufferSize:            usualHeaderBytes,
	}
	u.wide.New = func() any { return bufio.NewReaderSize(nil, UpstreamHeaderBytesMax) }
	u.addBreaker(c, log)
	return u, nil
}

func (u *upstream) addBreaker(c Upstream, log *zap.Logger) {
	if c.Breaker == nil {
		return
	}
	own := *c.Breaker
	own.Name, own.Log, own.Probe, own.ProbeTimeout = c.Name, log, u.probe, c.DialTimeout
	if u.health = c.Health; u.health != "" {
		own.ProbeTimeout = c.Timeout
	}
	own.OnOpen = u.client.CloseIdleConnections // where requests fail in a row, the idle connections are no better
	u.breakerKey = "upstreams." + c.Name + ".breaker"
	u.breakerDetail = "upstream " + c.Name + " does not work now; this request was not sent there"
	u.breaker = breaker.New(own)
}

// close ends what the upstream has open while nothing is under way. Requests that are end as they would.
func (u *upstream) close() {
	u.breaker.Stop()
	u.client.CloseIdleConnections()
}

// secureFor is how TLS is spoken to an upstream; nil: it is not.
func secureFor(u *url.URL, given *certs.Source) *certs.Source {
	if u.Scheme == "https" && given == nil {
		return certs.System(u.Hostname())
	}
	return given // there is none without https
}

// dial opens a connection within wait.
func (u *upstream) dial(addr string, wait time.Duration) (net.Conn, error) {
	if u.tls == nil {
		return dial(addr, wait)
	}
	return dialTLS(addr, wait, u.tls)
}

func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// takeSlot takes the right to have a request under way, or says why not. It never waits: who waits for a slot would hold stock or a
// lane meanwhile.
func (u *upstream) takeSlot() *problem {
	select {
	case u.slots <- struct{}{}:
		return nil
	default:
		return u.full()
	}
}

func (u *upstream) full() *problem {
	u.metrics.full.Inc()
	return &problem{code: stock.CodeQueueFull, limit: "upstreams." + u.name + ".max_connections", value: strconv.Itoa(cap(u.slots))}
}

func (u *upstream) giveSlot() { <-u.slots }

// errTooLate: the moment until which a request may be written had passed before a byte was.
var errTooLate = errors.New("too late to be sent")

// message is a request as it goes over the wire.
type message struct {
	head     []byte    // with a short body
	rest     []byte    // a longer body
	headOnly bool      // of HEAD: the reply has no body
	before   time.Time // the moment after which nothing is written any more; zero: there is none
}

func (m *message) write(c net.Conn) error {
	if _, err := c.Write(m.head); err != nil || len(m.rest) == 0 {
		return err
	}
	_, err := c.Write(m.rest)
	return err
}

// exchange sends a message once and reads the reply into resp. sent false: surely not a byte of it reached the backend. sent true
// with an error: the backend may have acted on it.
func (u *upstream) exchange(m *message, resp *fasthttp.Response) (sent bool, err error) {
	deadline := time.Now().Add(u.timeout)
	writeBy := deadline
	if !m.before.IsZero() && m.before.Before(writeBy) {
		writeBy = m.before
	}
	for {
		left := time.Until(writeBy)
		if left <= 0 { // and a dialer would take it for "no limit"
			return false, errTooLate
		}
		conn, err := u.client.AcquireConn(min(u.dialing, left), false)
		if err != nil {
			return false, fmt.Errorf("connect: %w", err)
		}
		inner := innerConn(conn.Conn())
		if inner.used && (time.Since(conn.LastUseTime()) > u.client.MaxIdleConnDuration || !inner.fit()) {
			u.client.CloseConn(conn) // nothing was written on it for this message: another may be taken
			continue
		}
		done := u.transfer(conn.Conn(), inner, m, resp, writeBy, deadline)
		if done.keep {
			u.client.ReleaseConn(conn)
		} else {
			u.client.CloseConn(conn)
		}
		return done.sent, done.err
	}
}

// transferred is the end of one exchange.
type transferred struct {
	sent bool
	keep bool // the connection is at the start of the next reply
	err  error
}

func (u *upstream) transfer(conn net.Conn, inner *backendConn, m *message, resp *fasthttp.Response,
	writeBy, deadline time.Time) transferred {
	if !time.Now().Before(writeBy) {
		return transferred{keep: true, err: errTooLate}
	}
	if err := conn.SetDeadline(writeBy); err != nil {
		return transferred{err: err}
	}
	inner.given, inner.used = 0, true
	if err := m.write(conn); err != nil {
		if inner.given == 0 || isTimeout(err) {
			return transferred{sent: inner.given > 0, err: fmt.Errorf("write: %w", err)}
		}
		// It may have answered without reading to the end, and closed. The answer is worth more than the error.
	}
	crashpoint.Hit(crashpoint.AfterSend)
	if err := conn.SetDeadline(deadline); err != nil {
		return transferred{sent: true, err: err}
	}
	keep, err := u.receive(conn, m.headOnly, resp)
	return transferred{sent: true, keep: keep && err == nil, err: err}
}

// receive reads one reply. keep: nothing of it or after it is left unread.
func (u *upstream) receive(conn net.Conn, headOnly bool, resp *fasthttp.Response) (keep bool, err error) {
	narrow := u.client.AcquireReader(conn)
	defer u.client.ReleaseReader(narrow)
	br := narrow
	err = readHeader(&resp.Header, br)
	var small *fasthttp.ErrSmallBuffer
	if errors.As(err, &small) {
		wide := u.wide.Get().(*bufio.Reader)
		wide.Reset(narrow)
		defer func() {
			wide.Reset(nil)
			u.wide.Put(wide)
		}()
		br = wide
		err = readHeader(&resp.Header, br)
	}
	if err != nil {
		return false, fmt.Errorf("read the reply's header: %w", err)
	}
	if err := u.readBody(resp, br, headOnly); err != nil {
		return false, fmt.Errorf("read the reply's body: %w", err)
	}
	return br.Buffered() == 0 && narrow.Buffered() == 0 && !resp.Header.ConnectionClose(), nil
}

// readHeader reads up to the final answer's header.
func readHeader(h *fasthttp.ResponseHeader, br *bufio.Reader) error {
	for range interimMax {
		if err := h.Read(br); err != nil {
			return err
		}
		status := h.StatusCode()
		if status == fasthttp.StatusSwitchingProtocols {
			return errors.New("the backend switched protocols unasked")
		}
		if status < 100 || status > 999 {
			return fmt.Errorf("status %d", status)
		}
		if status >= 200 {
			return nil
		}
	}
	return fmt.Errorf("more than %d interim answers", interimMax)
}

func (u *upstream) readBody(resp *fasthttp.Response, br *bufio.Reader, headOnly bool) error {
	status := resp.Header.StatusCode()
	if headOnly || status == fasthttp.StatusNoContent || status == fasthttp.StatusNotModified {
		return nil
	}
	chunked := resp.Header.ContentLength() == -1
	if err := resp.ReadBody(br, u.body); err != nil {
		return err
	}
	if chunked {
		return resp.Header.ReadTrailer(br)
	}
	return nil
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.Is(err, fasthttp.ErrTimeout) || errors.As(err, &n) && n.Timeout()
}
