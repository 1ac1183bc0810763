package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/stockgate/stockgate/internal/testservices"
)

// gateway is one process of the product.
type gateway struct {
	w       *world
	public  string // URL
	control string
	config  string // file
	cmd     *exec.Cmd
	log     *testservices.LogBuffer
	exited  chan struct{}
	env     []string // further variables of each start
}

// gateway starts a gateway and waits until it is ready.
func (w *world) gateway(env ...string) *gateway {
	w.t.Helper()
	g := w.newGateway(testservices.FreePort(w.t), testservices.FreePort(w.t))
	g.start(env...)
	g.awaitReady()
	return g
}

// gatewayOnFreePorts makes a gateway that is not started yet and takes no part in sales.
func (w *world) gatewayOnFreePorts() *gateway {
	g := w.newGateway(testservices.FreePort(w.t), testservices.FreePort(w.t))
	w.gateways = w.gateways[:len(w.gateways)-1]
	return g
}

func (w *world) newGateway(public, control int) *gateway {
	g := &gateway{w: w, public: fmt.Sprintf("http://127.0.0.1:%d", public), control: fmt.Sprintf("http://127.0.0.1:%d", control),
		config: filepath.Join(w.t.TempDir(), "config.yaml"), log: &testservices.LogBuffer{}}
	if err := os.WriteFile(g.config, []byte(w.configFor(public, control)), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.gateways = append(w.gateways, g)
	w.t.Cleanup(func() {
		g.kill()
		if strings.Contains(g.log.String(), "DATA RACE") {
			w.t.Errorf("a data race in %s", g.public)
		}
		if w.t.Failed() {
			w.t.Logf("log of %s:\n%s", g.public, tail(g.log.String(), 6000))
		}
	})
	return g
}

// restart ends it in order and starts it with the world's present configuration.
func (g *gateway) restart() {
	g.w.t.Helper()
	g.term()
	if err := os.WriteFile(g.config, []byte(g.w.configFor(g.ports())), 0o600); err != nil {
		g.w.t.Fatal(err)
	}
	g.start()
	g.awaitReady()
}

func (g *gateway) ports() (public, control int) {
	for url, port := range map[string]*int{g.public: &public, g.control: &control} {
		if _, err := fmt.Sscanf(url, "http://127.0.0.1:%d", port); err != nil {
			g.w.t.Fatal(err)
		}
	}
	return public, control
}

func tail(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return s
}

// start runs the process; env are further variables.
func (g *gateway) start(env ...string) {
	g.w.t.Helper()
	g.cmd = exec.Command(binary, "serve", "--config", g.config)
	g.cmd.Env = slices.Concat(os.Environ(), g.env, env)
	g.cmd.Stdout, g.cmd.Stderr = g.log, g.log
	if err := g.cmd.Start(); err != nil {
		g.w.t.Fatal(err)
	}
	g.exited = make(chan struct{})
	go func(cmd *exec.Cmd, exited chan struct{}) {
		_ = cmd.Wait()
		close(exited)
	}(g.cmd, g.exited)
}

func (g *gateway) awaitReady() {
	g.w.t.Helper()
	g.w.eventually("gateway ready", func() string {
		select {
		case <-g.exited:
			g.w.t.Fatalf("gateway ended at start:\n%s", g.log.String())
		default:
		}
		status, body := g.get("/readyz?verbose")
		if status == http.StatusOK {
			return ""
		}
		return fmt.Sprintf("%d %s", status, body)
	})
}

// awaitRedis waits until it knows every partition's epoch, so that Redis decides.
func (g *gateway) awaitRedis() {
	g.w.t.Helper()
	g.w.eventually("partitions open", func() string {
		_, body := g.get("/v1/status")
		if strings.Contains(body, `"partitions_open":64`) {
			return ""
		}
		return body
	})
}

// kill ends it with SIGKILL.
func (g *gateway) kill() { g.end(syscall.SIGKILL) }

// term asks it to end and waits until it has drained.
func (g *gateway) term() { g.end(syscall.SIGTERM) }

// freeze stops the process where it is, thaw lets it go on.
func (g *gateway) freeze() { g.signal(syscall.SIGSTOP) }

func (g *gateway) thaw() { g.signal(syscall.SIGCONT) }

func (g *gateway) signal(sig syscall.Signal) {
	if err := g.cmd.Process.Signal(sig); err != nil {
		g.w.t.Errorf("signal %s: %v", sig, err)
	}
}

func (g *gateway) end(sig syscall.Signal) {
	if g.cmd == nil {
		return
	}
	_ = g.cmd.Process.Signal(sig)
	<-g.exited
	g.cmd = nil
}

// died waits for the process to end by itself; false: it lives on.
func (g *gateway) died() bool {
	select {
	case <-g.exited:
		return true
	case <-time.After(10 * time.Second):
		return false
	}
}

// get asks the control side; status 0: no answer.
func (g *gateway) get(path string) (int, string) {
	resp, err := g.w.http.Get(g.control + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, strings.TrimSpace(string(body))
}

// call makes a change through the control side and fails the test unless it answers 200.
func (g *gateway) call(method, path, body string) string {
	g.w.t.Helper()
	status, answer := g.try(method, path, body)
	if status != http.StatusOK {
		g.w.t.Fatalf("%s %s %s: %d %s", method, path, body, status, answer)
	}
	return answer
}

func (g *gateway) try(method, path, body string) (int, string) {
	req, err := http.NewRequest(method, g.control+path, strings.NewReader(body))
	if err != nil {
		g.w.t.Fatal(err)
	}
	resp, err := g.w.http.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	raw, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(raw)
}

func (g *gateway) setStock(sku string, units int) {
	g.w.t.Helper()
	g.call("PUT", "/v1/stock/"+sku, fmt.Sprintf(`{"available":%d}`, units))
}

type stockView struct {
	Available, Held, Confirmed, Granted int64
}

func (g *gateway) stock(sku string) stockView {
	g.w.t.Helper()
	status, body := g.get("/v1/stock/" + sku)
	if status != http.StatusOK {
		g.w.t.Fatalf("stock of %s: %d %s", sku, status, body)
	}
	var v stockView
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		g.w.t.Fatalf("stock of %s: %s: %v", sku, body, err)
	}
	return v
}
