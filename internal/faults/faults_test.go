package faults

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Only how long a test waits for what must not happen to be noticed as hanging; no test passes by it.
const patience = 10 * time.Second

// server answers each line with "ok <line>" and keeps what it got.
type server struct {
	addr string
	mu   sync.Mutex
	got  []string
	seen chan string
}

func startServer(t *testing.T) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{addr: l.Addr().String(), seen: make(chan string, 100)}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { s.answer(conn) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return s
}

func (s *server) answer(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		s.mu.Lock()
		s.got = append(s.got, strings.TrimSpace(line))
		s.mu.Unlock()
		s.seen <- strings.TrimSpace(line)
		if _, err := io.WriteString(conn, "ok "+line); err != nil {
			return
		}
	}
}

func (s *server) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.got...)
}

// setup gives a proxy to a server; both end before the goroutines are counted.
func setup(t *testing.T) (*Proxy, *server) {
	t.Helper()
	s := startServer(t)
	p, err := Listen(s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p, s
}

type client struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

func connect(t *testing.T, p *Proxy) *client {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return &client{t: t, conn: conn, r: bufio.NewReader(conn)}
}

func (c *client) send(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.conn, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) read() (string, error) {
	line, err := c.r.ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err
}

func (c *client) ask(line string) {
	c.t.Helper()
	c.send(line)
	if got, err := c.read(); err != nil || got != "ok "+line {
		c.t.Fatalf("reply %q, %v", got, err)
	}
}

// silent asserts that nothing has come, without waiting for it: the caller has awaited the event that would have brought it.
func (c *client) silent() {
	c.t.Helper()
	_ = c.conn.SetReadDeadline(time.Now())
	defer func() { _ = c.conn.SetReadDeadline(time.Now().Add(patience)) }()
	if line, err := c.read(); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("read %q, %v, want nothing", line, err)
	}
}

func await[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatal("the event never came")
	}
	return v
}

func TestHealthyProxyIsTransparent(t *testing.T) {
	p, s := setup(t)
	c := connect(t, p)
	c.ask("one")
	c.ask("two")
	if accepted, open := p.Connections(); accepted != 1 || open != 1 {
		t.Fatalf("%d accepted, %d open", accepted, open)
	}
	if got := s.requests(); len(got) != 2 {
		t.Fatalf("server got %q", got)
	}
}

func TestHalfClosedConnectionStillGetsItsReply(t *testing.T) {
	p, _ := setup(t)
	c := connect(t, p)
	c.send("last")
	_ = c.conn.(*net.TCPConn).CloseWrite()
	if got, err := c.read(); err != nil || got != "ok last" {
		t.Fatalf("reply %q, %v", got, err)
	}
	if _, err := c.read(); !errors.Is(err, io.EOF) {
		t.Fatalf("after the server's end: %v, want EOF", err)
	}
}

func TestTriggerCutsAfterTheServerHasExecuted(t *testing.T) {
	for name, test := range map[string]struct {
		then Then
		want func(error) bool
	}{
		"fin": {FIN, func(err error) bool { return errors.Is(err, io.EOF) }},
		"rst": {RST, func(err error) bool { return errors.Is(err, syscall.ECONNRESET) }},
	} {
		t.Run(name, func(t *testing.T) {
			p, s := setup(t)
			c := connect(t, p)
			fired := p.Arm(Trigger{Match: Contains("COMMIT"), Forward: true, Then: test.then})
			c.ask("BEGIN")
			c.send("COMMIT")
			if line, err := c.read(); !test.want(err) {
				t.Fatalf("read %q, %v", line, err)
			}
			await(t, fired)
			if got := s.requests(); len(got) != 2 || got[1] != "COMMIT" {
				t.Fatalf("server got %q", got)
			}
			connect(t, p).ask("COMMIT") // it acts once
		})
	}
}

func TestTriggerKeepsTheRequestFromTheServer(t *testing.T) {
	p, s := setup(t)
	c := connect(t, p)
	fired := p.Arm(Trigger{Match: Contains("drop me"), Then: RST})
	c.ask("pass me")
	c.send("drop me")
	if _, err := c.read(); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("read: %v", err)
	}
	await(t, fired)
	if got := s.requests(); len(got) != 1 {
		t.Fatalf("server got %q", got)
	}
}

func TestTriggerSeesARequestThatComesInPieces(t *testing.T) {
	p, s := setup(t)
	c := connect(t, p)
	fired := p.Arm(Trigger{Match: Contains("COMMIT\n"), Forward: true, Then: FIN})
	p.Arm(Trigger{Match: Contains("never"), Then: RST})
	for _, piece := range []string{"COM", "MIT", "\n"} {
		if _, err := io.WriteString(c.conn, piece); err != nil {
			t.Fatal(err)
		}
	}
	await(t, fired)
	if got := await(t, s.seen); got != "COMMIT" {
		t.Fatalf("server got %q", got)
	}
}

func TestTriggerActsAsOftenAsItSays(t *testing.T) {
	p, _ := setup(t)
	fired := p.Arm(Trigger{Then: FIN, Times: 2})
	for range 2 {
		c := connect(t, p)
		c.send("x")
		if _, err := c.read(); !errors.Is(err, io.EOF) {
			t.Fatalf("read: %v", err)
		}
	}
	await(t, fired)
	connect(t, p).ask("x")
}

func TestSwallowExecutesAndStaysSilent(t *testing.T) {
	p, s := setup(t)
	c := connect(t, p)
	fired := p.Arm(Trigger{Match: Contains("x"), Forward: true, Then: Swallow})
	c.send("x")
	await(t, s.seen)
	await(t, fired)
	c.silent()
	connect(t, p).ask("y") // other connections are healthy
}

func TestRewriteChangesRepliesOnly(t *testing.T) {
	p, s := setup(t)
	p.Rewrite(func(reply []byte) []byte { return bytes.ReplaceAll(reply, []byte("here"), []byte("there")) })
	c := connect(t, p)
	c.send("ask here")
	if got, err := c.read(); err != nil || got != "ok ask there" {
		t.Fatalf("reply %q, %v", got, err)
	}
	if got := s.requests(); got[0] != "ask here" {
		t.Fatalf("server got %q", got)
	}
}

func TestDropRepliesUntilTakenBack(t *testing.T) {
	p, s := setup(t)
	c := connect(t, p)
	p.DropReplies(true)
	c.send("x")
	await(t, s.seen)
	c.silent()
	fired := p.Arm(Trigger{Match: Contains("y"), Forward: true, Then: FIN}) // to know when the proxy has seen y's reply, and so x's
	c.send("y")
	await(t, fired)
	if line, err := c.read(); !errors.Is(err, io.EOF) {
		t.Fatalf("read %q, %v, want the end without a reply", line, err)
	}
	p.DropReplies(false)
	connect(t, p).ask("z")
}

func TestStallHoldsEverythingAndHealLetsItGo(t *testing.T) {
	p, s := setup(t)
	c := connect(t, p)
	c.ask("before")
	await(t, s.seen)
	p.Stall(true)
	c.send("during")
	c.silent()
	if got := s.requests(); len(got) != 1 {
		t.Fatalf("server got %q", got)
	}
	if err := p.Heal(); err != nil {
		t.Fatal(err)
	}
	if got, err := c.read(); err != nil || got != "ok during" {
		t.Fatalf("reply %q, %v", got, err)
	}
}

func TestTriggeredStallIsForGood(t *testing.T) {
	p, s := setup(t)
	c := connect(t, p)
	c.ask("before")
	fired := p.Arm(Trigger{Then: Stall})
	c.send("during")
	await(t, fired)
	if err := p.Heal(); err != nil {
		t.Fatal(err)
	}
	c.send("after")
	connect(t, p).ask("other")
	if got := s.requests(); len(got) != 2 || got[1] != "other" {
		t.Fatalf("server got %q", got)
	}
}

func TestRefuseIsConnectionRefused(t *testing.T) {
	p, _ := setup(t)
	c := connect(t, p)
	if err := p.Refuse(true); err != nil {
		t.Fatal(err)
	}
	if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("dial: %v", err)
	}
	c.ask("open connections stay")
	if err := p.Refuse(false); err != nil {
		t.Fatal(err)
	}
	connect(t, p).ask("again")
}

func TestCutEndsOpenConnectionsOnly(t *testing.T) {
	p, _ := setup(t)
	c := connect(t, p)
	c.ask("x")
	p.Cut(RST)
	if _, err := c.read(); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("read: %v", err)
	}
	connect(t, p).ask("y")
}

func TestCutRepliesAtTheByte(t *testing.T) {
	p, _ := setup(t)
	c := connect(t, p)
	p.CutReplies(8, FIN)
	c.ask("x") // "ok x\n": 5 bytes
	c.send("y")
	if got, err := c.read(); !errors.Is(err, io.EOF) || got != "ok " {
		t.Fatalf("read %q, %v, want the first 3 bytes and the end", got, err)
	}
	fresh := connect(t, p)
	fresh.ask("x")
	p.CutReplies(-1, FIN)
	fresh.ask("y")
}

func TestDelayHoldsARequestUntilTheLinkIsCut(t *testing.T) {
	p, s := setup(t)
	c := connect(t, p)
	c.ask("x")
	p.Delay(time.Hour, 0)
	c.send("y")
	p.Cut(FIN)
	if _, err := c.read(); !errors.Is(err, io.EOF) {
		t.Fatalf("read: %v", err)
	}
	if got := s.requests(); len(got) != 1 {
		t.Fatalf("server got %q", got)
	}
}

func TestDelayIsAtLeastWhatWasSet(t *testing.T) {
	p, _ := setup(t)
	c := connect(t, p)
	p.Delay(5*time.Millisecond, 5*time.Millisecond)
	start := time.Now()
	c.ask("x")
	if took := time.Since(start); took < 10*time.Millisecond {
		t.Fatalf("took %s", took)
	}
}

func TestRedirectIsForNewConnections(t *testing.T) {
	p, first := setup(t)
	second := startServer(t)
	c := connect(t, p)
	c.ask("a")
	p.Redirect(second.addr)
	c.ask("b")
	connect(t, p).ask("c")
	if a, b := first.requests(), second.requests(); len(a) != 2 || len(b) != 1 {
		t.Fatalf("first got %q, second %q", a, b)
	}
}

func TestDeadTargetResets(t *testing.T) {
	p, err := Listen("127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	conn, err := net.Dial("tcp", p.Addr()) // the reset may come before Dial returns
	if err == nil {
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, err = conn.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("got %v", err)
	}
}

func TestCloseEndsEverythingInAnyState(t *testing.T) {
	p, s := setup(t)
	finned := connect(t, p)
	finned.ask("w")
	p.Cut(FIN)
	stalled := connect(t, p)
	stalled.ask("x")
	p.DropReplies(true)
	connect(t, p).send("y")
	for range 3 {
		await(t, s.seen)
	}
	p.Stall(true)
	stalled.send("z")
	p.Close()
	p.Close()
	if _, open := p.Connections(); open != 0 {
		t.Fatalf("%d connections are open after Close", open)
	}
}
