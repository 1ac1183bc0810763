package filters

import (
	"net/netip"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/stockgate/stockgate/stock"
)

// Filter decides about requests one at a time. Implementations are safe for concurrent use.
type Filter interface {
	// Name is the word for the filter in logs and metrics. It does not change.
	Name() string
	// Enter lets r pass (nil) or refuses it. It may block for as long as the filter's configuration says. The refusal belongs to r.
	Enter(r *Request) *Refusal
	// Leave gives back what Enter holds for r. It is called exactly once per passed Enter, in reverse order, and never blocks.
	Leave(r *Request)
}

// Request is what filters know of an HTTP request. The caller fills it before Chain.Enter and leaves it alone until Chain.Leave.
// It may be reused after Reset. It must not be copied between Enter and Leave.
type Request struct {
	// Ctx gives access to the headers. nil: header keys are absent.
	Ctx *fasthttp.RequestCtx
	// Route is the name of the route that matched.
	Route string
	// SKU and User are "" where there is none: limits keyed by them and lanes do not apply then. Filters keep SKUs beyond the
	// request, so all must be strings of their own, never views of Ctx's buffers.
	SKU, User string
	// Activity is the one under whose rules SKU is sold at Now, or that refuses to sell it now; "": none. It follows from the rules alone,
	// never from what the client names.
	Activity string
	// Qty is the quantity asked of SKU, in units.
	Qty int64
	// More are the other lines of a cart, each of another SKU than the rest, all after SKU in the order of bytes. A cart goes through
	// the lanes of all its SKUs; a limit keyed by SKU counts it once, under SKU. The caller owns the lines until Leave.
	More []stock.Line
	// Keyed: the request carries a request id, so it may be the retry of a winner and must not be told SOLD_OUT without being
	// looked up.
	Keyed bool
	// ClientIP is the client's address as resolved by the caller from the peer and the trusted proxies. All requests without a
	// valid one count as one client.
	ClientIP netip.Addr
	// Now is when the request arrived, with a monotonic reading. Zero: Chain.Enter sets it.
	Now time.Time
	// Done is closed when nobody waits for the answer any more; a filter that waits then gives up. nil: never.
	Done <-chan struct{}
	// Quotas is appended to by filters that count: what is left of every limit that applied. Valid after Enter, also of a refusal.
	Quotas []Quota
	// Slots is what the filter that makes requests wait holds for r: written by its Enter, read by its Leave, no business of others. A
	// request gives back where it took, also if its SKU belongs elsewhere by then.
	Slots any

	entered int // filters of the chain that passed r and have not been left yet
	refusal Refusal
}

// Reset makes r ready for another request. It keeps the memory of Quotas.
func (r *Request) Reset() { *r = Request{Quotas: r.Quotas[:0]} }

// Refuse fills the refusal that lives in r and returns it. It is for filters; a later call overwrites it.
func (r *Request) Refuse(code stock.Code, limit, value string, retryAfter time.Duration) *Refusal {
	r.refusal = Refusal{Code: code, Limit: limit, Value: value, RetryAfter: retryAfter}
	return &r.refusal
}

// Refusal is a filter's No. It is valid until the Request it came from is reset.
type Refusal struct {
	// Code is the stable code of the answer.
	Code stock.Code
	// Limit is the key of the limit in the configuration, e.g. limits[per-ip]; "" where no limit was hit.
	Limit string
	// Value is the limit's value as configured, e.g. "50/s burst 100".
	Value string
	// RetryAfter is how long the client should wait, jitter included, so nobody adds more. 0: no header.
	RetryAfter time.Duration
	// SKU is the line of a cart that decided; "": none did, or there is only one.
	SKU string
}
