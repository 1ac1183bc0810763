package main

import (
	"strconv"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/stockgate/stockgate/filters/lane"
)

// A flood of changes names SKUs in the log, and not more of them than the bound.
func TestC070_LogOfLanesIsBounded(t *testing.T) {
	t.Parallel()
	core, seen := observer.New(zap.InfoLevel)
	tell := laneChanges(zap.New(core))
	for i := range 10_000 {
		tell(lane.Change{Kind: lane.Promoted, SKU: "sku-" + strconv.Itoa(i), Asked: 600, Window: time.Second})
	}
	if n := seen.Len(); n < lanesLoggedBurst || n > 2*lanesLoggedBurst {
		t.Errorf("%d lines", n)
	}
	if first := seen.All()[0].ContextMap(); first["sku"] != "sku-0" || first["rate"] != 600.0 {
		t.Errorf("the first line says %v", first)
	}
}
