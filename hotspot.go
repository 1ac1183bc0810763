package main

import (
	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/stockgate/stockgate/filters/lane"
	"github.com/stockgate/stockgate/gateway/control/api"
)

// How many changes of lanes are logged, a second and at once: whoever makes SKUs hot and cool must not write the log.
const (
	lanesLogged      = 1
	lanesLoggedBurst = 20
)

// laneChanges logs which SKUs get and lose lanes. The names are untrusted and many, so they are no labels of metrics.
func laneChanges(log *zap.Logger) func(lane.Change) {
	bucket := rate.NewLimiter(lanesLogged, lanesLoggedBurst)
	return func(c lane.Change) {
		if !bucket.Allow() {
			return
		}
		fields := []zap.Field{zap.String("sku", c.SKU), zap.Float64("rate", float64(c.Asked)/c.Window.Seconds())}
		switch c.Kind {
		case lane.Promoted:
			log.Info("a SKU is hot and has a lane of its own", fields...)
		case lane.Demoted:
			log.Info("a SKU has no lane of its own any more", fields...)
		case lane.Crowded:
			log.Warn("a SKU is hot and stays in the shared lane: hotspot.detect.lanes are taken", fields...)
		}
	}
}

// hotShown bounds the hot SKUs of the status.
const hotShown = 100

// hot are the SKUs that have lanes by detection, for the status.
func (a *app) hot() []api.Hot {
	_, found, _ := a.filters.Lanes.Detected()
	list := make([]api.Hot, 0, min(len(found), hotShown))
	for _, h := range found[:min(len(found), hotShown)] {
		list = append(list, api.Hot{SKU: h.SKU, Rate: h.Rate, Since: h.Since, Held: h.Held, Waiting: h.Waiting})
	}
	return list
}
