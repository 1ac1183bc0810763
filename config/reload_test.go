package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Every key says when a change of it is used: itself, or the section that it stands in.
func TestEveryKeyHasAnEffect(t *testing.T) {
	t.Parallel()
	var walk func(typ reflect.Type, path string, effect Effect)
	walk = func(typ reflect.Type, path string, effect Effect) {
		for _, f := range fieldsOf(typ) {
			own, key := effect, under(path, f.key)
			if f.reload != "" {
				own = f.reload
			}
			if sub, _ := subsection(typ.Field(f.index).Type); sub != nil {
				walk(sub, key, own)
			}
			if !slices.Contains([]Effect{EffectLive, EffectRules, EffectRestart}, own) {
				t.Errorf("%s has effect %q: give the field or its section a tag reload of live, rules or restart", key, own)
			}
		}
	}
	walk(reflect.TypeFor[Config](), "", "")
}

const reloadBase = `
listen: ":8080"
database: {driver: sqlite, dsn: "${DSN}"}
redis: {mode: none}
control: {token: 0123456789abcdef}
limits:
  - {name: a, key: global, rate: 5/s, burst: 5}
  - {name: b, key: client_ip, rate: 5/s, burst: 5}
upstreams:
  orders: {url: "http://127.0.0.1:1", sign: {keys: [{id: k, secret: 0123456789abcdef}]}}
routes:
  - {name: order, match: {path: /orders}, upstream: orders, admit: {sku: body.sku, confirm: api}}
`

func parseWith(t *testing.T, text, dsn string) *Config {
	t.Helper()
	c, err := Parse("stockgate.yaml", []byte(text), Options{LookupEnv: func(name string) (string, bool) { return dsn, name == "DSN" },
		ReadFile: func(string) ([]byte, error) { return []byte("from the file"), nil }})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestChanges(t *testing.T) {
	t.Parallel()
	f := func(name, dsn string, edit *strings.Replacer, want ...string) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, c := range Changes(parseWith(t, reloadBase, "file:x.db"), parseWith(t, edit.Replace(reloadBase), dsn)) {
				line := string(c.Effect) + " " + c.Key + ": " + c.Old + " → " + c.New
				if c.Added || c.Removed {
					line = map[bool]string{true: "+", false: "-"}[c.Added] + line
				}
				got = append(got, line)
			}
			if !slices.Equal(got, want) {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
			}
		})
	}
	const dsn = "file:x.db"
	f("nothing", dsn, strings.NewReplacer("\nlisten", "\n# a comment\nlisten", `":8080"`, "':8080'"))
	f("a rate", dsn, strings.NewReplacer("global, rate: 5/s", "global, rate: 7/s"), "live limits[a].rate: 5/s → 7/s")
	f("a listener", dsn, strings.NewReplacer(":8080", ":8081"), "restart listen: :8080 → :8081")
	f("rules", dsn, strings.NewReplacer("\nlimits", "\ndefaults: {max_qty: 3}\nlimits", "sku: body.sku", "sku: body.sku, shadow: true"),
		"rules defaults.max_qty: 100 → 3", "rules routes[order].admit.shadow: false → true")
	f("a secret", dsn, strings.NewReplacer("secret: 0123456789abcdef", "secret: fedcba9876543210"),
		"live upstreams.orders.sign.keys[k].secret: [secret] → [secret]")
	f("what a reference holds", "file:y.db", strings.NewReplacer(), "restart database.dsn: ${DSN} → ${DSN}")
	f("a limit goes", dsn, strings.NewReplacer("  - {name: a, key: global, rate: 5/s, burst: 5}\n", ""),
		"-live limits[a].burst: 5 → ", "-live limits[a].key: global → ", "-live limits[a].name: a → ", "-live limits[a].rate: 5/s → ",
		"-live limits[a].routes: [] → ", "-live limits[a].scope: replica → ", "-live limits[a].shadow: false → ", "-live limits[a].warm_up: 0s → ")
	f("another order", dsn, strings.NewReplacer("name: a,", "name: b,", "key: global", "key: client_ip", "name: b,", "name: a,", "key: client_ip", "key: global"),
		"live limits: a, b → b, a")
}

func TestVersion_HidesSecretsAndForm(t *testing.T) {
	t.Parallel()
	base := parseWith(t, reloadBase, "a")
	same := parseWith(t, "# comment\n"+strings.ReplaceAll(reloadBase, "0123456789abcdef", "fedcba9876543210"), "b")
	other := parseWith(t, strings.Replace(reloadBase, "5/s", "6/s", 1), "a")
	if base.Version() != same.Version() || base.Version() == other.Version() || len(base.Version()) != 12 {
		t.Errorf("versions %s, %s with other secrets, %s with another rate", base.Version(), same.Version(), other.Version())
	}
}

func TestReferences(t *testing.T) {
	t.Parallel()
	c := parseWith(t, strings.ReplaceAll(reloadBase, "secret: 0123456789abcdef", `secret: "${file:/run/b}${file:/run/a}${file:/run/b}"`), "x")
	if got := c.References(); !slices.Equal(got, []string{"/run/a", "/run/b"}) {
		t.Errorf("references %q", got)
	}
}
