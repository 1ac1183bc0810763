package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/stock"
)

// statusOf gives the codes of this API their HTTP status. They are those of the public side.
var statusOf = map[stock.Code]int{
	stock.CodeBadRequest:         http.StatusBadRequest,
	stock.CodeUnauthorized:       http.StatusUnauthorized,
	stock.CodeNoRoute:            http.StatusNotFound,
	stock.CodeUnknownSKU:         http.StatusNotFound,
	stock.CodeUnknownReservation: http.StatusNotFound,
	stock.CodeMethodNotAllowed:   http.StatusMethodNotAllowed,
	stock.CodeSoldOut:            http.StatusConflict,
	stock.CodeReleased:           http.StatusConflict,
	stock.CodeKeyReused:          http.StatusUnprocessableEntity,
	stock.CodeBodyTooLarge:       http.StatusRequestEntityTooLarge,
	stock.CodeUnsupportedEncoded: http.StatusUnsupportedMediaType,
	stock.CodeQueueFull:          http.StatusServiceUnavailable,
	stock.CodeQueueTimeout:       http.StatusServiceUnavailable,
	stock.CodeUnavailable:        http.StatusServiceUnavailable,
	stock.CodePaused:             http.StatusServiceUnavailable,
	stock.CodeCorruptStock:       http.StatusServiceUnavailable,
	stock.CodeOutcomeUnknown:     http.StatusGatewayTimeout,
	stock.CodeInternal:           http.StatusInternalServerError,
}

// refuse makes a problem. Codes without a status of their own are faults of this server.
func refuse(code stock.Code, format string, args ...any) *api.Problem {
	status, known := statusOf[code]
	if !known {
		status = http.StatusInternalServerError
	}
	return &api.Problem{
		Type:   "about:blank",
		Title:  http.StatusText(status),
		Status: status,
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
	case errors.Is(err, stock.ErrLate):
		return refuse(stock.CodeUnavailable, "the database did not get to it in time; nothing was changed")
	case errors.Is(err, stock.ErrNotExecuted):
		return refuse(stock.CodeUnavailable, "nothing was changed: %v", err)
	default:
		return refuse(stock.CodeOutcomeUnknown, "it may or may not have been done: make the same call again (%v)", err)
	}
}

// ofRead translates what a read returned: whatever went wrong, nothing was changed.
func ofRead(err error) *api.Problem {
	return refuse(stock.CodeUnavailable, "the database cannot be read: %v", err)
}

// writeProblem answers a refusal. What may be tried again says when, spread so that callers do not come back in step.
func writeProblem(w http.ResponseWriter, p *api.Problem) {
	if p.Status == http.StatusServiceUnavailable || p.Status == http.StatusGatewayTimeout {
		w.Header().Set("Retry-After", strconv.Itoa(1+rand.IntN(3)))
	}
	if p.Status == http.StatusUnauthorized {
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
