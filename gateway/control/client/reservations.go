package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/stock"
)

func reservationPath(id stock.ID) string { return "/v1/reservations/" + id.String() }

// Reservation is one reservation, with its latest ledger rows if history is set.
func (c *Client) Reservation(ctx context.Context, id stock.ID, history bool) (api.Reservation, error) {
	path := reservationPath(id)
	if history {
		path += "?history=true"
	}
	return call[api.Reservation](ctx, c, http.MethodGet, path, nil)
}

// Find names reservations by what is known of them. Exactly one of OrderRef, Request, Unknown, and User without Request, is set.
type Find struct {
	User     string // beside Request: the user that the request had
	OrderRef string
	Request  string // the request id that the client sent
	Unknown  bool   // held ones of unknown outcome, oldest first
}

// Find is a page of at most limit (1–1000) reservations, newest first; Next of the answer is the next page's after.
func (c *Client) Find(ctx context.Context, by Find, after string, limit int) (api.ReservationList, error) {
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	for name, value := range map[string]string{"user": by.User, "order_ref": by.OrderRef, "request": by.Request, "after": after} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if by.Unknown {
		query.Set("unknown", "true")
	}
	return call[api.ReservationList](ctx, c, http.MethodGet, "/v1/reservations?"+query.Encode(), nil)
}

// Confirm says that the order of a reservation is paid.
func (c *Client) Confirm(ctx context.Context, id stock.ID, in api.Confirm) (api.Reservation, error) {
	return call[api.Reservation](ctx, c, http.MethodPost, reservationPath(id)+"/confirm", in)
}

// Release says that there is no order and will be none: the units go back, or those of in.Lines. Only who surely knows may say so.
func (c *Client) Release(ctx context.Context, id stock.ID, in api.Release) (api.Reservation, error) {
	return call[api.Reservation](ctx, c, http.MethodPost, reservationPath(id)+"/release", in)
}

// Extend makes the hold of a reservation longer.
func (c *Client) Extend(ctx context.Context, id stock.ID, in api.Extend) (api.Reservation, error) {
	return call[api.Reservation](ctx, c, http.MethodPost, reservationPath(id)+"/extend", in)
}

// Reserve takes units without a request that is forwarded. key is the request id: the same again gets the same reservation; "": there
// is no replay.
func (c *Client) Reserve(ctx context.Context, key string, in api.CreateReservation) (api.Reservation, error) {
	var out api.Reservation
	text, err := json.Marshal(in)
	if err != nil {
		return out, err
	}
	p := post("/v1/reservations", "application/json", strings.NewReader(string(text)))
	p.key = key
	err = c.send(ctx, p, &out)
	return out, err
}

// ImportReservations makes reservations of open orders, CSV lines `order_ref,sku,qty,user,state[,hold]`. progress, if not nil, is told
// how far the gateway is. The same import again leaves what is imported as it is.
func (c *Client) ImportReservations(ctx context.Context, csv io.Reader, progress func(api.Progress)) (api.ImportedReservations, error) {
	last, err := c.importing(ctx, "/v1/reservations/import", csv, progress)
	if err != nil {
		return api.ImportedReservations{}, err
	}
	if last.ImportedReservations == nil {
		return api.ImportedReservations{}, c.brokenOff()
	}
	return *last.ImportedReservations, nil
}

// LedgerOf names whose ledger rows are asked for. Exactly one of SKU and Reservation is set.
type LedgerOf struct {
	SKU         string
	Reservation stock.ID
}

// Ledger is a page of at most limit (1–1000) ledger rows, newest first; Next of the answer is the next page's after.
func (c *Client) Ledger(ctx context.Context, of LedgerOf, after string, limit int) (api.LedgerPage, error) {
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	if of.SKU != "" {
		query.Set("sku", of.SKU)
	} else {
		query.Set("reservation", of.Reservation.String())
	}
	if after != "" {
		query.Set("after", after)
	}
	return call[api.LedgerPage](ctx, c, http.MethodGet, "/v1/ledger?"+query.Encode(), nil)
}
