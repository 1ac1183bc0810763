package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// diffFiles runs validate --diff on a file and an edit of it.
func diffFiles(t *testing.T, edit *strings.Replacer, flags ...string) (string, error) {
	t.Helper()
	old, err := os.ReadFile("examples/minimal.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	was, is := filepath.Join(dir, "old.yaml"), filepath.Join(dir, "new.yaml")
	for name, text := range map[string]string{was: string(old), is: edit.Replace(string(old))} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := newRootCommand()
	var out strings.Builder
	cmd.SetOut(&out)
	cmd.SetArgs(append([]string{"validate", "--config", is, "--diff", was}, flags...))
	err = cmd.Execute()
	return strings.ReplaceAll(out.String(), dir, ""), err
}

func TestValidateDiff(t *testing.T) {
	t.Parallel()
	f := func(status int, edit *strings.Replacer, want ...string) {
		t.Helper()
		out, err := diffFiles(t, edit)
		got := 0
		var coded exitStatus
		if errors.As(err, &coded) {
			got = coded.ExitStatus()
		} else if err != nil {
			got = 1
		}
		if got != status {
			t.Errorf("status %d (%v), want %d", got, err, status)
		}
		for _, line := range want {
			if !slices.Contains(strings.Split(out, "\n"), line) {
				t.Errorf("no line %q in\n%s", line, out)
			}
		}
	}
	f(0, strings.NewReplacer(), "0 changes, 0 of them by a restart only")
	f(0, strings.NewReplacer("\nupstreams:", "\nlimits: [{name: all, key: global, rate: 5/s, burst: 5}]\ndefaults: {max_qty: 3}\nupstreams:"),
		"limits[all].rate: added, 5/s (reload)", "defaults.max_qty: 100 -> 3 (reload, all replicas)", "9 changes, 0 of them by a restart only")
	f(2, strings.NewReplacer("\nupstreams:", "\nforward_within: 3s\nupstreams:"), "forward_within: 2s -> 3s (restart)",
		"1 change, 1 of them by a restart only")
	f(1, strings.NewReplacer("\nupstreams:", "\nforward_within: 3\nupstreams:"))
}

func TestValidateDiff_JSON(t *testing.T) {
	t.Parallel()
	out, err := diffFiles(t, strings.NewReplacer("\nupstreams:", "\nlimits: [{name: all, key: global, rate: 5/s, burst: 5}]\nupstreams:"), "--json")
	var r struct {
		Changes []struct{ Key, Old, New, Effect string } `json:"changes"`
	}
	if err != nil || json.Unmarshal([]byte(out), &r) != nil || len(r.Changes) != 8 || r.Changes[0].Effect != "live" {
		t.Errorf("%v: %s", err, out)
	}
}
