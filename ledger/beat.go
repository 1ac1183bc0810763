package ledger

import (
	"context"
	"database/sql"
	"fmt"
)

// forgetReplicas: a replica silent for this many replica_timeouts is forgotten.
const forgetReplicas = 10

// Beat says that the gateway is alive, whether it reaches Redis, and which partitions' nodes it does not reach (out, by partition; nil:
// none), and tells how the fleet is. The gateway's own row is written first, so that whoever reads epochs after its own Beat is counted by
// whoever waits for all replicas. It blocks on the database, within ctx.
func (s *Store) Beat(ctx context.Context, gatewayID string, redisOK bool, out []bool) (Pulse, error) {
	var pulse Pulse
	err := s.inTx(ctx, func(c *conn) error {
		err := c.exec(s.d.expand(`INSERT INTO {gateway} (id, seen_at, redis_ok, redis_out) VALUES ($1, {now}, $2, $3)
			ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, redis_ok = excluded.redis_ok, redis_out = excluded.redis_out`),
			gatewayID, redisOK, outText(out))
		if err != nil {
			return err
		}
		if err := s.forget(c); err != nil {
			return err
		}
		pulse, err = s.pulse(c, gatewayID)
		return err
	})
	return pulse, err
}

// pulse reads how the fleet is, the gateway itself included, however long ago it was seen.
func (s *Store) pulse(c *conn, gatewayID string) (Pulse, error) {
	pulse := Pulse{AllRedisOK: true}
	counts := make(outCounts, s.cfg.Partitions)
	var now instant
	err := c.rows(s.d.expand(`SELECT redis_ok, redis_out, {now} FROM {gateway} WHERE seen_at > {before $1} OR id = $2`),
		[]any{s.cfg.ReplicaTimeout.Microseconds(), gatewayID}, func(rows *sql.Rows) error {
			var ok bool
			var out string
			if err := rows.Scan(&ok, &out, &now); err != nil {
				return err
			}
			pulse.Live++
			pulse.AllRedisOK = pulse.AllRedisOK && ok
			return counts.add(out)
		})
	pulse.Now = now.Time
	pulse.Out = counts.orNil()
	return pulse, err
}

// forget drops the rows of replicas that have long been silent. One that leaves a draining partition undrained is noted as doubtful first:
// whoever completes the draining would not find it any more.
func (s *Store) forget(c *conn) error {
	silent := forgetReplicas * s.cfg.ReplicaTimeout.Microseconds()
	var gone []string
	err := c.rows(s.d.expand("SELECT id FROM {gateway} WHERE seen_at <= {before $1} ORDER BY id"), []any{silent}, func(rows *sql.Rows) error {
		var id string
		err := rows.Scan(&id)
		gone = append(gone, id)
		return err
	})
	if err != nil || len(gone) == 0 {
		return err
	}
	err = c.exec(s.d.expand(`INSERT INTO {doubtful} (gateway, p, epoch, at)
		SELECT g.id, s.p, s.drain_epoch, {now} FROM {gateway} g CROSS JOIN {partition_state} s
		WHERE g.id {in $1} AND g.seen_at <= {before $2} AND s.ahead AND s.state = 'draining' AND NOT EXISTS
			(SELECT 1 FROM {drained} d WHERE d.gateway = g.id AND d.p = s.p AND d.epoch >= s.drain_epoch)
		ON CONFLICT (gateway, p) DO UPDATE SET epoch = excluded.epoch`), s.d.list(gone), silent)
	if err != nil {
		return err
	}
	err = c.exec(s.d.expand("DELETE FROM {gateway} WHERE id {in $1} AND seen_at <= {before $2}"), s.d.list(gone), silent)
	if err != nil {
		return err
	}
	// What it said of a draining that is still under way stands: it may come back, and says so once.
	return c.exec(s.d.expand(`DELETE FROM {drained} WHERE gateway {in $1}
		AND NOT EXISTS (SELECT 1 FROM {gateway} g WHERE g.id = {drained}.gateway)
		AND NOT EXISTS (SELECT 1 FROM {partition_state} s WHERE s.p = {drained}.p AND s.state = 'draining')`), s.d.list(gone))
}

// Leave ends a replica that stops in good order: nothing is in flight, and all that it forwarded is settled. Its row goes, so that nobody
// waits for it, and so do the doubts about it. Called too early it hides what the replica has sold: when in doubt, do not call it.
func (s *Store) Leave(ctx context.Context, gatewayID string) error {
	return s.inTx(ctx, func(c *conn) error {
		for _, table := range []string{"{gateway} WHERE id", "{doubtful} WHERE gateway", "{drained} WHERE gateway"} {
			if err := c.exec(s.d.expand("DELETE FROM "+table+" = $1"), gatewayID); err != nil {
				return err
			}
		}
		return nil
	})
}

// Alive tells of each gateway whether its last heartbeat is younger than replica_timeout, by the database's clock. One without a row is
// not alive.
func (s *Store) Alive(ctx context.Context, ids []string) (map[string]bool, error) {
	alive := make(map[string]bool, len(ids))
	for _, id := range ids {
		alive[id] = false
	}
	if len(ids) == 0 {
		return alive, nil
	}
	err := s.read(ctx, func(c *conn) error {
		return c.rows(s.d.expand("SELECT id FROM {gateway} WHERE id {in $1} AND seen_at > {before $2}"),
			[]any{s.d.list(ids), s.cfg.ReplicaTimeout.Microseconds()}, func(rows *sql.Rows) error {
				var id string
				err := rows.Scan(&id)
				alive[id] = true
				return err
			})
	})
	if err != nil {
		return nil, err
	}
	return alive, nil
}

// outText is which partitions are out, a bit each in hex, partition 0 first; "" for none.
func outText(out []bool) string {
	const digits = "0123456789abcdef"
	text, last := make([]byte, (len(out)+3)/4), 0
	nibbles := make([]byte, len(text))
	for p, isOut := range out {
		if isOut {
			nibbles[p/4] |= 8 >> (p % 4)
			last = p/4 + 1
		}
	}
	for i, n := range nibbles {
		text[i] = digits[n]
	}
	return string(text[:last])
}

// outCounts is, by partition, how many replicas do not reach its node.
type outCounts []int

// add counts what one replica said. Bits beyond the deployment's partitions mean nothing.
func (n outCounts) add(text string) error {
	for i := range len(text) {
		nibble, err := nibbleOf(text[i])
		if err != nil {
			return err
		}
		for bit := range 4 {
			if p := 4*i + bit; p < len(n) && nibble&(8>>bit) != 0 {
				n[p]++
			}
		}
	}
	return nil
}

func nibbleOf(c byte) (byte, error) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', nil
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, nil
	}
	return 0, fmt.Errorf("gateway.redis_out has %q, it must be hex", c)
}

func (n outCounts) orNil() []int {
	for _, count := range n {
		if count > 0 {
			return n
		}
	}
	return nil
}
