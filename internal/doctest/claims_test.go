package doctest

import (
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stockgate/stockgate/stock"
)

var (
	testName    = regexp.MustCompile(`^(Test[A-Z][A-Za-z0-9_]*)(?:/(\S+))?$`)
	functionRef = regexp.MustCompile(`^([a-z][a-z0-9_/]*\.go):([A-Za-z][A-Za-z0-9_]*)$`)
	fileRef     = regexp.MustCompile(`\b(?:bench|config|fallback|filters|gateway|internal|ledger|luascripts|stock)/[a-z0-9_/]+\.(?:go|lua|sql|md)\b`)
)

// A test that a page names exists, and so does a subtest in the form Test/subtest.
func TestNamedTestsExist(t *testing.T) {
	t.Parallel()
	tests := code(t).tests()
	named := map[string]int{}
	for _, p := range pages(t) {
		for _, word := range p.inlineCode() {
			m := testName.FindStringSubmatch(word)
			if m == nil || word == "TestMain" {
				continue
			}
			named[p.name]++
			file := tests[m[1]]
			if file == "" || m[2] != "" && !code(t).names(path.Dir(file), m[2]) {
				t.Errorf("%s names %s, there is no such test", p.name, word)
			}
		}
	}
	for _, name := range []string{"docs/failure-modes.md", "docs/architecture.md", "docs/traffic.md"} {
		if named[name] < 20 {
			t.Errorf("%s names only %d tests: is the pattern still right?", name, named[name])
		}
	}
}

// Files, and functions in the form file:function, exist.
func TestNamedCodeExists(t *testing.T) {
	t.Parallel()
	src := code(t)
	functions := 0
	for _, p := range pages(t) {
		for _, word := range p.inlineCode() {
			m := functionRef.FindStringSubmatch(word)
			if m == nil {
				continue
			}
			functions++
			if !slices.Contains(src.functions(m[1]), m[2]) {
				t.Errorf("%s names %s, there is no such function", p.name, word)
			}
		}
		for _, name := range fileRef.FindAllString(p.prose(), -1) {
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(name))); err != nil {
				t.Errorf("%s names %s, there is no such file", p.name, name)
			}
		}
	}
	if functions < 30 {
		t.Errorf("found only %d functions: is the pattern still right?", functions)
	}
}

// Every checker of the invariants stands in docs/architecture.md, under its invariant, and every checker named there is one.
func TestEveryCheckerIsDocumentedUnderItsInvariant(t *testing.T) {
	t.Parallel()
	sections := regexp.MustCompile(`\n### I\d+ `).Split(readPage(t, "docs/architecture.md").text, -1)[1:]
	if len(sections) != stock.InvariantsCount {
		t.Fatalf("docs/architecture.md has %d invariants, want %d", len(sections), stock.InvariantsCount)
	}
	listed := map[string]bool{}
	for _, c := range stock.Checkers() {
		name := path.Ext(runtime.FuncForPC(reflect.ValueOf(c.Check).Pointer()).Name())[1:]
		listed[name] = true
		if !strings.Contains(sections[c.Invariant-1], "`"+name+"`") {
			t.Errorf("I%d: %s is not named in its section of docs/architecture.md", c.Invariant, name)
		}
	}
	for _, word := range readPage(t, "docs/architecture.md").inlineCode() {
		if strings.HasPrefix(word, "CheckI") && !listed[word] {
			t.Errorf("docs/architecture.md names %s, which is no checker", word)
		}
	}
}

// The make targets that pages name exist, and the README's two commands are the ones that it promises.
func TestCommandsExist(t *testing.T) {
	t.Parallel()
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z-]+):`).FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets[m[1]] = true
	}
	for _, p := range pages(t) {
		for _, word := range p.inlineCode() {
			line, isMake := strings.CutPrefix(word, "make ")
			if target, _, _ := strings.Cut(line, " "); isMake && !targets[target] { // variables may follow
				t.Errorf("%s names make %s, there is no such target", p.name, target)
			}
		}
	}
	shell := readPage(t, "README.md").blocks("sh")
	if first := strings.TrimSpace(shell[0].text); first != "go run . serve --demo" {
		t.Errorf("the README's first command is %q", first)
	}
	if !slices.ContainsFunc(shell, func(b block) bool { return strings.TrimSpace(b.text) == "make test" }) {
		t.Error("the README does not show make test")
	}
}
