package admission

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"github.com/stockgate/stockgate/stock"
)

const (
	// unknownFor is how long a SKU that the database does not have is remembered as such.
	unknownFor = 5 * time.Second
	// unknownMax bounds that memory: beyond it an attacker's SKUs are limited by the load rate alone.
	unknownMax = 65_536
	// loadBurst is how many SKUs may be loaded at once from rest.
	loadBurst = 200
)

// loader brings SKUs from the database into Redis when a request finds them missing: one load per SKU at a time, at a bounded rate.
type loader struct {
	a       *Admitter
	facts   Facts
	limit   *rate.Limiter
	flights singleflight.Group

	mu      sync.Mutex
	unknown map[string]time.Time // SKU → when it may be asked for again
}

func newLoader(a *Admitter, facts Facts, perSecond float64) *loader {
	return &loader{a: a, facts: facts, limit: rate.NewLimiter(rate.Limit(perSecond), loadBurst), unknown: make(map[string]time.Time)}
}

// load loads the SKUs of lines. refused: the request ends here (no such SKU, too many loads, database gone). err: Redis failed or has
// another epoch, and the request has to go on without it.
func (l *loader) load(ctx context.Context, lines []stock.Line) (refused *Refusal, err error) {
	for _, line := range lines {
		if l.isUnknown(line.SKU) {
			return &Refusal{Code: stock.CodeUnknownSKU}, nil
		}
		v, err, _ := l.flights.Do(line.SKU, func() (any, error) {
			refused, err := l.fetch(ctx, line.SKU)
			return refused, err
		})
		if err != nil {
			return nil, err
		}
		if refused := v.(*Refusal); refused != nil {
			return refused, nil
		}
	}
	return nil, nil
}

func (l *loader) fetch(ctx context.Context, sku string) (*Refusal, error) {
	if !l.limit.Allow() {
		return &Refusal{Code: stock.CodeNotLoaded, Detail: "Too many SKUs are being loaded. Try again."}, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.a.cfg.QueueWait+l.a.cfg.Transaction)
	defer cancel()
	op := &stock.Op{Kind: stock.OpLoad, Class: stock.ClassPrededuct, SKU: sku, Deadline: time.Now().Add(l.a.cfg.QueueWait)}
	if err := l.a.ledger.Do(ctx, op); err != nil {
		return refuseErr(err), nil
	}
	if op.Result.Verdict != stock.VerdictDone {
		return l.verdict(sku, op.Result.Verdict), nil
	}
	l.a.observe(op.Result.Facts)
	p := stock.Partition(sku, l.a.cfg.Partitions)
	stale, err := l.a.cache.Load(ctx, p, op.Result.Facts)
	if stale {
		l.a.epochs.Stale(p)
		return nil, errors.Join(stock.ErrNotExecuted, errStaleLoad)
	}
	if err != nil {
		return nil, err
	}
	// A transaction that committed between ours and the load sent its fact to a key that was not there yet: read once more.
	now, err := l.facts.Facts(ctx, []string{sku})
	if err != nil {
		return &Refusal{Code: stock.CodeUnavailable}, nil
	}
	l.a.publish(p, nil, now)
	return nil, nil
}

var errStaleLoad = errors.New("redis has another epoch or run id")

func (l *loader) verdict(sku string, v stock.Verdict) *Refusal {
	if v == stock.VerdictUnknownSKU {
		l.remember(sku, time.Now())
	}
	return refusalOf(v)
}

func (l *loader) isUnknown(sku string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	until, known := l.unknown[sku]
	return known && time.Now().Before(until)
}

func (l *loader) remember(sku string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.unknown) >= unknownMax {
		for s, until := range l.unknown {
			if !now.Before(until) {
				delete(l.unknown, s)
			}
		}
		if len(l.unknown) >= unknownMax {
			return
		}
	}
	l.unknown[sku] = now.Add(unknownFor)
}

// forget lets a SKU be asked for at once: it has just been created.
func (l *loader) forget(facts []stock.Fact) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range facts {
		delete(l.unknown, f.SKU)
	}
}
