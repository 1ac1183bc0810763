package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/stockgate/stockgate/gateway/control/api"
)

// Doubts is the silent replicas that may have sold units of a grant.
func (c *Client) Doubts(ctx context.Context) (api.DoubtList, error) {
	return call[api.DoubtList](ctx, c, http.MethodGet, "/v1/doubts", nil)
}

// ClearDoubts says that no silent replica has sold units of a partition that the shop's orders do not show, and returns the doubts that
// are ended. Only who has compared with them may say so: the units are sold again.
func (c *Client) ClearDoubts(ctx context.Context, partition int, reason string) (api.DoubtList, error) {
	return call[api.DoubtList](ctx, c, http.MethodDelete, "/v1/doubts/"+strconv.Itoa(partition), api.Note{Reason: reason})
}

// ClearAllDoubts is ClearDoubts of all partitions, in one step: all are ended, or none.
func (c *Client) ClearAllDoubts(ctx context.Context, reason string) (api.DoubtList, error) {
	return call[api.DoubtList](ctx, c, http.MethodDelete, "/v1/doubts", api.Note{Reason: reason})
}

// Compensations is a page of at most limit (1–1000) repairs of a state, "" for all; Next of the answer is the next page's after.
func (c *Client) Compensations(ctx context.Context, state, after string, limit int) (api.CompensationList, error) {
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	if state != "" {
		query.Set("state", state)
	}
	if after != "" {
		query.Set("after", after)
	}
	return call[api.CompensationList](ctx, c, http.MethodGet, "/v1/compensations?"+query.Encode(), nil)
}

// RetryCompensation has a repair looked at now, with all its calls before it.
func (c *Client) RetryCompensation(ctx context.Context, id string, in api.RetryCompensation) (api.Compensation, error) {
	return call[api.Compensation](ctx, c, http.MethodPost, "/v1/compensations/"+segment(id)+"/retry", in)
}
