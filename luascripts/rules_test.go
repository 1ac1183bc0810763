package luascripts

import (
	"context"
	"embed"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/stock"
)

//go:embed *.lua
var scriptFiles embed.FS

// calls are the Redis calls of a script: the command, and what stands for its key; "" if it has none.
var calls = regexp.MustCompile(`redis\.p?call\(\s*'([A-Z]+)'(?:,\s*([^,()]+(?:\([^)]*\))?[^,()]*))?`)

func eachScript(t *testing.T, look func(name, text string)) {
	t.Helper()
	files, err := scriptFiles.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := scriptFiles.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		look(strings.TrimSuffix(f.Name(), ".lua"), string(text))
	}
	if len(files) < 10 {
		t.Fatalf("found %d scripts", len(files))
	}
}

// A key is one of KEYS, or a name that was taken from KEYS as it is: a cluster must know all keys before the script runs, and a SKU must
// never become a part of another key.
func TestScriptsNeverBuildKeys(t *testing.T) {
	t.Parallel()
	given := regexp.MustCompile(`^(KEYS\[[^\]]+\]|unpack\(KEYS[^)]*\)|key|[wc]\[1\])$`)
	eachScript(t, func(name, text string) {
		for _, call := range calls.FindAllStringSubmatch(text, -1) {
			key := strings.TrimSpace(call[2])
			if slices.Contains([]string{"TIME", "INFO"}, call[1]) {
				continue
			}
			if !given.MatchString(key) {
				t.Errorf("%s: %s is called with the key %q, which is not one of KEYS", name, call[1], key)
			}
		}
		if built := regexp.MustCompile(`KEYS\[[^\]]+\]\s*\.\.|\.\.\s*KEYS\[`).FindString(text); built != "" {
			t.Errorf("%s makes a name out of a key: %q", name, built)
		}
	})
}

// Registers, sums and open entries have few writers, so that it can be said what each may do to the others.
func TestFewScriptsWriteRegisters(t *testing.T) {
	t.Parallel()
	readers := []string{"HGET", "HMGET", "HGETALL", "HVALS", "HSCAN", "HLEN", "MGET", "GET", "EXISTS", "TTL", "PTTL", "ZCARD", "ZRANGEBYSCORE", "ZRANGE",
		"ZSCORE", "TIME", "INFO"}
	writers := []string{
		"reserve", "close", "load", "claim",
		"open_partition", "mark", // the partition's own record
		"entries", "scan_open", // take deadlines out whose entry is gone, and make lost ones anew
		"meta", "lease_tokens", // keys of their own
	}
	eachScript(t, func(name, text string) {
		for _, call := range calls.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(readers, call[1]) && !slices.Contains(writers, name) {
				t.Errorf("%s calls %s: it is none of the scripts that write", name, call[1])
			}
		}
	})
}

// Redis does not roll back. A script that is going to fail, here because a key is of another type than it must be, fails before it has
// written anything.
func TestAFailingScriptHasWrittenNothing(t *testing.T) {
	t.Parallel()
	for _, script := range []string{"reserve", "close"} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, Config{}, nil)
			ctx := context.Background()
			r.open(1)
			r.load("s", 10)
			first := wish(1, 1, "s", 2)
			r.ask1(first)
			due := r.keys[0].due.(string)
			if err := r.raw.Set(ctx, due, "no set", 0).Err(); err != nil {
				t.Fatal(err)
			}
			before := r.dump()
			var err error
			if script == "reserve" {
				_, err = r.prededuct(ctx, wish(2, 1, "s", 3), time.Minute)
			} else {
				won := stock.Closing{ID: first.ID, Try: first.Try, Fingerprint: first.Fingerprint, Won: true}
				_, err = r.CloseNow(ctx, 0, []stock.Closing{won}, []stock.Fact{r.fact("s", 8)})
			}
			if err == nil {
				t.Fatal("a script that met a key of another type succeeded")
			}
			if after := r.dump(); after != before {
				t.Fatalf("it wrote before it failed:\n%s\nwas\n%s", after, before)
			}
		})
	}
}
