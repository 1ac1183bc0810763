package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// problemURI begins the type URI of every problem; the code in lower case follows. It is the public side's: one page explains both.
const problemURI = "https://github.com/stockgate/stockgate/blob/main/gateway/problems.md#"

// kind is what all problems of a code have in common.
type kind struct {
	status int
	title  string
}

// kinds are the codes of this API. They mean what they mean on the public side; the titles speak of this one.
var kinds = map[stock.Code]kind{
	stock.CodeBadRequest:         {400, "Bad request"},
	stock.CodeUnauthorized:       {401, "Unauthorized"},
	stock.CodeNoRoute:            {404, "Nothing at this path"},
	stock.CodeUnknownSKU:         {404, "Unknown SKU"},
	stock.CodeUnknownReservation: {404, "Unknown reservation"},
	stock.CodeMethodNotAllowed:   {405, "Method not allowed on this path"},
	stock.CodeSoldOut:            {409, "Sold out"},
	stock.CodeReleased:           {409, "The reservation was released"},
	stock.CodePurchaseLimit:      {409, "Purchase limit of this user reached"},
	stock.CodeInFlight:           {409, "The same request is still being worked on"},
	stock.CodeNotStarted:         {403, "The sale has not started"},
	stock.CodeEnded:              {403, "The sale has ended"},
	stock.CodeKeyReused:          {422, "The id was used for something else"},
	stock.CodeNotLoaded:          {503, "The SKU is being loaded"},
	stock.CodeBodyTooLarge:       {413, "The body is too large"},
	stock.CodeUnsupportedEncoded: {415, "Encoded bodies are not read"},
	stock.CodeRateLimited:        {429, "Too many requests"},
	stock.CodeSKULimited:         {429, "Too many requests for this SKU"},
	stock.CodeQueueFull:          {503, "The queue is full"},
	stock.CodeQueueTimeout:       {503, "Waited too long"},
	stock.CodeUnavailable:        {503, "Not available now"},
	stock.CodePaused:             {503, "Sales of this SKU are paused"},
	stock.CodeCorruptStock:       {503, "The stock of this SKU is not a number that can be sold from"},
	stock.CodeOutcomeUnknown:     {504, "The outcome is unknown; make the same call again"},
	stock.CodeInternal:           {500, "Internal error"},
}

// refuse makes a problem. Codes without a status of their own are faults of this server.
func refuse(code stock.Code, format string, args ...any) *api.Problem {
	k, known := kinds[code]
	if !known {
		k = kinds[stock.CodeInternal]
	}
	return &api.Problem{
		Type:   problemURI + strings.ToLower(string(code)),
		Title:  k.title,
		Status: k.status,
		Code:   string(code),
		Detail: fmt.Sprintf(format, args...),
	}
}

// badField refuses a request because of one of its parts: its name, the value found there (shortened) and what is allowed.
func badField(field, value, allowed string) *api.Problem {
	p := refuse(stock.CodeBadRequest, "%s is %s, %s", field, value, allowed)
	p.Field = field
	return p
}

// overLimit refuses because a bound of the configuration was hit.
func overLimit(code stock.Code, limit, value string) *api.Problem {
	p := refuse(code, "limit %s = %s", limit, value)
	p.Limit, p.Value = limit, value
	return p
}

// ofChange translates what a deducter or store returned. What surely had no effect and what may have had one stay apart (I6).
func ofChange(err error) *api.Problem {
	var problem *api.Problem
	var limit *stock.LimitError
	switch {
	case errors.As(err, &problem):
		return problem
	case errors.As(err, &limit):
		return overLimit(limit.Code, limit.Limit, limit.Value)
	case ledger.BadMember(err):
		return refuse(stock.CodeBadRequest, "the database does not take this value; nothing was changed: %v", err)
	case errors.Is(err, stock.ErrLate):
		return refuse(stock.CodeUnavailable, "the database did not get to it in time; nothing was changed")
	case errors.Is(err, stock.ErrNotExecuted):
		return refuse(stock.CodeUnavailable, "nothing was changed: %v", err)
	default:
		return refuse(stock.CodeOutcomeUnknown, "it may or may not have been done: make the same call again, with the same op (%v)", err)
	}
}

// ofRead translates what a read returned: whatever went wrong, nothing was changed.
func ofRead(err error) *api.Problem {
	return refuse(stock.CodeUnavailable, "the database cannot be read: %v", err)
}

// writeProblem answers a refusal. What may be tried again says when, spread so that callers do not come back in step.
func (s *Server) writeProblem(w http.ResponseWriter, p *api.Problem) {
	if !s.cfg.OmitEnvoyHeader {
		w.Header().Set("X-Envoy-Ratelimited", "true") // a mesh would repeat what was refused at once
	}
	switch {
	case p.RetryAfter > 0:
		w.Header().Set("Retry-After", strconv.FormatInt(int64((p.RetryAfter+time.Second-1)/time.Second), 10))
	case p.Code == string(stock.CodeInFlight):
		w.Header().Set("Retry-After", "1")
	}
	switch p.Status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		if p.RetryAfter == 0 {
			w.Header().Set("Retry-After", strconv.Itoa(1+rand.IntN(3)))
		}
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer realm="stockgate"`)
	}
	write(w, p.Status, api.ProblemType, p)
}

// writeJSON answers 200.
func writeJSON(w http.ResponseWriter, v any) { write(w, http.StatusOK, "application/json", v) }

func write(w http.ResponseWriter, status int, mediaType string, v any) {
	body, err := json.Marshal(v)
	if err != nil { // the types of package api always marshal
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", mediaType)
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the caller has gone; nothing is left to tell
}

// shorten quotes a value of the request so that it fits a message.
func shorten(s string) string {
	const most = 64
	if len(s) > most {
		return fmt.Sprintf("%s… (%d bytes)", strconv.QuoteToASCII(s[:most]), len(s))
	}
	return strconv.QuoteToASCII(s)
}
