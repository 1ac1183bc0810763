package ledger

import "database/sql"

// PoolStats is how full the pool of connections to the database is; for metrics.
type PoolStats struct {
	Most   int    // Config.MaxConnections
	Busy   int    // connections of calls under way
	Idle   int    // open, waiting for a call
	Waited uint64 // calls that had to wait for a connection, since the start
}

// Pool is a snapshot. It does not ask the database.
func (s *Store) Pool() PoolStats {
	var sum PoolStats
	for _, of := range s.d.pools() {
		sum.Most += of.MaxOpenConnections
		sum.Busy += of.InUse
		sum.Idle += of.Idle
		sum.Waited += uint64(of.WaitCount)
	}
	return sum
}

func (p *postgres) pools() []sql.DBStats { return []sql.DBStats{p.db.Stats()} }
func (l *sqlite) pools() []sql.DBStats   { return []sql.DBStats{l.writer.Stats(), l.reader.Stats()} }
