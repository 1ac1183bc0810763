package conformance

// Rule is one sentence of the design and what holds it.
type Rule struct {
	// Name says the rule in a few words, with dashes; it is unique and what the runner's -only takes.
	Name string
	// Section of DESIGN.md, 5 to 9, and Sentence, the clause that matters in its own words; … stands for what is left out.
	Section  int
	Sentence string
	// Part says which part of the sentence it is, or where it is held, if the sentence has several entries.
	Part string
	// Tests must pass as the code is, and each must fail once Mutation stands.
	Tests    []Test
	Mutation Mutation
}

// Test names tests of one package.
type Test struct {
	Package string // its folder below the root of the module; "." is the root
	Run     string // as for go test -run: the name of a test, and of subtests after slashes
}

// Mutation is a change of one file that takes the rule away.
type Mutation struct {
	File string // below the root of the module
	Was  string // lines, or a part of one, that stand exactly once in the file
	Is   string // what they would be without the rule
}

// Rules are all, by section.
func Rules() []Rule {
	var all []Rule
	for _, section := range [][]Rule{reservation(), redis(), database(), breaker(), outcome()} {
		all = append(all, section...)
	}
	return all
}

// Apply gives the text of the mutation's file with the mutation in it, or false if what it changes does not stand there exactly once.
func (m Mutation) Apply(text string) (mutant string, ok bool) {
	before, after, found := cut(text, m.Was)
	if !found {
		return "", false
	}
	return before + m.Is + after, true
}

// in names tests of one package.
func in(folder string, runs ...string) []Test {
	tests := make([]Test, len(runs))
	for i, run := range runs {
		tests[i] = Test{Package: folder, Run: run}
	}
	return tests
}
