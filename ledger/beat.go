package ledger

import "context"

// forgetReplicas: a replica silent for this many replica_timeouts is forgotten.
const forgetReplicas = 10

// Beat says that the gateway is alive and whether it reaches Redis, and tells how the fleet is. The gateway's own row is written
// first, so that whoever reads epochs after its own Beat is counted by whoever waits for all replicas.
func (s *Store) Beat(ctx context.Context, gatewayID string, redisOK bool) (Pulse, error) {
	var pulse Pulse
	timeout := s.cfg.ReplicaTimeout.Microseconds()
	err := s.inTx(ctx, func(c *conn) error {
		err := c.exec(s.d.expand(`INSERT INTO {gateway} (id, seen_at, redis_ok) VALUES ($1, {now}, $2)
			ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, redis_ok = excluded.redis_ok`), gatewayID, redisOK)
		if err != nil {
			return err
		}
		if err := c.exec(s.d.expand(`DELETE FROM {gateway} WHERE seen_at <= {before $1}`), forgetReplicas*timeout); err != nil {
			return err
		}
		var now instant
		err = c.row(s.d.expand(`SELECT count(*), min(CASE WHEN redis_ok THEN 1 ELSE 0 END) = 1, {now} FROM {gateway}
			WHERE seen_at > {before $1} OR id = $2`), []any{timeout, gatewayID}, &pulse.Live, &pulse.AllRedisOK, &now)
		pulse.Now = now.Time
		return err
	})
	return pulse, err
}
