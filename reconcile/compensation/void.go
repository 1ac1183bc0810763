package compensation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/stockgate/stockgate/internal/ordercall"
	"github.com/stockgate/stockgate/stock"
)

const bodyBytesMax = 64 << 10

// Order is the body of the call that makes an order void. Fields may be added.
type Order struct {
	Reservation string `json:"reservation"` // 32 hex digits
	Reason      string `json:"reason"`      // surplus
	OrderRef    string `json:"order_ref,omitempty"`
	User        string `json:"user,omitempty"`
	Lines       []Line `json:"lines"`
}

// Line is a quantity of one SKU in an Order.
type Line struct {
	SKU string `json:"sku"`
	Qty int64  `json:"qty"`
}

// result is what a call came to, as metrics name it.
type result string

// The results.
const (
	voidDone    result = "void"
	voidRefused result = "refused"     // the order service has answered that it did not
	voidUnsent  result = "unreachable" // no connection: the call surely did not go out
	voidUnknown result = "unknown"     // it may or may not have been done
)

var results = [...]result{voidDone, voidRefused, voidUnsent, voidUnknown}

// outcome of a call.
type outcome struct {
	result result
	detail string // for people
}

// surelyNot reports whether the call surely has not made the order void.
func (o outcome) surelyNot() bool { return o.result == voidRefused || o.result == voidUnsent }

// upstream is one order service and its connections.
type upstream struct {
	Upstream
	http *http.Transport // bounded connections; it follows no redirect and keeps no cookies
}

func newUpstream(u Upstream, parallel int) *upstream {
	return &upstream{u, ordercall.Transport(u.TLS, parallel)}
}

// void asks the order service to make an order void. It blocks for at most the upstream's time-out.
func (u *upstream) void(ctx context.Context, c *stock.Compensation, row *stock.Row) outcome {
	ctx, cancel := context.WithTimeout(ctx, u.timeout())
	defer cancel()
	req, err := u.request(ctx, c, row)
	if err != nil {
		return outcome{voidUnsent, err.Error()}
	}
	resp, err := u.http.RoundTrip(req) // not a Client: what it adds is redirects and cookies
	if err != nil {
		return failed(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, bodyBytesMax)) // the status is the answer; the connection is kept if the rest is short
	return ofStatus(resp.StatusCode)
}

func (u *upstream) request(ctx context.Context, c *stock.Compensation, row *stock.Row) (*http.Request, error) {
	name := row.ID.String()
	body, err := json.Marshal(orderOf(row))
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(u.URL, "/")+strings.ReplaceAll(u.Void, ordercall.Placeholder, name),
		bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "stockgate")
	req.Header.Set("Stockgate-Reservation", name)
	// The same for every attempt: a repeat is the same call. Another try of the same reservation would be another order.
	req.Header.Set("Idempotency-Key", c.ID+"/"+row.Try.String())
	if u.Sign != nil {
		req.Header.Set("Stockgate-Signature", u.Sign(req.Method, req.URL.RequestURI(), name, body))
	}
	return req, nil
}

func orderOf(row *stock.Row) Order {
	o := Order{Reservation: row.ID.String(), Reason: stock.CompensateSurplus, OrderRef: row.OrderRef, User: row.User, Lines: make([]Line, len(row.Lines))}
	for i, l := range row.Lines {
		o.Lines[i] = Line(l)
	}
	return o
}

// failed tells a call that never went out from one that may have been heard.
func failed(err error) outcome {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return outcome{voidUnsent, err.Error()}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return outcome{voidUnknown, "the order service gave no reply in time"}
	}
	return outcome{voidUnknown, err.Error()}
}

// ofStatus reads an answer. What somebody in between may have said, or what was said after the deed was begun, is no refusal.
func ofStatus(status int) outcome {
	detail := fmt.Sprintf("the order service answered with status %d", status)
	switch {
	case status >= 200 && status < 300:
		return outcome{voidDone, detail}
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == 499, status < 400, status >= 500:
		return outcome{voidUnknown, detail}
	}
	return outcome{voidRefused, detail}
}
