package control

import (
	"context"
	"time"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/stock"
)

// WithDirect completes what admission asks order services with what is known of direct reservations: they forward nothing, so that there
// never is an order. A retry of one whose replica ended before it was booked takes it over once its forward_by is past; without this, it
// would stay unknown.
func WithDirect(others admission.Backend) admission.Backend { return withDirect{others} }

type withDirect struct{ admission.Backend }

// Policy implements admission.Backend.
func (b withDirect) Policy(route string) (asks, unique bool, delay time.Duration) {
	if route == stock.RouteAPI {
		return true, true, 0
	}
	if b.Backend == nil {
		return false, false, 0
	}
	return b.Backend.Policy(route)
}

// Ask implements admission.Backend.
func (b withDirect) Ask(ctx context.Context, route string, id stock.ID) (admission.BackendState, bool) {
	if route == stock.RouteAPI {
		return admission.NoOrder, true
	}
	if b.Backend == nil {
		return admission.NoOrder, false
	}
	return b.Backend.Ask(ctx, route, id)
}
