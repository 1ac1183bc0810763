// Package archtest holds the architecture as tests: which package may import what. See docs/architecture.md for the reasons.
package archtest
