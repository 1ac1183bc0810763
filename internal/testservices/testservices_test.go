package testservices

import (
	"database/sql"
	"testing"
)

func TestRedisRestartsEmptyOnTheSamePort(t *testing.T) {
	r := StartRedis(t)
	addr := r.Addr
	r.Kill()
	if err := r.ping(); err == nil {
		t.Fatal("a killed Redis answers")
	}
	r.Start()
	if r.Addr != addr {
		t.Fatalf("address moved from %s to %s", addr, r.Addr)
	}
	if err := r.ping(); err != nil {
		t.Fatal(err)
	}
}

func TestPostgresKeepsItsDataOverAKill(t *testing.T) {
	pg := StartPostgres(t)
	dsn := pg.Database()
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE TABLE kept AS SELECT 7 AS n"); err != nil {
		t.Fatal(err)
	}
	pg.Kill()
	pg.Start()
	again, err := sql.Open("postgres", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	var n int
	if err := again.QueryRow("SELECT n FROM kept").Scan(&n); err != nil || n != 7 {
		t.Fatalf("n = %d, %v", n, err)
	}
}

func TestFailoverLeavesAReadOnlyServerAndAPrimaryWithItsData(t *testing.T) {
	pg := StartPostgres(t)
	dsn := pg.Database()
	exec := func(dsn, statement string) error {
		db, err := sql.Open("postgres", dsn)
		if err != nil {
			return err
		}
		defer db.Close()
		_, err = db.Exec(statement)
		return err
	}
	if err := exec(dsn, "CREATE TABLE kept AS SELECT 7 AS n"); err != nil {
		t.Fatal(err)
	}
	primary := pg.Failover()
	if err := exec(dsn, "SELECT n FROM kept"); err != nil {
		t.Errorf("the old primary cannot be read: %v", err)
	}
	if err := exec(dsn, "UPDATE kept SET n = 8"); err == nil {
		t.Error("the old primary can be written to")
	}
	if err := exec(primary.DSN("t1"), "UPDATE kept SET n = 8"); err != nil {
		t.Errorf("the new primary: %v", err)
	}
}

func TestPgBouncerSharesItsFewConnections(t *testing.T) {
	pg := StartPostgres(t)
	pg.Database()
	b := StartPgBouncer(t, pg, 2)
	db, err := sql.Open("postgres", "postgres://stockgate@"+b.Addr+"/t1?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxIdleConns(10)
	for range 10 {
		c, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.PingContext(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var n int
	if err := db.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE datname = 't1'").Scan(&n); err != nil || n > 2 {
		t.Fatalf("%d connections of the server behind 10 clients (%v), want at most 2", n, err)
	}
}

func TestSentinelsReplaceAKilledMaster(t *testing.T) {
	t.Parallel()
	s := StartSentinel(t)
	old := s.Master()
	if old != s.Nodes[0] {
		t.Fatalf("the master is %v", old)
	}
	old.Kill()
	if now := s.AwaitFailover(old); now == old {
		t.Fatal("the master stayed")
	}
}

func TestClusterReplacesAKilledMasterAndMovesSlots(t *testing.T) {
	t.Parallel()
	c := StartCluster(t)
	slot := c.Slot("x")
	old := c.MasterOf(slot)
	other := c.Nodes[0]
	if other == old {
		other = c.Nodes[1]
	}
	old.line("SET", "x", "7")
	c.BeginMove(slot, old, other)
	c.EndMove(slot, old, other)
	if got := other.line("GET", "x"); got != "7" {
		t.Fatalf("the key moved with its slot: %q", got)
	}
	other.Kill()
	if now := c.AwaitFailover(slot, other); now == other {
		t.Fatal("the master stayed")
	}
}

// A stale replica is promoted: what the master took after it had been cut off is gone. Afterwards everything can be healed.
func TestAStaleReplicaIsPromoted(t *testing.T) {
	t.Parallel()
	c, s := StartCluster(t), StartSentinel(t)
	slot := c.Slot("x")
	for name, set := range map[string]struct {
		master  func() *Redis
		replace func(old *Redis) error
		heal    func()
	}{
		"cluster":  {func() *Redis { return c.MasterOf(slot) }, c.Replace, c.Heal},
		"sentinel": {s.Master, func(*Redis) error { return s.Replace() }, s.Heal},
	} {
		t.Run(name, func(t *testing.T) {
			old := set.master()
			old.line("SET", "x", "before")
			old.line("WAIT", "1", "5000")
			if err := old.HoldReplicas(); err != nil {
				t.Fatal(err)
			}
			old.line("SET", "x", "after")
			if err := set.replace(old); err != nil {
				t.Fatal(err)
			}
			Await(t, "another master", func() bool { m := set.master(); return m != nil && m != old && m.isMaster() == nil })
			now := set.master()
			if got := now.line("GET", "x"); got != "before" {
				t.Errorf("the promoted replica has %q", got)
			}
			now.Kill()
			set.heal()
			if m := set.master(); m == nil || m.isMaster() != nil {
				t.Errorf("after healing the master is %v", m)
			}
		})
	}
}

func TestASlotMovesInOneGo(t *testing.T) {
	t.Parallel()
	c := StartCluster(t)
	slot := c.Slot("x")
	from := c.MasterOf(slot)
	from.line("SET", "x", "7")
	masters, err := c.Masters()
	if err != nil {
		t.Fatal(err)
	}
	to := masters[0]
	if to == from {
		to = masters[1]
	}
	if err := c.MoveSlot(slot, from, to); err != nil {
		t.Fatal(err)
	}
	if got := c.MasterOf(slot); got != to || to.line("GET", "x") != "7" {
		t.Errorf("the slot is with %v", got)
	}
	c.Heal()
}
