package testservices

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"slices"
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
	return startServer(t, append([]string{"--save", "", "--appendonly", "no", "--daemonize", "no"}, extra...))
}

// startServer starts a redis-server with those arguments on a port and in a folder of its own.
func startServer(t testing.TB, args []string) *Redis {
	t.Helper()
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatalf("redis-server is missing: install the Debian package redis-server (make test does): %v", err)
	}
	port := FreePort(t)
	r := &Redis{Addr: loopback(port), t: t}
	argv := slices.Concat([]string{bin}, args, []string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", t.TempDir()})
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

// Running reports whether it was started and not killed since.
func (r *Redis) Running() bool {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	return r.p.cmd != nil
}

func (r *Redis) port() string {
	_, port, _ := strings.Cut(r.Addr, ":")
	return port
}

func (r *Redis) ping() error {
	reply, err := r.Command("PING")
	if err == nil && !slices.Equal(reply, []string{"PONG"}) {
		err = fmt.Errorf("redis answered %q to PING", reply)
	}
	return err
}

// Command sends one command over a connection of its own and gives the reply: one string for a simple one, the elements of a list.
func (r *Redis) Command(args ...string) ([]string, error) {
	conn, err := net.DialTimeout("tcp", r.Addr, time.Second)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	var out strings.Builder
	fmt.Fprintf(&out, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&out, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := conn.Write([]byte(out.String())); err != nil {
		return nil, err
	}
	return readReply(bufio.NewReader(conn))
}

// readReply reads a reply, flattened.
func readReply(in *bufio.Reader) ([]string, error) {
	head, err := in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	kind, text := head[0], strings.TrimSpace(head[1:])
	n, _ := strconv.Atoi(text)
	switch kind {
	case '-':
		return nil, errors.New(text)
	case '$':
		if n < 0 {
			return nil, nil
		}
		bulk := make([]byte, n+2)
		_, err := io.ReadFull(in, bulk)
		return []string{string(bulk[:n])}, err
	case '*':
		var all []string
		for range n {
			part, err := readReply(in)
			if err != nil {
				return nil, err
			}
			all = append(all, part...)
		}
		return all, nil
	}
	return []string{text}, nil
}
