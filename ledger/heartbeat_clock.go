package ledger

import (
	"time"

	"github.com/stockgate/stockgate/internal/clockstep"
)

const (
	// clockGrain is how exact the database tells its clock: SQLite to the millisecond, cut off.
	clockGrain = time.Millisecond
	// clockKept is how many beats a measurement stands that later, slower ones do not contradict. In that time clocks drift by far less
	// than clockGrain.
	clockKept = 8
)

// clockOffset is the database's clock beside ours, as one beat measured it.
type clockOffset struct {
	// database and ours were the same moment, give or take uncertainty. ours has a monotonic reading, so that a step of our wall clock
	// changes nothing; database has none.
	database, ours time.Time
	uncertainty    time.Duration
	age            int // beats since
}

// at is the database's clock at a moment of ours.
func (c *clockOffset) at(ours time.Time) time.Time { return c.database.Add(ours.Sub(c.ours)) }

// measure takes in what a beat says of the clocks. The database read its clock at some moment of the round trip; with the middle taken
// for it, the error is at most half the trip.
func (h *Heartbeat) measure(database, sent time.Time, took time.Duration) {
	now := &clockOffset{database: database.Round(0), ours: sent.Add(took / 2), uncertainty: took/2 + clockGrain}
	if was := h.clock.Load(); was != nil && was.age < clockKept && was.within(now) {
		kept := *was
		kept.age++
		now = &kept
	}
	h.clock.Store(now)
}

// within reports whether c is the more exact one of two measurements that may both be right.
func (c *clockOffset) within(other *clockOffset) bool {
	return c.at(other.ours).Sub(other.database).Abs()+c.uncertainty <= other.uncertainty
}

// Now is the database's clock, give or take the uncertainty of Offset. Zero: no beat yet. It does not block.
func (h *Heartbeat) Now() time.Time {
	c := h.clock.Load()
	if c == nil {
		return time.Time{}
	}
	return c.at(clockstep.Now())
}

// Offset is how far the database's clock is ahead of this process's, and how wrong that may be at most: half the round trip of the beat
// that measured it, and a millisecond. So database time is time.Now().Add(offset), give or take uncertainty. A slow beat does not replace
// a quick one of the last few that agrees with it. ok is false before the first beat; without new beats the last one stands. It does not
// block.
func (h *Heartbeat) Offset() (offset, uncertainty time.Duration, ok bool) {
	c := h.clock.Load()
	if c == nil {
		return 0, 0, false
	}
	now := clockstep.Now()
	return c.at(now).Sub(now), c.uncertainty, true // by the wall clocks: one of them has no monotonic reading
}
