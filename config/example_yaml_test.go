package config

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// The example is what users copy: all of it is valid.
func TestExampleValidates(t *testing.T) {
	t.Parallel()
	if _, err := Load("../example.yaml", testOptions()); err != nil {
		t.Error(err)
	}
}

// Every scalar that the example writes outside of lists and maps of named things is the default, so that its text is a reference.
func TestExampleShowsTheDefaults(t *testing.T) {
	t.Parallel()
	c, err := Load("../example.yaml", testOptions())
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	seen := 0
	compareSections(t, reflect.ValueOf(c).Elem(), reflect.ValueOf(want).Elem(), "", &seen)
	if named := countNamed(c.origin); seen < 100 || named < seen {
		t.Errorf("compared %d scalars of %d named keys, the comparison misses some", seen, named)
	}
}

func compareSections(t *testing.T, got, want reflect.Value, path string, seen *int) {
	t.Helper()
	for _, f := range fieldsOf(got.Type()) {
		g, w := got.Field(f.index), want.Field(f.index)
		sub, suffix := subsection(g.Type())
		switch {
		case sub != nil && suffix == "" && g.Kind() == reflect.Struct:
			compareSections(t, g, w, under(path, f.key), seen)
		case sub == nil:
			*seen++
			empty := g.Kind() == reflect.Slice && g.Len() == 0 && w.Len() == 0
			if !empty && !reflect.DeepEqual(g.Interface(), w.Interface()) {
				t.Errorf("%s: example has %v, default is %v", under(path, f.key), g, w)
			}
		}
	}
}

func countNamed(o *origin) int { return len(o.lines) }

// The keys that the example does not show are few, known, and have defaults. A key that vanishes from the example is noticed here.
func TestKeysBesideTheExample(t *testing.T) {
	t.Parallel()
	c, err := Load("../example.yaml", testOptions())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	collectUnnamed(c, reflect.TypeFor[Config](), "", &got)
	want := []string{"server", "control.timeout", "control.import_timeout", "control.redis_timeout", "control.body",
		"control.import_body", "control.import_lines", "control.max_in_flight", "redis.pin_run_id", "redis.sentinel_username",
		"redis.sentinel_password", "redis.pending_max", "redis.loads", "limit_keys", "admission_version", "hotspot.shared.burst", "answers.pending",
		"ahead.pending", "hotspot.detect.cool", "hotspot.detect.lanes", "hotspot.detect.watched"}
	for _, key := range got {
		section, _, _ := strings.Cut(key, ".")
		known := section == "server" || section == "jwt"
		for _, w := range want {
			known = known || w == key
		}
		if !known {
			t.Errorf("%s is not in the example", key)
		}
	}
	if len(got) < len(want) {
		t.Errorf("keys beside the example: %v, want all of %v", got, want)
	}
}

func collectUnnamed(c *Config, typ reflect.Type, path string, into *[]string) {
	for _, f := range fieldsOf(typ) {
		key := under(path, f.key)
		if sub, suffix := subsection(typ.Field(f.index).Type); sub != nil && suffix == "" && isSection(typ.Field(f.index).Type) {
			collectUnnamed(c, sub, key, into)
		} else if !c.origin.named(key) {
			*into = append(*into, key)
		}
	}
}

// Nothing of the example is refused. What runs in another way than written is named by its keys.
func TestExampleIsServedWithWarnings(t *testing.T) {
	t.Parallel()
	c, err := Load("../example.yaml", testOptions())
	if err != nil {
		t.Fatal(err)
	}
	if refused := Refusals(c); len(refused) > 0 {
		t.Errorf("refused: %v", refused)
	}
	checkNotes(t, "testdata/example.warnings", Warnings(c))
}

// checkNotes compares with a file, which -update writes.
func checkNotes(t *testing.T, file string, got Problems) {
	t.Helper()
	text := got.Error() + "\n"
	if *update {
		write(t, file, text)
	}
	want, err := os.ReadFile(file)
	if err != nil || string(want) != text {
		t.Errorf("%s: error %v, got\n%swant\n%s", file, err, text, want)
	}
}
