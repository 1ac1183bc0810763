package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/gateway/control/client"
	"github.com/stockgate/stockgate/stock"
)

// callTimeout bounds one call for evidence.
const callTimeout = 30 * time.Second

// controlSource reads the gateway's control API.
type controlSource struct{ client *client.Client }

func newControlSource(o *options) (*controlSource, error) {
	c, err := client.New(client.Config{URL: o.control, Token: o.token, Actor: "bench", Timeout: callTimeout})
	return &controlSource{c}, err
}

func (c *controlSource) close() { c.client.Close() }

func (c *controlSource) setStock(ctx context.Context, skus []string, units int64) error {
	for _, sku := range skus {
		if _, err := c.client.SetStock(ctx, sku, api.SetStock{Available: units, Reason: "bench"}); err != nil {
			return fmt.Errorf("set stock of %s: %w", sku, err)
		}
	}
	return nil
}

// doubts is what the gateway says of itself that makes a measurement something else than it seems.
func (c *controlSource) doubts(ctx context.Context) []string {
	status, err := c.client.Status(ctx)
	if err != nil {
		return nil // whoever needs the evidence will say so
	}
	var list []string
	if b := status.Redis.Breaker; b != "" && b != "closed" {
		list = append(list, fmt.Sprintf("the gateway's Redis breaker is %s: orders go by the database alone", b))
	}
	if !status.Database.Reachable {
		list = append(list, "the gateway does not reach its database")
	}
	for _, v := range status.Invariants {
		if v.State == api.InvariantBroken {
			list = append(list, fmt.Sprintf("the gateway itself found %s broken: %s", v.Name, v.Detail))
		}
	}
	return list
}

// read adds the SKUs with their registers, and the queues.
func (c *controlSource) read(ctx context.Context, s *stock.Snapshot, skus []string) error {
	list, err := c.skus(ctx, skus)
	if err != nil {
		return err
	}
	status, err := c.client.Status(ctx)
	if err != nil {
		return err
	}
	s.Parts |= stock.PartSKUs | stock.PartGauges
	asked := false
	for i := range list {
		s.SKUs = append(s.SKUs, snapshotSKU(&list[i]))
		if r := list[i].Redis; r != nil {
			asked = true
			s.Registers = append(s.Registers, stock.Registers{SKU: list[i].SKU, Base: r.Base, Rest: r.Rest, Out: r.Out, Epoch: r.Epoch,
				Ver: r.Ver, Paused: r.Paused, Loaded: r.Loaded})
		}
	}
	if asked {
		s.Parts |= stock.PartCache
	}
	for _, q := range status.Queues {
		s.Gauges = append(s.Gauges, stock.Gauge{Name: q.Name, Value: q.Depth, Limit: q.Limit})
	}
	return nil
}

const (
	oneByOneMax = 16   // SKUs that are asked for by name; for more, all of the deployment's are paged through
	pageOfSKUs  = 1000 //
)

// skus is what the gateway knows of the SKUs, by their bytes. One that is missing there is an error: it was never put in.
func (c *controlSource) skus(ctx context.Context, names []string) ([]api.SKU, error) {
	if len(names) > oneByOneMax {
		return c.page(ctx, names)
	}
	list := make([]api.SKU, 0, len(names))
	for _, name := range names {
		one, err := c.client.Stock(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("stock of %s: %w", name, err)
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b api.SKU) int { return strings.Compare(a.SKU, b.SKU) })
	return list, nil
}

func (c *controlSource) page(ctx context.Context, names []string) ([]api.SKU, error) {
	wanted := make(map[string]bool, len(names))
	for _, name := range names {
		wanted[name] = true
	}
	var list []api.SKU
	for after := ""; ; {
		page, err := c.client.ListStock(ctx, after, pageOfSKUs)
		if err != nil {
			return nil, fmt.Errorf("stock after %q: %w", after, err)
		}
		for _, one := range page.SKUs {
			if wanted[one.SKU] {
				list = append(list, one)
				delete(wanted, one.SKU)
			}
		}
		if page.Next == "" || len(wanted) == 0 {
			break
		}
		after = page.Next
	}
	if len(wanted) > 0 {
		return nil, fmt.Errorf("the gateway does not know %d of the %d SKUs; --stock puts them in", len(wanted), len(names))
	}
	return list, nil
}

// snapshotSKU: the API tells no last_available; its numbers are read in one transaction, so what is available is what was left.
func snapshotSKU(k *api.SKU) stock.SKUSnapshot {
	return stock.SKUSnapshot{
		Fact: stock.Fact{SKU: k.SKU, Available: k.Available, Granted: k.Granted, Paused: k.Paused, Epoch: k.Epoch, Ver: k.Ver},
		Held: k.Held, Confirmed: k.Confirmed, Compensating: k.Compensating, StockIn: k.StockIn, LastAvailable: k.Available,
	}
}
