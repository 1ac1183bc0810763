package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/fallback"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

const (
	prepareTimeout  = 30 * time.Second // one go at migrations and checks
	prepareRetryMax = 5 * time.Second  // longest pause between two
	checkTimeout    = 2 * time.Second  // for a look at Redis before the first order
	flushTimeout    = 10 * time.Second // for outcomes and closes after the last answer
)

// run serves until ctx ends, then drains. Its error says what kept the gateway from starting or made it end early.
//
// The order of the end matters: not ready → no new connections, in flight finished → outcomes written → closes sent to Redis → jobs
// stopped → deducter stopped → database closed. The control side stays up until the last step.
func (a *app) run(ctx context.Context) error {
	failed := make(chan error, 3)
	controlCtx, stopControl := context.WithCancel(context.WithoutCancel(ctx))
	controlDone := make(chan struct{})
	go func() {
		defer close(controlDone)
		if err := a.control.Serve(controlCtx, a.private); err != nil {
			failed <- fmt.Errorf("control listener: %w", err)
		}
	}()
	defer func() { stopControl(); <-controlDone }()
	defer func() { _ = a.store.Close() }()

	go func() {
		if err := a.server.Serve(a.public); err != nil {
			failed <- fmt.Errorf("public listener: %w", err)
		}
	}()
	if a.checks != nil {
		go func() {
			if err := a.server.ServeCheck(a.checks); err != nil {
				failed <- fmt.Errorf("check listener: %w", err)
			}
		}()
	}
	meta, err := a.prepare(ctx)
	if err != nil {
		if ctx.Err() != nil {
			err = nil // asked to end while it waited for the database
		}
		return errors.Join(err, a.stopServing())
	}
	jobsCtx, stopJobs := context.WithCancel(context.WithoutCancel(ctx))
	var jobs sync.WaitGroup
	core := a.newCore(meta)
	a.ready.Store(core)
	a.startJobs(jobsCtx, core, &jobs)
	a.learnEpochs(ctx)
	if a.onReady != nil {
		if err := a.onReady(ctx); err != nil {
			return errors.Join(err, a.drain(stopJobs, &jobs))
		}
	}
	a.readiness.Ready()
	a.log.Info("ready", zap.String("listen", a.public.Addr().String()), zap.String("control", a.private.Addr().String()),
		zap.String("deployment", meta.Deployment), zap.String("version", version))
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	return errors.Join(err, a.drain(stopJobs, &jobs))
}

// stopServing is not ready any more, takes no new connections, and lets what is in flight finish.
func (a *app) stopServing() error {
	a.log.Info("draining", zap.Duration("at most", a.config().Server.Drain.Std()))
	a.readiness.Drain()
	ctx, cancel := context.WithTimeout(context.Background(), a.config().Server.Drain.Std())
	defer cancel()
	if err := a.server.Shutdown(ctx); err != nil {
		return fmt.Errorf("requests were still in flight after server.drain = %s: %w", a.config().Server.Drain, err)
	}
	return nil
}

// startJobs starts the deducter and everything that works beside the hot path. The heartbeat comes first: a replica writes its row
// before it reads epochs.
func (a *app) startJobs(ctx context.Context, core *core, wg *sync.WaitGroup) {
	run := func(job func(context.Context)) { wg.Go(func() { job(ctx) }) }
	go a.deducter.Run(context.WithoutCancel(ctx)) // ended by Stop, after everything that gives it work
	run(a.beat.Run)
	if r := a.redis; r != nil {
		run(r.breaker.Run)
		run(r.wayBack.Run)
		run(r.sweeper.Run)
		run(r.tailer.Run)
	} else {
		run(a.drainer.Run)
	}
	run(core.expirer.Run)
	run(a.sale.loop.Run)
	run(a.resolver.Run)
	run(a.compensation.Run)
	run(a.shadow.Run)
	run(a.audit.run)
	if a.tokens != nil {
		run(a.tokens.Run)
	}
	run(a.filters.Limits.Run)
	if a.reloader != nil {
		run(a.reloader.run)
	}
}

func (a *app) drain(stopJobs context.CancelFunc, jobs *sync.WaitGroup) error {
	core := a.readyCore()
	serveErr := a.stopServing()
	flush, cancelFlush := context.WithTimeout(context.Background(), flushTimeout)
	defer cancelFlush()
	bookErr := core.admitter.Drain(flush)
	stopJobs()
	jobs.Wait()
	a.resolver.Close()
	var redisErr error
	if a.redis != nil {
		if redisErr = a.redis.client.Shutdown(flush); redisErr != nil {
			a.log.Warn("closes were not all sent to Redis; sweeper and tailer see to it", zap.Error(redisErr))
		}
	}
	a.deducter.Stop(flush)
	if serveErr == nil && bookErr == nil {
		a.leave()
	}
	a.log.Info("ended")
	return errors.Join(serveErr, bookErr)
}

// learnEpochs lets a replica that starts beside others use Redis from its first order on. It must not keep a replica from starting:
// without epochs the database decides.
func (a *app) learnEpochs(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	select {
	case <-a.beaten:
	case <-ctx.Done():
		return
	}
	if a.redis != nil {
		if _, err := a.redis.wayBack.Learn(ctx); err != nil {
			a.log.Warn("epochs are not known yet; the database decides until they are", zap.Error(err))
		}
	}
}

// leave says that this gateway has nothing under way any more: nobody need wait for it, or doubt what it sold. Without it that takes
// replica_timeout.
func (a *app) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	if err := a.store.Leave(ctx, a.gatewayID); err != nil {
		a.log.Warn("the others were not told that this gateway is gone; they notice it after replica_timeout", zap.Error(err))
	}
}

// prepare brings the tables up to date and joins the deployment. A database that is not there yet is waited for; one that says no is an
// error.
func (a *app) prepare(ctx context.Context) (ledger.Meta, error) {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, prepareRetryMax) {
		meta, err := a.tryPrepare(ctx)
		switch {
		case err == nil:
			return meta, a.refuseForeignRedis(ctx, meta)
		case ctx.Err() != nil:
			return meta, ctx.Err()
		case !errors.Is(err, stock.ErrUnavailable) && !errors.Is(err, stock.ErrUnknown) && !ledger.Retryable(err):
			return meta, err
		}
		a.readiness.Waiting("database: " + err.Error())
		a.log.Warn("waiting for the database", zap.Error(err), zap.Duration("again in", pause))
		select {
		case <-ctx.Done():
			return meta, ctx.Err()
		case <-time.After(pause):
		}
	}
}

func (a *app) tryPrepare(ctx context.Context) (ledger.Meta, error) {
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	if a.cfg.Database.Migrate {
		if err := a.store.Migrate(ctx); err != nil {
			return ledger.Meta{}, fmt.Errorf("migrate: %w", err)
		}
	}
	meta, err := a.store.Prepare(ctx)
	if err != nil {
		return meta, err
	}
	return meta, a.sale.join(ctx)
}

// refuseForeignRedis keeps a gateway from starting on a Redis of another deployment. A Redis that does not answer is no reason to wait:
// the database sells without it, and the way back asks again before it opens anything.
func (a *app) refuseForeignRedis(ctx context.Context, meta ledger.Meta) error {
	if a.redis == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err := a.redis.client.Check(ctx, meta.Deployment)
	if errors.Is(err, stock.ErrNotExecuted) || errors.Is(err, stock.ErrUnknown) {
		a.log.Warn("redis does not answer; the database sells alone until it does", zap.Error(err))
		return nil
	}
	return err
}

// checkRedis is asked before partitions are opened on a Redis node whose contents are new.
func (a *app) checkRedis(ctx context.Context, node string) error {
	core := a.readyCore()
	if core == nil {
		return errors.New("the deployment is not known yet")
	}
	return a.redis.client.CheckNode(ctx, core.meta.Deployment, node)
}

// ping is the breaker's probe.
func (r *redisSide) ping(ctx context.Context, node string) error { return r.client.Ping(ctx, node) }

func (a *app) breakerChanged(c fallback.BreakerChange) {
	a.redis.wayBack.BreakerChanged(c)
}

// databaseNow is the database's clock, zero before the first heartbeat.
func (a *app) databaseNow() time.Time { return a.beat.Now() }
