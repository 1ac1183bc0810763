package main

import (
	"fmt"
	"io"

	"github.com/stockgate/stockgate/stock"
)

// verdictReport is what became of the invariants.
type verdictReport struct {
	AtRest     bool        `json:"at_rest"` // the gateway came to rest before it was judged
	Holds      []clause    `json:"holds"`
	Violations []violation `json:"violations"`
	Unchecked  []clause    `json:"unchecked"`
	Evidence   []string    `json:"evidence"` // what the verdict relies on
	Failures   []string    `json:"failures"` // evidence that was asked for and could not be had
	Notes      []string    `json:"notes"`
}

type clause struct {
	Invariant string   `json:"invariant"` // I1 … I10
	Clause    string   `json:"clause"`
	Missing   []string `json:"missing,omitempty"` // parts of the evidence
}

type violation struct {
	Invariant   string `json:"invariant"`
	SKU         string `json:"sku,omitempty"`
	Reservation string `json:"reservation,omitempty"`
	Detail      string `json:"detail"`
	text        string
}

// violationsShown bounds what is printed; the JSON has them all.
const violationsShown = 20

// decide runs every checker that the evidence allows. Without rest, what holds only at rest is judged all the same: the gateway had
// its time, and what has not healed by then is a finding.
func (v *verdictReport) decide(s *stock.Snapshot) {
	for _, found := range stock.Check(s, true) {
		one := violation{Invariant: invariantTag(found.Invariant), SKU: found.SKU, Detail: found.Detail, text: found.String()}
		if !found.ID.IsZero() {
			one.Reservation = found.ID.String()
		}
		v.Violations = append(v.Violations, one)
	}
	for _, c := range stock.Checkers() {
		one := clause{Invariant: invariantTag(c.Invariant), Clause: c.Clause}
		switch {
		case !s.Parts.Has(c.Needs):
			one.Missing = (c.Needs &^ s.Parts).Names()
			v.Unchecked = append(v.Unchecked, one)
		case len(c.Check(s)) == 0:
			v.Holds = append(v.Holds, one)
		}
	}
}

func invariantTag(n int) string { return fmt.Sprintf("I%d", n) }

func (v *verdictReport) print(w io.Writer) {
	switch {
	case len(v.Violations) > 0:
		fmt.Fprintf(w, "INVARIANTS BROKEN: %d findings\n", len(v.Violations))
	case len(v.Holds) > 0:
		fmt.Fprintf(w, "invariants hold: %d clauses checked, %d not\n", len(v.Holds), len(v.Unchecked))
	default:
		fmt.Fprintln(w, "invariants NOT CHECKED: no evidence but the answers")
	}
	for i, one := range v.Violations {
		if i == violationsShown {
			fmt.Fprintf(w, "  … and %d more\n", len(v.Violations)-i)
			break
		}
		fmt.Fprintln(w, "  ✗", one.text)
	}
	printClauses(w, "  ✓", v.Holds)
	printClauses(w, "  ? not checked:", v.Unchecked)
	for _, e := range v.Evidence {
		fmt.Fprintln(w, "evidence:", e)
	}
	for _, n := range v.Notes {
		fmt.Fprintln(w, "note:", n)
	}
	for _, f := range v.Failures {
		fmt.Fprintln(w, "! evidence missing:", f)
	}
}

func printClauses(w io.Writer, mark string, list []clause) {
	for _, c := range list {
		fmt.Fprintf(w, "%s %s %s", mark, c.Invariant, c.Clause)
		for i, m := range c.Missing {
			sep := ", "
			if i == 0 {
				sep = " (needs "
			}
			fmt.Fprint(w, sep, m)
		}
		if len(c.Missing) > 0 {
			fmt.Fprint(w, ")")
		}
		fmt.Fprintln(w)
	}
}
