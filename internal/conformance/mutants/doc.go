// Command mutants checks what the table of package conformance claims: every named test passes as the code is, and fails once the mutation
// of its rule stands. It writes nothing into the tree: the go command gets an overlay in which one file is another.
//
//	go run ./internal/conformance/mutants [-only part-of-a-name,another] [-p 2] [-timeout 5m] [-v]
//	go run ./internal/conformance/mutants -only a-name -find ledger
//
// It is run from the root of the module. It prints a line a rule and exits with 1 if a mutant survived, a test did not pass as the code is,
// or a mutant does not compile. A test that hangs under a mutation has failed. With -find it
// prints which tests of a folder notice a mutation instead.
package main
