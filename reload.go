package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/config"
	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/internal/filewatch"
)

// reloader takes a changed configuration file into use, all of it or nothing.
type reloader struct {
	app     *app
	file    string
	changed chan struct{} // by SIGHUP; holds one

	mu     sync.Mutex // one reload at a time; of said and tries
	said   string     // what was wrong with the file when it was last looked at
	tries  map[string]uint64
	loaded atomic.Pointer[loaded]
	last   atomic.Pointer[api.Reload] // nil: none was tried
}

// loaded is the configuration that is in use, and since when.
type loaded struct {
	version string
	at      time.Time
}

func newReloader(a *app, file string) *reloader {
	r := &reloader{app: a, file: file, changed: make(chan struct{}, 1), tries: map[string]uint64{api.ReloadTaken: 0, api.ReloadRefused: 0}}
	r.loaded.Store(&loaded{version: a.config().Version(), at: a.started})
	return r
}

// hup asks for a reload and does not wait for it.
func (r *reloader) hup() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// run follows the file, and those that its references name, until ctx ends. It also looks at once: the file may have changed since it
// was read at the start.
func (r *reloader) run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		filewatch.Run(ctx, filewatch.Config{Log: r.app.log, Changed: func(ctx context.Context) { _, _ = r.reload(ctx, api.ReloadByFile) },
			Files: func() []string { return append(r.app.config().References(), r.file) }})
	})
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.changed:
			_, _ = r.reload(ctx, api.ReloadBySignal) // it has logged what was wrong
		}
	}
}

// reload reads the file and takes it into use. The error says that this could not be tried now; what is wrong with the file is in what
// comes back. By a look at the file (api.ReloadByFile) it says what is wrong only once.
func (r *reloader) reload(ctx context.Context, by string) (api.Reload, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, changes, err := r.try(ctx)
	if err != nil && ctx.Err() != nil && by == api.ReloadByFile {
		return api.Reload{}, err // the process ends
	}
	done := api.Reload{At: time.Now().UTC(), By: by, Result: api.ReloadTaken, Changes: keysOf(changes)}
	switch {
	case err != nil:
		done.Result, done.Problems = api.ReloadRefused, faultsOf(err)
	case len(changes) == 0:
		done.Result = api.ReloadUnchanged
	default:
		r.loaded.Store(&loaded{version: next.Version(), at: done.At})
	}
	r.note(done, err)
	var problems config.Problems
	if errors.As(err, &problems) {
		err = nil
	}
	return done, err
}

// try reads the file and takes it into use. A panic is a failure like any other: it must not end what serves by the old configuration.
func (r *reloader) try(ctx context.Context) (next *config.Config, changes []config.Change, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			r.app.log.Error("a reload panicked", zap.Any("panic", reason), zap.ByteString("stack", debug.Stack()))
			err = config.Problems{{Rule: "the reload panicked, which is a bug; the log has its stack"}}
		}
	}()
	if next, err = config.Load(r.file, config.Options{}); err != nil {
		return nil, nil, err
	}
	if changes = config.Changes(r.app.config(), next); len(changes) > 0 {
		err = r.app.apply(ctx, next, changes)
	}
	return next, changes, err
}

// note logs and counts. What a look at the file finds again is not said again.
func (r *reloader) note(done api.Reload, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	again := done.By == api.ReloadByFile && text == r.said
	r.said = text
	if again && done.Result != api.ReloadTaken {
		return
	}
	r.last.Store(&done)
	log := r.app.log.With(zap.String("file", r.file), zap.String("by", done.By))
	switch done.Result {
	case api.ReloadRefused:
		r.tries[done.Result]++
		log.Error("the configuration file cannot be used; nothing has changed", zap.String("version", r.loaded.Load().version), zap.Error(err))
	case api.ReloadTaken:
		r.tries[done.Result]++
		log.Info("a new configuration is in use", zap.String("version", r.loaded.Load().version), zap.Strings("changes", done.Changes))
	default:
		log.Info("the configuration file says what is in use", zap.String("version", r.loaded.Load().version))
	}
}

// counts are the reloads by result, and whether the last look found the file fit for use.
func (r *reloader) counts() (tries map[string]uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return map[string]uint64{api.ReloadTaken: r.tries[api.ReloadTaken], api.ReloadRefused: r.tries[api.ReloadRefused]}, r.said == ""
}

// keysMax bounds the keys that one log line and one answer have.
const keysMax = 200

func keysOf(changes []config.Change) []string {
	var keys []string
	for _, c := range changes {
		if len(keys) == keysMax {
			return append(keys, fmt.Sprintf("and %d more", len(changes)-keysMax))
		}
		keys = append(keys, c.Key)
	}
	return keys
}

// faultsOf are the problems of a file, or what else went wrong.
func faultsOf(err error) []api.BadLine {
	var problems config.Problems
	if !errors.As(err, &problems) {
		return []api.BadLine{{Problem: err.Error()}}
	}
	var lines []api.BadLine
	for _, p := range problems[:min(len(problems), keysMax)] {
		lines = append(lines, api.BadLine{Line: p.Line, Problem: p.Unplaced()})
	}
	return lines
}

// config is the configuration in use. What only a restart changes is the same in app.cfg.
func (a *app) config() *config.Config { return a.live.Load() }

// configuration says what the gateway runs by.
func (a *app) configuration() api.Configuration {
	if r := a.reloader; r != nil {
		now := r.loaded.Load()
		return api.Configuration{File: r.file, Version: now.version, LoadedAt: now.at.UTC(), Last: r.last.Load()}
	}
	return api.Configuration{Version: a.config().Version(), LoadedAt: a.started.UTC()}
}

// errNoFile: the demo, for one.
var errNoFile = errors.New("this gateway was started without a configuration file")

// reloadByAPI reads the file again.
func (a *app) reloadByAPI(ctx context.Context) (api.Reload, error) {
	if a.reloader == nil {
		return api.Reload{Result: api.ReloadRefused, Problems: faultsOf(errNoFile)}, nil
	}
	return a.reloader.reload(ctx, api.ReloadByAPI)
}

// apply takes another configuration into use, all or nothing. Everything that may fail comes first, and the database as the last of it:
// the rules of the sale are stored there, for all replicas.
func (a *app) apply(ctx context.Context, next *config.Config, changes []config.Change) error {
	if err := errors.Join(problemsOf(needRestart(next, changes)), problemsOf(config.Refusals(next))); err != nil {
		return err
	}
	take, err := a.prepareLive(next)
	if err != nil {
		return config.Problems{{Rule: err.Error()}}
	}
	if err := a.sale.renew(ctx, next); err != nil {
		return err
	}
	for _, t := range take {
		t()
	}
	a.live.Store(next)
	a.warn(next)
	return nil
}

func problemsOf(ps config.Problems) error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

// needRestart names the keys for which nothing is reloaded: what runs is always one file, never the half of two.
func needRestart(next *config.Config, changes []config.Change) config.Problems {
	var ps config.Problems
	for _, c := range changes {
		if c.Effect == config.EffectRestart {
			ps = append(ps, config.Problem{Key: c.Key, Line: next.Line(c.Key), Rule: "has changed, which only a restart can use: restart, or change it back"})
		}
	}
	return ps
}

// warn logs what serve would warn of at the start.
func (a *app) warn(c *config.Config) {
	for _, w := range config.Warnings(c) {
		a.log.Warn("configuration", zap.String("key", w.Key), zap.String("warning", w.Message()))
	}
}

// guardedNames are the routes whose orders are counted in metrics of their own.
func guardedNames(c *config.Config) func(string) bool {
	names := guardedRoutes(c)
	return func(name string) bool { return slices.Contains(names, name) }
}
