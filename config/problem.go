package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Problem is one thing that is wrong with a configuration, or, from Warnings and Refusals, one thing to know about it.
type Problem struct {
	File  string `json:"file,omitempty"` // "" if the Config was not read from a file
	Line  int    `json:"line,omitempty"` // from 1; 0 if unknown
	Key   string `json:"key,omitempty"`  // path of the key, e.g. limits[per-ip].burst; "" for the file as a whole
	Rule  string `json:"rule"`           // what must hold, e.g. "must be 1 to 100"
	Value string `json:"value,omitempty"`
}

// Message is the rule with the value that breaks it.
func (p Problem) Message() string {
	if p.Value == "" {
		return p.Rule
	}
	return p.Rule + ", is " + p.Value
}

// String gives "file:line: key: message", leaving out what is not known.
func (p Problem) String() string {
	return p.Where() + p.Unplaced()
}

// Unplaced gives "key: message", String without the place in the file.
func (p Problem) Unplaced() string {
	if p.Key == "" {
		return p.Message()
	}
	return p.Key + ": " + p.Message()
}

// Where gives "file:line: ", the part of String before the key; "" if the file is not known.
func (p Problem) Where() string {
	switch {
	case p.File == "":
		return ""
	case p.Line == 0:
		return p.File + ": "
	}
	return fmt.Sprintf("%s:%d: ", p.File, p.Line)
}

// Problems is the error of Load and Parse: everything that is wrong, in the order of the file.
type Problems []Problem

// Error has one line per problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// sorted orders by line, then key, and drops repeats.
func (ps Problems) sorted() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Key, b.Key))
	})
	return slices.Compact(ps)
}

// shownBytesMax is how much of a value a Problem shows: enough to find it, too little to flood a log.
const shownBytesMax = 64

// quote makes a text fit to be shown in a Problem.
func quote(s string) string {
	if len(s) > shownBytesMax {
		s = strings.ToValidUTF8(s[:shownBytesMax], "") + "…"
	}
	return strconv.Quote(s)
}
