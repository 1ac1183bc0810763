package resolver

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/stock"
)

// trust is whether an upstream's answers can be believed.
type trust struct {
	now   func() time.Time
	every time.Duration // a trusted one is tried again
	again time.Duration // a distrusted one is tried again

	mu      sync.Mutex
	verdict verdict
	detail  string        // why it is distrusted
	until   time.Time     // the verdict stands; after it a probe is due
	probing chan struct{} // closed when the probe under way ends; nil: none is
}

// verdict is what the last probe has shown.
type verdict uint8

const (
	untrusted  verdict = iota // no probe was answered yet, or the last one was not
	trusted                   // it answered 404 for what it cannot know
	distrusted                // it answered something else
)

// believe returns the zero answer if the upstream's word counts, else why not. If a probe is due it waits for it.
func (u *upstream) believe(ctx context.Context) answer {
	wait, verdict := u.trust.due()
	if wait == nil {
		return verdict
	}
	if wait.mine {
		go u.probe(wait.ended)
	}
	select {
	case <-wait.ended:
	case <-ctx.Done():
		return answer{resultGivenUp, ctx.Err().Error()}
	}
	return u.trust.last()
}

// pending is a probe that is waited for.
type pending struct {
	ended chan struct{}
	mine  bool // the caller has to begin it
}

// due gives the verdict that stands, or the probe to wait for.
func (t *trust) due() (*pending, answer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.probing != nil {
		return &pending{ended: t.probing}, answer{}
	}
	if t.now().Before(t.until) {
		return nil, t.answerLocked()
	}
	t.probing = make(chan struct{})
	return &pending{ended: t.probing, mine: true}, answer{}
}

func (t *trust) last() answer {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.answerLocked()
}

func (t *trust) answerLocked() answer {
	switch t.verdict {
	case trusted:
		return answer{}
	case distrusted:
		return answer{resultDistrusted, t.detail}
	}
	return answer{resultUntrusted, "it has not answered yet when asked about a reservation that does not exist"}
}

// judge writes a probe's verdict down and returns those before and after. Silence changes nothing: it clears nobody who is distrusted, and
// who was believed a moment ago has not said anything else since.
func (t *trust) judge(v verdict, detail string) (before, after verdict) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before = t.verdict
	silent := v == untrusted
	if silent && before != untrusted {
		v, detail = before, t.detail
	}
	t.verdict, t.detail = v, detail
	switch {
	case v == trusted && silent:
		t.until = t.now().Add(t.every / 4)
	case v == trusted:
		t.until = t.now().Add(t.every)
	case v == distrusted:
		t.until = t.now().Add(t.again)
	default:
		t.until = time.Time{} // the circuit says when
	}
	return before, v
}

// distrusts tells whether and why the upstream is distrusted.
func (t *trust) distrusts() (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.detail, t.verdict == distrusted
}

func (t *trust) end(ended chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.probing = nil
	close(ended)
}

// probe asks about a reservation that does not exist. It uses a flight of its own, so that Close waits for it.
func (u *upstream) probe(ended chan struct{}) {
	defer u.trust.end(ended)
	var id stock.ID
	_, _ = rand.Read(id[:]) // never fails
	f, first := u.flights.join(id)
	if !first || !u.circuit.allow() {
		if first {
			u.flights.land(id, f, answer{})
		}
		u.judged(untrusted, "")
		return
	}
	r := u.probed(id)
	u.flights.land(id, f, answer{})
	switch {
	case u.base.Err() != nil: // we broke it off ourselves
	case r.status == http.StatusNotFound:
		u.heard(false)
		u.judged(trusted, "")
	case r.status == http.StatusRequestTimeout || r.down() || r.status >= 500:
		u.judged(untrusted, "")
		if u.circuit.trip() {
			u.log.Warn("the order service does not answer, so it is not known whether its answers can be believed",
				zap.Int("status", r.status), zap.Error(r.err))
		}
	default:
		u.heard(false)
		u.judged(distrusted, u.suspicion(r.status))
	}
}

// probed is get, safe against a panic of Sign.
func (u *upstream) probed(id stock.ID) (r reply) {
	defer func() {
		if p := recover(); p != nil {
			r = reply{err: fmt.Errorf("the question panicked: %v", p)}
		}
	}()
	return u.get(id)
}

func (u *upstream) suspicion(status int) string {
	if status == http.StatusUnauthorized || status == http.StatusForbidden {
		return fmt.Sprintf("upstreams.%s.resolve answers %d: the order service must let stockgate ask; see whether both have the same "+
			"signing key", u.Name, status)
	}
	return fmt.Sprintf("upstreams.%s.resolve answers %d for a reservation that does not exist, and must answer 404: mend the order "+
		"service, or the path if it leads to something that answers to everything", u.Name, status)
}

// judged writes a verdict down, shows it, and logs where it changes.
func (u *upstream) judged(v verdict, detail string) {
	before, v := u.trust.judge(v, detail)
	u.metrics.distrust(v == distrusted)
	switch {
	case v == distrusted && before != distrusted:
		u.log.Error("the order service's word is not believed: nothing is confirmed, released or taken over by it", zap.String("mend", detail))
	case v == trusted && before == distrusted:
		u.log.Info("the order service's word is believed again")
	}
}
