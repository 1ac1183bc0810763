package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/certs/certtest"
)

// runValidate runs the command on a file with the given text.
func runValidate(t *testing.T, text string, flags ...string) (out string, err error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "stockgate.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := newValidateCommand()
	var b bytes.Buffer
	cmd.SetOut(&b)
	cmd.SetErr(&b)
	cmd.SilenceErrors = true
	cmd.SetArgs(append([]string{"--config", file}, flags...))
	err = cmd.Execute()
	return strings.ReplaceAll(b.String(), file, "F"), err
}

const validFile = `upstreams: {o: {url: "http://127.0.0.1:3000"}}
routes: [{name: r, match: {path: /o}, upstream: o, admit: {sku: body.sku, confirm: api}}]
`

func TestValidate(t *testing.T) {
	t.Parallel()
	f := func(text, want string, valid bool, flags ...string) {
		t.Helper()
		got, err := runValidate(t, text, flags...)
		if got != want || (err == nil) != valid {
			t.Errorf("error %v, got\n%swant\n%s", err, got, want)
		}
	}
	f(validFile, "F is valid: 0 warnings, 0 refusals\n", true)
	f(validFile+"defaults: {consistency: eventual}\nevents: {redis_stream: {name: s}}\n",
		"F:3: warning: defaults.consistency: upstreams.o has no void: should several faults at once make an order too many, somebody has to cancel it by hand\n"+
			"F:4: serve refuses: events.redis_stream.name: events are not built yet: leave it empty\n"+
			"F is valid, but this version's serve refuses it: 1 warning, 1 refusal\n", true)
	f(strings.Replace(validFile, "path: /o", "path: /o, methods: [PSOT, POST]", 1),
		"F:2: warning: routes[r].match.methods[0]: PSOT is no method of HTTP, perhaps POST is meant\nF is valid: 1 warning, 0 refusals\n", true)
	f("redis: {pool_size: 0}\nlog: {levels: info}\n",
		"F:1: redis.pool_size: must be 1 to 10000, is 0\nF:2: log.levels: unknown key, perhaps level is meant\n", false)
	f("a: [", "F:1: is not valid YAML: did not find expected node content\n", false)
	f(validFile+"control: {token: '${STOCKGATE_TEST_NEVER_SET}'}\n",
		"F:3: control.token: variable STOCKGATE_TEST_NEVER_SET is not set\n", false, "--references")
	f(validFile+"control: {token: '${STOCKGATE_TEST_NEVER_SET}'}\n",
		"F:3: warning: control.token: variable STOCKGATE_TEST_NEVER_SET is not set, the key was not checked\n"+
			"F is valid: 1 warning, 0 refusals\n", true)
}

// TestValidateLooksAtTLSFiles: without them serve does not start.
func TestValidateLooksAtTLSFiles(t *testing.T) {
	t.Parallel()
	ca, dir := certtest.New(t), t.TempDir()
	cert, key := certtest.Write(t, dir, "tls.crt", ca.Issue(t, time.Hour, "shop").Cert), certtest.Write(t, dir, "other.key", ca.Issue(t, time.Hour, "shop").Key)
	f := func(section, want string) {
		t.Helper()
		text := validFile + strings.NewReplacer("CERT", cert, "KEY", key, "NONE", filepath.Join(dir, "none")).Replace(section)
		if out, err := runValidate(t, text, "--references"); err == nil || !strings.HasPrefix(out, "F:3: "+want) {
			t.Errorf("with --references: error %v, %s", err, out)
		}
		if out, err := runValidate(t, text); err != nil || !strings.HasPrefix(out, "F:3: warning: "+want) || !strings.Contains(out, "is valid: ") {
			t.Errorf("away from the files: error %v, %s", err, out)
		}
	}
	f("tls: {cert: CERT, key: NONE}", "tls: key: open "+filepath.Join(dir, "none"))
	f("tls: {cert: CERT, key: KEY}", "tls: cert and key: tls: private key does not match public key")
	f("control: {tls: {cert: NONE, key: KEY}}", "control.tls: cert: open ")
	f("check: {listen: ':1', tls: {cert: NONE, key: KEY}}", "check.tls: cert: open ")
	f("redis: {tls: {enabled: true, ca: NONE}}", "redis.tls: ca: open ")
	out, err := runValidate(t, strings.Replace(validFile, `http://127.0.0.1:3000"`, `https://orders", tls: {ca: /nowhere}`, 1), "--references")
	if err == nil || !strings.HasPrefix(out, "F:1: upstreams.o.tls: ca: open /nowhere") {
		t.Errorf("an upstream: error %v, %s", err, out)
	}
}

func TestValidateJSON(t *testing.T) {
	t.Parallel()
	f := func(text string, valid bool, wantKeys ...string) {
		t.Helper()
		out, err := runValidate(t, text, "--json")
		var r validateReport
		if jsonErr := json.Unmarshal([]byte(out), &r); jsonErr != nil || (err == nil) != valid || r.Valid != valid || strings.Contains(out, "null") {
			t.Fatalf("error %v, %v, got %s", err, jsonErr, out)
		}
		var keys []string
		for _, list := range [][]validateRemark{r.Problems, r.Warnings, r.Refusals} {
			for _, remark := range list {
				keys = append(keys, remark.Key)
			}
		}
		if strings.Join(keys, " ") != strings.Join(wantKeys, " ") {
			t.Errorf("got keys %v, want %v", keys, wantKeys)
		}
	}
	f(validFile, true)
	f("events: {redis_stream: {name: s}}\n", true, "routes", "events.redis_stream.name")
	f("redis: {pool_size: 0, timeout: x}\n", false, "redis.pool_size", "redis.timeout")
}

func TestValidateNeedsAFile(t *testing.T) {
	t.Parallel()
	cmd := newValidateCommand()
	cmd.SetOut(new(bytes.Buffer))
	cmd.SilenceErrors = true
	cmd.SetArgs([]string{"--config", "/does/not/exist.yaml"})
	if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "/does/not/exist.yaml") {
		t.Errorf("a file that is not there: %v", err)
	}
}

// The example can be checked on a machine without its secrets.
func TestValidateExample(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	out, err := runValidate(t, string(text))
	if err != nil || !strings.Contains(out, ": warning: skus[sku-1*].consistency: orders under purchase_limit or open_per_user wait for their commit, which holds the limit: they run as strong ones\n") ||
		!strings.HasSuffix(out, " warnings, 0 refusals\n") {
		t.Errorf("error %v, got\n%s", err, out)
	}
}
