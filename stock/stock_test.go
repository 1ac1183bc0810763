package stock

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCheckSKU(t *testing.T) {
	f := func(sku string, ok bool) {
		t.Helper()
		if err := CheckSKU(sku); (err == nil) != ok {
			t.Errorf("%q: %v", sku, err)
		}
	}
	f("sku-1001", true)
	f("A.b_C:9-", true)
	f(strings.Repeat("x", 128), true)
	f(strings.Repeat("x", 129), false)
	f("", false)
	f("a b", false)
	f("a{b}", false) // C012: braces would move a key to another cluster slot
	f("sku\n", false)
	f("ski-ö", false)
}

// The published test value of CRC-32 (IEEE): "123456789" → 0xCBF43926.
func TestPartitionIsCRC32(t *testing.T) {
	if got, want := Partition("123456789", 64), int(uint32(0xCBF43926)%64); got != want {
		t.Errorf("partition %d, want %d", got, want)
	}
}

// Length prefixes keep parts apart: moving a byte from one part to the next gives another id.
func TestDeriveIDKeepsPartsApart(t *testing.T) {
	a := DeriveID("d", "route", "", "u1", "key")
	for name, other := range map[string]ID{
		"user to key": DeriveID("d", "route", "", "u", "1key"),
		"activity":    DeriveID("d", "route", "u1", "", "key"),
		"route":       DeriveID("d", "rout", "e", "u1", "key"),
		"deployment":  DeriveID("e", "route", "", "u1", "key"),
	} {
		if other == a {
			t.Errorf("%s: same id", name)
		}
	}
	if DeriveID("d", "route", "", "u1", "key") != a {
		t.Error("not the same on every replica")
	}
}

func TestIDAndTryRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var id ID
		copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		if back, err := ParseID(id.String()); err != nil || back != id {
			t.Fatalf("%s came back as %s, %v", id, back, err)
		}
		try := Try(rapid.Uint64().Draw(t, "try"))
		if back, err := ParseTry(try.String()); err != nil || back != try {
			t.Fatalf("%s came back as %s, %v", try, back, err)
		}
	})
	for bad, want := range map[string]string{"": "has 0 hex digits, must have 32", "12": "has 2 hex digits", strings.Repeat("0", 33): "has 33 hex digits",
		strings.Repeat("g", 32): "has 'g' in it, must be 32 hex digits", "nonsense": "has 'n' in it, must be 32 hex digits"} {
		if id, err := ParseID(bad); err == nil || !strings.Contains(err.Error(), want) || !id.IsZero() {
			t.Errorf("id %q gave %s, %v, want %s", bad, id, err, want)
		}
	}
}

func TestMergeLines(t *testing.T) {
	in := []Line{{"b", 1}, {"a", 2}, {"b", 3}}
	got, err := MergeLines(in)
	if err != nil || len(got) != 2 || got[0] != (Line{"a", 2}) || got[1] != (Line{"b", 4}) {
		t.Fatalf("%v, %v", got, err)
	}
	if in[0] != (Line{"b", 1}) {
		t.Error("the input was changed")
	}
	f := func(why string, lines ...Line) {
		t.Helper()
		if _, err := MergeLines(lines); err == nil {
			t.Errorf("%s was taken", why)
		}
	}
	f("nothing")
	f("zero", Line{"a", 0})
	f("a negative quantity", Line{"a", -1})
	f("more than 2^53", Line{"a", MaxQuantity + 1})
	f("a bad SKU", Line{"a b", 1})
	f("C008: a sum beyond 2^53", Line{"a", MaxQuantity}, Line{"a", MaxQuantity})
}

func TestFingerprintTellsWishesApart(t *testing.T) {
	a := Fingerprint([]Line{{"a", 1}, {"b", 2}})
	for _, other := range [][]Line{{{"a", 1}}, {{"a", 2}, {"b", 1}}, {{"a", 1}, {"b", 3}}, {{"a1", 1}, {"b", 2}}} {
		if Fingerprint(other) == a {
			t.Errorf("%v has the same fingerprint", other)
		}
	}
}

func TestStates(t *testing.T) {
	for s := StateNone; s <= StateCompensating; s++ {
		if back, err := ParseState(s.String()); err != nil || back != s {
			t.Errorf("%s came back as %s, %v", s, back, err)
		}
		if s.CanBecome(s) {
			t.Errorf("%s → %s is a transition", s, s)
		}
	}
	f := func(from, to State, can bool) {
		t.Helper()
		if from.CanBecome(to) != can {
			t.Errorf("%s → %s: want %v", from, to, can)
		}
	}
	f(StateNone, StateHeld, true)
	f(StateHeld, StateConfirmed, true)
	f(StateConfirmed, StateHeld, false)
	f(StateReleased, StateHeld, true)
	f(StateReleased, StateConfirmed, true)
	f(StateVoid, StateHeld, true)
	f(StateVoid, StateReleased, false)
	f(StateCompensating, StateConfirmed, false)
}

func TestFactsAreOrderedByEpochThenVer(t *testing.T) {
	f := func(a, b Fact, newer bool) {
		t.Helper()
		if a.Newer(b) != newer {
			t.Errorf("%+v newer than %+v: want %v", a, b, newer)
		}
	}
	f(Fact{Epoch: 1, Ver: 2}, Fact{Epoch: 1, Ver: 1}, true)
	f(Fact{Epoch: 1, Ver: 1}, Fact{Epoch: 1, Ver: 1}, false) // a repeat changes nothing
	f(Fact{Epoch: 2, Ver: 1}, Fact{Epoch: 1, Ver: 9}, true)
	f(Fact{Epoch: 1, Ver: 9}, Fact{Epoch: 2, Ver: 1}, false)
}

func TestALimitErrorSurelyHadNoEffect(t *testing.T) {
	err := error(&LimitError{Code: CodeQueueFull, Limit: "fallback.queue.total", Value: "20000"})
	if !errors.Is(err, ErrNotExecuted) || errors.Is(err, ErrUnknown) {
		t.Error("a refusal by a limit is not taken as not executed")
	}
	if want := "QUEUE_FULL: limit fallback.queue.total = 20000"; err.Error() != want {
		t.Errorf("says %q, want %q", err, want)
	}
	if !errors.Is(ErrLate, ErrNotExecuted) || !errors.Is(ErrUnavailable, ErrNotExecuted) {
		t.Error("late and unavailable surely had no effect")
	}
}
