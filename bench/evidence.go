package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/stockgate/stockgate/bench/load"
	"github.com/stockgate/stockgate/stock"
)

// evidence is where the verdict's facts come from.
type evidence struct {
	o       *options
	control *controlSource  // nil: none
	orders  *ordersSource   // nil: none
	data    *databaseSource // nil: none
}

func openEvidence(o *options) (e *evidence, err error) {
	e = &evidence{o: o}
	if o.control != "" {
		e.control, err = newControlSource(o)
	}
	if err == nil && o.orders != "" {
		e.orders, err = newOrdersSource(o.orders)
	}
	if err == nil && o.dsn != "" {
		e.data, err = newDatabaseSource(o)
	}
	if err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

func (e *evidence) close() {
	if e.control != nil {
		e.control.close()
	}
	if e.orders != nil {
		e.orders.close()
	}
	if e.data != nil {
		e.data.close()
	}
}

// prepare sets the stock, and finds out now what would otherwise be found out after minutes of load: that evidence cannot be had.
func (e *evidence) prepare(ctx context.Context, errs io.Writer) error {
	if e.control != nil && e.o.stock != stockUntouched {
		if err := e.control.setStock(ctx, e.o.skuNames(), e.o.stock); err != nil {
			return err
		}
	}
	if e.o.alone && !e.o.cold && e.data != nil && e.data.redis != nil {
		fmt.Fprintln(errs, "waiting until Redis has been told all …")
		if err := e.data.awaitWarm(ctx); err != nil {
			return err
		}
	}
	_, err := e.gather(ctx, nil)
	return err
}

// judge waits for rest, gathers and decides.
func (e *evidence) judge(ctx context.Context, r *load.Result, errs io.Writer) verdictReport {
	v := verdictReport{}
	if e.control != nil {
		v.Notes = e.control.doubts(ctx)
	}
	fmt.Fprintln(errs, "waiting until the gateway is at rest …")
	v.AtRest = e.awaitRest(ctx)
	if !v.AtRest && e.watches() {
		v.Notes = append(v.Notes, fmt.Sprintf("the gateway did not come to rest within %s", e.o.settle))
	}
	s, err := e.gather(ctx, &v)
	if err != nil {
		v.Failures = append(v.Failures, err.Error())
	}
	e.addReplies(ctx, s, r, &v)
	v.decide(s)
	return v
}

// gather reads every source: orders first, so that whatever an order relies on is there. What failed is left out of the snapshot.
// v may be nil.
func (e *evidence) gather(ctx context.Context, v *verdictReport) (*stock.Snapshot, error) {
	s, failed := &stock.Snapshot{}, []error(nil)
	add := func(what string, err error) {
		if err != nil {
			failed = append(failed, err)
		} else if v != nil {
			v.Evidence = append(v.Evidence, what)
		}
	}
	if e.orders != nil {
		add("the order service's record at "+e.o.orders, e.orders.read(ctx, s, e.o))
	}
	if e.control != nil {
		add("the control API at "+e.o.control, e.control.read(ctx, s, e.o.skuNames()))
	}
	if e.data != nil {
		add("the database, in one transaction", e.data.read(ctx, s, e.o.skuNames()))
	}
	return s, errors.Join(failed...)
}

// addReplies adds what clients were told. Its times mean something only if they are of the database's clock.
func (e *evidence) addReplies(ctx context.Context, s *stock.Snapshot, r *load.Result, v *verdictReport) {
	s.Replies = r.Replies(e.o.route)
	s.Parts |= stock.PartReplies
	v.Evidence = append(v.Evidence, fmt.Sprintf("what %d clients were told", len(s.Replies)))
	if r.Dropped > 0 {
		v.Notes = append(v.Notes, fmt.Sprintf("%d refusals are left out of the evidence, beyond --evidence %d", r.Dropped, e.o.evidence))
	}
	if e.o.oneClock(ctx) {
		return
	}
	v.Notes = append(v.Notes, "the evidence has several clocks: whether SOLD_OUT was said in time is not checked")
	for i := range s.Replies {
		s.Replies[i].Sent, s.Replies[i].Done = time.Time{}, time.Time{}
	}
	for i := range s.Orders {
		s.Orders[i].At = time.Time{}
	}
}

// restPoll is how often it is looked whether the gateway is at rest.
const restPoll = 250 * time.Millisecond

func (e *evidence) watches() bool { return e.control != nil || e.data != nil }

// awaitRest waits until two looks in a row show the same numbers and nothing under way.
func (e *evidence) awaitRest(ctx context.Context) bool {
	if !e.watches() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, e.o.settle)
	defer cancel()
	last := ""
	for {
		now, err := e.look(ctx)
		if err == nil && now != "" && now == last {
			return true
		}
		last = now
		select {
		case <-ctx.Done():
			return false
		case <-time.After(restPoll):
		}
	}
}

// look is all numbers as text, "" while something is under way.
func (e *evidence) look(ctx context.Context) (string, error) {
	s := &stock.Snapshot{}
	var err error
	if e.control != nil {
		err = e.control.read(ctx, s, e.o.skuNames())
	} else {
		err = e.data.read(ctx, s, e.o.skuNames())
	}
	if err != nil || busy(s) {
		return "", err
	}
	var text strings.Builder
	for i := range s.SKUs {
		k := &s.SKUs[i]
		fmt.Fprintln(&text, k.SKU, k.Available, k.Granted, k.Held, k.Confirmed, k.Compensating)
	}
	return text.String(), nil
}

// busy reports whether Redis holds anything that is not settled, or has not heard the last fact.
func busy(s *stock.Snapshot) bool {
	ver := map[string]int64{}
	for i := range s.SKUs {
		ver[s.SKUs[i].SKU] = s.SKUs[i].Ver
	}
	for _, r := range s.Registers {
		if r.Loaded && (r.Out != 0 || r.Ver != ver[r.SKU]) {
			return true
		}
	}
	return false
}
