package integratetest

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/testservices"
)

const (
	root = "../.."
	// patience bounds every wait for an event. It is no measure of speed: only a hang or a lost event reaches it.
	patience = 120 * time.Second

	keyID   = "k1"
	secret  = "0123456789abcdef0123456789abcdef"
	token   = "a-token-of-this-test"
	shopper = "u1"
)

// built is where the programs under test lie, built once.
var built string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "stockgate-integrate-")
	if err != nil {
		panic(err)
	}
	built = dir
	for name, folder := range map[string]string{"stockgate": ".", "small": "examples/integrate/go", "orderservice": "examples/orderservice"} {
		build := exec.Command("go", "build", "-o", filepath.Join(dir, name), "./"+folder)
		build.Dir = root
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "go build %s: %v\n%s", folder, err, out)
			os.Exit(1)
		}
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// client waits as long as a test does, and keeps no connection to a process that is to be killed.
var client = &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}

// process is a running program.
type process struct {
	cmd    *exec.Cmd
	log    *testservices.LogBuffer
	exited chan struct{}
}

// start runs a program from the repository's root and returns once url gives any answer.
func start(t *testing.T, url string, env []string, argv ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), log: &testservices.LogBuffer{}, exited: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env = root, append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("%v; internal/testservices/install.sh installs what is missing", err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("log of %s:\n%s", argv[0], p.log)
		}
	})
	testservices.Eventually(t, argv[0]+" serves", func() string {
		select {
		case <-p.exited:
			t.Fatalf("%s ended at start:\n%s", argv[0], p.log)
		default:
		}
		resp, err := client.Get(url)
		if err != nil {
			return err.Error()
		}
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusServiceUnavailable {
			return resp.Status
		}
		return ""
	})
	return p
}

// kill ends it at once, as a crash does.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}
