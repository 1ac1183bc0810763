package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"time"
)

const (
	callTimeout = 15 * time.Second // a call waits in the same queue as the buyers
	again       = time.Second      // between two passes over what could not be told
)

// outbox tells stockgate what the orders came to. A call stays in its table until it has had its effect: every call may be repeated, so
// neither a crash nor a lost reply matters.
type outbox struct {
	store          *store
	control, token string
	client         *http.Client
	wake           chan struct{} // holds a token when there may be something to tell
}

// poke has the outbox look at once.
func (b *outbox) poke() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// run tells until ctx ends, first of all what an earlier process left.
func (b *outbox) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := b.pass(ctx); err != nil && ctx.Err() == nil {
			log.Printf("stockgate is not told yet: %v", err)
		}
		select {
		case <-b.wake:
		case <-time.After(again):
		case <-ctx.Done():
		}
	}
}

// call is a row.
type call struct {
	id, orderID             int64
	reservation, what, body string
}

// pass makes the first call of each order that has one. In their order: a refund must not overtake its confirm.
func (b *outbox) pass(ctx context.Context) error {
	for {
		calls, err := b.first(ctx)
		if err != nil || len(calls) == 0 {
			return err
		}
		for _, c := range calls {
			if err := b.make(ctx, c); err != nil {
				return err
			}
		}
	}
}

func (b *outbox) first(ctx context.Context) ([]call, error) {
	rows, err := b.store.db.QueryContext(ctx, `
		SELECT b.id, o.id, o.reservation, b.call, b.body FROM outbox b JOIN orders o ON o.id = b.order_id
		WHERE b.id IN (SELECT min(id) FROM outbox WHERE problem = '' GROUP BY order_id) ORDER BY b.id LIMIT 100`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var calls []call
	for rows.Next() {
		var c call
		if err := rows.Scan(&c.id, &c.orderID, &c.reservation, &c.what, &c.body); err != nil {
			return nil, err
		}
		calls = append(calls, c)
	}
	return calls, rows.Err()
}

// make makes a call and notes what came of it. An error means that it is to be made again.
func (b *outbox) make(ctx context.Context, c call) error {
	status, text, err := b.post(ctx, c)
	switch {
	case err != nil:
		return err
	case status == http.StatusOK:
		_, err := b.store.db.ExecContext(ctx, `DELETE FROM outbox WHERE id = ?`, c.id)
		return err
	case status == http.StatusConflict && c.what == "confirm":
		return b.paidWithoutStock(ctx, c)
	case status >= 500 || status == http.StatusTooManyRequests || status == http.StatusUnauthorized:
		return fmt.Errorf("%s of order %d: %d %s", c.what, c.orderID, status, text)
	}
	log.Printf("%s of order %d is given up: %d %s", c.what, c.orderID, status, text) // a mistake of ours: somebody has to look
	_, err = b.store.db.ExecContext(ctx, `UPDATE outbox SET problem = ? WHERE id = ?`, text, c.id)
	return err
}

// paidWithoutStock: the reservation was released before it was paid, and its units are somebody else's. The money goes back.
func (b *outbox) paidWithoutStock(ctx context.Context, c call) error {
	_, err := b.store.change(ctx, "id = ?", c.orderID, func(tx *sql.Tx, o *order) error {
		o.State, o.RefundDue = cancelled, true
		_, err := tx.ExecContext(ctx, `DELETE FROM outbox WHERE order_id = ?`, o.ID)
		return err
	})
	if err == nil {
		log.Printf("order %d has to be refunded: it was paid after its units had gone back", c.orderID)
	}
	return err
}

func (b *outbox) post(ctx context.Context, c call) (status int, text string, err error) {
	url := b.control + "/v1/reservations/" + c.reservation + "/" + c.what
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(c.body))
	if err != nil {
		return 0, "", err
	}
	if b.token != "" {
		req.Header.Set("Authorization", "Bearer "+b.token)
	}
	req.Header.Set("Stockgate-Actor", "orderservice")
	req.Header.Set("Content-Type", "application/json")
	resp, err := b.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, bodyBytesMax))
	return resp.StatusCode, string(body), errors.Join(err, resp.Body.Close())
}
