package rules

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// format is the number of the content's form. A release raises it if one that reads only lower ones must not use the content, because
// it would leave aside fields that matter.
const format = 1

// The JSON form. Durations are texts such as 15m0s and moments RFC 3339 in UTC, for people read the table too. A pointer stands where
// a missing field would be read as "no limit" or "not enforced".
type (
	content struct {
		Format     int               `json:"format"`
		Defaults   contentDefaults   `json:"defaults"`
		SKUs       []contentSKU      `json:"skus"`
		Activities []contentActivity `json:"activities"`
		Routes     []contentRoute    `json:"routes"`
	}
	contentDefaults struct {
		Consistency   string `json:"consistency"`
		PurchaseLimit *int64 `json:"purchase_limit"`
		MaxQty        int64  `json:"max_qty"`
		OpenPerUser   *int64 `json:"open_per_user"`
		Hold          string `json:"hold"`
		HoldMax       string `json:"hold_max"`
		LateConfirm   string `json:"late_confirm"`
	}
	contentSKU struct {
		Match       string `json:"match"`
		Consistency string `json:"consistency"`
		MaxQty      int64  `json:"max_qty"`
	}
	contentActivity struct {
		ID            string   `json:"id"`
		Starts        string   `json:"starts"`
		Ends          string   `json:"ends"`
		SKUs          []string `json:"skus"`
		PurchaseLimit *int64   `json:"purchase_limit"`
		Hold          string   `json:"hold"`
		LateConfirm   string   `json:"late_confirm"`
		Outside       string   `json:"outside"`
	}
	contentRoute struct {
		Name   string `json:"name"`
		Shadow *bool  `json:"shadow"`
		Canary *int   `json:"canary"`
	}
)

// Content writes the rules as canonical JSON: equal rules give equal bytes. The rules must be ones that Compile takes.
func (r *Rules) Content() []byte {
	d := &r.Defaults
	c := content{Format: format, SKUs: make([]contentSKU, len(r.SKUs)), Activities: make([]contentActivity, len(r.Activities)),
		Routes: make([]contentRoute, len(r.Routes)),
		Defaults: contentDefaults{Consistency: d.Consistency, PurchaseLimit: &d.PurchaseLimit, MaxQty: d.MaxQty,
			OpenPerUser: &d.OpenPerUser, Hold: d.Hold.String(), HoldMax: d.HoldMax.String(), LateConfirm: d.LateConfirm}}
	for i, s := range r.SKUs {
		c.SKUs[i] = contentSKU(s)
	}
	for i := range r.Activities {
		c.Activities[i] = writeActivity(&r.Activities[i])
	}
	for i := range r.Routes {
		m := &r.Routes[i]
		c.Routes[i] = contentRoute{Name: m.Name, Shadow: &m.Shadow, Canary: &m.Canary}
	}
	slices.SortFunc(c.Routes, func(a, b contentRoute) int { return strings.Compare(a.Name, b.Name) })
	out, err := json.Marshal(&c)
	if err != nil {
		panic("BUG: texts and numbers always have a JSON form: " + err.Error())
	}
	return out
}

func writeActivity(a *Activity) contentActivity {
	skus := slices.Clone(a.SKUs)
	slices.Sort(skus)
	return contentActivity{ID: a.ID, Starts: moment(a.Starts), Ends: moment(a.Ends), SKUs: slices.Compact(skus),
		PurchaseLimit: &a.PurchaseLimit, Hold: a.Hold.String(), LateConfirm: a.LateConfirm, Outside: a.Outside}
}

// moment is the one way to write a time.
func moment(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// Parse reads what Content wrote, in this release or another one. Its error names every field that is wrong; fields that this release
// does not know are left aside.
func Parse(text []byte) (*Rules, error) {
	var c content
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("admission content: %w", err)
	}
	if c.Format < 1 || c.Format > format {
		return nil, fmt.Errorf("admission content has format %d, this release reads 1 to %d", c.Format, format)
	}
	p := &parser{}
	r := p.rules(&c)
	if err := errors.Join(append(p.errs, r.check())...); err != nil {
		return nil, fmt.Errorf("admission content: %w", err)
	}
	return r, nil
}

// parser turns the JSON form into rules and collects what is missing or unreadable.
type parser struct{ errs []error }

func (p *parser) rules(c *content) *Rules {
	d := &c.Defaults
	r := &Rules{SKUs: make([]SKU, len(c.SKUs)), Activities: make([]Activity, len(c.Activities)), Routes: make([]RouteMode, len(c.Routes)),
		Defaults: Defaults{Consistency: d.Consistency, MaxQty: d.MaxQty, LateConfirm: d.LateConfirm,
			PurchaseLimit: given(p, "defaults.purchase_limit", d.PurchaseLimit), OpenPerUser: given(p, "defaults.open_per_user", d.OpenPerUser),
			Hold: p.span("defaults.hold", d.Hold), HoldMax: p.span("defaults.hold_max", d.HoldMax)}}
	for i, s := range c.SKUs {
		r.SKUs[i] = SKU(s)
	}
	for i := range c.Activities {
		r.Activities[i] = p.activity(&c.Activities[i], fmt.Sprintf("activities[%d]", i))
	}
	for i, m := range c.Routes {
		key := fmt.Sprintf("routes[%d]", i)
		r.Routes[i] = RouteMode{Name: m.Name, Shadow: given(p, key+".shadow", m.Shadow), Canary: given(p, key+".canary", m.Canary)}
	}
	return r
}

func (p *parser) activity(a *contentActivity, key string) Activity {
	return Activity{ID: a.ID, Starts: p.moment(key+".starts", a.Starts), Ends: p.moment(key+".ends", a.Ends), SKUs: a.SKUs,
		PurchaseLimit: given(p, key+".purchase_limit", a.PurchaseLimit), Hold: p.span(key+".hold", a.Hold), LateConfirm: a.LateConfirm,
		Outside: a.Outside}
}

func (p *parser) fail(key string, err error) { p.errs = append(p.errs, fmt.Errorf("%s: %w", key, err)) }

func (p *parser) span(key, text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		p.fail(key, err)
	}
	return d
}

func (p *parser) moment(key, text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		p.fail(key, err)
	}
	return t.UTC()
}

var errMissing = errors.New("is missing")

// given is the value of a field that must be there.
func given[T any](p *parser, key string, v *T) T {
	if v == nil {
		p.fail(key, errMissing)
		v = new(T)
	}
	return *v
}
