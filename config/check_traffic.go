package config

import (
	"strconv"

	"github.com/stockgate/stockgate/stock"
)

func (ch *checker) checkTraffic() {
	ch.unique("limits", "name", mapped(ch.Limits, func(l Limit) string { return l.Name }))
	for i, l := range ch.Limits {
		ch.checkLimit(ch.origin.element("limits", i, l.Name), l)
	}
	h := ch.Hotspot
	ch.checkLane("hotspot.lane", h.Lane)
	ch.checkLane("hotspot.shared", h.Shared.Lane())
	for sku, o := range h.Overrides {
		path := entryPath("hotspot.overrides", sku, field{brackets: true})
		err := stock.CheckSKU(sku)
		ch.failIf(err != nil, path, "must be a SKU: 1 to 128 bytes of A-Z a-z 0-9 . _ : -", "")
		ch.checkLane(path, o.Lane())
	}
	q := ch.Fallback.Queue
	ch.failIf(q.PerSKU > q.Total, "fallback.queue.per_sku", "must not be above fallback.queue.total ("+strconv.Itoa(q.Total)+")",
		strconv.Itoa(q.PerSKU), "fallback.queue.total")
}

// checkLane: a bucket that holds no token never lets anyone pass, and a queue without time to wait in never holds anyone.
func (ch *checker) checkLane(path string, l Lane) {
	rate, burst := under(path, "rate"), under(path, "burst")
	elsewhere := ch.inherited(rate) && ch.inherited(burst)
	ch.failIf(!l.Rate.IsZero() && l.Burst == 0 && !elsewhere, burst, "must be at least 1 with a rate of "+l.Rate.String(), "0",
		rate)
	queue, wait := under(path, "queue"), under(path, "max_wait")
	elsewhere = ch.inherited(queue) && ch.inherited(wait)
	ch.failIf(l.Queue > 0 && l.MaxWait == 0 && !elsewhere, wait, "must be above 0s with a queue of "+strconv.Itoa(l.Queue), "0s", queue)
}
