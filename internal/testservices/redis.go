package testservices

import (
	"bufio"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Redis is a real redis-server without persistence: started again after Kill it is empty and has another run id.
type Redis struct {
	Addr string // host:port
	t    testing.TB
	p    process
}

// StartRedis starts a redis-server; extra are further arguments, such as "--maxmemory", "1mb".
func StartRedis(t testing.TB, extra ...string) *Redis {
	t.Helper()
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatalf("redis-server is missing: install the Debian package redis-server (make test does): %v", err)
	}
	port := FreePort(t)
	r := &Redis{Addr: loopback(port), t: t}
	argv := append([]string{bin, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
		"--dir", t.TempDir(), "--daemonize", "no"}, extra...)
	r.p = process{name: "redis-server", argv: argv, death: syscall.SIGKILL, addr: r.Addr, ready: r.ping}
	r.Start()
	t.Cleanup(func() { r.p.end(syscall.SIGKILL) })
	return r
}

// Start starts it again after Kill, on the same port.
func (r *Redis) Start() {
	r.t.Helper()
	if err := r.p.start(); err != nil {
		r.t.Fatal(err)
	}
}

// Kill ends it with SIGKILL and waits until it is gone.
func (r *Redis) Kill() { r.p.end(syscall.SIGKILL) }

// Pause stops it (SIGSTOP): connections stay open, nothing answers.
func (r *Redis) Pause() { r.p.signal(syscall.SIGSTOP) }

// Resume lets a paused one go on.
func (r *Redis) Resume() { r.p.signal(syscall.SIGCONT) }

func (r *Redis) ping() error {
	conn, err := net.DialTimeout("tcp", r.Addr, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	if !strings.HasPrefix(line, "+PONG") {
		return fmt.Errorf("redis answered %q to PING", line)
	}
	return nil
}
