package compensation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/internal/loop"
	"github.com/stockgate/stockgate/stock"
)

const (
	reasonMadeGood = "made_good"
	detailBytesMax = 200
)

// repair is one that is being worked on.
type repair struct {
	*Job
	*stock.Compensation
	*services
	row *stock.Row
}

// mend does what can be done about one repair now, and ends it or puts its next time off. What fails is put off, too, so that it does not
// keep the others from their turn.
func (j *Job) mend(ctx context.Context, c *stock.Compensation, row *stock.Row) error {
	r := &repair{j, c, j.services.Load(), row}
	err := r.guarded(ctx)
	if err == nil {
		return nil
	}
	return errors.Join(err, r.later(ctx, r.byAge(), "failed: "+err.Error()))
}

// guarded makes a panic the repair's own.
func (r *repair) guarded(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			r.cfg.Log.Error("mending a surplus panicked; the others go on", zap.String("compensation", r.ID), zap.Any("panic", p),
				zap.ByteString("stack", debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return r.decide(ctx)
}

func (r *repair) decide(ctx context.Context) error {
	c, row := r.Compensation, r.row
	switch {
	case c.Kind != stock.CompensateSurplus && c.Kind != stock.CompensateDuplicate:
		return r.later(ctx, r.byAge(), "kind "+c.Kind+" is not known to this version")
	case row == nil:
		return r.dead(ctx, c.Attempts, "the reservation is gone")
	case c.Kind == stock.CompensateDuplicate:
		return r.double(ctx)
	case row.State != stock.StateSurplus:
		return r.done(ctx, endedElsewhere, "the reservation is "+row.State.String())
	case row.Outcome == stock.OutcomeRejected:
		return r.release(ctx, endedElsewhere, "the order was rejected")
	case row.Now.Before(row.ForwardBy):
		return r.later(ctx, row.ForwardBy.Sub(row.Now), "the order may still be on its way")
	}
	if c.State == stock.CompensationPending {
		if ended, err := r.makeGood(ctx); ended || err != nil {
			return err
		}
	}
	return r.makeVoid(ctx)
}

// double waits until somebody has confirmed or released the twin of a reservation: the order service knows both orders by one id, so it can be
// asked about neither, and a call to make one void might end the other. Units that are missing are looked for meanwhile.
func (r *repair) double(ctx context.Context) error {
	switch r.row.State {
	case stock.StateReleased, stock.StateConfirmed:
		return r.done(ctx, endedElsewhere, "the reservation is "+r.row.State.String())
	case stock.StateSurplus:
		if err := r.do(ctx, &stock.Op{Kind: stock.OpMakeGood, Class: stock.ClassPrededuct, ID: r.Reservation, Reason: reasonMadeGood}); err != nil {
			return err
		}
	}
	return r.later(ctx, r.byAge(), r.Detail)
}

// makeGood takes the units after all, if they can be had. An order that is known to be a paid one is confirmed with it: nobody would do so
// later, and time must not end it.
func (r *repair) makeGood(ctx context.Context) (ended bool, err error) {
	op := &stock.Op{Kind: stock.OpMakeGood, Class: stock.ClassPrededuct, ID: r.Reservation, Reason: reasonMadeGood}
	if r.sold[r.row.Route] && r.row.Outcome == stock.OutcomeAccepted {
		op.Kind = stock.OpConfirm
	}
	if err := r.do(ctx, op); err != nil {
		return false, err
	}
	switch op.Result.Verdict {
	case stock.VerdictDone:
		return true, r.done(ctx, endedMadeGood, "made good: its units were taken after all")
	case stock.VerdictStale:
		return true, r.later(ctx, r.cfg.BackoffMin, "the reservation has moved on")
	}
	return false, nil
}

// makeVoid asks the order service to make the order void, if it can be asked and if its order is known to be there, or cannot come any
// more.
func (r *repair) makeVoid(ctx context.Context) error {
	u, unknown := r.upstreams[r.row.Route], r.row.Outcome == stock.OutcomeUnknown
	switch {
	case u == nil:
		return r.later(ctx, r.byAge(), "no units can be had, and route "+r.row.Route+" has no order service any more")
	case u.Void == "":
		return r.later(ctx, r.byAge(), "no units can be had, and upstreams."+u.Name+" has no void")
	case r.cfg.Manual && r.State == stock.CompensationPending:
		return r.later(ctx, r.byAge(), "no units can be had, and reconcile.repair.surplus is manual: a retry makes it void")
	case unknown && u.Asked:
		return r.later(ctx, r.byAge(), "no units can be had, and upstreams."+u.Name+" has not said yet whether there is an order")
	case unknown && r.row.Now.Before(r.row.ForwardBy.Add(u.OrderDelay)):
		return r.later(ctx, r.row.ForwardBy.Add(u.OrderDelay).Sub(r.row.Now), "no units can be had, and an order may still come")
	}
	return r.call(ctx, u)
}

// call makes one attempt. That the order may be void is committed before the call goes out.
func (r *repair) call(ctx context.Context, u *upstream) error {
	attempts, before := r.Attempts+1, r.State
	wait := r.cfg.wait(attempts)
	err := r.parts.Store.NoteCompensation(ctx, r.ID, stock.CompensationProcessing, attempts, wait, "the order service is asked to make the order void")
	if err != nil {
		return err
	}
	r.State, r.Attempts = stock.CompensationProcessing, attempts
	got := u.void(ctx, r.Compensation, r.row)
	r.metrics.voided(u.Name, got.result)
	if got.result == voidDone {
		return r.release(ctx, endedMadeVoid, "made void by the order service")
	}
	if attempts >= r.cfg.AttemptsMax {
		return r.dead(ctx, attempts, got.detail)
	}
	if got.surelyNot() {
		r.State = before // what an earlier call may have done, this one does not undo
	}
	return r.later(ctx, wait, got.detail)
}

// release ends the reservation, which has nothing to give back.
func (r *repair) release(ctx context.Context, how ended, detail string) error {
	op := &stock.Op{Kind: stock.OpRelease, Class: stock.ClassPrededuct, ID: r.Reservation, Reason: stock.ReasonCancelled}
	if err := r.do(ctx, op); err != nil {
		return err
	}
	if v := op.Result.Verdict; v != stock.VerdictDone && (v != stock.VerdictStale || op.Result.Row == nil || op.Result.Row.State != stock.StateReleased) {
		return fmt.Errorf("verdict %s on its release", v)
	}
	return r.done(ctx, how, detail)
}

// do has an op done and tells of it if it was.
func (r *repair) do(ctx context.Context, op *stock.Op) error {
	if err := loop.DoAll(ctx, r.parts.Worker, []*stock.Op{op})[0]; err != nil {
		return err
	}
	if op.Result.Verdict == stock.VerdictDone && r.parts.Committed != nil {
		r.parts.Committed(op)
	}
	return nil
}

func (r *repair) done(ctx context.Context, how ended, detail string) error {
	err := r.parts.Store.NoteCompensation(ctx, r.ID, stock.CompensationDone, r.Attempts, 0, clip(detail))
	if err == nil {
		r.metrics.end(how)
		r.cfg.Log.Info("a surplus is mended", zap.Stringer("reservation", r.Reservation), zap.String("how", string(how)), zap.String("detail", detail))
	}
	return err
}

func (r *repair) dead(ctx context.Context, attempts int64, detail string) error {
	err := r.parts.Store.NoteCompensation(ctx, r.ID, stock.CompensationDead, attempts, 0, clip(detail))
	if err == nil {
		r.metrics.end(endedDead)
		r.cfg.Log.Error("a surplus order could be made neither good nor void; somebody has to look", zap.Stringer("reservation", r.Reservation),
			zap.Int64("attempts", attempts), zap.String("detail", detail))
	}
	return err
}

// later puts the repair off as it stands.
func (r *repair) later(ctx context.Context, wait time.Duration, detail string) error {
	return r.parts.Store.NoteCompensation(ctx, r.ID, r.State, r.Attempts, wait, clip(detail))
}

// byAge is a wait that doubles as the repair grows old: it needs no count of its own.
func (r *repair) byAge() time.Duration {
	return r.cfg.Jitter(min(max(r.Now.Sub(r.CreatedAt), r.cfg.BackoffMin), r.cfg.BackoffMax))
}

// wait is how long to wait after so many attempts, from 1.
func (c *Config) wait(attempts int64) time.Duration {
	wait := c.BackoffMin
	for range attempts - 1 {
		if wait = 2 * wait; wait >= c.BackoffMax {
			break
		}
	}
	return c.Jitter(min(wait, c.BackoffMax))
}

// shorter is a wait between half of d and d.
func shorter(d time.Duration) time.Duration { return d - rand.N(d/2+1) }

func clip(s string) string {
	if len(s) > detailBytesMax {
		return s[:detailBytesMax]
	}
	return s
}
