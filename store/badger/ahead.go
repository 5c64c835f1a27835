package badger

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// logAhead gives blocks to a log that badger writes to, before it does: it writes through
// memory maps, where a disk without blocks is a signal that ends the process. The log is
// the newest of its kind.
type logAhead struct {
	dir, format string // of the file's name
	precreate   bool   // badger takes an empty file for its next one

	number    int
	file      *os.File // nil: none has been found
	used      int64    // bytes written to it, at most
	allocated int64    // up to where it has blocks
}

const (
	memFormat  = "%05d.mem"
	vlogFormat = "%06d.vlog"

	// aheadStep is how many bytes more are allocated than are needed.
	aheadStep = 4 << 20

	// aheadSlack is what is zeroed and read ahead behind the last entry, and the header.
	aheadSlack = 16 << 10
)

// name is the file's of a number.
func (l *logAhead) name(number int) string {
	return filepath.Join(l.dir, fmt.Sprintf(l.format, number))
}

// findLogs looks for the newest log.
func (l *logAhead) findLogs() error {
	names, err := filepath.Glob(filepath.Join(l.dir, "*"+filepath.Ext(l.format)))
	if err != nil {
		return err
	}
	newest := -1
	for _, name := range names {
		base := filepath.Base(name)
		n, err := strconv.Atoi(strings.TrimSuffix(base, filepath.Ext(base)))
		if err == nil && n > newest && isMade(name) {
			newest = n
		}
	}
	if newest < 0 {
		return nil
	}
	return l.turnTo(newest)
}

// isMade reports whether badger has made a file: it gives it its size at once.
func isMade(name string) bool {
	info, err := os.Lstat(name)
	return err == nil && info.Size() > 0
}

func (l *logAhead) turnTo(number int) error {
	f, err := os.OpenFile(l.name(number), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	l.close()
	l.file, l.number, l.used, l.allocated = f, number, 0, 0
	return nil
}

func (l *logAhead) close() {
	if l.file != nil {
		l.file.Close() //nolint:errcheck // nothing was written
	}
	l.file = nil
}

// reserve sees that so many bytes more can be written to the log, and to the one after it
// if badger turns to that. allocate gives blocks.
func (l *logAhead) reserve(size int64, allocate func(f *os.File, from, to int64) error) error {
	for l.file != nil && isMade(l.name(l.number+1)) {
		had := l.used
		if err := l.turnTo(l.number + 1); err != nil {
			return err
		}
		l.used = min(had, aheadStep) // it turned before or after what was written last
	}
	if l.file == nil {
		return nil
	}
	if end := l.used + size + aheadSlack; end > l.allocated {
		if err := allocate(l.file, l.allocated, end+aheadStep); err != nil {
			return err
		}
		l.allocated = end + aheadStep
	}
	if !l.precreate || l.used < nextFrom {
		return nil
	}
	return l.makeNext(size, allocate)
}

// nextFrom is how full a log is when blocks are kept for the next.
const nextFrom = memTableSize / 2

// makeNext makes the file of the next log, empty, with blocks behind its end.
func (l *logAhead) makeNext(size int64, allocate func(f *os.File, from, to int64) error) error {
	name := l.name(l.number + 1)
	if n, err := blocks(name); err == nil && n >= size {
		return nil
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(allocate(f, 0, size+aheadStep), f.Close())
}

// unused is how many blocks of it nothing has been written to, at least.
func (l *logAhead) unused() int64 { return max(0, l.allocated-l.used) }

// noteWritten notes that at most so many bytes were written.
func (l *logAhead) noteWritten(size int64) { l.used += size }
