package admission

import (
	"strings"
	"testing"

	"github.com/stockgate/stockgate/stock"
)

// An order that takes nothing in Redis is not counted while it waits, so its claim's partition may drain, lose the claim and come back.
// Before the order is settled by the database alone it is claimed again, and counted until its commit.
func TestAClaimOfAnEarlierEpochIsMadeAgain(t *testing.T) {
	b := sellAhead(t, nil)
	b.backend = &fakeBackend{unique: true}
	b.cache.claim = func(int, *stock.Reservation, stock.Try) (stock.ClaimReply, error) {
		return stock.ClaimReply{Code: stock.ClaimOurs, IDsLoaded: true, Epoch: b.epoch.Load()}, nil
	}
	b.cache.reserve = func(int, *stock.Reservation) (stock.CacheReply, error) {
		b.epoch.Store(2)
		return stock.CacheReply{Code: stock.CacheDraining, Epoch: 1}, nil
	}
	counted := false
	answer := b.ledger.do
	b.ledger.do = func(n int, op *stock.Op) error {
		for p := range 4 {
			counted = counted || !b.aheads.Idle(p, 3)
		}
		return answer(n, op)
	}
	if d := b.admit("k"); d.Pass == nil {
		t.Fatalf("%+v, refusal %+v", d, d.Refusal)
	}
	if said := b.cache.said(); strings.Count(strings.ReplaceAll(said, "claim won", ""), "claim") != 2 || !counted {
		t.Errorf("calls to redis: %s; counted: %v", said, counted)
	}
}

// A booking moves no units and has no facts. It ends no entry: if the settle's close was lost, Redis would sell its units of the grant
// again until it hears the settle's fact.
func TestABookingEndsNoEntryWithoutAFact(t *testing.T) {
	b := sellAhead(t, nil)
	r := stock.Reservation{ID: stock.ID{1}, Try: 7, Lines: wish("k").Lines, Keyed: true}
	b.Publish(&stock.Op{Kind: stock.OpBook, Result: stock.Result{Verdict: stock.VerdictDone, Row: &stock.Row{Reservation: r, State: stock.StateHeld}}})
	if said := b.cache.said(); said != "claim won" {
		t.Errorf("calls to redis: %s", said)
	}
}
