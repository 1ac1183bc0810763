package admission

import (
	"slices"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// observe keeps facts in memory and wakes whoever waits for them.
func (a *Admitter) observe(facts []stock.Fact) {
	now := time.Now()
	for _, f := range facts {
		a.leaves(f.SKU, f.Left(), f.Ver, now)
		a.lines.news(f.SKU)
		a.allowed.changed(&f)
	}
}

// leaves keeps what was left of a SKU at ver, and says so when it is nothing: who still waits in its lane waits in vain.
func (a *Admitter) leaves(sku string, left, ver int64, now time.Time) {
	if a.flags.set(sku, left, ver, now) {
		a.emptied(sku)
	}
}

func (a *Admitter) publish(p int, closings []stock.Closing, facts []stock.Fact) {
	if a.cache != nil && len(closings)+len(facts) > 0 {
		a.cache.Close(p, closings, facts)
	}
}

// publishTo sends closings to every partition of a request's lines, and each fact to its own.
func (a *Admitter) publishTo(r *wanted, closings []stock.Closing, facts []stock.Fact) {
	if r.parts == nil {
		a.publish(r.first, closings, facts)
		return
	}
	for _, p := range r.parts {
		a.publish(p, closings, a.factsOf(p, facts))
	}
}

// factsOf are the facts of partition p.
func (a *Admitter) factsOf(p int, facts []stock.Fact) []stock.Fact {
	var own []stock.Fact
	for i := range facts {
		if stock.Partition(facts[i].SKU, a.cfg.Partitions) == p {
			own = append(own, facts[i])
		}
	}
	return own
}

// Observe takes facts that others made: the control API after a change. It keeps them in memory only.
func (a *Admitter) Observe(facts []stock.Fact) {
	a.loader.forget(facts)
	a.observe(facts)
}

// Publish takes the result of an op that was not submitted here (confirm, release, a change of stock) and tells memory and Redis.
func (a *Admitter) Publish(op *stock.Op) {
	a.Observe(op.Result.Facts)
	row := op.Result.Row
	if op.Kind == stock.OpBook && row != nil && len(op.Result.Facts) == 0 && a.sale.AnyEventual() {
		// It moved nothing, so it has no facts. If Redis has not heard that of the settle either, its units of a grant must stay taken: the
		// entry goes with the settle's own close, or the sweeper's.
		a.closeClaim(&row.Reservation, true)
		return
	}
	a.publishRow(row, op.Result.Facts)
}

// publishRow closes a row's id in the partitions of its SKUs and sends facts to those of theirs.
func (a *Admitter) publishRow(row *stock.Row, facts []stock.Fact) {
	var own []int
	if row != nil {
		own = a.partitionsOf(row.Lines)
		closings := []stock.Closing{{ID: row.ID, Try: row.Try, Fingerprint: row.Fingerprint, Won: winner(row)}}
		for _, p := range own {
			a.publish(p, closings, a.factsOf(p, facts))
		}
		a.closeClaim(&row.Reservation, true)
	}
	for i := range facts {
		if p := stock.Partition(facts[i].SKU, a.cfg.Partitions); !slices.Contains(own, p) {
			a.publish(p, nil, facts[i:i+1])
		}
	}
}

// closeTry tells the partitions of a reservation's lines that its try came to nothing.
func (a *Admitter) closeTry(r *stock.Reservation) {
	for _, p := range a.partitionsOf(r.Lines) {
		a.publish(p, []stock.Closing{{ID: r.ID, Try: r.Try}}, nil)
	}
}

// partitionsOf are the partitions of lines, each once.
func (a *Admitter) partitionsOf(lines []stock.Line) []int {
	var parts []int
	for i := range lines {
		if p := stock.Partition(lines[i].SKU, a.cfg.Partitions); !slices.Contains(parts, p) {
			parts = append(parts, p)
		}
	}
	return parts
}
