package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// bench runs the command against a stub and gives its exit status and what it printed.
func bench(t *testing.T, g *stubGateway, more ...string) (code int, out string) {
	t.Helper()
	args := []string{"--url", g.public.URL, "--control", g.control.URL, "--orders", g.backend.URL, "--stock", "50", "--requests", "300",
		"--rate", "3000", "--connections", "8", "--seed", "7", "--again", "0.1", "--settle", "5s"}
	return command(t, append(args, more...)...)
}

func command(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	var both bytes.Buffer
	code = run(t.Context(), args, &both, &both)
	return code, both.String()
}

func require(t *testing.T, code int, out string, wantCode int, want ...string) {
	t.Helper()
	if code != wantCode {
		t.Errorf("exit status %d, want %d", code, wantCode)
	}
	for _, text := range want {
		if !strings.Contains(out, text) {
			t.Errorf("%q is missing", text)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}

func TestHonestGatewayPasses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	code, out := bench(t, startStub(t, nil), "--json", file)
	require(t, code, out, exitHolds, "open loop at 3000/s", "300 requests", "SOLD_OUT", "invariants hold",
		"✓ I1 units of the backend's live orders never exceed the stock put in",
		"? not checked: I9 the ledger is an unbroken chain that gives the unsold stock (needs ledger)")
	var r report
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	if r.Exit != 0 || r.Load.Sent != 300 || r.Load.Latency.P50 == 0 || !r.Verdict.AtRest || len(r.Verdict.Violations) != 0 {
		t.Errorf("report: %s", text)
	}
	if r.Load.Classes["won"].Count < 50 || r.Load.Classes["won"].Count+r.Load.Classes["refused"].Count != 300 {
		t.Errorf("classes: %+v", r.Load.Classes)
	}
}

func TestBrokenPromisesAreExitStatus1(t *testing.T) {
	for name, test := range map[string]struct {
		lie  func(*stubGateway)
		want string
	}{
		"oversell":          {func(g *stubGateway) { g.oversells = true }, "✗ I1 no oversell: sku-1001: "},
		"order twice":       {func(g *stubGateway) { g.forgetsKeys = true }, "✗ I4 one effect: sku-1001: reservation"},
		"order lost":        {func(g *stubGateway) { g.losesOrders = true }, "the backend has no order"},
		"placed, said no":   {func(g *stubGateway) { g.refusesPlaced = true }, "✗ I6 unknown stays unknown: sku-1001: "},
		"leak in Redis":     {func(g *stubGateway) { g.neverRests = true }, "✗ I2 conservation: sku-1001: Redis is free"},
		"leak is no rest":   {func(g *stubGateway) { g.neverRests = true }, "the gateway did not come to rest within 300ms"},
		"headline says so":  {func(g *stubGateway) { g.oversells = true }, "INVARIANTS BROKEN"},
		"findings are many": {func(g *stubGateway) { g.losesOrders = true }, "… and "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out := bench(t, startStub(t, test.lie), "--settle", "300ms")
			require(t, code, out, exitBroken, test.want)
		})
	}
}

func TestWithoutEvidenceItSaysSo(t *testing.T) {
	g := startStub(t, nil)
	code, out := bench(t, g) // to put the stock in
	require(t, code, out, exitHolds)
	code, out = command(t, "--url", g.public.URL, "--requests", "50", "--key=false")
	require(t, code, out, exitHolds, "? not checked: I1 units of the backend's live orders never exceed the stock put in (needs stock, orders)")
}

func TestManySKUs(t *testing.T) {
	code, out := bench(t, startStub(t, nil), "--skus", "40", "--hot", "0.5", "--stock", "3", "--buyers", "20", "--qty", "2")
	require(t, code, out, exitHolds, "invariants hold")
}

func TestClosedLoopSaysWhatItIsNot(t *testing.T) {
	code, out := bench(t, startStub(t, nil), "--closed")
	require(t, code, out, exitHolds, "closed loop: latency does not count the wait")
}

func TestUsageAndTransportFailuresAreExitStatus2(t *testing.T) {
	g := startStub(t, nil)
	f := func(want string, args ...string) {
		t.Helper()
		code, out := command(t, args...)
		require(t, code, out, exitFailed, want)
	}
	f("flag provided but not defined", "--nonsense")
	f(`unexpected argument "x"`, "--url", g.public.URL, "x")
	f("is no http:// address", "--url", "ftp://127.0.0.1")
	f("is not a loopback address; --remote allows it", "--url", "http://192.0.2.1:80")
	f("--stock needs --control", "--url", g.public.URL, "--stock", "5")
	f("--redis needs --dsn", "--url", g.public.URL, "--redis", "127.0.0.1:1")
	f("need --url", "--control", g.control.URL)
	f("--skus is 0", "--url", g.public.URL, "--skus", "0")
	f("--sku-prefix: sku has '/'", "--url", g.public.URL, "--sku-prefix", "a/")
	f("connections is 0", "--url", g.public.URL, "--connections", "0")
	f("connection 1 of 64", "--url", "http://127.0.0.1:1")
	f("order service:", "--url", g.public.URL, "--orders", "http://127.0.0.1:1")
	f("stock of sku-1001: UNKNOWN_SKU", "--url", g.public.URL, "--control", g.control.URL)
}

func TestEvidenceThatGoesAwayIsExitStatus2(t *testing.T) {
	g := startStub(t, nil)
	g.onOrder = func(n int) {
		if n == 100 {
			g.backend.Listener.Close()
			g.backend.CloseClientConnections()
		}
	}
	code, out := bench(t, g)
	require(t, code, out, exitFailed, "! evidence missing: order service:")
}

func TestNothingAnsweredIsExitStatus2(t *testing.T) {
	g := startStub(t, nil)
	g.onOrder = func(int) { panic("http: abort") }
	g.public.Config.ErrorLog = quiet(t)
	code, out := command(t, "--url", g.public.URL, "--requests", "20")
	require(t, code, out, exitFailed, "closed")
}

func TestInterruptIsExitStatus2(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	g := startStub(t, nil)
	g.onOrder = func(n int) {
		if n == 20 {
			cancel()
		}
	}
	var both bytes.Buffer
	code := run(ctx, []string{"--url", g.public.URL, "--control", g.control.URL, "--stock", "5", "--requests", "1000"}, &both, &both)
	require(t, code, both.String(), exitFailed, "interrupted after")
}
