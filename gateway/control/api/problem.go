package api

import "fmt"

// ProblemType is the media type of every refusal (RFC 9457).
const ProblemType = "application/problem+json"

// Problem is a refusal. Code is stable; Detail is for people and may change.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail,omitempty"`
	// Limit and Value name the configured bound that was hit.
	Limit string `json:"limit,omitempty"`
	Value string `json:"value,omitempty"`
	// Field names the part of the request that is wrong.
	Field string `json:"field,omitempty"`
	// Op is the op id of a change that may have been made or may be tried again: the same call with it is done once.
	Op string `json:"op,omitempty"`
	// BadLines are the wrong lines of an import, the first 100 of BadLinesTotal.
	BadLines      []BadLine `json:"bad_lines,omitempty"`
	BadLinesTotal int       `json:"bad_lines_total,omitempty"`
	// Applied is how many SKUs an import that broke off had set.
	Applied int `json:"applied,omitempty"`
}

// BadLine is a line of an import that cannot be applied.
type BadLine struct {
	Line    int    `json:"line"` // from 1
	Problem string `json:"problem"`
}

func (p *Problem) Error() string {
	if p.Detail == "" {
		return p.Code
	}
	return fmt.Sprintf("%s: %s", p.Code, p.Detail)
}
