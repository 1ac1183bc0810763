package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

const (
	oneDoubt        = `{"partition":3,"gateway":"g7","epoch":5,"at":"2026-11-11T00:00:00Z"}`
	oneCompensation = `{"id":"surplus.` + rid + `","kind":"surplus","reservation":"` + rid + `","state":"pending","attempts":4,` +
		`"next_at":"2026-11-11T00:01:00Z","detail":"status 409","created_at":"2026-11-11T00:00:00Z"}`
	compensationHead = "COMPENSATION STATE ATTEMPTS NEXT SINCE DETAIL "
	compensationLine = "surplus." + rid + " pending 4 2026-11-11T00:01:00Z 2026-11-11T00:00:00Z status 409"
)

func TestDoubtsAreShownAndClearedByCommand(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.answer = `{"doubts":[` + oneDoubt + `]}`
	f := func(call, want string, args ...string) {
		t.Helper()
		var out bytes.Buffer
		cmd := newStockCommand()
		cmd.SilenceErrors = true
		cmd.SetOut(&out)
		cmd.SetArgs(append([]string{"--control", d.url}, args...))
		d.asked = ""
		err := cmd.ExecuteContext(context.Background())
		if got := strings.Join(strings.Fields(out.String()), " "); d.asked != call || call != "" && (err != nil || got != want) ||
			call == "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v: asked %s, %v\n%s", args, d.asked, err, got)
		}
	}
	const table = "PARTITION GATEWAY EPOCH SINCE 3 g7 5 2026-11-11T00:00:00Z"
	f("GET /v1/doubts", table, "doubts")
	f(`DELETE /v1/doubts/3 {"reason":"orders compared"}`, table, "clear-doubts", "3", "--reason", "orders compared")
	f("GET /v1/doubts", `{ "doubts": [ { "partition": 3, "gateway": "g7", "epoch": 5, "at": "2026-11-11T00:00:00Z" } ] }`, "doubts", "--json")
	f("", `PARTITION is "all", must be a number from 0`, "clear-doubts", "all")
	f(`DELETE /v1/doubts {"reason":"restored"}`, table, "clear-doubts", "--all", "--reason", "restored")
	f("", "needs PARTITION, a number, or --all, and not both", "clear-doubts")
	f("", "needs PARTITION, a number, or --all, and not both", "clear-doubts", "3", "--all")
}

func TestCompensationsAreShownAndRetriedByCommand(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.answer = `{"compensations":[` + oneCompensation + `]}`
	d.does("GET /v1/compensations?limit=100&state=dead", compensationHead+compensationLine, "compensations", "--state", "dead")
	d.does("GET /v1/compensations?limit=1000", compensationHead+compensationLine, "compensations", "--limit", "0")
	d.answer = `{"compensations":[` + oneCompensation + `],"next":"surplus.x"}`
	d.does("GET /v1/compensations?after=surplus.x&limit=1", compensationHead+compensationLine+" "+compensationLine, "compensations", "--limit", "2")
	d.answer = strings.Replace(oneCompensation, "pending", "dead", 1)
	d.does("POST /v1/compensations/surplus."+rid+`/retry {"make":"void","reason":"shop is up"}`,
		compensationHead+"surplus."+rid+" dead 4 - 2026-11-11T00:00:00Z status 409", "retry", "surplus."+rid, "--make", "void", "--reason", "shop is up")
	d.fails("--limit is -1", "compensations", "--limit", "-1")
	d.status, d.answer = 404, `{"status":404,"code":"UNKNOWN_RESERVATION","detail":"there is no compensation surplus.1"}`
	d.fails("UNKNOWN_RESERVATION: there is no compensation", "retry", "surplus.1")
}

func TestAnEventualSKUSaysSo(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.answer = `{"sku":"a","available":5,"granted":7,"doubtful":3,"consistency":"eventual"}`
	var out bytes.Buffer
	cmd := newStockCommand()
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--control", d.url, "get", "a"})
	if err := cmd.ExecuteContext(context.Background()); err != nil || !strings.Contains(out.String(), "on sale, eventual, 3 doubtful") {
		t.Fatalf("%v\n%s", err, out.String())
	}
}
