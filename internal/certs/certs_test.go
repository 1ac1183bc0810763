package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/stockgate/stockgate/internal/certs/certtest"
)

// side is a folder with the files of one side.
type side struct {
	t     *testing.T
	dir   string
	files Files
	logs  *observer.ObservedLogs
	log   *zap.Logger
}

func newSide(t *testing.T, pair certtest.Pair) *side {
	t.Helper()
	core, logs := observer.New(zapcore.InfoLevel)
	s := &side{t: t, dir: t.TempDir(), logs: logs, log: zap.New(core)}
	s.files.Cert, s.files.Key = s.write("tls.crt", pair.Cert), s.write("tls.key", pair.Key)
	return s
}

func (s *side) write(name string, b []byte) string { return certtest.Write(s.t, s.dir, name, b) }

func (s *side) put(pair certtest.Pair) {
	s.write("tls.crt", pair.Cert)
	s.write("tls.key", pair.Key)
}

// listen opens a source that looks at its files each time it is asked.
func (s *side) listen() *Source {
	s.t.Helper()
	source, err := Listen("listen", Listening{Files: s.files}, s.log)
	if err != nil {
		s.t.Fatal(err)
	}
	source.every = 0
	return source
}

// shown is the subject of the certificate that a source would show.
func (s *Source) shown() string { return s.Config().Certificates[0].Leaf.Subject.CommonName }

func TestChangedFilesAreUsed(t *testing.T) {
	t.Parallel()
	ca := certtest.New(t)
	s := newSide(t, ca.Issue(t, time.Hour, "first"))
	source := s.listen()
	if before := source.Config(); source.shown() != "first" || source.Config() != before {
		t.Fatal("the settings are others although the files are the same")
	}
	s.put(ca.Issue(t, time.Hour, "second"))
	if got := source.shown(); got != "second" {
		t.Errorf("the certificate is of %q after the change", got)
	}
}

// TestSwappedFolder is how Kubernetes changes a Secret: tls.crt links to ..data/tls.crt, and ..data is made to link to another folder.
func TestSwappedFolder(t *testing.T) {
	t.Parallel()
	ca := certtest.New(t)
	root := t.TempDir()
	version := func(name string) {
		dir := filepath.Join(root, ".."+name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		pair := ca.Issue(t, time.Hour, name)
		certtest.Write(t, dir, "tls.crt", pair.Cert)
		certtest.Write(t, dir, "tls.key", pair.Key)
		link := filepath.Join(root, "..data")
		if err := errors.Join(os.Symlink(".."+name, link+"_tmp"), os.Rename(link+"_tmp", link)); err != nil {
			t.Fatal(err)
		}
	}
	version("one")
	for _, name := range []string{"tls.crt", "tls.key"} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	source, err := Listen("listen", Listening{Files: Files{Cert: filepath.Join(root, "tls.crt"), Key: filepath.Join(root, "tls.key")}}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	source.every = 0
	version("two")
	if got := source.shown(); got != "two" {
		t.Errorf("the certificate is of %q after the swap", got)
	}
}

func TestBrokenChangesKeepTheOld(t *testing.T) {
	t.Parallel()
	ca := certtest.New(t)
	s := newSide(t, ca.Issue(t, time.Hour, "good"))
	source := s.listen()
	set := NewSet(s.log)
	set.of["listen"] = kept{source: source}
	broken := 0
	f := func(what, reason string, change func()) {
		t.Helper()
		change()
		for range 3 {
			if got := source.shown(); got != "good" {
				t.Fatalf("%s: the certificate is of %q", what, got)
			}
		}
		broken++
		lines := s.logs.FilterLevelExact(zapcore.ErrorLevel).All()
		if len(lines) != broken {
			t.Fatalf("%s: %d lines in the log, want %d", what, len(lines), broken)
		}
		if text := lines[broken-1].ContextMap()["error"].(string); !strings.Contains(text, reason) {
			t.Errorf("%s: the log says %q, not %q", what, text, reason)
		}
		if got := valueOf(t, set, "stockgate_tls_files_unusable"); got != 1 {
			t.Errorf("%s: stockgate_tls_files_unusable is %v", what, got)
		}
	}
	next := ca.Issue(t, time.Hour, "next")
	f("no PEM", "cert and key", func() { s.write("tls.crt", []byte("x")) })
	f("a new certificate with the old key", "private key does not match", func() { s.write("tls.crt", next.Cert) })
	f("it has run out", "run out", func() { s.put(ca.Issue(t, -time.Hour, "late")) })
	f("gone", "no such file", func() { _ = os.Remove(s.files.Key) })

	s.put(next)
	if got := source.shown(); got != "next" {
		t.Errorf("the certificate is of %q once the files are good", got)
	}
	if got := valueOf(t, set, "stockgate_tls_files_unusable"); got != 0 {
		t.Errorf("stockgate_tls_files_unusable is %v once the files are good", got)
	}
	ends := float64(source.current.Load().ends.Unix())
	if got := valueOf(t, set, "stockgate_tls_certificate_expiry_timestamp_seconds"); got != ends || ends == 0 {
		t.Errorf("the expiry is %v, want %v", got, ends)
	}
}

// valueOf is the only value of a metric.
func valueOf(t *testing.T, c prometheus.Collector, name string) float64 {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(c)
	if n, err := testutil.GatherAndCount(reg, name); err != nil || n != 1 {
		t.Fatalf("%s has %d values, %v", name, n, err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return -1
}

func TestBadFilesAreRefusedAtStart(t *testing.T) {
	t.Parallel()
	pair := certtest.New(t).Issue(t, time.Hour, "a")
	s := newSide(t, pair)
	f := func(want string, l Listening) {
		t.Helper()
		if _, err := Listen("listen", l, s.log); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", l, err, want)
		}
	}
	other := newSide(t, certtest.New(t).Issue(t, time.Hour, "b"))
	f("required", Listening{})
	f("cert: open", Listening{Files: Files{Cert: s.dir + "/none", Key: s.files.Key}})
	f("cert and key: ", Listening{Files: Files{Cert: s.files.Cert, Key: other.files.Key}})
	f("ca: ", Listening{Files: Files{Cert: s.files.Cert, Key: s.files.Key, CA: s.files.Key}})
	big := s.write("big", make([]byte, fileBytesMax+1))
	f("at most", Listening{Files: Files{Cert: big, Key: s.files.Key}})
}

// serve accepts on a listener and reads one byte of each connection.
func serve(t *testing.T, source *Source) (addr string) {
	t.Helper()
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln := NewListener(raw, source)
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = c.Read(make([]byte, 1))
			}()
		}
	}()
	return raw.Addr().String()
}

func TestDialedServersAreVerified(t *testing.T) {
	t.Parallel()
	ca, other := certtest.New(t), certtest.New(t)
	s := newSide(t, ca.Issue(t, time.Hour, "orders.example"))
	s.files.CA = s.write("ca.crt", ca.PEM)
	addr := serve(t, s.listen())
	dial := func(c Calling) error {
		source, err := Call("upstreams.orders", c, s.log)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := source.DialTLS(context.Background(), "tcp", addr)
		if err != nil {
			var op *net.OpError
			if !errors.As(err, &op) || op.Op != "dial" {
				t.Errorf("%v is no error of dialing", err)
			}
			return err
		}
		defer conn.Close()
		// With TLS 1.3 the server's word about our certificate comes after the handshake; a sound connection is silent until we write.
		if _, err := conn.Write([]byte("x")); err != nil {
			return err
		}
		_, err = conn.Read(make([]byte, 1))
		if strings.Contains(err.Error(), "certificate required") || strings.Contains(err.Error(), "bad certificate") ||
			strings.Contains(err.Error(), "unknown certificate authority") {
			return err
		}
		return nil
	}
	client := newSide(t, ca.Issue(t, time.Hour, "stockgate"))
	right := Calling{Files: Files{Cert: client.files.Cert, Key: client.files.Key, CA: client.write("ca.crt", ca.PEM)}, ServerName: "orders.example"}
	if err := dial(right); err != nil {
		t.Errorf("the right one: %v", err)
	}
	f := func(what string, change func(*Calling)) {
		t.Helper()
		c := right
		change(&c)
		if dial(c) == nil {
			t.Errorf("%s: there is a connection", what)
		}
	}
	f("another name", func(c *Calling) { c.ServerName = "else.example" })
	f("another authority", func(c *Calling) { c.CA = client.write("other.crt", other.PEM) })
	f("the system's authorities", func(c *Calling) { c.CA = "" })
	f("no certificate of ours", func(c *Calling) { c.Cert, c.Key = "", "" })
	stranger := newSide(t, other.Issue(t, time.Hour, "stockgate"))
	f("a certificate of another authority", func(c *Calling) { c.Cert, c.Key = stranger.files.Cert, stranger.files.Key })
}

// TestSessionsDoNotOutliveTheirAuthority: a client that is no longer trusted cannot go on by resuming.
func TestSessionsDoNotOutliveTheirAuthority(t *testing.T) {
	t.Parallel()
	ca, next := certtest.New(t), certtest.New(t)
	s := newSide(t, ca.Issue(t, time.Hour, "shop.example"))
	s.files.CA = s.write("ca.crt", ca.PEM)
	addr := serve(t, s.listen())
	client := &tls.Config{RootCAs: ca.Pool(), ServerName: "shop.example", Certificates: []tls.Certificate{ca.Issue(t, time.Hour, "c").TLS(t)},
		ClientSessionCache: tls.NewLRUClientSessionCache(4), MaxVersion: tls.VersionTLS12} // 1.2: the server's word is in the handshake
	dial := func() (resumed bool, err error) {
		conn, err := tls.Dial("tcp", addr, client)
		if err != nil {
			return false, err
		}
		defer conn.Close()
		return conn.ConnectionState().DidResume, nil
	}
	if _, err := dial(); err != nil {
		t.Fatal(err)
	}
	if resumed, err := dial(); err != nil || !resumed {
		t.Fatalf("resumed %v, %v: the test shows nothing without", resumed, err)
	}
	s.write("ca.crt", next.PEM)
	if _, err := dial(); err == nil {
		t.Error("a client of an authority that is no longer trusted got in")
	}
}

func TestSetKeepsOneSourceForEachUse(t *testing.T) {
	t.Parallel()
	ca := certtest.New(t)
	s := newSide(t, ca.Issue(t, time.Hour, "a"))
	set := NewSet(s.log)
	get := func(l Listening) *Source {
		source, err := set.Listen("listen", l)
		if err != nil {
			t.Fatal(err)
		}
		return source
	}
	first := get(Listening{Files: s.files})
	if get(Listening{Files: s.files}) != first {
		t.Error("the same settings gave another source")
	}
	if get(Listening{Files: s.files, MinVersion: tls.VersionTLS13}) == first {
		t.Error("other settings gave the same source")
	}
	if _, err := set.Listen("listen", Listening{Files: Files{Cert: "none", Key: "none"}}); err == nil {
		t.Error("files that are not there were taken")
	}
	system, err := set.Call("upstreams.a", Calling{ServerName: "a"})
	if err != nil || system.Config().RootCAs != nil || len(set.sources()) != 1 {
		t.Errorf("%v, %d sources have files", err, len(set.sources()))
	}
}
