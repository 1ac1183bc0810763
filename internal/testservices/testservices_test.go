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
