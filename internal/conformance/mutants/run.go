package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/stockgate/stockgate/internal/conformance"
)

// runner runs tests with and without mutations.
type runner struct {
	dir     string // for overlays
	timeout time.Duration
	verbose bool

	mu       sync.Mutex
	baseline map[conformance.Test]func() error // each test runs once as the code is, whoever names it
}

// check reports why a rule is not held, nil if it is.
func (r *runner) check(ctx context.Context, rule conformance.Rule) error {
	overlay, err := r.overlay(rule)
	if err != nil {
		return err
	}
	var problems []error
	for _, test := range rule.Tests {
		if err := r.passes(ctx, test); err != nil {
			problems = append(problems, err)
			continue
		}
		if err := r.fails(ctx, test, overlay); err != nil {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// overlay writes the mutant of the rule's file, and the overlay that puts it in the file's place.
func (r *runner) overlay(rule conformance.Rule) (string, error) {
	file, err := filepath.Abs(rule.Mutation.File)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	mutant, ok := rule.Mutation.Apply(string(text))
	if !ok {
		return "", fmt.Errorf("its lines do not stand exactly once in %s", rule.Mutation.File)
	}
	put := filepath.Join(r.dir, rule.Name+filepath.Ext(file))
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {file: put}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(r.dir, rule.Name+".json")
	return overlay, errors.Join(os.WriteFile(put, []byte(mutant), 0o600), os.WriteFile(overlay, replace, 0o600))
}

// passes runs the test as the code is.
func (r *runner) passes(ctx context.Context, test conformance.Test) error {
	r.mu.Lock()
	if r.baseline == nil {
		r.baseline = map[conformance.Test]func() error{}
	}
	once := r.baseline[test]
	if once == nil {
		once = sync.OnceValue(func() error {
			got, err := r.run(ctx, test, "")
			switch {
			case err != nil:
				return err
			case got.broken:
				return fmt.Errorf("%s does not compile as the code is", test.Package)
			case got.ran == 0:
				return fmt.Errorf("%s has no test %s", test.Package, test.Run)
			case got.failed > 0 || !got.ok:
				return fmt.Errorf("%s %s fails as the code is", test.Package, test.Run)
			}
			return nil
		})
		r.baseline[test] = once
	}
	r.mu.Unlock()
	return once()
}

// fails runs the test with the mutation.
func (r *runner) fails(ctx context.Context, test conformance.Test, overlay string) error {
	got, err := r.run(ctx, test, overlay)
	switch {
	case err != nil:
		return err
	case got.broken:
		return errors.New("the mutant does not compile")
	case got.failed == 0:
		return fmt.Errorf("the mutant survives %s %s", test.Package, test.Run)
	}
	return nil
}

// result is what go test said.
type result struct {
	ran, failed int // tests
	broken      bool
	ok          bool // the command succeeded
	failures    []string
}

// find names the tests of a package that fail under the rule's mutation.
func (r *runner) find(ctx context.Context, rule conformance.Rule, folder string) ([]string, error) {
	overlay, err := r.overlay(rule)
	if err != nil {
		return nil, err
	}
	got, err := r.run(ctx, conformance.Test{Package: folder, Run: ".*"}, overlay)
	if err == nil && got.broken {
		err = errors.New("the mutant does not compile")
	}
	return got.failures, err
}

// event is a line of go test -json.
type event struct{ Action, Test, Output string }

// run runs one test. The overlay is in GOFLAGS, so that a binary that the test builds is a mutant too.
func (r *runner) run(ctx context.Context, test conformance.Test, overlay string) (result, error) {
	args := []string{"test", "-json", "-count=1", "-timeout", r.timeout.String(), "-run", anchored(test.Run), "./" + test.Package}
	if usesRapid(test.Package) {
		args = append(args, "-rapid.nofailfile") // a failure that is kept would be run again, mutated or not
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	if overlay != "" {
		cmd.Env = append(os.Environ(), strings.TrimSpace("GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay))
	}
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return result{}, err
	}
	got := result{ok: err == nil}
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		got.add(lines.Bytes(), r.verbose)
	}
	return got, lines.Err()
}

func (g *result) add(line []byte, verbose bool) {
	var e event
	if json.Unmarshal(line, &e) != nil {
		return
	}
	if verbose {
		fmt.Fprint(os.Stderr, e.Output)
	}
	switch {
	case e.Action == "build-fail":
		g.broken = true
	case e.Test == "":
	case e.Action == "run":
		g.ran++
	case e.Action == "fail":
		g.failed++
		g.failures = append(g.failures, e.Test)
	}
}

// anchored makes each part of a pattern match whole names only: TestA must not be held by TestAB.
func anchored(run string) string {
	parts := strings.Split(run, "/")
	for i, p := range parts {
		parts[i] = "^(" + p + ")$"
	}
	return strings.Join(parts, "/")
}

// usesRapid reports whether tests of the folder draw their cases, and so keep those that fail in a file beside them.
func usesRapid(folder string) bool {
	files, _ := filepath.Glob(filepath.Join(folder, "*_test.go")) // the pattern is well formed
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && bytes.Contains(text, []byte(`"pgregory.net/rapid"`)) {
			return true
		}
	}
	return false
}
