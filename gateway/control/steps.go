package control

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/stockgate/stockgate/gateway/control/api"
)

// steps tells a caller how far a long call is, as lines of JSON. A nil *steps tells nobody.
type steps struct {
	w       http.ResponseWriter
	started bool // a line went out, so the status is 200 for good
}

type stepsKey struct{}

// withSteps prepares r for steps if its caller asks for them.
func withSteps(w http.ResponseWriter, r *http.Request) (*http.Request, *steps) {
	if !accepts(r, api.ProgressType) {
		return r, nil
	}
	st := &steps{w: w}
	return r.WithContext(context.WithValue(r.Context(), stepsKey{}, st)), st
}

func stepsOf(ctx context.Context) *steps {
	st, _ := ctx.Value(stepsKey{}).(*steps)
	return st
}

// accepts reports whether the caller names a media type. That it may have said q=0 of it is not looked at.
func accepts(r *http.Request, mediaType string) bool {
	for _, value := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(value, ",") {
			name, _, _ := strings.Cut(part, ";")
			if strings.EqualFold(strings.TrimSpace(name), mediaType) {
				return true
			}
		}
	}
	return false
}

// tell says that so many of all are through a phase.
func (st *steps) tell(phase string, done, of int) {
	if st != nil {
		st.line(api.Progress{Phase: phase, Done: done, Of: of})
	}
}

func (st *steps) line(p api.Progress) {
	if !st.started {
		st.started = true
		st.w.Header().Set("Content-Type", api.ProgressType)
		st.w.Header().Set("X-Accel-Buffering", "no") // a proxy in between would keep the lines to itself until the end
	}
	text, err := json.Marshal(p)
	if err != nil { // the types of package api always marshal
		return
	}
	_, _ = st.w.Write(append(text, '\n')) // the caller has gone; nothing is left to tell
	_ = http.NewResponseController(st.w).Flush()
}

// end says how the call ended. It reports whether it could: before the first line an answer has a status of its own.
func (st *steps) end(v any, problem *api.Problem) bool {
	if st == nil || !st.started {
		return false
	}
	last := api.Progress{Problem: problem}
	switch v := v.(type) {
	case api.Imported:
		last.Imported = &v
	case api.ImportedReservations:
		last.ImportedReservations = &v
	}
	st.line(last)
	return true
}
