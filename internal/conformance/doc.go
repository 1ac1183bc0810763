// Package conformance holds the sentences of the design, one by one.
//
// # What it is for
//
// DESIGN.md says in its sections 5 to 9 what must only, never, before or first be done. Those sentences were found by looking for
// counterexamples: each is there because without it a unit is lost or sold twice. A test suite can be green and hold none of them, because
// nobody notices a test that stopped to look. So each sentence has an entry here, and an entry says three things:
//
//   - the sentence, in the design's own words;
//   - a mutation: the lines of the code that make it true, and the same lines as somebody would write them who does not know the rule;
//   - the tests that must fail once the mutation stands.
//
// # What checks it
//
// The tests of this package check the table itself, in a moment, with every run of the tests: the lines of a mutation stand in their file
// exactly once, the tests that are named exist, and no two entries are alike. Code that moves takes its entry along, or the build is red.
//
// `make mutants` checks what the table claims: it runs the named tests once as the code is, where they must pass, and once for each
// mutation, where each of them must fail. Nothing is written into the tree: the go command is given an overlay, in which one file is
// another. It takes minutes, so it is no part of `make test`.
//
// # How to add a sentence
//
// Add a Rule to the file of its section. Take the fewest lines that stand once in the file; prefer a condition that is left out to a number
// that is changed, because it is what somebody would forget. Name tests of the package where the code is, which tell what went wrong;
// a test of the whole system only where the sentence is about the whole. Then run `go run ./internal/conformance/mutants -only <name>`.
//
// There are no entries to be filled in later: whoever builds what a sentence is about adds it, with its tests and its mutation.
package conformance
