package ratelimit

import (
	"fmt"
	"slices"
	"time"
)

// SetReplicas divides the limits of scope fleet by n live replicas (at least 1) from now on. Concurrent calls are done one after the
// other. It holds up no request.
func (f *Filter) SetReplicas(n int, now time.Time) {
	n = max(n, 1)
	f.mu.Lock()
	defer f.mu.Unlock()
	if n == f.replicas {
		return
	}
	f.replicas = n
	if f.asking != nil {
		f.asking.active.Store(n > 1)
	}
	limits := slices.Clone(*f.limits.Load())
	for i, l := range limits {
		if l.Fleet {
			limits[i] = l.over(l.Limit, l.keys, n, int64(now.Sub(f.start)))
		}
	}
	f.limits.Store(&limits)
}

// Reconfigure puts the limits of cfg in force from now on, all at once; its error lists all problems of cfg, and nothing has changed
// then. cfg.Validate says before whether it will do, so a change of several parts can be all or nothing.
//
// A limit goes on with its buckets and counters if its name, key, Fleet and WarmUp are as before: then a new rate, burst, override, route,
// or Shadow gives no client a token. Time before now is paid at the old rate, time after it at the new one, and a bucket never holds more
// than the new burst. Any other limit begins with full buckets. A smaller Keys gives no memory back, but no more is taken. The Lessor
// stays that of New. It holds up no request; one on its way may still be decided by the old limits.
func (f *Filter) Reconfigure(cfg Config, now time.Time) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("limits stay as they are: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	before := *f.limits.Load()
	var limits []*limit
	for _, next := range cfg.Limits {
		limits = append(limits, f.following(before, next, cfg.keys(), int64(now.Sub(f.start))))
	}
	f.limits.Store(&limits)
	return nil
}

func (f *Filter) following(before []*limit, next Limit, keys int, now int64) *limit {
	for _, l := range before {
		if l.follows(&next) {
			return l.over(next, keys, f.replicas, now)
		}
	}
	fresh := newLimit(next, keys, f.asking)
	if f.replicas > 1 && next.Fleet {
		return fresh.over(next, keys, f.replicas, now)
	}
	return fresh
}
