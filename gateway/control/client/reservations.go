package client

import (
	"context"
	"net/http"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/stock"
)

func reservationPath(id stock.ID) string { return "/v1/reservations/" + id.String() }

// Reservation is one reservation.
func (c *Client) Reservation(ctx context.Context, id stock.ID) (api.Reservation, error) {
	return call[api.Reservation](ctx, c, http.MethodGet, reservationPath(id), nil)
}

// Confirm says that the order of a reservation is paid.
func (c *Client) Confirm(ctx context.Context, id stock.ID, in api.EndReservation) (api.Reservation, error) {
	return call[api.Reservation](ctx, c, http.MethodPost, reservationPath(id)+"/confirm", in)
}

// Release says that there is no order and will be none: the units go back. Only who surely knows may say so.
func (c *Client) Release(ctx context.Context, id stock.ID, in api.EndReservation) (api.Reservation, error) {
	return call[api.Reservation](ctx, c, http.MethodPost, reservationPath(id)+"/release", in)
}
