package ratelimit

// tier is a rate and a burst that values of a limit have: the limit's own, or those of an override. It does not change: a new rate is
// a new tier.
type tier struct {
	path  string // key in the configuration, for refusals
	value string // as configured, for refusals

	rate  float64 // tokens a second of a bucket of this replica
	burst float64 // tokens of a full one
	whole struct {
		rate  float64 // of all replicas, of a limit of scope fleet; else as above
		burst int64
	}
	exempt bool // the limit does not apply
}

// bucket is the state of one key. A bucket is brought up to date when it is asked for, never in between.
type bucket struct {
	hash   uint64  // 0: the slot is free
	tier   *tier   // that it ran under until it was last asked for
	tokens float64 // that it had at last
	last   int64   // on the shard's clock, in ns
	lease  int32   // place of its lease, from 1 on; 0: none
	second uint16  // when count began to rise from 0, in seconds mod 2^16
	count  uint16  // tokens of the share taken and not told, if the limit is leased and there is no lease
}

const nanosecond = 1e-9

// at is what the bucket holds at now, which is not before last, if it can hold room tokens. It is not stored until some are taken, so
// that looking often loses nothing to rounding.
func (b *bucket) at(now int64, room float64) float64 {
	return min(b.tokens+b.tier.rate*(float64(now-b.last)*nanosecond), room)
}

// take uses n of the tokens that at told.
func (b *bucket) take(now int64, tokens, n float64) { b.tokens, b.last = tokens-n, now }

// bring puts the bucket under another tier. Time up to changed is paid at the old rate, time after it at the new one.
func (b *bucket) bring(t *tier, changed int64) {
	at := max(changed, b.last)
	b.take(at, b.at(at, b.tier.burst), 0)
	b.tier = t
}
