package ratelimit

// Stats counts what one limit did. The counters only rise, as long as Reconfigure lets the limit go on; names come from the configuration
// alone, so they are good metric labels.
type Stats struct {
	Limit   string // name of the limit
	Passed  uint64 // requests that took a token
	Refused uint64 // requests that this limit refused
	// WouldRefuse are those that a limit in shadow let pass without a token.
	WouldRefuse uint64
	Overflowed  uint64 // those of both that shared the overflow bucket
	Evicted     uint64 // full buckets that made room
	Keys        int    // buckets kept now
	Leases      int    // keys that lease their tokens now
	Answered    uint64 // questions for tokens of the fleet that were answered
	Failed      uint64 // those that were not: the key went on with its share
}

// Stats returns the counters of every limit, in the order of the limits. It locks a shard at a time.
func (f *Filter) Stats() []Stats {
	all := make([]Stats, 0, LimitsMax)
	for _, l := range *f.limits.Load() {
		all = append(all, l.stats())
	}
	return all
}

func (l *limit) stats() Stats {
	sum := Stats{Limit: l.Name}
	l.table.each(func(s *shard, overflow bool) {
		sum.Passed += s.passed
		sum.Refused += s.refused
		sum.WouldRefuse += s.wouldRefuse
		if overflow {
			sum.Overflowed += s.passed + s.refused + s.wouldRefuse
			return
		}
		sum.Evicted += s.evicted
		sum.Answered += s.answered
		sum.Failed += s.failed
		sum.Leases += len(s.leases.list) - len(s.leases.free)
		sum.Keys += len(s.index)
	})
	return sum
}
