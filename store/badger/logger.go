package badger

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"syscall"
)

// logger gives badger's lines to slog, one level lower than badger thinks of them:
// its news of tables and levels is no operator's.
//
// When the value log cannot be synced badger says so here and nowhere else, and the
// commit succeeds. So an error of the system that it tells of is remembered, whichever it
// is: a thin volume, a quota or a disk that became read-only fails a sync as a broken one
// does. From then on nothing may be acknowledged.
type logger struct {
	log  *slog.Logger
	disk atomic.Pointer[error] // the first error of the system
}

func (l *logger) Errorf(format string, args ...any) {
	l.log.Error(line(format, args))
	for _, arg := range args {
		var number syscall.Errno
		if err, is := arg.(error); is && errors.As(err, &number) {
			l.disk.CompareAndSwap(nil, &err)
		}
	}
}

func (l *logger) Warningf(format string, args ...any) { l.log.Warn(line(format, args)) }
func (l *logger) Infof(format string, args ...any)    { l.log.Debug(line(format, args)) }
func (l *logger) Debugf(string, ...any)               {}

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
