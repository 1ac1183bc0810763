package ledger

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
)

// Meta is what a deployment is: its id takes part in every reservation id, partitions and prefix in every Redis key.
type Meta struct {
	Deployment string
	Partitions int
	Prefix     string
}

// Prepare checks the stock table and joins the deployment: the first caller founds it, everybody else must agree with its
// partitions and prefix. The tables must be there: see Migrate. A SQLite file that another process has is ErrFileInUse; from here on it
// is this process's until Close.
func (s *Store) Prepare(ctx context.Context) (Meta, error) {
	if err := s.d.own(ctx); err != nil {
		return Meta{}, err
	}
	var meta Meta
	err := s.inTx(ctx, func(c *conn) error {
		if err := s.d.checkStock(ctx, c, s.cfg.Stock); err != nil {
			return fmt.Errorf("database.stock: %w", err)
		}
		var err error
		meta, err = s.join(c)
		return err
	})
	if err != nil {
		return Meta{}, err
	}
	if meta.Partitions != s.cfg.Partitions {
		return Meta{}, fmt.Errorf("redis.partitions is %d, but this database was prepared with %d: partitions are fixed for the life of a deployment",
			s.cfg.Partitions, meta.Partitions)
	}
	if meta.Prefix != s.cfg.Prefix {
		return Meta{}, fmt.Errorf("redis.prefix is %q, but this database was prepared with %q", s.cfg.Prefix, meta.Prefix)
	}
	return meta, nil
}

func (s *Store) join(c *conn) (Meta, error) {
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return Meta{}, err
	}
	err := c.exec(s.d.expand(`INSERT INTO {meta} (one, deployment, partitions, prefix) VALUES (true, $1, $2, $3) ON CONFLICT DO NOTHING`),
		hex.EncodeToString(id[:]), s.cfg.Partitions, s.cfg.Prefix)
	if err != nil {
		return Meta{}, err
	}
	var m Meta
	err = c.row(s.d.expand(`SELECT deployment, partitions, prefix FROM {meta}`), nil, &m.Deployment, &m.Partitions, &m.Prefix)
	return m, err
}
