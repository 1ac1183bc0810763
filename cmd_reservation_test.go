package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stockgate/stockgate/gateway/control/api"
)

// desk runs reservation commands against a server that answers as it is told and remembers what was asked.
type desk struct {
	t      *testing.T
	url    string
	asked  string
	key    string
	status int
	answer string
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{t: t, status: 200, answer: oneReservation}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		d.asked, d.key = strings.TrimSpace(r.Method+" "+r.RequestURI+" "+string(body)), r.Header.Get("Idempotency-Key")
		if strings.HasSuffix(r.URL.Path, "/import") {
			w.Header().Set("Content-Type", api.ProgressType)
		}
		w.WriteHeader(d.status)
		_, _ = io.WriteString(w, d.answer)
	}))
	t.Cleanup(server.Close)
	d.url = server.URL
	return d
}

const (
	rid            = "00112233445566778899aabbccddeeff"
	oneReservation = `{"reservation":"` + rid + `","state":"held","outcome":"unknown","user":"u1","route":"place-order",` +
		`"lines":[{"sku":"a","qty":2,"released":1},{"sku":"b","qty":1}],"expires_at":"2026-11-11T00:15:00Z","forward_by":"2026-11-11T00:00:02Z","age_ms":61000}`
	reservationHead = "RESERVATION STATE OUTCOME REASON LINES USER ORDER ROUTE EXPIRES AGE "
	oneLine         = rid + " held unknown - a=2-1,b=1 u1 - place-order 2026-11-11T00:15:00Z 1m1s"
)

// run is `stockgate reservation args…`.
func (d *desk) run(args ...string) (stdout, stderr string, err error) {
	d.t.Helper()
	var out, errs bytes.Buffer
	cmd := newReservationCommand()
	cmd.SilenceErrors = true
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetIn(strings.NewReader("o-1,a,1,u1,held\n"))
	cmd.SetArgs(append([]string{"--control", d.url}, args...))
	err = cmd.ExecuteContext(context.Background())
	return out.String(), errs.String(), err
}

// does wants this call to be made and, blanks apart, this output.
func (d *desk) does(call, want string, args ...string) {
	d.t.Helper()
	out, _, err := d.run(args...)
	if err != nil || d.asked != call || strings.Join(strings.Fields(out), " ") != want {
		d.t.Fatalf("%v: asked %s, %v\n%s\nwant %s\n%s", args, d.asked, err, out, call, want)
	}
}

func (d *desk) fails(part string, args ...string) {
	d.t.Helper()
	out, _, err := d.run(args...)
	if err == nil || !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "\n") || out != "" {
		d.t.Errorf("%v: error %v, want one line with %q; output %q", args, err, part, out)
	}
}

func TestReservationCommandsPrintATable(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	const path = "/v1/reservations/" + rid
	d.does("GET "+path, reservationHead+oneLine, "get", rid)
	d.does("POST "+path+`/confirm {"order_ref":"o-1","reason":"card"}`, reservationHead+oneLine, "confirm", rid, "--order-ref", "o-1", "--reason", "card")
	d.does("POST "+path+`/release {"unless_paid":true}`, reservationHead+oneLine, "release", rid, "--unless-paid")
	d.does("POST "+path+`/release {"lines":[{"sku":"a","qty":1},{"sku":"b","qty":2}],"op":"r-1"}`, reservationHead+oneLine,
		"release", rid, "--line", "a=1", "--line", "b=2", "--op", "r-1")
	d.does("POST "+path+`/extend {"hold":"25m"}`, reservationHead+oneLine, "extend", rid, "25m")
	d.status = 201
	d.does(`POST /v1/reservations {"lines":[{"sku":"a","qty":2}],"user":"u1","activity":"11.11","hold":"20m"}`, reservationHead+oneLine,
		"create", "a=2", "--user", "u1", "--activity", "11.11", "--hold", "20m", "--key", "k-1")
	if d.key != "k-1" {
		t.Errorf("key %q", d.key)
	}
	d.status, d.answer = 200, `{"imported_reservations":{"reservations":3,"held":2,"confirmed":1}}`
	d.does("POST /v1/reservations/import o-1,a,1,u1,held", "3 reservations: 2 held, 1 confirmed", "import", "-")
	d.answer = strings.TrimSuffix(oneReservation, "}") + `,"history":[{"sku":"a","seq":7,"kind":"settle","op":"1","delta":-2,"before":5,"after":3,"at":"2026-11-11T00:00:00Z"}]}`
	d.does("GET "+path+"?history=true", reservationHead+oneLine+" AT SKU SEQ KIND DELTA AFTER RESERVATION ACTOR REASON OP"+
		" 2026-11-11T00:00:00Z a 7 settle -2 3 - - - 1", "get", rid, "--history")
}

func TestReservationsAreListedOverAllPages(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.answer = `{"reservations":[` + oneReservation + `]}`
	d.does("GET /v1/reservations?limit=100&user=u1", reservationHead+oneLine, "find", "--user", "u1")
	d.does("GET /v1/reservations?limit=5&order_ref=o-1", reservationHead+oneLine, "find", "--order-ref", "o-1", "--limit", "5")
	d.does("GET /v1/reservations?limit=1000&request=k&user=u1", reservationHead+oneLine, "find", "--request", "k", "--user", "u1", "--limit", "0")
	d.does("GET /v1/reservations?limit=100&unknown=true", reservationHead+oneLine, "unknown")
	d.answer = `{"reservations":[` + oneReservation + `],"next":"1.x"}`
	d.does("GET /v1/reservations?after=1.x&limit=1&unknown=true", reservationHead+oneLine+" "+oneLine, "unknown", "--limit", "2")
	d.answer = `{"reservations":[]}`
	d.does("GET /v1/reservations?limit=100&user=u2", `{ "reservations": [] }`, "find", "--user", "u2", "--json")
}

func TestReservationCommandsFailInOneClearLine(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.fails("has 'n' in it, must be 32 hex digits", "get", "nonsense")
	d.fails("has 2 hex digits, must have 32", "get", "47")
	d.fails("name one of --user, --order-ref and --request", "find")
	d.fails("name one of --user", "find", "--user", "u", "--order-ref", "o")
	d.fails("--limit is -1", "unknown", "--limit", "-1")
	d.fails(`line "a" must be SKU=UNITS`, "release", rid, "--line", "a")
	d.fails(`UNITS of a is "0", must be a whole number from 1`, "create", "a=0")
	d.fails("sku has", "create", "a b=1")
	d.fails(`HOLD is "25", must be a length of time`, "extend", rid, "25")
	d.fails("no such file", "import", "/nowhere/orders.csv")
	if d.asked != "" {
		t.Fatalf("asked %s", d.asked)
	}
	d.status, d.answer = 504, `{"status":504,"code":"OUTCOME_UNKNOWN","detail":"it may or may not have been done"}`
	d.fails("to repeat safely: --op r-1", "release", rid, "--line", "a=1", "--op", "r-1")
	d.fails("to repeat safely: --key cli-", "create", "a=1")
	d.status, d.answer = 409, `{"status":409,"code":"RELEASED","detail":"reservation is released"}`
	d.fails("RELEASED: reservation is released", "confirm", rid)
	d.status, d.answer = 400, `{"status":400,"code":"BAD_REQUEST","detail":"1 bad lines","bad_lines":[{"line":3,"problem":"qty is 0"}],"bad_lines_total":1}`
	_, stderr, err := d.run("import", "-")
	if err == nil || stderr != "LINE  PROBLEM\n3     qty is 0\n" {
		t.Errorf("%v %q", err, stderr)
	}
}

// Progress goes to terminals only: a log of a job must not be full of it.
func TestProgressIsShownOnATerminalOnly(t *testing.T) {
	t.Parallel()
	line := newProgressLine(&bytes.Buffer{})
	file, err := os.Create(t.TempDir() + "/log")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, l := range []*progressLine{line, newProgressLine(file)} {
		l.show(api.Progress{Phase: api.ImportWritten, Done: 1, Of: 2})
		l.end()
		if l.shown {
			t.Error("it was shown")
		}
	}
	var out bytes.Buffer
	shown := &progressLine{out: &out}
	shown.show(api.Progress{Phase: api.ImportWritten, Done: 1, Of: 2})
	shown.end()
	if out.String() != "\r\x1b[Kwritten 1 of 2\r\x1b[K" {
		t.Errorf("%q", out.String())
	}
}
