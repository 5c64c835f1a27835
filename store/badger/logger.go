package badger

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
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
	dir  string
	disk atomic.Pointer[error] // the first error of the system

	unmade sync.Mutex // held while unmadeName is written
}

func (l *logger) Errorf(format string, args ...any) {
	l.log.Error(line(format, args))
	l.note(args, func(err error) bool {
		var number syscall.Errno
		return errors.As(err, &number)
	})
}

func (l *logger) Warningf(format string, args ...any) {
	l.log.Warn(line(format, args))
	l.note(args, isOfManifest)
}

func (l *logger) Infof(format string, args ...any) { l.log.Debug(line(format, args)) }
func (l *logger) Debugf(string, ...any)            {}

// note remembers an error that says that the disk has failed.
func (l *logger) note(args []any, isFailure func(error) bool) {
	for _, arg := range args {
		err, is := arg.(error)
		if !is || !isFailure(err) {
			continue
		}
		l.disk.CompareAndSwap(nil, &err)
		if isOfManifest(err) {
			l.noteUnmade()
		}
	}
}

func (l *logger) noteUnmade() {
	l.unmade.Lock()
	defer l.unmade.Unlock()
	if err := noteUnmade(l.dir); err != nil {
		l.log.Error("which tables were not made cannot be written down", "err", err)
	}
}

// failure is the error of the disk that badger has told of, nil if there was none.
func (l *logger) failure() error {
	if err := l.disk.Load(); err != nil {
		return fmt.Errorf("store/badger: the disk has failed: %w", *err)
	}
	return nil
}

func line(format string, args []any) string {
	return "badger: " + strings.TrimSpace(fmt.Sprintf(format, args...))
}
