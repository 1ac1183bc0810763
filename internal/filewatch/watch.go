package filewatch

import (
	"context"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
)

// Defaults of Config, taken where a field is zero.
const (
	SettleDefault = 200 * time.Millisecond
	PollDefault   = 30 * time.Second
)

// Config says what is watched.
type Config struct {
	// Files gives the files by name. It is asked again after each time that Changed was called.
	Files func() []string
	// Changed is called by the goroutine of Run: files may have changed.
	Changed func(context.Context)
	// Settle is how long nothing must have happened before an event is told. Defaults to SettleDefault.
	Settle time.Duration
	// Poll is how often it is told without an event. Defaults to PollDefault.
	Poll time.Duration
	Log  *zap.Logger
}

// Run watches until ctx ends. Where folders cannot be watched it goes by Poll alone, and logs why.
func Run(ctx context.Context, cfg Config) {
	if cfg.Settle <= 0 {
		cfg.Settle = SettleDefault
	}
	if cfg.Poll <= 0 {
		cfg.Poll = PollDefault
	}
	w := &watch{Config: cfg, folders: map[string]bool{}}
	var err error
	if w.watcher, err = fsnotify.NewWatcher(); err != nil {
		cfg.Log.Warn("files cannot be watched, they are looked at from time to time", zap.Duration("every", cfg.Poll), zap.Error(err))
	} else {
		defer func() { _ = w.watcher.Close() }()
	}
	w.run(ctx)
}

type watch struct {
	Config
	watcher *fsnotify.Watcher // nil: there is none
	folders map[string]bool   // that are watched; false: cannot be, and it was said
}

func (w *watch) run(ctx context.Context) {
	poll := time.NewTicker(w.Poll)
	defer poll.Stop()
	settled := time.NewTimer(time.Hour)
	settled.Stop()
	events, failed := w.follow()
	settled.Reset(0) // what changed before the first folder was watched
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			settled.Reset(w.Settle)
			continue
		case err := <-failed: // events were lost: it is as if there was one
			w.Log.Debug("changes of files were lost", zap.Error(err))
			settled.Reset(w.Settle)
			continue
		case <-poll.C:
		case <-settled.C:
		}
		w.Changed(ctx)
		w.follow()
	}
}

// follow watches the folders of the files as they are now, and gives what happens there.
func (w *watch) follow() (events <-chan fsnotify.Event, failed <-chan error) {
	if w.watcher == nil {
		return nil, nil
	}
	for _, file := range w.Files() {
		w.add(filepath.Dir(file))
	}
	return w.watcher.Events, w.watcher.Errors
}

// add watches a folder. One that was replaced is watched anew: adding what is watched does nothing.
func (w *watch) add(folder string) {
	err := w.watcher.Add(folder)
	if was, known := w.folders[folder]; err != nil && (!known || was) {
		w.Log.Warn("a folder cannot be watched, its files are looked at from time to time", zap.String("folder", folder),
			zap.Duration("every", w.Poll), zap.Error(err))
	}
	w.folders[folder] = err == nil
}
