package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/stockgate/stockgate/gateway/control/api"
)

func skuPath(sku string) string { return "/v1/stock/" + segment(sku) }

// Status is the replica's view of itself.
func (c *Client) Status(ctx context.Context) (api.Status, error) {
	return call[api.Status](ctx, c, http.MethodGet, "/v1/status", nil)
}

// Stock is what is known of one SKU.
func (c *Client) Stock(ctx context.Context, sku string) (api.SKU, error) {
	return call[api.SKU](ctx, c, http.MethodGet, skuPath(sku), nil)
}

// ListStock is a page of at most limit SKUs (1–1000) whose bytes come after after; Next of the answer is the next page's after.
func (c *Client) ListStock(ctx context.Context, after string, limit int) (api.SKUList, error) {
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	if after != "" {
		query.Set("after", after)
	}
	return call[api.SKUList](ctx, c, http.MethodGet, "/v1/stock?"+query.Encode(), nil)
}

// SetStock makes the SKU's unsold total in.Available, once per in.Op, creating the SKU if it is new. It returns after the commit.
func (c *Client) SetStock(ctx context.Context, sku string, in api.SetStock) (api.Change, error) {
	return call[api.Change](ctx, c, http.MethodPut, skuPath(sku), in)
}

// AdjustStock adds in.Delta, once per in.Op. It returns after the commit.
func (c *Client) AdjustStock(ctx context.Context, sku string, in api.AdjustStock) (api.Change, error) {
	return call[api.Change](ctx, c, http.MethodPost, skuPath(sku)+"/adjust", in)
}

// PauseStock stops sales of the SKU.
func (c *Client) PauseStock(ctx context.Context, sku, reason string) (api.Change, error) {
	return c.note(ctx, sku, "pause", reason)
}

// ResumeStock restarts sales of the SKU.
func (c *Client) ResumeStock(ctx context.Context, sku, reason string) (api.Change, error) {
	return c.note(ctx, sku, "resume", reason)
}

// SyncStock makes the gateway notice what others wrote to the stock row.
func (c *Client) SyncStock(ctx context.Context, sku, reason string) (api.Change, error) {
	return c.note(ctx, sku, "sync", reason)
}

func (c *Client) note(ctx context.Context, sku, verb, reason string) (api.Change, error) {
	return call[api.Change](ctx, c, http.MethodPost, skuPath(sku)+"/"+verb, api.Note{Reason: reason})
}

// ImportStock sets many SKUs from CSV lines `sku,available`, all or none. The bad lines are in the *api.Problem; what goes wrong with
// reading csv is an *InputError. The same import again under the same op leaves what is set as it is; "": the server draws one.
// progress, if not nil, is told how far the gateway is.
func (c *Client) ImportStock(ctx context.Context, op string, csv io.Reader, progress func(api.Progress)) (api.Imported, error) {
	path := "/v1/stock/import"
	if op != "" {
		path += "?op=" + url.QueryEscape(op)
	}
	last, err := c.importing(ctx, path, csv, progress)
	if err != nil {
		return api.Imported{}, err
	}
	if last.Imported == nil {
		return api.Imported{}, c.brokenOff()
	}
	return *last.Imported, nil
}
