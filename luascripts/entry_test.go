package luascripts

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/stock"
)

const entryID = "0123456789abcdef0123456789abcdef"

// entryOfV010 was written by release v0.1.0.
const entryOfV010 = "fedcba9876543210|00000000000000ff|a-1=2,b=3|1\x01\x80\xa0\xf1\xc2\xb1\x34\x0511.11\x03u|=\x01r\x02gw"

func reservationOfV010() *stock.Reservation {
	id, _ := stock.ParseID(entryID)
	return &stock.Reservation{ID: id, Try: 0xfedcba9876543210, Fingerprint: 255, Activity: "11.11", User: "u|=", Route: "r", Owner: "gw",
		Keyed: true, Hold: 15 * time.Minute, Lines: []stock.Line{{SKU: "a-1", Qty: 2}, {SKU: "b", Qty: 3}}}
}

// written is the entry of r in the partition that has the lines of these indices.
func written(r *stock.Reservation, own ...int) string {
	var mine []itemLine
	for _, of := range own {
		mine = append(mine, itemLine{of: of})
	}
	return string(appendEntry(nil, r, mine, false))
}

func TestAnEntryOfAnOlderReleaseIsReadAndWritten(t *testing.T) {
	t.Parallel()
	r := reservationOfV010()
	e, err := parseEntry(entryID, entryOfV010)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprintf("%+v", e.Reservation), fmt.Sprintf("%+v", *r); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if fmt.Sprint(e.Out) != fmt.Sprint(r.Lines) || e.Ahead {
		t.Errorf("%+v", e)
	}
	if got := written(r, 0, 1); got != entryOfV010 {
		t.Errorf("what an older release can say is written as %q, want %q", got, entryOfV010)
	}
}

func TestAnEntryGivesBackAllThatWasPutIn(t *testing.T) {
	t.Parallel()
	f := func(name string, change func(*stock.Reservation), own ...int) {
		t.Helper()
		r := reservationOfV010()
		change(r)
		s := written(r, own...)
		e, err := parseEntry(entryID, s)
		if err != nil {
			t.Errorf("%s: %q: %v", name, s, err)
			return
		}
		if got, want := fmt.Sprintf("%+v", e.Reservation), fmt.Sprintf("%+v", *r); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, want)
		}
		for i, of := range own {
			if e.Out[i] != r.Lines[of] {
				t.Errorf("%s: out counts %v", name, e.Out)
			}
		}
		for cut := range len(s) {
			if _, err := parseEntry(entryID, s[:cut]); !errors.Is(err, errEntry) {
				t.Errorf("%s: read although it is cut off at %d", name, cut)
			}
		}
	}
	f("own lines only", func(*stock.Reservation) {}, 0, 1)
	f("a line elsewhere", func(*stock.Reservation) {}, 1)
	f("an open limit", func(r *stock.Reservation) { r.OpenLimit = stock.MaxQuantity }, 0, 1)
	f("terms", func(r *stock.Reservation) {
		r.Activity = ""
		r.Terms = []stock.LineTerms{{Activity: "\x00|,=\xff", Limit: stock.MaxQuantity}, {}}
	}, 0, 1)
	f("everything", func(r *stock.Reservation) {
		r.Terms, r.OpenLimit, r.Hold = []stock.LineTerms{{}, {Activity: strings.Repeat("a", 300), Limit: 1}}, 5, 0
		r.Keyed, r.User, r.Route, r.Owner = false, "", "", ""
	}, 0)
}

func TestABadEntryIsRefused(t *testing.T) {
	t.Parallel()
	r := reservationOfV010()
	r.OpenLimit = 3
	parted := written(r, 1)
	head, rest := entryOfV010[:recordBytes+1], entryOfV010[strings.LastIndex(entryOfV010, "|1")+1:]
	for name, s := range map[string]string{
		"empty":                    "",
		"another version":          strings.Replace(entryOfV010, "|1\x01", "|3\x01", 1),
		"flags of a later version": strings.Replace(entryOfV010, "|1\x01", "|1\x09", 1),
		"unknown flags":            strings.Replace(parted, "|2", "|2\x80", 1),
		"something behind":         entryOfV010 + "x",
		"no quantity":              head + "a|" + rest,
		"quantity 0":               head + "a=0|" + rest,
		"quantity above 2^53":      head + "a=9007199254740993|" + rest,
		"a bad SKU":                head + "a b=1|" + rest,
		"a line twice":             head + "a=1,a=1|" + rest,
		"no lines":                 head + "|" + rest,
		"another line":             strings.Replace(parted, "|b=3|", "|b=4|", 1),
		"no record":                entryOfV010[1:],
	} {
		if e, err := parseEntry(entryID, s); !errors.Is(err, errEntry) {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
	if _, err := parseEntry("x", entryOfV010); !errors.Is(err, errEntry) {
		t.Errorf("a bad id: %v", err)
	}
}

// FuzzParseEntry: whatever stands in Redis, reading it ends, and what can be read can be written and is read again as the same.
func FuzzParseEntry(f *testing.F) {
	r := reservationOfV010()
	f.Add(entryOfV010)
	f.Add(written(r, 1))
	r.Terms, r.OpenLimit = []stock.LineTerms{{Activity: "a", Limit: 1}, {}}, 2
	f.Add(written(r, 0, 1))
	f.Add(written(r, 0))
	f.Fuzz(func(t *testing.T, s string) {
		e, err := parseEntry(entryID, s)
		if err != nil {
			return
		}
		var mine []itemLine
		for _, l := range e.Out {
			mine = append(mine, itemLine{of: slices.Index(e.Lines, l)})
		}
		again, err := parseEntry(entryID, string(appendEntry(nil, &e.Reservation, mine, e.Ahead)))
		if err != nil || fmt.Sprintf("%+v", again) != fmt.Sprintf("%+v", e) {
			t.Fatalf("%q is read as\n%+v\nthen\n%+v, %v", s, e, again, err)
		}
	})
}
