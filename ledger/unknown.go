package ledger

import (
	"context"
	"time"
)

// Unknowns is how many held reservations are of unknown outcome, those in flight included, and for how long the oldest has been; 0 if
// there is none. Time never ends them (I6), so somebody has to look at those that grow old.
func (s *Store) Unknowns(ctx context.Context) (count int64, oldest time.Duration, err error) {
	err = s.read(ctx, func(c *conn) error {
		var first, now instant
		query := s.d.expand(`SELECT count(*), COALESCE(min(created_at), {now}), {now} FROM {reservation} WHERE state = 'held' AND outcome = 'unknown'`)
		if err := c.row(query, nil, &count, &first, &now); err != nil {
			return err
		}
		oldest = max(now.Sub(first.Time), 0)
		return nil
	})
	return count, oldest, err
}
