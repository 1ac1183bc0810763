package main

import (
	"context"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/config"
	"github.com/stockgate/stockgate/gateway"
	"github.com/stockgate/stockgate/gateway/rules"
	"github.com/stockgate/stockgate/stock"
)

// rulesTable is the database's table of rules.
type rulesTable struct {
	newest stock.Admission
	seen   bool
}

func (r *rulesTable) Admission(context.Context) (stock.Admission, error) { return r.newest, nil }

func (r *rulesTable) StoreAdmission(_ context.Context, content string, version int64) (stock.Admission, bool, error) {
	if !r.seen {
		r.newest = stock.Admission{Version: max(version, r.newest.Version+1), Content: content}
	}
	return r.newest, r.seen, nil
}

func saleOf(t *testing.T, activity config.Activity, clock func() time.Time) (*sale, *rulesTable) {
	t.Helper()
	cfg := config.Demo(t.TempDir(), config.DemoAddresses{})
	cfg.Activities = []config.Activity{activity}
	table := &rulesTable{}
	s, err := newSale(cfg, table, clock, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	return s, table
}

// ownRules are those that the sale's configuration has.
func ownRules(t *testing.T, s *sale) *rules.Rules {
	t.Helper()
	own, err := rules.Parse([]byte(s.offered.Load().content))
	if err != nil {
		t.Fatal(err)
	}
	return own
}

func activity(starts time.Time) config.Activity {
	return config.Activity{ID: "sale", Starts: starts, Ends: starts.Add(time.Hour), SKUs: []config.Pattern{"sku-*"}, PurchaseLimit: 2,
		Hold: config.Duration(10 * time.Minute), LateConfirm: config.LateRetake, Outside: config.OutsideRefuse}
}

// Windows follow the database's clock, however wrong ours is.
func TestWindowsFollowTheDatabasesClock(t *testing.T) {
	database := time.Now().Add(-3 * time.Hour)
	s, _ := saleOf(t, activity(database.Add(time.Minute)), func() time.Time { return database })
	_, refusal := s.Terms("sku-1", "")
	if refusal == nil || refusal.Code != stock.CodeNotStarted || !refusal.Starts.Equal(database.Add(time.Minute)) {
		t.Fatalf("a minute before the start: %+v", refusal)
	}
	if refusal.RetryAfter != time.Minute {
		t.Errorf("a minute before the start: come again in %s", refusal.RetryAfter)
	}
	database = database.Add(time.Minute)
	terms, refusal := s.Terms("sku-1", "")
	if refusal != nil || terms.Activity != "sale" || terms.Limit != 2 || terms.Hold != 10*time.Minute {
		t.Fatalf("at the start: %+v, %+v", terms, refusal)
	}
	if got := s.activities(); len(got) != 1 || got[0].Phase != "open" {
		t.Errorf("activities %+v", got)
	}
	database = database.Add(time.Hour)
	if _, refusal = s.Terms("sku-1", ""); refusal == nil || refusal.Code != stock.CodeEnded || !refusal.Starts.IsZero() {
		t.Fatalf("at the end: %+v", refusal)
	}
}

// A newer version takes effect by itself; one that cannot be read leaves the present one in force.
func TestRulesAreThoseOfTheDatabase(t *testing.T) {
	now := time.Now()
	s, table := saleOf(t, activity(now), func() time.Time { return now })
	if err := s.join(t.Context()); err != nil || s.current.Load().version != 1 {
		t.Fatalf("join: version %d, %v", s.current.Load().version, err)
	}
	newer := ownRules(t, s)
	newer.Activities = newer.Activities[:1]
	newer.Activities[0].PurchaseLimit = 5
	table.newest = stock.Admission{Version: 2, Content: string(newer.Content())}
	if err := s.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if terms, _ := s.Terms("sku-1", ""); terms.Limit != 5 {
		t.Errorf("limit %d after version 2, want 5", terms.Limit)
	}
	table.newest = stock.Admission{Version: 3, Content: "{"}
	if err := s.pass(t.Context()); err == nil {
		t.Error("an unreadable version was taken")
	}
	if terms, _ := s.Terms("sku-1", ""); terms.Limit != 5 {
		t.Errorf("limit %d after an unreadable version, want that of version 2", terms.Limit)
	}
}

// A replica with rules that the database has seen before sells by the newest ones.
func TestOldRulesDoNotComeBackWithARestart(t *testing.T) {
	now := time.Now()
	s, table := saleOf(t, activity(now), func() time.Time { return now })
	newer := ownRules(t, s)
	newer.Defaults.MaxQty = 3
	table.newest, table.seen = stock.Admission{Version: 7, Content: string(newer.Content())}, true
	if err := s.join(t.Context()); err != nil {
		t.Fatal(err)
	}
	if rule, _ := s.Rule("sku-1", ""); rule.MaxQty != 3 || s.current.Load().version != 7 {
		t.Errorf("rule %+v of version %d", rule, s.current.Load().version)
	}
}

func TestModeFollowsTheRules(t *testing.T) {
	now := time.Now()
	s, _ := saleOf(t, activity(now), func() time.Time { return now })
	own := ownRules(t, s)
	for i := range own.Routes {
		own.Routes[i].Shadow = true
	}
	if s.Mode("place-order", "sku-1") != gateway.Enforce {
		t.Error("the book changed with what it was made of")
	}
	if err := s.take(stock.Admission{Version: 1, Content: string(own.Content())}); err != nil {
		t.Fatal(err)
	}
	if route := own.Routes[0].Name; s.Mode(route, "sku-1") != gateway.Shadow || s.Mode(route, "") != gateway.Shadow {
		t.Error("shadow: true does not hold")
	}
}
