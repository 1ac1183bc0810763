package load

import (
	"net/http"
	"testing"
	"time"
)

func TestWatchDividesByMomentAndSKU(t *testing.T) {
	c := stub(t, placed)
	c.Plan.SKUs = []string{"a", "b"}
	c.Rate, c.Requests, c.Duration = 500, 400, time.Second
	c.Watch = &Watch{From: 400 * time.Millisecond, Apart: []string{"b"}}
	r := run(t, c)
	var want [2][2]int64 // by SKU, before and after
	for i := range c.Requests {
		side, after := 0, 0
		if c.Plan.Order(c.Plan.Identity(i)).SKU == "b" {
			side = 1
		}
		if time.Duration(i)*2*time.Millisecond >= c.Watch.From {
			after = 1
		}
		want[side][after]++
	}
	got := [2][2]int64{{r.Others.Before.TotalCount(), r.Others.After.TotalCount()}, {r.Struck.Before.TotalCount(), r.Struck.After.TotalCount()}}
	if got != want || want[0][0] == 0 || want[1][1] == 0 {
		t.Fatalf("others and struck, before and after: %v, want %v", got, want)
	}
}

func TestWatchWithoutSKUsStrikesAll(t *testing.T) {
	c := stub(t, placed)
	c.Requests, c.Watch = 50, &Watch{From: time.Hour}
	if r := run(t, c); r.Struck.Before.TotalCount() != 50 || r.Others.Before.TotalCount() != 0 || r.Struck.After.TotalCount() != 0 {
		t.Fatalf("%d and %d were struck, %d others", r.Struck.Before.TotalCount(), r.Struck.After.TotalCount(), r.Others.Before.TotalCount())
	}
}

func TestGapsAreBetweenOrdersAndUpToTheEnd(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	r := &Result{plan: Plan{SKUs: []string{"a"}, Qty: 1}}
	add := func(status int, at ...int) {
		for _, n := range at {
			r.samples = append(r.samples, sample{done: ms(n), status: uint16(status)})
		}
	}
	add(http.StatusCreated, 500, 10, 20, 900) // in any order
	add(http.StatusServiceUnavailable, 600, 700)
	if g := r.Gaps(ms(1000)); len(g) != 1 || g[0] != (Gap{"a", ms(20), ms(500)}) || g[0].Long() != ms(480) {
		t.Errorf("in between: %v", g)
	}
	if g := r.Gaps(ms(2000)); g[0] != (Gap{"a", ms(900), ms(2000)}) {
		t.Errorf("to the end: %v", g)
	}
	if g := (&Result{}).Gaps(time.Second); len(g) != 0 {
		t.Errorf("without an order: %v", g)
	}
}
