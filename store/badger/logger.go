package badger

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/dgraph-io/badger/v4"
)

// logger gives badger's lines to slog, one level lower than badger thinks of them:
// its news of tables and levels is no operator's.
//
// When the value log cannot be synced badger says so here and nowhere else, and the
// commit succeeds. So an error of the system that it tells of is remembered, whichever it
// is: a thin volume, a quota or a disk that became read-only fails a sync as a broken one
// does. From then on nothing may be acknowledged. Of a compaction that could not change the
// manifest it only warns.
type logger struct {
	log  *slog.Logger
	disk atomic.Pointer[error] // the first error of the system

	broken latch          // it is there
	stuck  latch          // badger does something again and again that fails
	calls  sync.WaitGroup // of badger's functions, those that nobody waits for too
}

// latch is a channel that is closed once.
type latch struct {
	once sync.Once
	done chan struct{}
}

func (l *latch) fire() { l.once.Do(func() { close(l.done) }) }

func newLogger(log *slog.Logger) *logger {
	return &logger{log: log, broken: latch{done: make(chan struct{})}, stuck: latch{done: make(chan struct{})}}
}

func (l *logger) Errorf(format string, args ...any) {
	l.log.Error(formatLine(format, args))
	l.noteFailure(args, func(err error) bool {
		var number syscall.Errno
		return format == failedWrite || format == failedFlush || errors.As(err, &number)
	})
	if format == failedFlush {
		l.stuck.fire()
	}
}

// What badger tells with an error that it has made a text of.
const (
	// failedWrite says that something could not be written to its logs. What collecting the value log writes is told
	// in no other way, and with half of it in a log, or not synced, what is committed behind it is not found when the
	// store is opened.
	failedWrite = "writeRequests: %v"

	// failedFlush says that no table could be made of a memory table. Badger tries it again each second, and takes
	// more until there is no memory table for it: then commits wait, as opening and closing does.
	failedFlush = "error flushing memtable to disk: %v, retrying"
)

func (l *logger) Warningf(format string, args ...any) {
	l.log.Warn(formatLine(format, args))
	l.noteFailure(args, isOfManifest)
}

func (l *logger) Infof(format string, args ...any) { l.log.Debug(formatLine(format, args)) }
func (l *logger) Debugf(string, ...any)            {}

// noteFailure remembers an error that says that the disk has failed.
func (l *logger) noteFailure(args []any, isFailure func(error) bool) {
	for _, arg := range args {
		if err, is := arg.(error); is && isFailure(err) {
			l.remember(err)
		}
	}
}

// fail remembers why a change of the tables was taken back.
func (l *logger) fail(err error) {
	l.log.Error("the tables of the store stay what they were", "err", err)
	l.remember(err)
}

func (l *logger) remember(err error) {
	l.disk.CompareAndSwap(nil, &err)
	l.broken.fire()
}

// isOfManifest reports whether an error is about the manifest.
func isOfManifest(err error) bool {
	var path *fs.PathError
	var link *os.LinkError
	return errors.As(err, &path) && isManifest(path.Path) || errors.As(err, &link) && isManifest(link.New)
}

func isManifest(name string) bool {
	return strings.HasPrefix(filepath.Base(name), badger.ManifestFilename)
}

// failure is the error of the disk that badger has told of, nil if there was none.
func (l *logger) failure() error {
	if err := l.disk.Load(); err != nil {
		return fmt.Errorf("store/badger: the disk has failed: %w", *err)
	}
	return nil
}

// unless calls a function of badger's, and returns its error. When why is fired meanwhile badger is left to it, later is
// called when it has come to its end, and the error is that of the disk.
func (l *logger) unless(why *latch, call func() error, later func()) error {
	done := make(chan error, 1)
	l.calls.Go(func() { done <- call() })
	select {
	case err := <-done:
		return err
	case <-why.done:
	}
	if later != nil {
		l.calls.Go(func() {
			<-done //nolint:errcheck // that of the disk is told
			later()
		})
	}
	return l.failure()
}

func formatLine(format string, args []any) string {
	return "badger: " + strings.TrimSpace(fmt.Sprintf(format, args...))
}
