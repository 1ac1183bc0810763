package rules

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stockgate/stockgate/stock"
)

// The model reads the rules from the first to the last, as the documentation tells them.

func modelMatches(pattern, sku string) bool {
	prefix, star := strings.CutSuffix(pattern, "*")
	return pattern == sku || star && strings.HasPrefix(sku, prefix)
}

func (a *Activity) modelCovers(sku string) bool {
	for _, p := range a.SKUs {
		if modelMatches(p, sku) {
			return true
		}
	}
	return false
}

func (a *Activity) modelOpen(now time.Time) bool { return !now.Before(a.Starts) && now.Before(a.Ends) }

func (a *Activity) modelClosed(now time.Time) stock.Code {
	if now.Before(a.Starts) {
		return stock.CodeNotStarted
	}
	return stock.CodeEnded
}

// modelFor gives the code and the activity that decides, "" for none.
func modelFor(r *Rules, sku, named string, now time.Time) (stock.Code, string) {
	var covering []*Activity
	byName := (*Activity)(nil)
	for i := range r.Activities {
		if a := &r.Activities[i]; a.modelCovers(sku) {
			covering = append(covering, a)
			if a.ID == named {
				byName = a
			}
		}
	}
	if named != "" && byName == nil {
		return stock.CodeBadRequest, named
	}
	if byName != nil && byName.Outside == Refuse && !byName.modelOpen(now) {
		return byName.modelClosed(now), named
	}
	for _, a := range covering {
		if a.modelOpen(now) {
			return "", a.ID
		}
	}
	var next, last *Activity
	for _, a := range covering {
		switch {
		case a.Outside == Allow:
		case now.Before(a.Starts) && (next == nil || a.Starts.Before(next.Starts)):
			next = a
		case !now.Before(a.Ends) && (last == nil || a.Ends.After(last.Ends)):
			last = a
		}
	}
	switch {
	case next != nil:
		return stock.CodeNotStarted, next.ID
	case last != nil:
		return stock.CodeEnded, last.ID
	}
	return "", ""
}

// The generators keep to few names and moments, so that everything meets.
var (
	genSKU     = rapid.StringMatching(`[ab]{1,3}`)
	genPattern = rapid.StringMatching(`[ab]{1,3}|[ab]{0,3}\*`)
	genMoment  = rapid.Custom(func(t *rapid.T) time.Time {
		zone := time.FixedZone("", 3600*rapid.IntRange(-12, 14).Draw(t, "zone"))
		return at("2026-11-11T00:00:00Z").Add(time.Duration(rapid.IntRange(0, 8).Draw(t, "moment")) * time.Hour).In(zone)
	})
	genOutside = rapid.SampledFrom([]string{Refuse, Allow})
)

func genRules(t *rapid.T) *Rules {
	r := sample()
	r.Defaults.PurchaseLimit = rapid.Int64Range(0, 3).Draw(t, "limit")
	r.SKUs, r.Activities = nil, nil
	for i := range rapid.IntRange(0, 5).Draw(t, "skus") {
		r.SKUs = append(r.SKUs, SKU{Match: genPattern.Draw(t, "match"), Consistency: Strong, MaxQty: int64(i + 1)})
	}
	for i := range rapid.IntRange(0, 5).Draw(t, "activities") {
		starts := genMoment.Draw(t, "starts")
		r.Activities = append(r.Activities, Activity{ID: fmt.Sprint("act", i), Starts: starts,
			Ends: starts.Add(time.Duration(rapid.IntRange(1, 4).Draw(t, "length")) * time.Hour),
			SKUs: rapid.SliceOfN(genPattern, 1, 3).Draw(t, "covers"), PurchaseLimit: int64(10 + i), Hold: time.Duration(i+1) * time.Second,
			LateConfirm: rapid.SampledFrom([]string{Retake, Refuse}).Draw(t, "late"), Outside: genOutside.Draw(t, "outside")})
	}
	return r
}

// A Book says what the rules say when they are read from the first to the last.
func TestForAgainstADumbModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := genRules(t)
		b, err := Compile(r)
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			sku, now := genSKU.Draw(t, "sku"), genMoment.Draw(t, "now")
			named := rapid.SampledFrom([]string{"", "", "act0", "act1", "act4", "other"}).Draw(t, "named")
			terms, w := b.For(sku, named, now)
			code, activity := modelFor(r, sku, named, now)
			if w.Code != code || w.Activity != activity {
				t.Fatalf("%s named %q at %s: %q of %q, want %q of %q", sku, named, now, w.Code, w.Activity, code, activity)
			}
			if code != "" {
				activity = ""
			}
			if want := modelTerms(r, sku, activity); terms != want {
				t.Fatalf("%s named %q at %s:\ngot  %+v\nwant %+v", sku, named, now, terms, want)
			}
		}
	})
}

func modelTerms(r *Rules, sku, activity string) Terms {
	d := &r.Defaults
	t := Terms{Limit: d.PurchaseLimit, LimitKey: "defaults.purchase_limit", OpenLimit: d.OpenPerUser, MaxQty: d.MaxQty,
		MaxQtyKey: "defaults.max_qty", Hold: d.Hold, HoldMax: d.HoldMax, Retake: d.LateConfirm == Retake, Consistency: d.Consistency}
	for _, s := range r.SKUs {
		if modelMatches(s.Match, sku) {
			t.MaxQty, t.MaxQtyKey, t.Consistency = s.MaxQty, "skus["+s.Match+"].max_qty", s.Consistency
			break
		}
	}
	for _, a := range r.Activities {
		if a.ID == activity {
			t.Activity, t.Limit, t.LimitKey = a.ID, a.PurchaseLimit, "activities["+a.ID+"].purchase_limit"
			t.Hold, t.Retake = a.Hold, a.LateConfirm == Retake
		}
	}
	return t
}

// The request decides nothing: whatever it names, it gets the terms that it gets without a name, or it is refused.
func TestANameDecidesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b, err := Compile(genRules(t))
		if err != nil {
			t.Fatal(err)
		}
		sku, now := genSKU.Draw(t, "sku"), genMoment.Draw(t, "now")
		plain, plainWindow := b.For(sku, "", now)
		for _, named := range []string{"act0", "act1", "act2", "act3", "other"} {
			if terms, w := b.For(sku, named, now); w.Code == "" && (terms != plain || w != plainWindow) {
				t.Fatalf("%s named %s: %+v, %+v; without: %+v, %+v", sku, named, terms, w, plain, plainWindow)
			}
		}
	})
}

// What the database keeps is the rules.
func TestContentReadsBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := genRules(t)
		again, err := Parse(r.Content())
		if err != nil {
			t.Fatal(err)
		}
		if string(again.Content()) != string(r.Content()) {
			t.Fatalf("got  %s\nwant %s", again.Content(), r.Content())
		}
		b, err := Compile(again)
		if err != nil {
			t.Fatal(err)
		}
		own, err := Compile(r)
		if err != nil {
			t.Fatal(err)
		}
		sku, now := genSKU.Draw(t, "sku"), genMoment.Draw(t, "now")
		got, gotWindow := b.For(sku, "", now)
		want, wantWindow := own.For(sku, "", now)
		if got != want || gotWindow != wantWindow {
			t.Fatalf("%s: got %+v, %+v, want %+v, %+v", sku, got, gotWindow, want, wantWindow)
		}
	})
}
