// Package doctest holds the documentation to what the repository has: named tests, checkers, files and functions exist, links resolve,
// metrics, codes and routes are those of the code, worked examples give what they say, and the glossary's words are used. A page that
// promises a test which nobody wrote is worse than one that promises nothing.
package doctest
