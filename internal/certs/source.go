package certs

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// Every is how often files are looked at, at most.
const Every = 10 * time.Second

// Source gives the TLS settings of one use. It is safe for concurrent use.
type Source struct {
	use   string
	files Files
	build func(material) *tls.Config
	every time.Duration
	log   *zap.Logger

	current  atomic.Pointer[settings]
	looked   atomic.Int64 // when, in nanoseconds
	unusable atomic.Bool  // the files as they are now
	looking  sync.Mutex
	last     [sha256.Size]byte // of what was last judged, good or not; under looking
}

// settings are what one state of the files gives.
type settings struct {
	config *tls.Config
	ends   time.Time
}

// Listening says how a listener speaks TLS.
type Listening struct {
	// Files must have Cert and Key. With CA clients are asked for a certificate.
	Files
	// ClientOptional lets those in that show none; one that is shown must be good all the same.
	ClientOptional bool
	// MinVersion is tls.VersionTLS12 or later; 0 is that.
	MinVersion uint16
}

// Calling says how a client speaks TLS.
type Calling struct {
	// Files may all be absent: the authorities of the system are asked, and no certificate is shown.
	Files
	// ServerName is what the server's certificate must be for.
	ServerName string
}

func (l Listening) settings(m material) *tls.Config {
	c := &tls.Config{MinVersion: max(l.MinVersion, tls.VersionTLS12), NextProtos: []string{"http/1.1"},
		Certificates: []tls.Certificate{*m.pair}}
	if m.pool != nil {
		c.ClientCAs, c.ClientAuth = m.pool, tls.RequireAndVerifyClientCert
		if l.ClientOptional {
			c.ClientAuth = tls.VerifyClientCertIfGiven
		}
	}
	return c
}

func (c Calling) settings(m material) *tls.Config {
	out := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, ServerName: c.ServerName, RootCAs: m.pool}
	if m.pair != nil {
		out.Certificates = []tls.Certificate{*m.pair}
	}
	return out
}

// Listen reads the files of a listener. use names it in the log and in metrics.
func Listen(use string, l Listening, log *zap.Logger) (*Source, error) {
	if l.Cert == "" || l.Key == "" {
		return nil, errors.New("cert and key are required")
	}
	return open(use, l.Files, l.settings, log)
}

// System is the source of a client that shows no certificate and asks the authorities of the system.
func System(serverName string) *Source {
	s := &Source{build: Calling{ServerName: serverName}.settings}
	s.take(material{})
	return s
}

// Call reads the files of a client.
func Call(use string, c Calling, log *zap.Logger) (*Source, error) {
	return open(use, c.Files, c.settings, log)
}

func open(use string, f Files, build func(material) *tls.Config, log *zap.Logger) (*Source, error) {
	s := &Source{use: use, files: f, build: build, every: Every, log: log.With(zap.String("use", use))}
	read, err := f.read()
	if err != nil {
		return nil, err
	}
	m, err := read.parse()
	if err != nil {
		return nil, err
	}
	s.last = read.sum()
	s.take(m)
	s.looked.Store(time.Now().UnixNano())
	if ends := m.ends(); !ends.IsZero() && time.Now().After(ends) {
		s.log.Warn("the certificate has run out", zap.Time("at", ends), zap.String("cert", f.Cert))
	}
	return s, nil
}

func (s *Source) take(m material) {
	s.current.Store(&settings{config: s.build(m), ends: m.ends()})
	s.unusable.Store(false)
}

// Config is how TLS is spoken now. It is not to be changed. It may read the files, which are expected to be on a local disk or in memory.
func (s *Source) Config() *tls.Config {
	if now := time.Now(); s.files != (Files{}) && now.UnixNano()-s.looked.Load() >= int64(s.every) && s.looking.TryLock() {
		s.look(now)
		s.looked.Store(now.UnixNano())
		s.looking.Unlock()
	}
	return s.current.Load().config
}

// LookAgain makes the next Config look at the files, however short ago it was done.
func (s *Source) LookAgain() { s.looked.Store(0) }

// look judges the files if they are not as they were.
func (s *Source) look(now time.Time) {
	read, err := s.files.read()
	sum := read.sum()
	if err != nil {
		sum = sha256.Sum256([]byte(err.Error())) // another error is another line in the log
	}
	if sum == s.last {
		return
	}
	s.last = sum
	if err == nil {
		err = s.judge(read, now)
	}
	if err != nil {
		s.unusable.Store(true)
		s.log.Error("TLS files have changed and cannot be used; the old ones go on", zap.Error(err))
	}
}

func (s *Source) judge(read contents, now time.Time) error {
	m, err := read.parse()
	if err != nil {
		return err
	}
	old := s.current.Load().ends
	if ends := m.ends(); now.After(ends) && now.Before(old) {
		return fmt.Errorf("cert: it has run out at %s, the old one has not", ends.UTC().Format(time.RFC3339))
	}
	s.take(m)
	s.log.Info("TLS files have changed and are used", zap.Time("certificate ends", m.ends()))
	return nil
}

// DialTLS opens a connection and ends the handshake within ctx. Its error is one of dialing, also if the server is not the right one:
// no byte of a request was sent. It is made for http.Transport.DialTLSContext.
func (s *Source) DialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	raw, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, s.Config())
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, &net.OpError{Op: "dial", Net: network, Addr: raw.RemoteAddr(), Err: err}
	}
	return conn, nil
}

// NewListener speaks TLS on ln. Accept does not wait for handshakes: they come with the first read of a connection, and whoever reads
// bounds them.
func NewListener(ln net.Listener, s *Source) net.Listener { return &listener{ln, s} }

type listener struct {
	net.Listener
	source *Source
}

// Accept implements net.Listener; its connections are *tls.Conn.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return tls.Server(c, l.source.Config()), nil
}
