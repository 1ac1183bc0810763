package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/stock"
)

// ran is what a command has left.
type ran struct {
	line           string
	stdout, stderr string
	status         int
}

// command runs the product's binary against the gateway, as an operator does.
func (g *gateway) command(stdin string, args ...string) ran {
	g.w.t.Helper()
	return g.commandWith(nil, stdin, args...)
}

// commandWith is command with further variables in its environment.
func (g *gateway) commandWith(env []string, stdin string, args ...string) ran {
	g.w.t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command(binary, append(args, "--control", g.control)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		g.w.t.Fatal(err)
	}
	return ran{strings.Join(args, " "), out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

func (r ran) requireDone(t *testing.T) ran {
	t.Helper()
	if r.status != 0 || r.stderr != "" || r.stdout == "" {
		t.Errorf("%s: exit status %d\n%s%s", r.line, r.status, r.stdout, r.stderr)
	}
	return r
}

// requireFailed wants an exit status and, as the last line of the error output, one that says what is wrong.
func (r ran) requireFailed(t *testing.T, part string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(r.stderr, "\n"), "\n")
	last := lines[len(lines)-1]
	if r.status == 0 || r.stdout != "" || !strings.HasPrefix(last, "stockgate: ") || !strings.Contains(last, part) {
		t.Errorf("%s: exit status %d, wants a line with %q\n%s%s", r.line, r.status, part, r.stdout, r.stderr)
	}
}

// Every command of stock and reservations against a running gateway, as a table and as JSON.
func TestCommandsOnARunningGateway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.defaults = ", max_qty: 5"
	g := w.gateway()
	// table wants these words in a row of the table, and JSON that is JSON.
	both := func(head, row string, args ...string) {
		t.Helper()
		table := g.command("", args...).requireDone(t)
		text := strings.Join(strings.Fields(table.stdout), " ")
		if !strings.HasPrefix(text, head) || !strings.Contains(text, row) {
			t.Errorf("%s prints\n%s, want %s … %s", table.line, table.stdout, head, row)
		}
		if list := g.command("", append(args, "--json")...).requireDone(t); !json.Valid([]byte(list.stdout)) {
			t.Errorf("%s is no JSON:\n%s", list.line, list.stdout)
		}
	}
	both("SKU AVAILABLE GRANTED STATE OP", "a 7 0 on sale", "stock", "set", "a", "7", "--reason", "opening")
	both("SKU AVAILABLE", "a 10 0 on sale d-1", "stock", "add", "a", "3", "--op", "d-1")
	both("SKU AVAILABLE", "a 9 0 on sale d-2", "stock", "add", "a", "-1", "--op", "d-2", "--reason", "broken")
	both("SKU AVAILABLE", "a 9 0 paused", "stock", "pause", "a")
	requireTold(t, "paused", g.buy(want{sku: "a", user: "u1", key: "k"}), 503, stock.CodePaused)
	both("SKU AVAILABLE", "a 9 0 on sale", "stock", "resume", "a")
	both("SKU AVAILABLE", "a 9 0 on sale", "stock", "sync", "a")
	both("SKU AVAILABLE GRANTED HELD", "a 9 0 0 0 9", "stock", "get", "a")
	both("SKU AVAILABLE GRANTED HELD", "a 9 0 0 0 9", "stock", "list")
	both("AT SKU SEQ KIND", "opening", "stock", "history", "a")

	order := g.buy(want{sku: "a", user: "u1", key: "k-1", qty: 3})
	requireTold(t, "an order", order, 201, "")
	id := order.Reservation.String()
	both("RESERVATION STATE OUTCOME", id+" held accepted - a=3 u1 - place-order", "reservation", "get", id)
	both("RESERVATION STATE", id+" held accepted", "reservation", "find", "--user", "u1")
	both("RESERVATION STATE", id+" held accepted", "reservation", "find", "--request", "k-1", "--user", "u1")
	both("RESERVATION STATE", "", "reservation", "unknown")
	both("RESERVATION STATE", id+" held", "reservation", "extend", id, "20m")
	both("RESERVATION STATE", id+" confirmed accepted", "reservation", "confirm", id, "--order-ref", "47", "--actor", "jo", "--reason", "card")
	both("RESERVATION STATE", id+" confirmed", "reservation", "find", "--order-ref", "47")
	both("RESERVATION STATE", "a=3-1", "reservation", "release", id, "--line", "a=1", "--op", "back-1")
	both("RESERVATION STATE", "jo card", "reservation", "get", id, "--history")
	both("RESERVATION STATE", id+" released", "reservation", "release", id, "--reason", "refunded")
	w.cancelOrderOf(order.Reservation)
	both("RESERVATION STATE", "held accepted - a=2 u2 - api", "reservation", "create", "a=2", "--user", "u2", "--key", "phone-1", "--hold", "20m")
	g.requireStock("a", stockView{Available: 7, Held: 2})
	if done := g.command("sku,available\nb,4\nc,6\n", "stock", "import", "-").requireDone(t); done.stdout != "2 SKUs set\n" {
		t.Errorf("import says %s", done.stdout)
	}
	if done := g.command("o-1,b,1,u1,held\n", "reservation", "import", "-", "--json").requireDone(t); !json.Valid([]byte(done.stdout)) {
		t.Errorf("import says %s", done.stdout)
	}
	g.requireFailures(t)
	w.requireInvariants(t, nil, "a", "b", "c")
}

// requireFailures: a failure is an exit status and a line.
func (g *gateway) requireFailures(t *testing.T) {
	t.Helper()
	fails := func(part string, args ...string) {
		t.Helper()
		r := g.command("", args...)
		if r.requireFailed(t, part); strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%s says more than a line:\n%s", r.line, r.stderr)
		}
	}
	const nobody = "00112233445566778899aabbccddeeff"
	fails("UNKNOWN_SKU", "stock", "get", "nope")
	fails("UNKNOWN_SKU", "stock", "add", "nope", "1")
	fails("whole number", "stock", "set", "a", "1.5")
	fails("sku", "stock", "set", "a b", "1")
	fails("UNKNOWN_RESERVATION", "reservation", "get", nobody)
	fails("UNKNOWN_RESERVATION", "reservation", "confirm", nobody)
	fails("UNKNOWN_RESERVATION", "reservation", "release", nobody)
	fails("UNKNOWN_RESERVATION", "reservation", "extend", nobody, "20m")
	fails("hex digits", "reservation", "get", "47")
	fails("defaults.max_qty = 5", "reservation", "create", "a=6")
	fails("SOLD_OUT", "reservation", "create", "c=5", "b=5", "--user", "u9")
	fails("no such file", "stock", "import", "/nowhere.csv")
	elsewhere := gateway{w: g.w, control: fmt.Sprintf("http://127.0.0.1:%d", freePort(t))}
	elsewhere.command("", "stock", "get", "a").requireFailed(t, "nothing listens")
}

// With tokens, whoever has the read token may look and not touch, and who has none may do neither. Orders need none.
func TestCommandsNeedTheirToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.control = ", token: the-token-that-writes, read_token: the-token-that-reads"
	g := w.gateway()
	as := func(token string, args ...string) ran {
		return g.commandWith([]string{"STOCKGATE_TOKEN=" + token}, "", args...)
	}
	as("the-token-that-writes", "stock", "set", "a", "2").requireDone(t)
	order := g.buy(want{sku: "a", user: "u", key: "k"})
	requireTold(t, "an order", order, 201, "")
	id := order.Reservation.String()
	reads := [][]string{{"stock", "get", "a"}, {"stock", "list"}, {"stock", "history", "a"}, {"reservation", "get", id},
		{"reservation", "find", "--user", "u"}, {"reservation", "unknown"}}
	writes := [][]string{{"stock", "set", "a", "9"}, {"stock", "add", "a", "1"}, {"stock", "pause", "a"}, {"stock", "sync", "a"},
		{"reservation", "confirm", id}, {"reservation", "release", id}, {"reservation", "extend", id, "20m"}, {"reservation", "create", "a=1"}}
	for _, args := range reads {
		as("the-token-that-reads", args...).requireDone(t)
		as("", args...).requireFailed(t, "UNAUTHORIZED")
	}
	for _, args := range writes {
		as("the-token-that-reads", args...).requireFailed(t, "UNAUTHORIZED")
		as("another-token", args...).requireFailed(t, "UNAUTHORIZED")
	}
	if got := as("the-token-that-reads", "stock", "get", "a").stdout; !strings.Contains(strings.Join(strings.Fields(got), " "), "a 1 0 1 0 2") {
		t.Errorf("stock is\n%s", got)
	}
}

// manySKUs is how many SKUs the large import has; STOCKGATE_IMPORT_SKUS sets another number, at least 5,000.
var manySKUs = func() int {
	if n, err := strconv.Atoi(os.Getenv("STOCKGATE_IMPORT_SKUS")); err == nil {
		return n
	}
	return 100_000
}()

// importOf is a CSV of many SKUs; SKUs of bad have a line that cannot be.
func importOf(bad ...int) string {
	var csv strings.Builder
	wrong := map[int]bool{}
	for _, i := range bad {
		wrong[i] = true
	}
	for i := 1; i <= manySKUs; i++ {
		if wrong[i] {
			fmt.Fprintf(&csv, "sku-%06d,1.5\n", i)
			continue
		}
		fmt.Fprintf(&csv, "sku-%06d,3\n", i)
	}
	return csv.String()
}

// 100,000 SKUs are imported as a whole or not at all, and the caller sees how far it is. The same import again changes nothing, although
// units were sold since.
func TestImportOfAHundredThousandSKUs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.gateway()
	bad := g.command(importOf(2, manySKUs/2, manySKUs), "stock", "import", "-", "--op", "first")
	bad.requireFailed(t, "3 bad lines")
	for _, line := range []string{"\n2 ", fmt.Sprintf("\n%d ", manySKUs/2), fmt.Sprintf("\n%d ", manySKUs)} {
		if !strings.Contains(bad.stderr, line) {
			t.Errorf("no line %q in:\n%s", line, bad.stderr)
		}
	}
	if status, body := g.get("/v1/stock?limit=1"); status != 200 || strings.Contains(body, "sku-") {
		t.Fatalf("a bad import has left %s", body)
	}
	g.killInImport(t)
	if status, body := g.get("/v1/stock?limit=1"); status != 200 || strings.Contains(body, "sku-") {
		t.Fatalf("an import that was broken off has left %s", body)
	}
	phases := g.importInSteps(t, importOf())
	for _, phase := range []string{api.ImportChecked, api.ImportWritten, api.ImportCommitted} {
		if phases[phase] == 0 {
			t.Errorf("nothing was told of the phase %s: %v", phase, phases)
		}
	}
	if phases[api.ImportWritten] < 5 {
		t.Errorf("%d steps while it was written", phases[api.ImportWritten])
	}
	requireTold(t, "the last one sells", g.buy(want{sku: fmt.Sprintf("sku-%06d", manySKUs), user: "u", key: "k"}), 201, "")
	again := g.command(importOf(), "stock", "import", "-", "--op", "second").requireDone(t)
	if again.stdout != fmt.Sprintf("%d SKUs set\n", manySKUs) {
		t.Errorf("the same import says %s", again.stdout)
	}
	g.requireStock(fmt.Sprintf("sku-%06d", manySKUs), stockView{Available: 2, Held: 1})
	if n := number(t, w.sql(), `SELECT count(*) FROM stockgate.ledger`); n != int64(manySKUs)+1 { // and that of the order
		t.Errorf("%d rows in the ledger", n)
	}
	w.requireInvariants(t, nil, "sku-000001", fmt.Sprintf("sku-%06d", manySKUs))
}

// importInSteps imports under the op "second" and counts what it was told, by phase.
func (g *gateway) importInSteps(t *testing.T, csv string) map[string]int {
	t.Helper()
	resp := g.beginImport(t, csv)
	defer resp.Body.Close()
	phases, written := map[string]int{}, 0
	for lines := json.NewDecoder(resp.Body); lines.More(); {
		var p api.Progress
		if err := lines.Decode(&p); err != nil {
			t.Fatal(err)
		}
		switch {
		case p.Problem != nil:
			t.Fatalf("import: %s", p.Problem)
		case p.Imported != nil && p.Imported.SKUs != manySKUs:
			t.Errorf("%d SKUs imported", p.Imported.SKUs)
		case p.Phase == api.ImportWritten && p.Done < written || p.Of != manySKUs && p.Imported == nil:
			t.Errorf("%+v after %d", p, written)
		case p.Phase == api.ImportWritten:
			written = p.Done
		}
		phases[p.Phase]++
	}
	return phases
}

// killInImport ends the gateway while an import is being written, and starts it again.
func (g *gateway) killInImport(t *testing.T) {
	t.Helper()
	resp := g.beginImport(t, importOf())
	defer resp.Body.Close()
	for lines := json.NewDecoder(resp.Body); ; {
		var p api.Progress
		if err := lines.Decode(&p); err != nil {
			t.Fatalf("no step while it is written: %v", err)
		}
		if p.Phase == api.ImportWritten {
			break
		}
	}
	g.kill()
	g.start()
	g.awaitReady()
}

// beginImport sends an import under the op "second". Its answer tells step by step how far it is.
func (g *gateway) beginImport(t *testing.T, csv string) *http.Response {
	t.Helper()
	req, err := http.NewRequest("POST", g.control+"/v1/stock/import?op=second", strings.NewReader(csv))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", api.ProgressType)
	resp, err := (&http.Client{Timeout: 2 * patience}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}
