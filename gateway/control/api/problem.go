package api

import (
	"fmt"
	"strings"
	"time"
)

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
	// BadLines are the wrong lines of an import, the first 1000 of BadLinesTotal, or those of a configuration file.
	BadLines      []BadLine `json:"bad_lines,omitempty"`
	BadLinesTotal int       `json:"bad_lines_total,omitempty"`
	// Applied is how many reservations an import that broke off had written.
	Applied int `json:"applied,omitempty"`
	// Reservation and State tell of the reservation that a call was about, as it stands.
	Reservation string `json:"reservation,omitempty"`
	State       string `json:"state,omitempty"`
	// PaidBefore: that reservation was confirmed before it was released, so its order was paid once and given back since. Nobody is
	// owed anything because of this refusal.
	PaidBefore bool `json:"paid_before,omitempty"`
	// TooMuch is the line that a release wanted more of than is left.
	TooMuch *TooMuch `json:"too_much,omitempty"`
	// SKU is the line that decided, of several.
	SKU string `json:"sku,omitempty"`
	// Starts is when the sale begins: NOT_STARTED.
	Starts time.Time `json:"starts,omitzero"`
	// RetryAfter becomes the header Retry-After; 0: the code's own.
	RetryAfter time.Duration `json:"-"`
}

// TooMuch is a line of a release that cannot be carried out.
type TooMuch struct {
	SKU    string `json:"sku"`
	Wanted int64  `json:"wanted"` // units that should go back
	Left   int64  `json:"left"`   // units of the line that have not gone back yet; 0 also if there is no such line
}

// BadLine is a line of an import that cannot be applied, or of a configuration file.
type BadLine struct {
	Line    int    `json:"line"` // from 1; 0: of no line
	Problem string `json:"problem"`
}

// Error is one line with the code, the detail and the bound that was hit.
func (p *Problem) Error() string {
	text := p.Code
	if p.Detail != "" {
		text += ": " + p.Detail
	}
	if p.Limit != "" && !strings.Contains(p.Detail, p.Limit) {
		text += fmt.Sprintf(" (limit %s = %s)", p.Limit, p.Value)
	}
	return text
}
