package config

import (
	"encoding"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDuration(t *testing.T) {
	t.Parallel()
	f := func(text string, want time.Duration, shown string) {
		t.Helper()
		d, err := ParseDuration(text)
		if err != nil || d.Std() != want || d.String() != shown {
			t.Errorf("%q: got %v (%s), error %v, want %v (%s)", text, d.Std(), d, err, want, shown)
		}
	}
	f("250ms", 250*time.Millisecond, "250ms")
	f("2s", 2*time.Second, "2s")
	f("15m", 15*time.Minute, "15m")
	f("90d", 90*24*time.Hour, "90d")
	f("1d12h", 36*time.Hour, "36h")
	f("1.5s", 1500*time.Millisecond, "1500ms")
	f("60s", time.Minute, "1m")
	f("0", 0, "0s")
	f("0s", 0, "0s")
	f("0d", 0, "0s")
	f("106751d", 106751*24*time.Hour, "106751d")
	f("3us", 3*time.Microsecond, "3us")

	for _, bad := range []string{"", "5", "-1s", "+1s", "1s-2s", "d", "1.5d", "h", "NaNs", "Infs", "1x", "1 s", "106752d", "106751d24h",
		"99999999999999999999d", "9999999999h", "1h2d", "0x1d"} {
		if d, err := ParseDuration(bad); err == nil {
			t.Errorf("%q was read as %s", bad, d)
		}
	}
}

func TestRate(t *testing.T) {
	t.Parallel()
	f := func(text string, perSecond float64, shown string) {
		t.Helper()
		r, err := ParseRate(text)
		if err != nil || r.PerSecond() != perSecond || r.String() != shown {
			t.Errorf("%q: got %v (%s), error %v, want %v (%s)", text, r.PerSecond(), r, err, perSecond, shown)
		}
	}
	f("500/s", 500, "500/s")
	f("30/m", 0.5, "30/m")
	f("0.5/s", 0.5, "0.5/s")
	f("36/h", 0.01, "36/h")
	f("0", 0, "0")
	f("0/s", 0, "0")
	f("1e+06/s", 1e6, "1000000/s") // Helm writes large numbers so
}

// Rates that mean nothing, or not what they seem to, are refused before a bucket is made of them.
func TestC069_RatesOutOfRangeAreRefused(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "500", "/s", "500/", "500/x", "-1/s", "+1/s", "NaN/s", "Inf/s", "+Inf/s", "1e999/s", "0x10/s", "1_000/s",
		"1 /s", "5/s/s", "0/x"} {
		if r, err := ParseRate(bad); err == nil {
			t.Errorf("%q was read as %s", bad, r)
		}
	}
	f := func(limit, want string) {
		t.Helper()
		got := problemsOf(t, "limits:", "  - "+limit)
		if got != want {
			t.Errorf("%s:\ngot  %q\nwant %q", limit, got, want)
		}
	}
	f("{name: a, key: global, rate: 10/s, burst: 0}", "limits[a].burst: must be 1 to 1000000000, is 0")
	f("{name: a, key: global, rate: 0, burst: 5}", "limits[a].rate: must be 1/h to 1000000000/s, is 0")
	f("{name: a, key: global, rate: 0.5/s, burst: 1}", "")
	f("{name: a, key: global, rate: 1/h, burst: 1}", "")
	f("{name: a, key: global, rate: 0.9/h, burst: 1}", "limits[a].rate: must be 1/h to 1000000000/s, is 0.9/h")
	f("{name: a, key: global, rate: 2000000000/s, burst: 1}", "limits[a].rate: must be 1/h to 1000000000/s, is 2000000000/s")
	f("{name: a, key: global, rate: 10/s}", "limits[a].burst: is required")
	f("{name: a, key: global, rate: -1/s, burst: 1}", `limits[a].rate: must be a rate such as 500/s, 30/m or 10/h, is "-1/s"`)
	f("{name: a, key: global, rate: .nan, burst: 1}", `limits[a].rate: must be a rate such as 500/s, 30/m or 10/h, is ".nan"`)
	const lane = `hotspot.lane.rate: must be a rate such as 500/s, 30/m or 10/h, or 0, is "fast"` // where 0 means something
	if got := problemsOf(t, "hotspot: {lane: {rate: fast}}"); got != lane {
		t.Errorf("got %q, want %q", got, lane)
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	f := func(text string, want int64, shown string) {
		t.Helper()
		z, err := ParseSize(text)
		if err != nil || z.Bytes() != want || z.String() != shown {
			t.Errorf("%q: got %d (%s), error %v, want %d (%s)", text, z, z, err, want, shown)
		}
	}
	f("0", 0, "0B")
	f("512B", 512, "512B")
	f("64KiB", 64<<10, "64KiB")
	f("1024KiB", 1<<20, "1MiB")
	f("8589934591GiB", 8589934591<<30, "8589934591GiB")
	f("9223372036854775807B", 1<<63-1, "9223372036854775807B")
	for _, bad := range []string{"", "64", "64K", "64KB", "64kib", "1.5MiB", "-1B", "+1B", "B", "KiB", "8589934592GiB", "9223372036854775808B",
		"1e3B", "NaNB"} {
		if z, err := ParseSize(bad); err == nil {
			t.Errorf("%q was read as %s", bad, z)
		}
	}
}

// What String writes reads back to the same value, for every value.
func TestScalarsRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := Duration(rapid.Int64Min(0).Draw(t, "duration"))
		if got, err := ParseDuration(d.String()); err != nil || got != d {
			t.Fatalf("%d ns: wrote %s, read %d, error %v", d, d, got, err)
		}
		z := Size(rapid.Int64Min(0).Draw(t, "size"))
		if got, err := ParseSize(z.String()); err != nil || got != z {
			t.Fatalf("%d bytes: wrote %s, read %d, error %v", z, z, got, err)
		}
		r := Rate{Count: rapid.Float64Range(0, 1e12).Draw(t, "count"), Per: rapid.SampledFrom([]time.Duration{time.Second, time.Minute,
			time.Hour}).Draw(t, "per")}
		if r.Count == 0 {
			r.Per = 0
		}
		if got, err := ParseRate(r.String()); err != nil || got != r {
			t.Fatalf("%v: wrote %s, read %v, error %v", r, r, got, err)
		}
	})
}

// No text makes a scalar that is negative or panics, and an error never repeats the text, which may be a secret.
func FuzzScalars(f *testing.F) {
	for _, seed := range []string{"1d", "5/s", "64KiB", "-1", "1e309/s", "body.a", "10.0.0.0/8", "seat-*"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var d Duration
		var r Rate
		var z Size
		for _, u := range []encoding.TextUnmarshaler{&d, &r, &z, new(Network), new(Source), new(Pattern)} {
			err := u.UnmarshalText([]byte(text))
			if err != nil && len(text) > 12 && strings.Contains(err.Error(), text) {
				t.Fatalf("%T: error %q repeats the text", u, err)
			}
		}
		if d < 0 || z < 0 || !(r.PerSecond() >= 0) {
			t.Fatalf("%q gave %d, %d, %v", text, d, z, r)
		}
	})
}

func TestSource(t *testing.T) {
	t.Parallel()
	f := func(text string, want Source) {
		t.Helper()
		got, err := ParseSource(text)
		if err != nil || !got.Equal(want) || got.String() != text {
			t.Errorf("%q: got %+v (%s), error %v, want %+v", text, got, got, err, want)
		}
	}
	f("", Source{})
	f("body.sku", Source{Kind: SourceBody, Path: []string{"sku"}})
	f("body.items.0.sku", Source{Kind: SourceBody, Path: []string{"items", "0", "sku"}})
	f("header.X-User-Id", Source{Kind: SourceHeader, Name: "x-user-id"})
	f("header.X.Dotted", Source{Kind: SourceHeader, Name: "X.Dotted"})
	f("query.sku", Source{Kind: SourceQuery, Name: "sku"})
	f("path.2", Source{Kind: SourcePath, Index: 2})
	f("form.item[0]", Source{Kind: SourceForm, Name: "item[0]"})
	f("quantity", Source{Kind: SourceLine, Path: []string{"quantity"}})
	f("item.sku", Source{Kind: SourceLine, Path: []string{"item", "sku"}})
	f("body", Source{Kind: SourceLine, Path: []string{"body"}})

	for _, bad := range []string{".", "body.", "body..a", "body.a.", "header.", "header.a b", "header.Stockgate-Sku", "header.STOCKGATE-Qty",
		"path.0", "path.-1", "path.x", "path.01", "path.65", "path.", "query.", "form.", "query.a b", "a b", "body.a\x00",
		"body" + strings.Repeat(".a", 17)} {
		if s, err := ParseSource(bad); err == nil {
			t.Errorf("%q was read as %+v", bad, s)
		}
	}
}

func TestNetwork(t *testing.T) {
	t.Parallel()
	f := func(text, want string) {
		t.Helper()
		var n Network
		if err := n.UnmarshalText([]byte(text)); err != nil || n.String() != want {
			t.Errorf("%q: got %s, error %v, want %s", text, n, err, want)
		}
	}
	f("10.0.0.0/8", "10.0.0.0/8")
	f("::1/128", "::1/128")
	f("192.0.2.7", "192.0.2.7/32")
	f("2001:db8::1", "2001:db8::1/128")
	f("::ffff:192.0.2.7", "192.0.2.7/32")
	for _, bad := range []string{"", "10.0.0.0/33", "10.1.2.3/8", "10.0.0", "fe80::1%eth0", "example.com", "10.0.0.0/-1"} {
		var n Network
		if err := n.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q was read as %s", bad, n)
		}
	}
}

func TestPattern(t *testing.T) {
	t.Parallel()
	f := func(a, b Pattern, covers, overlaps bool) {
		t.Helper()
		if a.Covers(b) != covers || a.Overlaps(b) != overlaps || b.Overlaps(a) != overlaps {
			t.Errorf("%s, %s: covers %v, overlaps %v, want %v, %v", a, b, a.Covers(b), a.Overlaps(b), covers, overlaps)
		}
	}
	f("*", "sku-1", true, true)
	f("*", "sku-*", true, true)
	f("sku-*", "sku-1*", true, true)
	f("sku-1*", "sku-*", false, true)
	f("sku-1*", "sku-1", true, true)
	f("sku-1", "sku-1*", false, true)
	f("sku-1", "sku-1", true, true)
	f("sku-1", "SKU-1", false, false)
	f("sku-1*", "sku-2*", false, false)
	f("sku-1", "sku-10", false, false)
	for _, bad := range []string{"", "a*b", "**", "*a", "a b", "a{1}", "ä", strings.Repeat("x", 129)} {
		if err := new(Pattern).UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// A secret shows up in no way of printing, alone or inside of a configuration.
func TestSecretsAreNeverPrinted(t *testing.T) {
	t.Parallel()
	const text = "hunter2hunter2hunter2"
	c := Default()
	c.Control.Token, c.Redis.Password, c.Database.DSN = text, text, "postgres://shop:"+text+"@db/shop"
	c.Upstreams = map[string]Upstream{"orders": {Sign: Sign{Keys: []SignKey{{ID: "k1", Secret: text}}}}}
	s := c.Control.Token
	for _, printed := range []string{
		s.String(), s.GoString(), fmt.Sprint(s), fmt.Sprintf("%s %v %+v %#v %q", s, s, s, s, s), c.String(), fmt.Sprint(c),
		fmt.Sprintf("%v %+v %#v", *c, *c, *c), fmt.Sprintf("%#v", c.Upstreams),
	} {
		if strings.Contains(printed, "hunter2") {
			t.Errorf("secret printed: %s", printed)
		}
	}
	if s.Reveal() != text {
		t.Errorf("Reveal gives %q", s.Reveal())
	}
}
