package rules

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/stock"
)

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		panic(err)
	}
	return t
}

// sample is a sale of seats and phones: one activity with a window of a day in Shanghai, and one that begins as it ends.
func sample() *Rules {
	return &Rules{
		Defaults: Defaults{Consistency: Strong, PurchaseLimit: 5, MaxQty: 100, OpenPerUser: 3, Hold: 15 * time.Minute,
			HoldMax: 30 * time.Minute, LateConfirm: Retake},
		SKUs: []SKU{{"seat-vip", Strong, 1}, {"seat-*", Strong, 4}, {"phone-*", Eventual, 2}},
		Activities: []Activity{
			{ID: "11.11", Starts: at("2026-11-11T00:00:00+08:00"), Ends: at("2026-11-12T00:00:00+08:00"), SKUs: []string{"phone-*", "tv"},
				PurchaseLimit: 1, Hold: 10 * time.Minute, LateConfirm: Refuse, Outside: Refuse},
			{ID: "after", Starts: at("2026-11-11T16:00:00Z"), Ends: at("2026-11-13T00:00:00Z"), SKUs: []string{"phone-1"},
				PurchaseLimit: 2, Hold: 5 * time.Minute, LateConfirm: Retake, Outside: Refuse},
			{ID: "radio", Starts: at("2026-11-11T00:00:00Z"), Ends: at("2026-11-12T00:00:00Z"), SKUs: []string{"radio"},
				PurchaseLimit: 7, Hold: 5 * time.Minute, LateConfirm: Retake, Outside: Allow},
		},
		Routes: []RouteMode{{"order", false, 100}, {"dark", true, 100}, {"some", false, 30}, {"none", false, 0}},
	}
}

func compile(t *testing.T, r *Rules) *Book {
	t.Helper()
	b, err := Compile(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTheFirstRuleThatMatchesHolds(t *testing.T) {
	t.Parallel()
	b := compile(t, sample())
	f := func(sku string, want int64, wantKey, consistency string) {
		t.Helper()
		terms, _ := b.For(sku, "", at("2020-01-01T00:00:00Z"))
		qty, key := b.MaxQty(sku)
		if qty != want || key != wantKey || terms.MaxQty != want || terms.MaxQtyKey != wantKey || terms.Consistency != consistency {
			t.Errorf("%s: %d by %s, %+v; want %d by %s, %s", sku, qty, key, terms, want, wantKey, consistency)
		}
	}
	f("seat-vip", 1, "skus[seat-vip].max_qty", Strong)
	f("seat-vip2", 4, "skus[seat-*].max_qty", Strong)
	f("seat-", 4, "skus[seat-*].max_qty", Strong)
	f("seat", 100, "defaults.max_qty", Strong)
	f("phone-9", 2, "skus[phone-*].max_qty", Eventual)
}

// A window has its start and not its end; a moment is the same one in every time zone.
func TestWindowsHaveExactEdges(t *testing.T) {
	t.Parallel()
	b := compile(t, sample())
	f := func(sku, named, now string, code stock.Code, activity string) {
		t.Helper()
		for _, zone := range []*time.Location{time.UTC, time.FixedZone("", 14*3600), time.FixedZone("", -12*3600)} {
			terms, w := b.For(sku, named, at(now).In(zone))
			sold := code == ""
			if w.Code != code || w.Activity != activity || (terms.Activity != "") != (sold && activity != "") || (w.Detail == "") != sold {
				t.Errorf("%s named %q at %s: %+v, terms %+v, want %q of %q", sku, named, now, w, terms, code, activity)
			}
			if got := b.ActivityOf(sku, at(now).In(zone)); named == "" && got != activity {
				t.Errorf("limits count %s at %s under %q, want %q", sku, now, got, activity)
			}
		}
	}
	f("tv", "", "2026-11-10T15:59:59.999999999Z", stock.CodeNotStarted, "11.11")
	f("tv", "", "2026-11-10T16:00:00Z", "", "11.11")
	f("tv", "11.11", "2026-11-11T00:00:00+08:00", "", "11.11")
	f("tv", "", "2026-11-11T15:59:59.999999999Z", "", "11.11")
	f("tv", "", "2026-11-11T16:00:00Z", stock.CodeEnded, "11.11")
	// Two that follow each other: exactly one is open.
	f("phone-1", "", "2026-11-11T15:59:59.999999999Z", "", "11.11")
	f("phone-1", "", "2026-11-11T16:00:00Z", "", "after")
	f("phone-1", "", "2026-11-10T00:00:00Z", stock.CodeNotStarted, "11.11")
	f("phone-1", "", "2026-11-13T00:00:00Z", stock.CodeEnded, "after")
	// outside: allow
	f("radio", "", "2026-11-10T00:00:00Z", "", "")
	f("radio", "radio", "2026-11-10T00:00:00Z", "", "")
	f("radio", "radio", "2026-11-11T00:00:00Z", "", "radio")
	// Named: by its own window, though another one is open.
	f("phone-1", "after", "2026-11-11T15:00:00Z", stock.CodeNotStarted, "after")
	f("phone-1", "11.11", "2026-11-11T17:00:00Z", stock.CodeEnded, "11.11")
	f("phone-1", "", "2026-11-11T17:00:00Z", "", "after")
	// Named, and not fitting.
	f("phone-1", "12.12", "2026-11-11T17:00:00Z", stock.CodeBadRequest, "12.12")
	f("radio", "11.11", "2026-11-11T00:00:00Z", stock.CodeBadRequest, "11.11")
	f("seat-1", "11.11", "2026-11-11T00:00:00Z", stock.CodeBadRequest, "11.11")
	f("seat-1", "", "2026-11-11T00:00:00Z", "", "")
}

func TestAnActivityReplacesTheDefaults(t *testing.T) {
	t.Parallel()
	b := compile(t, sample())
	in, w := b.For("phone-7", "", at("2026-11-11T00:00:00Z"))
	want := Terms{Activity: "11.11", Limit: 1, LimitKey: "activities[11.11].purchase_limit", OpenLimit: 3, MaxQty: 2,
		MaxQtyKey: "skus[phone-*].max_qty", Hold: 10 * time.Minute, HoldMax: 30 * time.Minute, Consistency: Eventual}
	if in != want || !w.Starts.Equal(at("2026-11-10T16:00:00Z")) || !w.Ends.Equal(at("2026-11-11T16:00:00Z")) {
		t.Errorf("inside: got  %+v, %+v\nwant %+v", in, w, want)
	}
	out, _ := b.For("phone-7", "", at("2026-11-12T00:00:00Z"))
	want.Activity, want.Limit, want.LimitKey, want.Hold, want.Retake = "", 5, "defaults.purchase_limit", 15*time.Minute, true
	if out != want {
		t.Errorf("outside: got  %+v\nwant %+v", out, want)
	}
}

// Two that overlap with equal rules have one limit between them: the name does not choose whose.
func TestANameDoesNotChooseAmongOverlapping(t *testing.T) {
	t.Parallel()
	r := sample()
	twin := r.Activities[0]
	twin.ID, twin.Starts = "twin", at("2026-11-11T00:00:00Z")
	r.Activities = append(r.Activities, twin)
	b := compile(t, r)
	for _, named := range []string{"", "11.11", "twin"} {
		if terms, w := b.For("tv", named, at("2026-11-11T01:00:00Z")); w.Code != "" || terms.Activity != "11.11" {
			t.Errorf("named %q: %+v, %+v", named, terms, w)
		}
	}
}

// A name of one that allows the time outside must not lead around the limit of the one that is open.
func TestANameDoesNotLeadAroundALimit(t *testing.T) {
	t.Parallel()
	r := sample()
	other := r.Activities[2]
	other.ID, other.Starts, other.Ends = "old", at("2025-01-01T00:00:00Z"), at("2025-01-02T00:00:00Z")
	r.Activities = append(r.Activities, other)
	terms, w := compile(t, r).For("radio", "old", at("2026-11-11T01:00:00Z"))
	if w.Code != "" || terms.Activity != "radio" || terms.Limit != 7 {
		t.Errorf("named old: %+v, %+v; want the terms of radio", terms, w)
	}
}

func TestAReservationOutlivesItsActivity(t *testing.T) {
	t.Parallel()
	b := compile(t, sample())
	for activity, want := range map[string]bool{"11.11": false, "after": true, "": true, "removed": true} {
		if got := b.LateConfirm(activity); got != want {
			t.Errorf("late confirm of %q: %v, want %v", activity, got, want)
		}
	}
	if got := b.HoldMax(); got != 30*time.Minute {
		t.Errorf("hold_max is %s", got)
	}
}

func TestCoversAsksNoClock(t *testing.T) {
	t.Parallel()
	b := compile(t, sample())
	f := func(activity, sku string, want bool) {
		t.Helper()
		if got := b.Covers(activity, sku); got != want {
			t.Errorf("%s covers %s: %v, want %v", activity, sku, got, want)
		}
	}
	f("11.11", "tv", true)
	f("11.11", "phone-1", true)
	f("11.11", "tv2", false)
	f("after", "phone-2", false)
	f("none", "tv", false)
	f("", "tv", false)
}

// A Book is asked for every line of every request.
func TestForDoesNotAllocate(t *testing.T) {
	b := compile(t, sample())
	now := at("2026-11-11T01:00:00Z")
	ask := map[string]func(){
		"in an activity":  func() { b.For("phone-1", "11.11", now) },
		"in none":         func() { b.For("seat-3", "", now) },
		"not started":     func() { b.For("tv", "", now.AddDate(0, 0, -2)) },
		"activity":        func() { b.ActivityOf("phone-1", now) },
		"max_qty":         func() { b.MaxQty("seat-3") },
		"enforced or not": func() { b.Mode("some", "phone-1") },
	}
	for name, f := range ask {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations, want none", name, n)
		}
	}
}

func TestABookDoesNotChange(t *testing.T) {
	t.Parallel()
	r := sample()
	b := compile(t, r)
	want := string(b.Rules().Content())
	r.SKUs[0].MaxQty, r.Activities[0].SKUs[0], r.Routes[0].Canary = 9, "changed", 1
	if got := string(b.Rules().Content()); got != want {
		t.Errorf("changed from outside: %s", got)
	}
}

func TestWrongRulesAreRefusedWithTheirKeys(t *testing.T) {
	t.Parallel()
	f := func(change func(r *Rules), want string) {
		t.Helper()
		r := sample()
		change(r)
		if _, err := Compile(r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("compiled: %v, want %s", err, want)
		}
		if _, err := Parse(r.Content()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("parsed: %v, want %s", err, want)
		}
	}
	f(func(r *Rules) { r.Defaults.Consistency = "weak" }, `defaults.consistency is "weak", must be strong or eventual`)
	f(func(r *Rules) { r.Defaults.LateConfirm = "" }, "defaults.late_confirm")
	f(func(r *Rules) { r.Defaults.PurchaseLimit = -1 }, "defaults.purchase_limit is -1")
	f(func(r *Rules) { r.Defaults.OpenPerUser = -1 }, "defaults.open_per_user is -1")
	f(func(r *Rules) { r.Defaults.MaxQty = 0 }, "defaults.max_qty is 0")
	f(func(r *Rules) { r.Defaults.Hold = 0 }, "defaults.hold is 0s")
	f(func(r *Rules) { r.Defaults.HoldMax = time.Minute }, "defaults.hold_max is 1m0s")
	f(func(r *Rules) { r.SKUs[1].Match = "a*b" }, `skus[1].match is "a*b"`)
	f(func(r *Rules) { r.SKUs[1].MaxQty = stock.MaxQuantity + 1 }, "skus[1].max_qty")
	f(func(r *Rules) { r.SKUs[1].Consistency = "" }, "skus[1].consistency")
	f(func(r *Rules) { r.Activities[1].ID = "11.11" }, `activities[1].id is "11.11", there is another one`)
	f(func(r *Rules) { r.Activities[1].ID = "" }, "activities[1].id")
	f(func(r *Rules) { r.Activities[1].Ends = r.Activities[1].Starts }, "activities[1].ends is 2026-11-11T16:00:00Z, must be after starts")
	f(func(r *Rules) { r.Activities[1].Ends = at("9999-12-31T23:00:00-08:00") }, "activities[1].ends")
	f(func(r *Rules) { r.Activities[1].SKUs = nil }, "activities[1].skus is empty")
	f(func(r *Rules) { r.Activities[1].SKUs = []string{""} }, "activities[1].skus")
	f(func(r *Rules) { r.Activities[1].PurchaseLimit = -1 }, "activities[1].purchase_limit")
	f(func(r *Rules) { r.Activities[1].Hold = -time.Second }, "activities[1].hold")
	f(func(r *Rules) { r.Activities[1].LateConfirm = "ask" }, "activities[1].late_confirm")
	f(func(r *Rules) { r.Activities[1].Outside = "" }, "activities[1].outside")
	f(func(r *Rules) { r.Routes[1].Name = "order" }, `is "order", there is another one`)
	f(func(r *Rules) { r.Routes[0].Canary = 101 }, "canary is 101, must be 0 to 100")
}

func TestEqualRulesGiveEqualBytes(t *testing.T) {
	t.Parallel()
	want := string(sample().Content())
	same := func(change func(r *Rules)) {
		t.Helper()
		r := sample()
		change(r)
		if got := string(r.Content()); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	same(func(r *Rules) { r.Activities[0].Starts = r.Activities[0].Starts.UTC() })
	same(func(r *Rules) { slices.Reverse(r.Activities[0].SKUs) })
	same(func(r *Rules) { r.Activities[0].SKUs = append(r.Activities[0].SKUs, "tv") })
	same(func(r *Rules) { slices.Reverse(r.Routes) })
	other := func(change func(r *Rules)) {
		t.Helper()
		r := sample()
		change(r)
		if string(r.Content()) == want {
			t.Errorf("a change does not show: %+v", r)
		}
	}
	other(func(r *Rules) { slices.Reverse(r.SKUs) })
	other(func(r *Rules) { slices.Reverse(r.Activities) })
	other(func(r *Rules) { r.Activities[0].Ends = r.Activities[0].Ends.Add(1) })
	other(func(r *Rules) { r.Defaults.HoldMax++ })
	if none := (&Rules{}).Content(); string(none) != string((&Rules{SKUs: []SKU{}, Routes: []RouteMode{}}).Content()) {
		t.Error("empty and absent lists differ")
	}
}

// The bytes are compared over releases, so their form does not change by accident.
func TestContentIsWrittenSo(t *testing.T) {
	t.Parallel()
	r := sample()
	r.SKUs, r.Activities, r.Routes = r.SKUs[:1], r.Activities[:1], r.Routes[:1]
	const want = `{"format":1,"defaults":{"consistency":"strong","purchase_limit":5,"max_qty":100,"open_per_user":3,"hold":"15m0s",` +
		`"hold_max":"30m0s","late_confirm":"retake"},"skus":[{"match":"seat-vip","consistency":"strong","max_qty":1}],` +
		`"activities":[{"id":"11.11","starts":"2026-11-10T16:00:00Z","ends":"2026-11-11T16:00:00Z","skus":["phone-*","tv"],` +
		`"purchase_limit":1,"hold":"10m0s","late_confirm":"refuse","outside":"refuse"}],` +
		`"routes":[{"name":"order","shadow":false,"canary":100}]}`
	if got := string(r.Content()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// What a newer release adds is left aside; what this one knows is there and right, wherever it stands.
func TestContentOfAnotherRelease(t *testing.T) {
	t.Parallel()
	plain := sample().Content()
	newer := strings.ReplaceAll(string(plain), `"max_qty"`, `"later":{"a":[1]},"max_qty"`)
	newer = strings.Replace(newer, `{"format"`, `{"regions":["eu"],"format"`, 1)
	r, err := Parse([]byte(newer))
	if err != nil || string(r.Content()) != string(plain) {
		t.Errorf("with fields of a newer release: %v", err)
	}
	var tree any
	if err := json.Unmarshal(plain, &tree); err != nil {
		t.Fatal(err)
	}
	// Every known field that goes missing is noticed, but lists that may be empty.
	count := 0
	eachField(tree, func(object map[string]any, name string) {
		if value := object[name]; name == "activities" || name == "routes" || name == "skus" && isObject(value) {
			return
		}
		count++
		kept := object[name]
		delete(object, name)
		text, err := json.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(text); err == nil {
			t.Errorf("without %s: it was taken: %s", name, text)
		}
		object[name] = kept
	})
	if count < 40 {
		t.Errorf("tried %d fields only", count)
	}
}

// isObject reports whether a list's elements are objects: skus of the rules, not those of an activity.
func isObject(value any) bool {
	list, _ := value.([]any)
	return len(list) > 0 && reflect.TypeOf(list[0]).Kind() == reflect.Map
}

func eachField(tree any, f func(object map[string]any, name string)) {
	switch v := tree.(type) {
	case map[string]any:
		for name := range v {
			eachField(v[name], f)
			f(v, name)
		}
	case []any:
		for _, e := range v {
			eachField(e, f)
		}
	}
}

func TestUnreadableContentIsRefused(t *testing.T) {
	t.Parallel()
	plain := string(sample().Content())
	f := func(text, want string) {
		t.Helper()
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	f("", "admission content: ")
	f("{}", "format 0, this release reads 1 to 1")
	f(strings.Replace(plain, `"format":1`, `"format":2`, 1), "format 2, this release reads 1 to 1")
	f(plain+plain, "admission content: ")
	f(plain[:len(plain)/2], "admission content: ")
	f(strings.Replace(plain, `"max_qty":100`, `"max_qty":"100"`, 1), "max_qty")
	f(strings.Replace(plain, `"max_qty":100`, `"max_qty":1.5`, 1), "max_qty")
	f(strings.Replace(plain, `"15m0s"`, `"15"`, 1), "defaults.hold: ")
	f(strings.Replace(plain, `"2026-11-10T16:00:00Z"`, `"11.11."`, 1), "activities[0].starts: ")
	f(strings.Replace(plain, `"purchase_limit":5,`, "", 1), "defaults.purchase_limit: is missing")
}

func TestEventualIsOfTheFirstRuleThatMatches(t *testing.T) {
	compile := func(d string, skus ...SKU) *Book {
		t.Helper()
		r := &Rules{Defaults: Defaults{Consistency: d, MaxQty: 1, Hold: time.Minute, HoldMax: time.Minute, LateConfirm: Refuse}, SKUs: skus}
		b, err := Compile(r)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	seat, all := SKU{Match: "seat-*", Consistency: Strong, MaxQty: 1}, SKU{Match: "*", Consistency: Eventual, MaxQty: 1}
	for _, c := range []struct {
		b              *Book
		any, seat, pen bool
	}{
		{compile(Strong), false, false, false},
		{compile(Strong, seat), false, false, false},
		{compile(Strong, seat, all), true, false, true},
		{compile(Strong, all, seat), true, true, true},
		{compile(Eventual, seat), true, false, true},
	} {
		if c.b.AnyEventual() != c.any || c.b.Eventual("seat-1") != c.seat || c.b.Eventual("pen") != c.pen {
			t.Errorf("%+v: any %v, seat %v, pen %v", c.b.Rules(), c.b.AnyEventual(), c.b.Eventual("seat-1"), c.b.Eventual("pen"))
		}
	}
}
