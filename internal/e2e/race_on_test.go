//go:build race

package e2e

// raceFlags build the product as this test is built.
var raceFlags = []string{"-race"}
