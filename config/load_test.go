package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestEmptyFileIsTheDefault(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "\n", "# nothing\n", "---\n", "{}\n", "redis:\nlimits:\n# all keys of redis commented out\n"} {
		c, err := Parse("", []byte(text), testOptions())
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		want := Default()
		want.origin = c.origin
		if !reflect.DeepEqual(c, want) {
			t.Errorf("%q differs from Default:\n%s", text, c)
		}
	}
}

// Default gives a copy of its own each time, so that nobody can change another's.
func TestDefaultIsNotShared(t *testing.T) {
	t.Parallel()
	Default().Answers.Headers[0] = "changed"
	if got := Default().Answers.Headers[0]; got != "Content-Type" {
		t.Errorf("Default was changed from outside: %s", got)
	}
}

func TestSubstitution(t *testing.T) {
	t.Parallel()
	f := func(value, want string) {
		t.Helper()
		c := parse(t, "log: {level: info}", "redis: {username: "+value+"}")
		if c.Redis.Username != want {
			t.Errorf("%s: got %q, want %q", value, c.Redis.Username, want)
		}
	}
	f(`"${POOL}"`, "16")
	f(`"a${POOL}b${POOL}"`, "a16b16")
	f(`"${EMPTY}"`, "")
	f(`"$${POOL}"`, "${POOL}")
	f(`"$$${POOL}"`, "$${POOL}")
	f(`"a$b"`, "a$b")
	f(`"${file:/run/secrets/stockgate}"`, "0123456789abcdef")
	f(`"${file:/run/secrets/crlf}"`, "0123456789abcdef")
	f(`"${file:/run/secrets/lines}"`, "a\n") // one newline is cut, what else the file holds is the secret's own

	if c := parse(t, `redis: {pool_size: "${POOL}"}`); c.Redis.PoolSize != 16 {
		t.Errorf("a number from a variable: got %d, want 16", c.Redis.PoolSize)
	}

	bad := func(value, want string) {
		t.Helper()
		if got := problemsOf(t, "log: {level: info}", "redis: {username: "+value+"}"); got != "redis.username: "+want {
			t.Errorf("%s:\ngot  %s\nwant redis.username: %s", value, got, want)
		}
	}
	bad(`"${NOPE}"`, "variable NOPE is not set")
	bad(`"${file:/nope}"`, "file /nope does not exist")
	bad(`"${file:/run/secrets}"`, "file /run/secrets cannot be read: is a directory")
	bad(`"${file:relative}"`, "must name a file by its whole path, ${file:/path}")
	bad(`"${file:/run/secrets/binary}"`, "file /run/secrets/binary is not UTF-8 text")
	bad(`"${"`, "has ${ without }; write $${ for ${ itself")
	bad(`"${}"`, "must name a variable, ${NAME}, or a file, ${file:/path}")
	bad(`"${POOL:-5}"`, "must name a variable, ${NAME}, or a file, ${file:/path}")
}

// What a variable holds stays out of messages, whatever key it was put in: it may be a secret in the wrong place.
func TestSubstitutedValuesAreNotShown(t *testing.T) {
	t.Parallel()
	f := func(want string, lines ...string) {
		t.Helper()
		got := problemsOf(t, lines...)
		if got != want || strings.Contains(got, "s3cret") || strings.Contains(got, "hunter2") {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	f(`redis.pool_size: must be a whole number, is "${BAD_NUMBER}"`, `redis: {pool_size: "${BAD_NUMBER}"}`)
	f(`log.level: must be debug | info | warn | error, is "${TOKEN}"`, `log: {level: "${TOKEN}"}`)
	f(`listen: must be host:port or :port, with a port from 0 to 65535, is "${TOKEN}"`, `listen: "${TOKEN}"`)
	f(`limits[0].key: is required`, `limits: [{name: "${TOKEN}", rate: 1/s, burst: 1}]`)
	f(`control.token: must be visible ASCII without spaces`, `control: {token: "has space"}`)
	f(`upstreams.a.sign.keys[k].secret: must have 16 to 4096 bytes, is "${file:/run/secrets/short}"`,
		`upstreams: {a: {url: "http://a", sign: {keys: [{id: k, secret: "${file:/run/secrets/short}"}]}}}`)
	f(`database.dsn: must be a postgres:// URL or key=value pairs`, `database: {dsn: hunter2}`)
	f(`upstreams.a.url: must not hold a user or password, is "http://u:xxxxx@a"`, `upstreams: {a: {url: "http://u:hunter2@a"}}`)
	f(`redis.tls: must be a mapping of keys, is a single value`, `redis: {tls: hunter2}`)
}

func TestAllowMissing(t *testing.T) {
	t.Parallel()
	o := testOptions()
	o.AllowMissing = true
	c, err := Parse("f.yaml", []byte("control:\n  listen: :9090\n  token: ${NOPE}\nredis: {pool_size: '${NOPE2}'}\n"), o)
	if err != nil {
		t.Fatalf("missing variables were to be allowed: %v", err)
	}
	got := Warnings(c)[1:].Error() // the first: there are no routes
	want := "f.yaml:3: control.token: variable NOPE is not set, the key was not checked\n" +
		"f.yaml:4: redis.pool_size: variable NOPE2 is not set, the key was not checked"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if _, err := Parse("f.yaml", []byte("redis: {pool_size: '${BAD_NUMBER}'}"), o); err == nil {
		t.Error("a variable that is there but holds no number was allowed")
	}
}

// The text of a value counts, not the type that YAML would give it.
func TestValuesAreReadAsTheKeysType(t *testing.T) {
	t.Parallel()
	c := parse(t,
		"activities:",
		"  - {id: 11.11, starts: 2026-11-11T00:00:00+08:00, ends: 2026-11-12T00:00:00+08:00, skus: [007]}",
		"control: {token: 12345}",
		`redis: {pool_size: "8", partitions: 1e+03}`,
		"limits: [{name: on, key: global, rate: 1e+06/s, burst: 1e+06}]",
	)
	got := []any{c.Activities[0].ID, c.Activities[0].SKUs[0], c.Control.Token.Reveal(), c.Redis.PoolSize, c.Redis.Partitions, c.Limits[0].Name,
		c.Limits[0].Burst}
	want := []any{"11.11", Pattern("007"), "12345", 8, 1000, "on", 1000000}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Entries inherit what they do not name, wherever in the file it stands, and an explicit 0 is not taken for absent.
func TestEntriesInherit(t *testing.T) {
	t.Parallel()
	c := parse(t,
		"activities:",
		"  - {id: a, starts: 2026-11-11T00:00:00Z, ends: 2026-11-12T00:00:00Z, skus: [a]}",
		"  - {id: b, starts: 2026-11-11T00:00:00Z, ends: 2026-11-12T00:00:00Z, skus: [b], purchase_limit: 0, hold: 5m}",
		"skus: [{match: b}, {match: a, max_qty: 2}]",
		"defaults: {purchase_limit: 3, hold: 20m, max_qty: 7, late_confirm: refuse}",
		"hotspot: {overrides: {x: {rate: 0, queue: 1}}, lane: {burst: 9, concurrency: 3}}",
		"upstreams: {u: {url: 'http://u'}}",
		"routes: [{name: r, match: {path: /o}, upstream: u, admit: {sku: body.sku, confirm: on_success}}]",
	)
	a, b := c.Activities[0], c.Activities[1]
	x, _ := c.Hotspot.LaneOf("x")
	_, other := c.Hotspot.LaneOf("y")
	got := []any{a.PurchaseLimit, a.Hold.String(), a.LateConfirm, b.PurchaseLimit, b.Hold.String(), c.RuleFor("b").MaxQty, c.RuleFor("a").MaxQty,
		c.RuleFor("z").MaxQty, x.Rate.String(), x.Burst, x.Concurrency, x.Queue, x.MaxWait.String(), other, c.Upstreams["u"].Timeout.String(),
		c.Routes[0].Match.Methods}
	want := []any{int64(3), "20m", LateRefuse, int64(0), "5m", int64(7), int64(2), int64(7), "0", 9, 3, 1, "500ms", false, "3s", []string{"POST"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// Only where the backend can be asked may confirm be left to its default.
func TestConfirmDefaultsToAPIWithResolve(t *testing.T) {
	t.Parallel()
	const route = "routes: [{name: r, match: {path: /o}, upstream: u, admit: {sku: body.sku}}]"
	c := parse(t, "upstreams: {u: {url: 'http://u', resolve: '/r/{reservation}'}}", route)
	if got := c.Routes[0].Admit.Confirm; got != ConfirmAPI {
		t.Errorf("with resolve: got %q, want api", got)
	}
	got := problemsOf(t, "upstreams: {u: {url: 'http://u'}}", route)
	if want := "routes[r].admit.confirm: must be named, api or on_success, for upstreams.u has no resolve"; got != want {
		t.Errorf("without resolve:\ngot  %s\nwant %s", got, want)
	}
}

func TestAliases(t *testing.T) {
	t.Parallel()
	c := parse(t, "hotspot:", "  overrides:", "    a: &lane {rate: 5/s, burst: 5}", "    b: *lane")
	if c.Hotspot.Overrides["b"] != c.Hotspot.Overrides["a"] {
		t.Errorf("alias differs: %+v", c.Hotspot.Overrides)
	}
	bomb := "answers:\n  headers: &a [" + strings.Repeat("x,", 20) + "]\nhotspot: *a\nlimits: &l [*l]\n"
	if got := problemsOf(t, bomb); got == "" {
		t.Error("an alias that contains itself was taken")
	}
}

// The text of a configuration reads back to the same one, so what is shown is what is used.
func TestStringRoundTrips(t *testing.T) {
	t.Parallel()
	c, err := Load("../example.yaml", testOptions())
	if err != nil {
		t.Fatal(err)
	}
	c.Upstreams["orders"] = NewUpstream("http://127.0.0.1:3000") // the key's secret does not survive being hidden
	c.Routes[0].Admit.Confirm = ConfirmOnSuccess
	c.Database.DSN = ""
	text := strings.Replace(c.String(), `dsn: ""`, `dsn: "postgres://db/shop"`, 1)
	c.Database.DSN = "postgres://db/shop"
	again, err := Parse("", []byte(text), testOptions())
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if again.String() != c.String() {
		t.Errorf("differs after a round trip:\n%s\n%s", c, again)
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := Load(filepath.Join(dir, "none.yaml"), Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	secret, file := filepath.Join(dir, "secret"), filepath.Join(dir, "stockgate.yaml")
	write(t, secret, "from a file\n")
	write(t, file, "redis: {username: \"${file:"+secret+"}\"}\n")
	c, err := Load(file, Options{})
	if err != nil || c.Redis.Username != "from a file" {
		t.Fatalf("got %v, error %v", c, err)
	}
	write(t, file, "\nredsi: {}\n")
	_, err = Load(file, Options{})
	if want := file + ":2: redsi: unknown key, perhaps redis is meant"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	write(t, file, strings.Repeat("#", fileBytesMax+1))
	if _, err = Load(file, Options{}); err == nil || !strings.Contains(err.Error(), "must have at most 8388608 bytes") {
		t.Errorf("a file too big: %v", err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// No file whatever makes Parse panic, and what Parse takes, Validate takes again.
func FuzzParse(f *testing.F) {
	example, err := os.ReadFile("../example.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(example))
	for _, seed := range []string{"a: *b", "<<: {}", "? [a]\n: b", "limits: [null, 1, {}]", "routes: &a [*a]", "listen: !!int 5", "redis: {tls: }"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse("", []byte(text), testOptions())
		if err != nil {
			return
		}
		if again := Validate(c); len(again) > 0 {
			t.Fatalf("valid, then not:\n%v", again)
		}
		_, _, _ = c.String(), Warnings(c), Refusals(c)
	})
}
