package testservices

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Deadline for a server to accept its first connection.
const startTimeout = 30 * time.Second

// process is a server that can be killed, paused and started again.
type process struct {
	name    string
	argv    []string
	user    *syscall.Credential // nil: as the test
	death   syscall.Signal      // sent to the server when the test process dies
	addr    string
	ready   func() error
	mu      sync.Mutex
	cmd     *exec.Cmd
	exited  chan struct{}
	outputs bytes.Buffer
}

// given are the ports that FreePort has handed out: nobody may listen there yet, and the kernel may choose one again.
var given sync.Map

// FreePort is a TCP port of 127.0.0.1 that was free a moment ago, and that this process has not been given before.
func FreePort(t testing.TB) int {
	t.Helper()
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatalf("no free port: %v", err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		_ = l.Close()
		if _, known := given.LoadOrStore(port, true); !known {
			return port
		}
	}
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// start runs the server and returns once it answers.
func (p *process) start() error {
	p.mu.Lock()
	if p.cmd != nil {
		p.mu.Unlock()
		return fmt.Errorf("%s runs already", p.name)
	}
	cmd := exec.Command(p.argv[0], p.argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.user, Pdeathsig: p.death, Setpgid: true}
	cmd.Stdout, cmd.Stderr = &p.outputs, &p.outputs
	cmd.Dir = os.TempDir()
	exited, started := make(chan struct{}), make(chan error, 1)
	go func() {
		// Pdeathsig is sent when the *thread* that started the child ends, so that thread has to live as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		_ = cmd.Wait()
		close(exited)
	}()
	if err := <-started; err != nil {
		p.mu.Unlock()
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.cmd, p.exited = cmd, exited
	p.mu.Unlock()
	return p.awaitReady(exited)
}

func (p *process) awaitReady(exited <-chan struct{}) error {
	deadline := time.Now().Add(startTimeout)
	for {
		err := p.ready()
		if err == nil {
			return nil
		}
		select {
		case <-exited:
			return fmt.Errorf("%s ended at start: %s", p.name, p.outputs.String())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s does not answer after %s: %w", p.name, startTimeout, err)
		}
	}
}

// signal sends sig to the server itself.
func (p *process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(sig)
	}
}

// end sends sig and waits until the server is gone.
func (p *process) end(sig syscall.Signal) {
	p.mu.Lock()
	cmd, exited := p.cmd, p.exited
	p.cmd = nil
	p.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Signal(syscall.SIGCONT)
	_ = cmd.Process.Signal(sig)
	<-exited
}
