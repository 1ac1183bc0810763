package luascripts

import (
	"fmt"
	"testing"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/stock"
)

// An entry that is closed before the fact of its settle is known frees units of a grant that are sold already. So facts go first, and
// closings are not kept without theirs.
func TestClosingsComeNoSoonerThanTheirFacts(t *testing.T) {
	t.Parallel()
	c := &Client{cfg: Config{BatchMax: 128, PendingMax: 200}, log: zap.NewNop()}
	v := &closer{c: c, latest: map[string]stock.Fact{}, running: true}
	fact := func(i int) []stock.Fact {
		return []stock.Fact{{SKU: fmt.Sprint("s", i), Epoch: 1, Ver: 1, Ahead: true}}
	}
	one := []stock.Closing{{ID: stock.ID{1}, Try: 1, Won: true}}
	for i := range 200 {
		v.add(nil, fact(i))
	}
	v.add(one, fact(7))
	v.add(one, fact(200)) // there is no room for its fact
	if n := v.dropped.Load(); n != 1 {
		t.Errorf("%d closings dropped, want the one whose fact could not be kept", n)
	}
	for _, want := range [][2]int{{128, 0}, {72, 1}} {
		if v.take(); len(v.facts) != want[0] || len(v.closings) != want[1] {
			t.Fatalf("%d facts and %d closings, want %v", len(v.facts), len(v.closings), want)
		}
	}
	v.add(one, fact(1))
	v.take()
	v.add(one, nil)
	if n := v.dropPending(); n != 1 || v.waiting() != 0 {
		t.Errorf("%d closings given up with facts, %d wait, want 1 and none", n, v.waiting())
	}
}
