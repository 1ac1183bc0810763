package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stockgate/stockgate/internal/testservices"
)

// The promise of the README: the demo, 1,000 buyers with 64 connections, 100 units.
func TestDemoSellsExactlyAHundred(t *testing.T) {
	t.Parallel()
	at := func() string { return fmt.Sprintf("127.0.0.1:%d", testservices.FreePort(t)) }
	public, control, orders := at(), at(), at()
	w := &world{t: t, noRedis: true, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: patience}}
	t.Cleanup(w.http.CloseIdleConnections)
	g := &gateway{w: w, public: "http://" + public, control: "http://" + control, log: &testservices.LogBuffer{}, exited: make(chan struct{})}
	w.gateways = []*gateway{g}
	g.cmd = exec.Command(binary, "serve", "--demo", "--demo-listen", public, "--demo-control", control, "--demo-orders", orders)
	g.cmd.Stdout, g.cmd.Stderr = g.log, g.log
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = g.cmd.Wait(); close(g.exited) }()
	t.Cleanup(func() { _ = g.cmd.Process.Signal(syscall.SIGTERM); <-g.exited })
	g.awaitReady()

	replies := w.sale(distinct("sku-1001", "demo", 1000), 64, nil)
	requireTally(t, replies, map[string]int{"201 ": 100, "409 SOLD_OUT": 900})
	if got := g.stock("sku-1001"); got.Available != 0 || got.Held != 100 {
		t.Errorf("stock = %+v, want 0 available and 100 held", got)
	}
	resp, err := w.http.Get("http://" + orders + "/orders/count")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if strings.TrimSpace(string(body)) != `{"orders":100}` {
		t.Errorf("the order service says %s", body)
	}
	for _, r := range replies {
		if r.Status == 201 && strings.Contains(r.body, `"code"`) {
			t.Fatalf("a won order's body has a code: %s", r.body)
		}
	}
}
