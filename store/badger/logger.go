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

	stuck     chan struct{} // closed when badger does something again and again that fails
	getsStuck sync.Once
}

func newLogger(log *slog.Logger) *logger { return &logger{log: log, stuck: make(chan struct{})} }

func (l *logger) Errorf(format string, args ...any) {
	l.log.Error(formatLine(format, args))
	l.noteFailure(args, func(err error) bool {
		var number syscall.Errno
		return format == failedWrite || format == failedFlush || errors.As(err, &number)
	})
	if format == failedFlush {
		l.getsStuck.Do(func() { close(l.stuck) })
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
			l.disk.CompareAndSwap(nil, &err)
		}
	}
}

// fail remembers why a change of the tables was taken back.
func (l *logger) fail(err error) {
	l.log.Error("the tables of the store stay what they were", "err", err)
	l.disk.CompareAndSwap(nil, &err)
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

// unlessStuck calls what has badger do something, and returns its error. Where badger gets stuck it is left to that, later is
// called when it has come to its end, and the error is why it is stuck.
func (l *logger) unlessStuck(do func() error, later func()) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-l.stuck:
	}
	if later != nil {
		go func() {
			<-done //nolint:errcheck // why it is stuck was said
			later()
		}()
	}
	return l.failure()
}

func formatLine(format string, args []any) string {
	return "badger: " + strings.TrimSpace(fmt.Sprintf(format, args...))
}
