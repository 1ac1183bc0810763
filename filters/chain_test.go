package filters_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/stock"
)

// behaviour is what a recorder does in Enter.
type behaviour int

const (
	passes behaviour = iota
	refuses
	panics
)

// recorder is a filter that writes down what happens to it.
type recorder struct {
	name        string
	enter       behaviour
	leavePanics bool
	log         *[]string
}

func (f *recorder) Name() string { return f.name }

func (f *recorder) Enter(r *filters.Request) *filters.Refusal {
	*f.log = append(*f.log, "enter "+f.name)
	switch f.enter {
	case refuses:
		return r.Refuse(stock.CodeRateLimited, f.name, "1", 0)
	case panics:
		panic(f.name)
	}
	return nil
}

func (f *recorder) Leave(*filters.Request) {
	*f.log = append(*f.log, "leave "+f.name)
	if f.leavePanics {
		panic("leave " + f.name)
	}
}

// try runs f and says what it panicked with.
func try(f func()) (panicked any) {
	defer func() { panicked = recover() }()
	f()
	return nil
}

func TestChain(t *testing.T) {
	t.Parallel()
	f := func(name string, bs []behaviour, leavePanics int, want ...string) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log []string
			var list []filters.Filter
			for i, b := range bs {
				list = append(list, &recorder{name: fmt.Sprint(i), enter: b, leavePanics: i == leavePanics, log: &log})
			}
			chain := filters.NewChain(list...)
			var r filters.Request
			refused := false
			enterPanic := try(func() { refused = chain.Enter(&r) != nil })
			leavePanic := try(func() { chain.Leave(&r) })
			chain.Leave(&r) // once more: nothing may happen
			if !slices.Equal(log, want) {
				t.Errorf("got %q\nwant %q", log, want)
			}
			if got, want := refused, slices.Contains(bs, refuses); got != want {
				t.Errorf("refused = %v, want %v", got, want)
			}
			if got, want := enterPanic != nil, slices.Contains(bs, panics); got != want {
				t.Errorf("Enter panicked = %v (%v), want %v", got, enterPanic, want)
			}
			if got, want := leavePanic != nil, leavePanics >= 0; got != want {
				t.Errorf("Leave panicked = %v (%v), want %v", got, leavePanic, want)
			}
		})
	}
	f("all pass", []behaviour{passes, passes, passes}, -1, "enter 0", "enter 1", "enter 2", "leave 2", "leave 1", "leave 0")
	f("first refuses", []behaviour{refuses, passes}, -1, "enter 0")
	f("last refuses", []behaviour{passes, passes, refuses}, -1, "enter 0", "enter 1", "enter 2", "leave 1", "leave 0")
	f("last panics", []behaviour{passes, passes, panics}, -1, "enter 0", "enter 1", "enter 2", "leave 1", "leave 0")
	f("a leave panics", []behaviour{passes, passes, passes}, 1, "enter 0", "enter 1", "enter 2", "leave 2", "leave 1", "leave 0")
	f("empty", nil, -1)
}

// Every passed Enter has exactly one Leave, in reverse order, whatever the filters do.
func TestChain_LeaveOncePerPassedEnter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var log []string
		var list []filters.Filter
		for i := range rapid.IntRange(0, 6).Draw(t, "filters") {
			list = append(list, &recorder{
				name:        fmt.Sprint(i),
				enter:       rapid.SampledFrom([]behaviour{passes, passes, passes, refuses, panics}).Draw(t, "enter"),
				leavePanics: rapid.IntRange(0, 3).Draw(t, "leave") == 0,
				log:         &log,
			})
		}
		chain := filters.NewChain(list...)
		var r filters.Request
		try(func() { chain.Enter(&r) })
		try(func() { chain.Leave(&r) })
		try(func() { chain.Leave(&r) })

		passed := 0
		for _, f := range list {
			if f.(*recorder).enter != passes {
				break
			}
			passed++
		}
		var want []string
		for i := range min(passed+1, len(list)) {
			want = append(want, fmt.Sprint("enter ", i))
		}
		for i := passed - 1; i >= 0; i-- {
			want = append(want, fmt.Sprint("leave ", i))
		}
		if !slices.Equal(log, want) {
			t.Fatalf("got %q\nwant %q", log, want)
		}
	})
}

func TestChain_SetsNow(t *testing.T) {
	t.Parallel()
	var r filters.Request
	if filters.NewChain().Enter(&r); r.Now.IsZero() {
		t.Error("Enter left Now zero")
	}
}

func TestRequest_Reset(t *testing.T) {
	t.Parallel()
	r := filters.Request{SKU: "a", Qty: 2, Keyed: true, Quotas: make([]filters.Quota, 3)}
	r.Reset()
	if r.SKU != "" || r.Qty != 0 || r.Keyed || len(r.Quotas) != 0 || cap(r.Quotas) != 3 {
		t.Errorf("Reset left %+v with room for %d quotas", r, cap(r.Quotas))
	}
}
