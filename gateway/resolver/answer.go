package resolver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/stockgate/stockgate/gateway/admission"
)

// result is what a question came to, as metrics and logs name it.
type result string

// The results. The first four are answers.
const (
	resultOpen      result = "open"
	resultPaid      result = "paid"
	resultCancelled result = "cancelled"
	resultNoOrder   result = "no_order"

	resultUnreachable result = "unreachable" // no connection, or it broke
	resultTimeout     result = "time_out"
	resultStatus      result = "status"  // another status than 200 and 404
	resultContent     result = "content" // 200, but not what it must say

	// Nothing was asked.
	resultBusy       result = "busy"        // all places are taken
	resultResting    result = "resting"     // too many failures in a row
	resultDistrusted result = "distrusted"  // it answers what it cannot know
	resultUntrusted  result = "not_trusted" // it was not reached to find out whether it can be believed
	resultGivenUp    result = "given_up"    // the caller's time was over, or the process ends
)

var results = [...]result{resultOpen, resultPaid, resultCancelled, resultNoOrder, resultUnreachable, resultTimeout, resultStatus,
	resultContent, resultBusy, resultResting, resultDistrusted, resultUntrusted, resultGivenUp}

// answer is what came of a question.
type answer struct {
	result result
	detail string // why there is no answer, for people
}

// state is the order's, if there was an answer.
func (a answer) state() (admission.BackendState, bool) {
	switch a.result {
	case resultOpen:
		return admission.Open, true
	case resultPaid:
		return admission.Paid, true
	case resultCancelled:
		return admission.Cancelled, true
	case resultNoOrder:
		return admission.NoOrder, true
	}
	return admission.NoOrder, false
}

// lasts reports whether the answer is as good for somebody who came while the question was already on its way.
func (a answer) lasts() bool { return a.result != resultOpen && a.result != resultNoOrder }

// asked reports whether the order service was asked at all.
func (a answer) asked() bool {
	switch a.result {
	case resultBusy, resultResting, resultDistrusted, resultUntrusted, resultGivenUp:
		return false
	}
	return true
}

// reply is what came back over the wire.
type reply struct {
	status int // 0: none
	body   []byte
	whole  bool // the body was read to its end
	err    error
}

// answer reads a reply. Only 404 and a 200 that says exactly one of the states count.
func (r reply) answer() answer {
	switch {
	case r.status == 0 && errors.Is(r.err, context.DeadlineExceeded):
		return answer{resultTimeout, "it gave no reply in time"}
	case r.status == 0:
		return answer{resultUnreachable, r.err.Error()}
	case r.status == http.StatusNotFound:
		return answer{result: resultNoOrder}
	case r.status != http.StatusOK:
		return answer{resultStatus, fmt.Sprintf("status %d", r.status)}
	case r.err != nil:
		return answer{resultUnreachable, "the reply broke off: " + r.err.Error()}
	case !r.whole:
		return answer{resultContent, fmt.Sprintf("the reply has more than %d bytes", bodyBytesMax)}
	}
	return stateAnswer(r.body)
}

func stateAnswer(body []byte) answer {
	state, err := readState(body)
	if err != nil {
		return answer{resultContent, err.Error()}
	}
	switch r := result(state); r {
	case resultOpen, resultPaid, resultCancelled:
		return answer{result: r}
	}
	return answer{resultContent, fmt.Sprintf("state is %.40q, must be open, paid or cancelled", state)}
}

// down reports whether the reply says that the order service is out of order, rather than that it minds the question.
func (r reply) down() bool {
	switch r.status {
	case 0, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// readState takes the member "state" from one JSON object. Names are compared byte for byte, and a member that comes twice says
// nothing: encoding/json alone would be laxer in both.
func readState(body []byte) (string, error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return "", errors.New("the reply is no JSON object")
	}
	state, seen := "", false
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return "", fmt.Errorf("the reply is broken JSON: %w", err)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return "", fmt.Errorf("the reply is broken JSON: %w", err)
		}
		if name != "state" {
			continue
		}
		if seen || json.Unmarshal(value, &state) != nil {
			return "", errors.New(`"state" must be there once, as a string`)
		}
		seen = true
	}
	if !seen || !json.Valid(body) { // Valid: nothing comes after the object
		return "", errors.New(`the reply is not one JSON object with "state"`)
	}
	return state, nil
}
