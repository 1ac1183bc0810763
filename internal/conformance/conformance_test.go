package conformance

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// TestEveryRuleIsHeld: the table is about the code as it is.
func TestEveryRuleIsHeld(t *testing.T) {
	for _, r := range Rules() {
		for _, problem := range problems(t, r) {
			t.Errorf("%s: %s", r.Name, problem)
		}
	}
	t.Logf("%d rules", len(Rules()))
}

// TestNoTwoRulesAreAlike: an entry that is there twice holds one sentence only.
func TestNoTwoRulesAreAlike(t *testing.T) {
	names, mutations := map[string]bool{}, map[Mutation]string{}
	sentences := map[string]string{}
	for _, r := range Rules() {
		if names[r.Name] {
			t.Errorf("two rules are called %s", r.Name)
		}
		names[r.Name] = true
		if other, again := mutations[r.Mutation]; again {
			t.Errorf("%s and %s are the same mutation", r.Name, other)
		}
		mutations[r.Mutation] = r.Name
		key := r.Sentence + "\x00" + r.Part + "\x00" + r.Mutation.File + "\x00" + r.Mutation.Was
		if other, again := sentences[key]; again {
			t.Errorf("%s and %s are the same sentence at the same place", r.Name, other)
		}
		sentences[key] = r.Name
	}
}

// TestTheTableIsChecked: a bad entry is found.
func TestTheTableIsChecked(t *testing.T) {
	good := Rule{Name: "a-rule", Section: 5, Sentence: "It is never so.",
		Tests:    []Test{{"internal/conformance", "TestTheTableIsChecked"}},
		Mutation: Mutation{File: "internal/conformance/cut.go", Was: "!= 1", Is: "== 0"}}
	if got := problems(t, good); len(got) > 0 {
		t.Fatalf("a good entry has problems: %v", got)
	}
	f := func(what, want string, change func(*Rule)) {
		t.Helper()
		bad := good
		bad.Tests = append([]Test(nil), good.Tests...)
		change(&bad)
		if got := strings.Join(problems(t, bad), "\n"); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	f("name", "name", func(r *Rule) { r.Name = "A rule" })
	f("section", "section", func(r *Rule) { r.Section = 10 })
	f("sentence", "says neither", func(r *Rule) { r.Sentence = "It is so." })
	f("file", "no such file", func(r *Rule) { r.Mutation.File = "internal/conformance/none.go" })
	f("absent lines", "exactly once", func(r *Rule) { r.Mutation.Was = "this line is not there" })
	f("lines that stand twice", "exactly once", func(r *Rule) { r.Mutation.Was = "string" })
	f("no change", "changes nothing", func(r *Rule) { r.Mutation.Is = r.Mutation.Was })
	f("no tests", "no tests", func(r *Rule) { r.Tests = nil })
	f("no such test", "TestOfNothing", func(r *Rule) { r.Tests[0].Run = "TestOfNothing" })
	f("no such package", "no tests in", func(r *Rule) { r.Tests[0].Package = "internal/none" })
	f("a sentence alone: its tests", "no tests", func(r *Rule) { r.Tests, r.Mutation = nil, Mutation{} })
	f("a sentence alone: its mutation", "no mutation", func(r *Rule) { r.Tests, r.Mutation = nil, Mutation{} })
}

var (
	nameForm = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	keywords = regexp.MustCompile(`(?i)\b(only|never|before|first)\b`)
)

func problems(t *testing.T, r Rule) (found []string) {
	t.Helper()
	add := func(problem string) { found = append(found, problem) }
	if !nameForm.MatchString(r.Name) {
		add("the name is not of lower-case words and dashes")
	}
	if r.Section < 5 || r.Section > 9 {
		add("the section is not one of 5 to 9")
	}
	if !keywords.MatchString(r.Sentence) {
		add("the sentence says neither only, never, before nor first")
	}
	if problem := ofMutation(r.Mutation); problem != "" {
		add(problem)
	}
	if len(r.Tests) == 0 {
		add("no tests are named")
	}
	for _, test := range r.Tests {
		if problem := ofTest(t, test); problem != "" {
			add(problem)
		}
	}
	return found
}

func ofMutation(m Mutation) string {
	if m == (Mutation{}) {
		return "there is no mutation"
	}
	text, err := os.ReadFile(filepath.Join(root, m.File))
	if err != nil {
		return err.Error()
	}
	if m.Was == m.Is {
		return "the mutation changes nothing"
	}
	if _, ok := m.Apply(string(text)); !ok {
		return "these lines do not stand exactly once in " + m.File + ":\n" + m.Was
	}
	return ""
}

// ofTest looks for the test function; subtests are found or not when the runner runs them.
func ofTest(t *testing.T, test Test) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, test.Package, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		return "there are no tests in " + test.Package
	}
	name, _, _ := strings.Cut(test.Run, "/")
	declared := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(name) + `\(`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if declared.Match(text) {
			return ""
		}
	}
	return test.Package + " has no " + name
}
