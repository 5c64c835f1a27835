package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settles is how long a folder must be left alone before what was written there counts:
// an editor, or a program that installs files, does it in several steps.
const settles = 250 * time.Millisecond

// onChange runs fn when something in a folder has changed, until ctx ends, and returns
// a function that waits for the end of that. The folder may be replaced by another.
// Where it cannot be watched the log says so.
func onChange(ctx context.Context, dir string, log *slog.Logger, fn func()) (wait func()) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("cannot watch the folder; SIGHUP makes it read again", "dir", dir, "error", err.Error())
		return func() {}
	}
	w := watch{dir: filepath.Clean(dir), watcher: watcher, log: log}
	w.addDir(filepath.Dir(w.dir))
	w.addDir(w.dir)
	var running sync.WaitGroup
	running.Go(func() {
		defer watcher.Close()
		w.debounce(ctx, fn)
	})
	return running.Wait
}

// watch looks at a folder.
type watch struct {
	dir     string
	watcher *fsnotify.Watcher
	log     *slog.Logger
}

func (w *watch) addDir(dir string) {
	if err := w.watcher.Add(dir); err != nil {
		w.log.Warn("cannot watch the folder; SIGHUP makes it read again", "dir", dir, "error", err.Error())
	}
}

func (w *watch) debounce(ctx context.Context, fn func()) {
	settled := time.NewTimer(settles)
	settled.Stop()
	defer settled.Stop()
	for {
		select {
		case e, ok := <-w.watcher.Events:
			if !ok {
				return
			}
			if w.isOurs(e) {
				settled.Reset(settles)
			}
		case err, ok := <-w.watcher.Errors:
			if !ok {
				return
			}
			w.log.Warn("watching the folder: events were lost", "dir", w.dir, "error", err.Error())
			settled.Reset(settles)
		case <-settled.C:
			_ = w.watcher.Add(w.dir) // it may be another; if it is gone, fn says so
			fn()
		case <-ctx.Done():
			return
		}
	}
}

// isOurs reports whether an event is of the folder or of a file in it.
func (w *watch) isOurs(e fsnotify.Event) bool {
	name := filepath.Clean(e.Name)
	return !e.Op.Has(fsnotify.Chmod) && name == w.dir || filepath.Dir(name) == w.dir
}
