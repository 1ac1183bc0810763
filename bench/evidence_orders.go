package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// ordersSource reads the record of the sample order service.
type ordersSource struct {
	base   string
	client *http.Client
}

func newOrdersSource(address string) (*ordersSource, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("--orders %q must look like http://127.0.0.1:3000", address)
	}
	return &ordersSource{base: strings.TrimSuffix(address, "/"), client: &http.Client{Timeout: callTimeout, Transport: &http.Transport{}}}, nil
}

func (s *ordersSource) close() { s.client.CloseIdleConnections() }

// recordedOrder is an order as the service shows it.
type recordedOrder struct {
	Order string `json:"order"`
	Lines []struct {
		SKU string `json:"sku"`
		Qty int64  `json:"qty"`
	} `json:"lines"`
	User        string    `json:"user"`
	Reservation string    `json:"reservation"`
	Key         string    `json:"key"`
	State       string    `json:"state"`
	At          time.Time `json:"at"`
}

// read adds every order of the service, page by page.
func (s *ordersSource) read(ctx context.Context, into *stock.Snapshot, o *options) error {
	for after := 0; ; {
		var page struct {
			Orders []recordedOrder `json:"orders"`
			Next   int             `json:"next"`
		}
		if err := s.get(ctx, fmt.Sprintf("/orders?after=%d", after), &page); err != nil {
			return err
		}
		for i := range page.Orders {
			into.Orders = append(into.Orders, page.Orders[i].lines(o.key)...)
		}
		if page.Next <= after {
			break
		}
		after = page.Next
	}
	into.Parts |= stock.PartOrders
	return nil
}

// lines is the order as the checkers want it. A key that the gateway drew itself names no request of a client.
func (r *recordedOrder) lines(keyed bool) []stock.Order {
	id, _ := stock.ParseID(r.Reservation) // what is no id is no reservation, and I8 says so
	list := make([]stock.Order, 0, len(r.Lines))
	for _, l := range r.Lines {
		o := stock.Order{Ref: r.Order, Reservation: id, SKU: l.SKU, Qty: l.Qty, User: r.User, Cancelled: r.State == "cancelled", At: r.At}
		if keyed {
			o.Key = r.Key
		}
		list = append(list, o)
	}
	return list
}

func (s *ordersSource) get(ctx context.Context, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+path, nil)
	if err != nil {
		return err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return fmt.Errorf("order service: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
		return fmt.Errorf("order service: GET %s: %s: %s", path, resp.Status, text)
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("order service: GET %s: %w", path, err)
	}
	return nil
}
