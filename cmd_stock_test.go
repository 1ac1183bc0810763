package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stockgate/stockgate/gateway/control"
	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/gateway/control/client"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// till is a deducter and store in memory behind a real control listener.
type till struct {
	control.Records
	mu    sync.Mutex
	skus  map[string]*ledger.SKUInfo
	ops   []string // op ids seen
	actor string   // of the last change
	fault error    // of changes
}

func (s *till) Do(_ context.Context, op *stock.Op) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ops, s.actor = append(s.ops, op.OpID), op.Actor
	if s.fault != nil {
		return s.fault
	}
	sku := s.skus[op.SKU]
	if sku == nil && op.Kind != stock.OpSet {
		op.Result.Verdict = stock.VerdictUnknownSKU
		return nil
	}
	if sku == nil {
		sku = &ledger.SKUInfo{Fact: stock.Fact{SKU: op.SKU}}
		s.skus[op.SKU] = sku
	}
	switch op.Kind {
	case stock.OpSet:
		sku.Available, sku.StockIn = op.Available, op.Available
	case stock.OpAdjust:
		sku.Available += op.Delta
	case stock.OpPause, stock.OpResume:
		sku.Paused = op.Kind == stock.OpPause
	}
	op.Result = stock.Result{Verdict: stock.VerdictDone, Facts: []stock.Fact{sku.Fact}}
	return nil
}

func (s *till) Stock(_ context.Context, sku string) (ledger.SKUInfo, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.skus[sku]; found != nil {
		return *found, true, nil
	}
	return ledger.SKUInfo{}, false, nil
}

func (s *till) ListStock(_ context.Context, after string, limit int) ([]ledger.SKUInfo, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []ledger.SKUInfo
	for name, sku := range s.skus {
		if name > after {
			all = append(all, *sku)
		}
	}
	slices.SortFunc(all, func(a, b ledger.SKUInfo) int { return strings.Compare(a.SKU, b.SKU) })
	return all[:min(limit, len(all))], nil
}

// ImportStock is the only one of control.Records that stock commands need, besides History.
func (s *till) ImportStock(ctx context.Context, rows []stock.Line, opID, actor, _ string, progress func(int)) ([]stock.Fact, error) {
	for i, row := range rows {
		op := stock.Op{Kind: stock.OpSet, SKU: row.SKU, Available: row.Qty, OpID: opID, Actor: actor}
		if err := s.Do(ctx, &op); err != nil {
			return nil, err
		}
		progress(i + 1)
	}
	return nil, nil
}

func (s *till) History(_ context.Context, of stock.AuditOf, _ stock.AuditRow, _ int) ([]stock.AuditRow, error) {
	at := time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)
	return []stock.AuditRow{{LedgerRow: stock.LedgerRow{SKU: of.SKU, Seq: 1, Kind: stock.KindSet, Op: "c-1", Delta: 5, After: 5, At: at}, Actor: "ann"}}, nil
}

func (s *till) Find(context.Context, []stock.ID) (map[stock.ID]*stock.Row, error) { return nil, nil }

// shell runs stock commands against a control listener.
type shell struct {
	*till
	t   *testing.T
	url string
}

func newShell(t *testing.T, cfg control.Config) *shell {
	t.Helper()
	s := &till{skus: map[string]*ledger.SKUInfo{}}
	readiness := control.NewReadiness()
	readiness.Ready()
	server, err := control.New(cfg, control.Deps{
		Deducter: s, Store: s, Records: s, Readiness: readiness, Registry: prometheus.NewRegistry(),
		Status: func() api.Status { return api.Status{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewServer(server.Handler())
	t.Cleanup(listener.Close)
	return &shell{till: s, t: t, url: listener.URL}
}

// run is `stockgate stock args…`.
func (s *shell) run(args ...string) (stdout, stderr string, err error) {
	s.t.Helper()
	var out, errs bytes.Buffer
	cmd := newStockCommand()
	cmd.SilenceErrors = true
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetIn(strings.NewReader("x,1\ny,2\n"))
	cmd.SetArgs(append([]string{"--control", s.url}, args...))
	err = cmd.Execute()
	return out.String(), errs.String(), err
}

// prints wants success and, blanks apart, this output.
func (s *shell) prints(want string, args ...string) {
	s.t.Helper()
	out, _, err := s.run(args...)
	if err != nil || strings.Join(strings.Fields(out), " ") != strings.Join(strings.Fields(want), " ") {
		s.t.Fatalf("%v: %v\n%s\nwant\n%s", args, err, out, want)
	}
}

// fails wants one line of error that contains part.
func (s *shell) fails(part string, args ...string) {
	s.t.Helper()
	out, _, err := s.run(args...)
	if err == nil || !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "\n") || out != "" {
		s.t.Errorf("%v: error %v, want one line with %q; output %q", args, err, part, out)
	}
}

func TestStockCommandsPrintATable(t *testing.T) {
	t.Parallel()
	s := newShell(t, control.Config{})
	s.prints("SKU AVAILABLE GRANTED STATE OP  a 100 0 on sale -", "set", "a", "100")
	s.prints("SKU AVAILABLE GRANTED STATE OP  a 105 0 on sale d-1", "add", "a", "5", "--op", "d-1")
	s.prints("SKU AVAILABLE GRANTED STATE OP  a 103 0 on sale d-2", "add", "a", "-2", "--op=d-2", "--reason", "broken")
	s.prints("SKU AVAILABLE GRANTED STATE OP  a 102 0 on sale d-3", "add", "-1", "--op", "d-3", "a")
	s.prints("SKU AVAILABLE GRANTED STATE OP  a 102 0 paused -", "pause", "a", "--reason", "fire")
	s.prints("SKU AVAILABLE GRANTED STATE OP  a 102 0 on sale -", "resume", "a")
	s.prints("SKU AVAILABLE GRANTED STATE OP  a 102 0 on sale -", "sync", "a")
	s.prints("SKU AVAILABLE GRANTED STATE OP  b 0 0 sold out -", "set", "b", "0", "--reason", "-5")
	s.prints("SKU AVAILABLE GRANTED HELD CONFIRMED PUT IN REDIS FREE STATE  a 102 0 0 0 100 - on sale", "get", "a")
	s.prints("SKU AVAILABLE GRANTED HELD CONFIRMED PUT IN REDIS FREE STATE  a 102 0 0 0 100 - on sale  b 0 0 0 0 0 - sold out", "list")
	s.prints("SKU AVAILABLE GRANTED HELD CONFIRMED PUT IN REDIS FREE STATE  b 0 0 0 0 0 - sold out", "list", "--after", "a", "--limit", "1")
	s.prints("2 SKUs set", "import", "-")
	s.prints("AT SKU SEQ KIND DELTA AFTER RESERVATION ACTOR REASON OP  2026-11-11T00:00:00Z a 1 set 5 5 - ann - c-1", "history", "a")
}

func TestStockCommandsPrintJSON(t *testing.T) {
	t.Parallel()
	s := newShell(t, control.Config{})
	s.prints(`{ "sku": "a", "available": 3, "granted": 0, "paused": false, "ver": 0, "epoch": 0 }`, "set", "a", "3", "--json")
	s.prints(`{ "sku": "a", "available": 3, "granted": 0, "paused": false, "ver": 0, "epoch": 0,
		"held": 0, "confirmed": 0, "compensating": 0, "stock_in": 3, "consistency": "strong" }`, "--json", "get", "a")
	s.prints(`{ "skus": [] }`, "list", "--json", "--after", "zzz")
	s.prints(`{ "skus": 2 }`, "import", "-", "--json")
	s.prints(`{ "sku": "a", "available": 2, "granted": 0, "paused": false, "ver": 0, "epoch": 0, "op": "d" }`, "add", "a", "-1", "--op", "d", "--json")
}

func TestTheListGoesOverAllPages(t *testing.T) {
	t.Parallel()
	s := newShell(t, control.Config{})
	for i := range listPage + 1 {
		sku := "s" + strings.Repeat("x", i%100) + string(rune('a'+i/100))
		s.skus[sku] = &ledger.SKUInfo{Fact: stock.Fact{SKU: sku}}
	}
	out, _, err := s.run("list")
	if lines := strings.Count(out, "\n"); err != nil || lines != listPage+2 {
		t.Fatalf("%d lines, %v", lines, err)
	}
}

// A drawn op must be known to the operator when the answer is lost: it is what makes a repeat safe.
func TestAddShowsItsOpWhateverHappens(t *testing.T) {
	t.Parallel()
	s := newShell(t, control.Config{})
	s.prints("SKU AVAILABLE GRANTED STATE OP  a 1 0 on sale -", "set", "a", "1")
	out, _, err := s.run("add", "a", "1")
	if op := s.ops[1]; err != nil || !strings.HasPrefix(op, "cli-") || !strings.Contains(out, op) {
		t.Fatalf("op %q is not in %q, %v", s.ops[1], out, err)
	}
	s.fault = stock.ErrUnknown
	s.fails("to repeat safely: --op cli-", "add", "a", "1")
	if _, _, err := s.run("add", "a", "1"); !strings.HasSuffix(err.Error(), s.ops[3]) {
		t.Errorf("op %q is not in %v", s.ops[3], err)
	}
	s.fault = nil
	if _, _, err := s.run("add", "unknown", "1"); err == nil || strings.Contains(err.Error(), "--op") {
		t.Errorf("what surely was not done needs no repeat: %v", err)
	}
}

func TestStockCommandsFailInOneClearLine(t *testing.T) {
	t.Parallel()
	s := newShell(t, control.Config{})
	s.fails(`UNITS is "1e3", must be a whole number from 0 to 9007199254740992`, "set", "a", "1e3")
	s.fails(`UNITS is "-1", must be a whole number from 0 to`, "set", "a", "-1")
	s.fails(`UNITS is "-1"`, "set", "--", "a", "-1")
	s.fails(`UNITS is "-1"`, "set", "-1", "a")
	for _, odd := range []string{"010", "+7", "00", "0x1", " 7", "-0"} {
		s.fails("in plain digits", "set", "a", odd)
		s.fails("in plain digits", "add", "a", odd)
	}
	s.fails("UNITS is 0", "add", "a", "0")
	s.fails("--limit is -1", "list", "--limit", "-1")
	s.fails("is a directory", "import", t.TempDir())
	s.fails(`UNITS is "x"`, "add", "a", "x")
	s.fails("accepts 2 arg(s), received 1", "set", "a")
	s.fails("accepts 2 arg(s), received 1", "add", "a")
	s.fails("unknown flag: --opp", "add", "a", "1", "--opp", "x")
	s.fails("sku has", "set", "a b", "1")
	s.fails("sku has", "get", "a b")
	s.fails("UNKNOWN_SKU: the stock table has no a", "get", "a")
	s.fails("UNKNOWN_SKU", "pause", "a")
	s.fails("no such file", "import", filepath.Join(t.TempDir(), "none.csv"))
	s.fails("unknown command", "sell", "a")
	s.fault = stock.ErrUnavailable
	s.fails("UNAVAILABLE: nothing was changed", "set", "a", "1")
	s.fails("to repeat safely: --op count-1", "set", "a", "1", "--op", "count-1")
	s.fails("to repeat safely: --op cli-", "set", "a", "1")
	file := filepath.Join(t.TempDir(), "stock.csv")
	if err := os.WriteFile(file, []byte("a,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.fails("to repeat safely: --op count-2", "import", file, "--op", "count-2")
	if !slices.Equal(s.ops[len(s.ops)-1:], []string{"count-2"}) {
		t.Errorf("ops %v", s.ops)
	}
	s.url = "http://127.0.0.1:1"
	s.fails("nothing listens at http://127.0.0.1:1", "list")
	s.url = "127.0.0.1:9090"
	s.fails(`control address "127.0.0.1:9090" must look like http://127.0.0.1:9090`, "list")
}

func TestImportNamesTheBadLines(t *testing.T) {
	t.Parallel()
	s := newShell(t, control.Config{})
	file := filepath.Join(t.TempDir(), "stock.csv")
	if err := os.WriteFile(file, []byte("a,1\nb,x\nc c,1\n"+strings.Repeat("x\n", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, err := s.run("import", file)
	if err == nil || !strings.HasPrefix(err.Error(), "BAD_REQUEST: 1002 bad lines, nothing was changed") {
		t.Fatal(err)
	}
	if !strings.HasPrefix(stderr, "LINE  PROBLEM\n2     available is \"x\"") || !strings.Contains(stderr, "\n3     sku has") || !strings.HasSuffix(stderr, "and 2 more\n") {
		t.Fatal(stderr)
	}
}

func TestTheTokenComesFromTheFlagOrTheEnvironment(t *testing.T) {
	s := newShell(t, control.Config{Token: "t0k"})
	s.fails("UNAUTHORIZED", "list")
	t.Setenv(tokenEnv, "t0k")
	s.prints(`{ "skus": [] }`, "list", "--json")
	s.fails("UNAUTHORIZED: the bearer token is wrong", "list", "--token", "other")
	for _, ends := range []string{"t0k\n", " t0k\r\n", "t0k\t"} {
		t.Setenv(tokenEnv, ends)
		s.prints(`{ "skus": [] }`, "list", "--json")
	}
	s.prints(`{ "skus": [] }`, "list", "--json", "--token", "t0k\n")
	s.fails("the token must be visible ASCII", "list", "--token", "t0\nk")
}

func TestAReadTokenIsSaidToBeOne(t *testing.T) {
	t.Parallel()
	s := newShell(t, control.Config{Token: "t0k", ReadToken: "r"})
	s.fails("UNAUTHORIZED: control.read_token may look but not change", "set", "a", "1", "--token", "r")
}

// Registers that cannot be sold from are as bad as such a row.
func TestCorruptRegistersAreShown(t *testing.T) {
	t.Parallel()
	f := func(want string, sku api.SKU) {
		t.Helper()
		if got := shown(sku); got != want {
			t.Errorf("%+v is shown as %s, want %s", sku, got, want)
		}
	}
	on := api.Fact{Available: 1}
	f("on sale", api.SKU{Fact: on, Redis: &api.Registers{Loaded: true}})
	f("corrupt", api.SKU{Fact: on, Redis: &api.Registers{Loaded: true, Corrupt: true}})
	f("corrupt", api.SKU{Fact: on, Corrupt: true})
	f("corrupt", api.SKU{Fact: api.Fact{Paused: true}, Redis: &api.Registers{Corrupt: true}})
}

// A file that breaks while it is read changed nothing, and the gateway is not to blame.
func TestInputThatBreaksIsToldAsSuch(t *testing.T) {
	t.Parallel()
	for _, err := range []error{&client.InputError{Err: os.ErrClosed}, fmt.Errorf("x: %w", &client.InputError{Err: os.ErrClosed})} {
		if maybeDone(err) {
			t.Errorf("%v may be done", err)
		}
	}
}

func TestHelpOfEveryCommandIsPrinted(t *testing.T) {
	t.Parallel()
	s := newShell(t, control.Config{})
	usage := regexp.MustCompile(`(?m)^  stock (\S+)`)
	for _, verb := range []string{"set", "add", "get", "list", "import", "sync", "pause", "resume", "history"} {
		out, _, err := s.run(verb, "--help")
		if found := usage.FindStringSubmatch(out); err != nil || len(found) < 2 || found[1] != verb || strings.Contains(out, "t0k") {
			t.Errorf("%s: %v %s", verb, err, out)
		}
	}
}

func TestTheActorIsTheFlagOrWhoRunsTheCommand(t *testing.T) {
	t.Parallel()
	s := newShell(t, control.Config{})
	if _, _, err := s.run("set", "a", "1", "--actor", "ann@eu"); err != nil || s.actor != "ann@eu" {
		t.Errorf("actor %q, %v", s.actor, err)
	}
	if _, _, err := s.run("set", "a", "1"); err != nil || thisUser() != "" && s.actor != thisUser() {
		t.Errorf("actor %q, want %q, %v", s.actor, thisUser(), err)
	}
	s.fails(`--actor is "a b", must be 1 to 128 visible ASCII bytes`, "set", "a", "1", "--actor", "a b")
}
