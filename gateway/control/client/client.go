// Package client calls the control API. It makes one request per call and never repeats one by itself: whether a change may be
// made again is the caller's to know, and every change of this API may be. It is safe for concurrent use.
//
// Errors are one line for people. A refusal of the server is an *api.Problem (errors.As); all else is trouble on the way: after it,
// a change may or may not have been made.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/internal/certs"
	"github.com/stockgate/stockgate/stock"
)

// answerBytesMax bounds what is read of an answer.
const answerBytesMax = 16 << 20

// Config says where the control API is and who calls.
type Config struct {
	// URL is the listener's base, e.g. http://127.0.0.1:9090. Required.
	URL string
	// Token is sent as a bearer token. Empty: none is sent.
	Token string
	// TLS is used with https; nil: the system's authorities, and no certificate is shown.
	TLS *certs.Source
	// Actor is who acts, for the audit: 1–128 visible ASCII bytes. Empty: the server names the token.
	Actor string
	// Timeout bounds one call. 0: the caller's context alone does.
	Timeout time.Duration
}

// Client calls one control listener.
type Client struct {
	cfg  Config
	base *url.URL
	http *http.Client
}

// New checks the address; it does not connect.
func New(cfg Config) (*Client, error) {
	base, err := url.Parse(cfg.URL)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, fmt.Errorf("control address %q must look like http://127.0.0.1:9090", cfg.URL)
	}
	if strings.Trim(base.Path, "/") != "" || base.RawQuery != "" || base.Fragment != "" || base.User != nil {
		return nil, fmt.Errorf("control address %q must end after the port", cfg.URL)
	}
	for _, r := range cfg.Token { // it is not shown: it is a secret
		if r <= ' ' || r > '~' {
			return nil, errors.New("the token must be visible ASCII without spaces")
		}
	}
	transport := &http.Transport{
		Proxy:             nil, // the control API is not asked through a proxy of the environment
		DialContext:       (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		ForceAttemptHTTP2: true,
		IdleConnTimeout:   30 * time.Second,
	}
	if cfg.TLS != nil {
		transport.DialTLSContext = cfg.TLS.DialTLS
	}
	return &Client{cfg: cfg, base: base, http: &http.Client{
		Timeout:       cfg.Timeout,
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the token stays here
	}}, nil
}

// Close lets go of idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// call makes one request with in as its JSON, or without a body, and decodes the answer.
func call[T any](ctx context.Context, c *Client, method, path string, in any) (T, error) {
	var out T
	p := post(path, "application/json", nil)
	p.method = method
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return out, err
		}
		p.body = bytes.NewReader(text)
	}
	err := c.send(ctx, p, &out)
	return out, err
}

// request is one call to make.
type request struct {
	method, path      string
	mediaType, accept string
	key               string // Idempotency-Key; "" = none
	body              io.Reader
}

func post(path, mediaType string, body io.Reader) request {
	return request{method: http.MethodPost, path: path, mediaType: mediaType, body: body}
}

// InputError is trouble with reading what was to be sent: nothing of it was applied.
type InputError struct{ Err error }

func (e *InputError) Error() string { return e.Err.Error() }

func (e *InputError) Unwrap() error { return e.Err }

// input marks what goes wrong on its side of a request, which net/http tells like trouble on the way.
type input struct{ io.Reader }

func (i input) Read(b []byte) (int, error) {
	n, err := i.Reader.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &InputError{err}
	}
	return n, err
}

func (c *Client) send(ctx context.Context, p request, out any) error {
	return c.exchange(ctx, p, func(res *http.Response) error { return c.read(res, res.Request.URL.Path, out) })
}

// exchange makes a call and hands its answer to read.
func (c *Client) exchange(ctx context.Context, p request, read func(res *http.Response) error) error {
	req, err := http.NewRequestWithContext(ctx, p.method, strings.TrimRight(c.base.String(), "/")+p.path, p.body)
	if err != nil {
		return err
	}
	c.head(req, p)
	res, err := c.http.Do(req)
	if err != nil {
		return c.unreached(err)
	}
	defer res.Body.Close()
	return read(res)
}

func (c *Client) head(req *http.Request, p request) {
	set := func(name, value string) {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	if p.body != nil {
		set("Content-Type", p.mediaType)
	}
	set("Accept", p.accept)
	set("Idempotency-Key", p.key)
	set("Stockgate-Actor", c.cfg.Actor)
	if c.cfg.Token != "" {
		set("Authorization", "Bearer "+c.cfg.Token)
	}
}

func (c *Client) read(res *http.Response, path string, out any) error {
	text, err := io.ReadAll(io.LimitReader(res.Body, answerBytesMax+1))
	if err != nil {
		return c.unreached(err)
	}
	if len(text) > answerBytesMax {
		return fmt.Errorf("%s answered more than %d bytes", c.base, answerBytesMax)
	}
	if res.StatusCode == http.StatusOK || res.StatusCode == http.StatusCreated {
		if err := json.Unmarshal(text, out); err != nil {
			return c.stranger(err.Error())
		}
		if empty(out) {
			return c.stranger("what it sent is something else")
		}
		return nil
	}
	problem := &api.Problem{}
	if json.Unmarshal(text, problem) != nil || problem.Code == "" {
		return c.stranger("HTTP " + res.Status)
	}
	if problem.Code == string(stock.CodeNoRoute) || problem.Code == string(stock.CodeMethodNotAllowed) {
		return fmt.Errorf("%s is no control side, it has no %s: is it the public address? --control is control.listen of the gateway: %w", c.base,
			path, problem)
	}
	return problem
}

// stranger says that something else than a control API answered.
func (c *Client) stranger(how string) error {
	return fmt.Errorf("%s does not answer like a control API: %s; is this its control address? (--control)", c.base, how)
}

// empty reports whether an answer lacks what each of its kind has: some other server's JSON fits all of them.
func empty(out any) bool {
	switch v := out.(type) {
	case *api.Change:
		return v.SKU == ""
	case *api.SKU:
		return v.SKU == ""
	case *api.SKUList:
		return v.SKUs == nil
	case *api.Reservation:
		return v.ID == ""
	case *api.ReservationList:
		return v.Reservations == nil
	case *api.DoubtList:
		return v.Doubts == nil
	case *api.Compensation:
		return v.ID == ""
	case *api.CompensationList:
		return v.Compensations == nil
	case *api.LedgerPage:
		return v.Rows == nil
	case *struct{}: // an import that was answered without lines
		return true
	case *api.Status:
		return v.Phase == ""
	}
	return false
}

// unreached says in one line what went wrong on the way.
func (c *Client) unreached(err error) error {
	var mine *InputError
	if errors.As(err, &mine) {
		return mine
	}
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err // without the method and the address, which the sentence has already
	}
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nothing listens at %s: is stockgate running, and is this its control address? (--control): %w", c.base,
			syscall.ECONNREFUSED)
	case errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("%s did not answer in time: %w", c.base, context.DeadlineExceeded)
	}
	return fmt.Errorf("cannot reach %s: %w", c.base, err)
}

// segment escapes one part of a path. A lone or double dot would be taken for a step in the path, so it is escaped too.
func segment(s string) string {
	if s == "." || s == ".." {
		return strings.ReplaceAll(s, ".", "%2E")
	}
	return url.PathEscape(s)
}
