package luascripts

import (
	"context"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// OpenAhead notes that the SKUs of partition p may sell ahead under the epoch, and that ids may be claimed there.
func (c *Client) OpenAhead(context.Context, int, int64) error {
	return gone(stock.ErrNotExecuted, errEnding)
}

// Claim takes the id of r.
func (c *Client) Claim(context.Context, int, *stock.Reservation, time.Duration, stock.Try) (stock.ClaimReply, error) {
	return stock.ClaimReply{}, gone(stock.ErrNotExecuted, errEnding)
}

// FindOpen gives the open entries of an id.
func (c *Client) FindOpen(context.Context, stock.ID) ([]stock.OpenEntry, error) {
	return nil, gone(stock.ErrNotExecuted, errEnding)
}
