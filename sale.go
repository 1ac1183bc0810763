package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/config"
	"github.com/stockgate/stockgate/gateway"
	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/gateway/rules"
	"github.com/stockgate/stockgate/internal/clockstep"
	"github.com/stockgate/stockgate/internal/loop"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// saleEvery is the pause between looks for a newer version of the rules: how long replicas may sell by different ones.
const saleEvery = time.Second

// saleStore keeps the rules; ledger.Store is one.
type saleStore interface {
	Admission(ctx context.Context) (stock.Admission, error)
	StoreAdmission(ctx context.Context, content string, version int64) (current stock.Admission, seen bool, err error)
}

// sale is what admission depends on: the rules of the deployment, as the database has them, judged by the database's clock. All replicas
// use the newest version, whatever their own file says.
type sale struct {
	offered atomic.Pointer[offer]
	store   saleStore
	clock   func() time.Time // the database's; zero: not known yet
	log     *zap.Logger
	loop    *loop.Loop
	taking  sync.Mutex // of changes of current
	current atomic.Pointer[saleVersion]
	// anyAhead reports whether a SKU sells ahead in the database, whatever the rules say; nil: none does.
	anyAhead func() bool
}

// offer is what this replica's configuration says.
type offer struct {
	content string
	asked   int64 // admission_version
}

func offerOf(c *config.Config) offer {
	return offer{content: string(rulesOf(c).Content()), asked: c.AdmissionVersion}
}

type saleVersion struct {
	version int64
	book    *rules.Book
}

func newSale(cfg *config.Config, store saleStore, clock func() time.Time, log *zap.Logger) (*sale, error) {
	s := &sale{store: store, clock: clock, log: log}
	own := offerOf(cfg)
	s.offered.Store(&own)
	book, err := rules.Compile(rulesOf(cfg))
	if err != nil {
		return nil, err
	}
	s.current.Store(&saleVersion{book: book})
	s.loop = loop.New("rules", saleEvery, log, s.pass)
	return s, nil
}

// join stores this replica's rules if they are newer than the database's, and takes those that count.
func (s *sale) join(ctx context.Context) error {
	own := s.offered.Load()
	newest, seen, err := s.store.StoreAdmission(ctx, own.content, own.asked)
	if err != nil {
		return err
	}
	if err := s.take(newest); err != nil {
		return err
	}
	if seen {
		s.log.Warn("the database has newer rules than this configuration; they are used. To make this configuration's the newest, set admission_version above version",
			zap.Int64("version", newest.Version), zap.Int64("admission_version", own.asked))
	}
	return nil
}

// renew offers the rules of another configuration, as a start does, if they are others than this replica has offered. Rules that the
// database has replaced before are an error, and nothing has changed then: they would not be what is used.
func (s *sale) renew(ctx context.Context, next *config.Config) error {
	own := offerOf(next)
	if own == *s.offered.Load() {
		return nil
	}
	if _, err := rules.Compile(rulesOf(next)); err != nil {
		return config.Problems{{Rule: err.Error()}}
	}
	newest, seen, err := s.store.StoreAdmission(ctx, own.content, own.asked)
	switch {
	case errors.Is(err, ledger.ErrAdmissionVersion):
		return config.Problems{{Key: "admission_version", Line: next.Line("admission_version"), Rule: err.Error()}}
	case err != nil:
		return fmt.Errorf("the rules of the sale cannot be stored: %w", err)
	case seen:
		return config.Problems{{Key: "admission_version", Line: next.Line("admission_version"), Rule: fmt.Sprintf(
			"must be above %d, the version of the rules in use: the database has had these rules before, and replaced them", newest.Version)}}
	}
	if err := s.take(newest); err != nil {
		return err
	}
	s.offered.Store(&own)
	return nil
}

// pass takes a newer version, if there is one. One that cannot be read leaves the present one in force.
func (s *sale) pass(ctx context.Context) error {
	newest, err := s.store.Admission(ctx)
	if err != nil || newest.Version <= s.current.Load().version {
		return err
	}
	return s.take(newest)
}

func (s *sale) take(newest stock.Admission) error {
	parsed, err := rules.Parse([]byte(newest.Content))
	if err != nil {
		return fmt.Errorf("rules of admission version %d: %w", newest.Version, err)
	}
	book, err := rules.Compile(parsed)
	if err != nil {
		return fmt.Errorf("rules of admission version %d: %w", newest.Version, err)
	}
	s.taking.Lock()
	defer s.taking.Unlock()
	if newest.Version < s.current.Load().version {
		return nil // a newer one was taken meanwhile
	}
	s.current.Store(&saleVersion{version: newest.Version, book: book})
	s.log.Info("rules taken", zap.Int64("version", newest.Version))
	return nil
}

func (s *sale) book() *rules.Book { return s.current.Load().book }

// now is the database's clock; before the first heartbeat our own.
func (s *sale) now() time.Time {
	if now := s.clock(); !now.IsZero() {
		return now
	}
	return clockstep.Now()
}

// Terms implements admission.Sale.
func (s *sale) Terms(sku, named string) (admission.Terms, *admission.Refusal) {
	now := s.now()
	t, window := s.book().For(sku, named, now)
	if window.Code != "" {
		return admission.Terms{}, refusalOf(&window, sku, now)
	}
	return admission.Terms{Activity: t.Activity, Limit: t.Limit, LimitKey: t.LimitKey, OpenLimit: t.OpenLimit, Hold: t.Hold,
		Eventual: t.Consistency == rules.Eventual}, nil
}

// AnyEventual implements admission.Sale. What the rules let sell ahead a moment ago may still do.
func (s *sale) AnyEventual() bool {
	return s.book().AnyEventual() || s.anyAhead != nil && s.anyAhead()
}

func (s *sale) version() int64 { return s.current.Load().version }

// refusalOf says when to come again by the clock that the start is of: ours may be hours off.
func refusalOf(w *rules.Window, sku string, now time.Time) *admission.Refusal {
	r := &admission.Refusal{Code: w.Code, Detail: w.Detail, SKU: sku}
	if w.Code == stock.CodeNotStarted {
		r.Starts, r.RetryAfter = w.Starts, max(w.Starts.Sub(now), time.Second)
	}
	return r
}

// Rule implements gateway.Rules.
func (s *sale) Rule(sku, named string) (gateway.Rule, bool) {
	book := s.book()
	qty, key := book.MaxQty(sku)
	return gateway.Rule{MaxQty: qty, MaxQtyKey: key}, named == "" || book.Covers(named, sku)
}

// Activity implements gateway.Rules.
func (s *sale) Activity(sku string) string {
	book := s.book()
	if !book.AnyActivity() {
		return "" // without a look at the clock
	}
	return book.ActivityOf(sku, s.now())
}

// Mode implements gateway.Rules.
func (s *sale) Mode(route, sku string) gateway.Mode {
	if s.book().Mode(route, sku) == rules.Shadow {
		return gateway.Shadow
	}
	return gateway.Enforce
}

// activities are the sale's, for people.
func (s *sale) activities() []api.Activity {
	now := s.now()
	var list []api.Activity
	for _, a := range s.book().Rules().Activities {
		phase := api.PhaseOpen
		switch {
		case now.Before(a.Starts):
			phase = api.PhaseBefore
		case !now.Before(a.Ends):
			phase = api.PhaseEnded
		}
		list = append(list, api.Activity{Name: a.ID, StartsAt: a.Starts.UTC(), EndsAt: a.Ends.UTC(), Phase: phase})
	}
	return list
}

// LateConfirm implements control.Sale.
func (s *sale) LateConfirm(activity, _ string) bool { return s.book().LateConfirm(activity) }

// HoldMax implements control.Sale.
func (s *sale) HoldMax(string, string) (longest time.Duration, key string) {
	return s.book().HoldMax(), "defaults.hold_max"
}

// Hold implements control.Sale.
func (s *sale) Hold(string) time.Duration { return s.book().Rules().Defaults.Hold }

// MaxQty implements control.Sale.
func (s *sale) MaxQty(sku string) (most int64, key string) { return s.book().MaxQty(sku) }

// candidates are the reservation ids that a request id may have led to: one for each guarded route and each activity that a request can
// name, and for none.
func (s *sale) candidates(deployment string, routes []string, user, request string) []stock.ID {
	var ids []stock.ID
	for _, route := range append([]string{stock.RouteAPI}, routes...) {
		ids = append(ids, stock.DeriveID(deployment, route, "", user, request))
		for _, a := range s.book().Rules().Activities {
			ids = append(ids, stock.DeriveID(deployment, route, a.ID, user, request))
		}
	}
	return ids
}

// shadowFacts tells what is in stock, also of SKUs that no transaction of stockgate has touched yet: in shadow it may touch none.
type shadowFacts struct{ store *ledger.Store }

// Facts implements shadow.Facts.
func (s shadowFacts) Facts(ctx context.Context, skus []string) ([]stock.Fact, error) {
	var facts []stock.Fact
	for _, sku := range skus {
		info, found, err := s.store.Stock(ctx, sku)
		if err != nil {
			return nil, err
		}
		if found {
			info.Available += info.Changed
			facts = append(facts, info.Fact)
		}
	}
	return facts, nil
}

// rulesOf is the part of a configuration that the deployment shares.
func rulesOf(c *config.Config) *rules.Rules {
	d := c.Defaults
	r := &rules.Rules{Defaults: rules.Defaults{Consistency: string(d.Consistency), PurchaseLimit: d.PurchaseLimit, MaxQty: d.MaxQty,
		OpenPerUser: d.OpenPerUser, Hold: d.Hold.Std(), HoldMax: d.HoldMax.Std(), LateConfirm: string(d.LateConfirm)}}
	for _, k := range c.SKUs {
		r.SKUs = append(r.SKUs, rules.SKU{Match: string(k.Match), Consistency: string(k.Consistency), MaxQty: k.MaxQty})
	}
	for _, a := range c.Activities {
		skus := make([]string, len(a.SKUs))
		for i, p := range a.SKUs {
			skus[i] = string(p)
		}
		r.Activities = append(r.Activities, rules.Activity{ID: a.ID, Starts: a.Starts, Ends: a.Ends, SKUs: skus, PurchaseLimit: a.PurchaseLimit,
			Hold: a.Hold.Std(), LateConfirm: string(a.LateConfirm), Outside: string(a.Outside)})
	}
	for _, route := range c.Routes {
		if route.Admit != nil {
			r.Routes = append(r.Routes, rules.RouteMode{Name: route.Name, Shadow: route.Admit.Shadow, Canary: route.Admit.Canary})
		}
	}
	return r
}
