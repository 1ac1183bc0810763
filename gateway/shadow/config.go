package shadow

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/stock"
)

// Defaults of Config, taken where a field is zero.
const (
	SKUsDefault       = 100_000
	RequestIDsDefault = 200_000
	TakesDefault      = 200_000
	RefreshDefault    = 5 * time.Second
)

// Config bounds what a Counter keeps.
type Config struct {
	// SKUs is how many SKUs have virtual stock. Further ones stay unseeded. Defaults to 100 000, about 20 MB.
	SKUs int
	// RequestIDs is how many admitted request ids are remembered; the oldest are forgotten. Defaults to 200 000, about 15 MB.
	RequestIDs int
	// Takes is how many users' takes are remembered, one per activity, SKU and user; the oldest are forgotten. Defaults to 200 000,
	// about 15 MB.
	Takes int
	// Refresh is how often the facts of SKUs that are asked for are read again. Defaults to 5 s.
	Refresh time.Duration
}

func (c Config) withDefaults() Config {
	return Config{SKUs: cmp.Or(c.SKUs, SKUsDefault), RequestIDs: cmp.Or(c.RequestIDs, RequestIDsDefault),
		Takes: cmp.Or(c.Takes, TakesDefault), Refresh: cmp.Or(c.Refresh, RefreshDefault)}
}

// Facts reads what the database says about SKUs now; one that it does not have is absent.
type Facts interface {
	Facts(ctx context.Context, skus []string) ([]stock.Fact, error)
}

// Parts are what a Counter works with. All must be set.
type Parts struct {
	Sale     admission.Sale
	Facts    Facts
	Log      *zap.Logger
	Registry prometheus.Registerer // takes the collector
}
