package gateway

import (
	"runtime/debug"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/gateway/shadow"
	"github.com/stockgate/stockgate/stock"
)

// Shadows counts what would have been decided about orders that pass whatever it says. None of its methods blocks.
// *shadow.Counter is one.
type Shadows interface {
	// Decide decides about an order and takes virtual units for it; nil: none. The wish is the caller's and is reused.
	Decide(w *admission.Wish) *shadow.Taken
	// Refuse counts an order that was decided before stock was looked at: it could not be read, or was over a limit.
	Refuse(route string, code stock.Code)
	// GiveBack gives virtual units back: the order did not come about.
	GiveBack(t *shadow.Taken)
}

var _ Shadows = (*shadow.Counter)(nil)

// mode is that of the whole order: it is enforced only if all its SKUs are.
func (e *exchange) mode() Mode {
	rules := e.route.admit.rules
	if !e.order.known {
		return rules.Mode(e.route.name, "")
	}
	for i := range e.order.lines {
		if rules.Mode(e.route.name, e.order.lines[i].SKU) == Shadow {
			return Shadow
		}
	}
	return Enforce
}

// serveShadow proxies an order as a plain route would. unread is why it could not be read, nil if it could. No limit holds it up, and
// nothing that goes wrong in counting reaches the client.
func (e *exchange) serveShadow(unread *problem) {
	e.inShadow = true
	taken := e.decideInShadow(unread)
	if p := e.passBreaker(); p != nil {
		e.giveBackInShadow(taken)
		e.refuse(p)
		return
	}
	if !e.takeSlot() {
		e.giveBackInShadow(taken)
		return
	}
	if kind, whole := e.proxy(); kind == admission.Accepted || kind == admission.Unknown && !whole {
		return // there is an order, or nobody knows
	}
	e.giveBackInShadow(taken)
}

func (e *exchange) decideInShadow(unread *problem) *shadow.Taken {
	if e.s.shadows == nil {
		return nil
	}
	defer e.surviveShadow()
	switch {
	case unread != nil:
		e.s.shadows.Refuse(e.route.name, unread.code)
	case e.overShadowLimits():
		e.s.shadows.Refuse(e.route.name, stock.CodeRateLimited)
	default:
		return e.s.shadows.Decide(e.wanted())
	}
	return nil
}

// overShadowLimits asks limits of its own, so that orders in shadow use up no token of those that are enforced. Nothing is held.
func (e *exchange) overShadowLimits() bool {
	if e.setup.shadowLimits == nil {
		return false
	}
	defer e.limits.Reset() // the client is told of no quota
	if e.setup.shadowLimits.Enter(e.asked()) != nil {
		return true
	}
	e.setup.shadowLimits.Leave(&e.limits)
	return false
}

func (e *exchange) giveBackInShadow(taken *shadow.Taken) {
	if taken != nil {
		defer e.surviveShadow()
		e.s.shadows.GiveBack(taken)
	}
}

// surviveShadow keeps a fault in counting from the client.
func (e *exchange) surviveShadow() {
	if reason := recover(); reason != nil {
		e.s.metrics.panics.Inc()
		e.s.log.Error("a shadow decision panicked", zap.Any("panic", reason), zap.ByteString("stack", debug.Stack()))
	}
}
