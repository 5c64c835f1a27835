package journal

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/harpcaller/harp/internal/wake"
)

// Journal is an open journal. Its methods may be called at any time by anybody.
type Journal struct {
	fs   FS
	opts Options
	id   string
	wake chan struct{} // 1 slot: there may be something to write
	done chan struct{} // closed when the writer has returned

	file    File      // the writer's: of the last segment
	resting time.Time // the writer's: no compaction before
	was     string    // the id of the journal that this one was copied from; empty: none
	copied  bool      // that was found as it was opened
	due     bool      // the writer's: another segment is to be made before anything is written

	mu       sync.Mutex // guards what follows; never held while blocked
	segments []segment  // in order, at least one; only what is synced
	attempts map[Key]*attempt
	tombs    tombs
	taken    takings          // on disk; the writer changes it
	jobs     map[string]int64 // bytes held, by job
	used     int64            // bytes held
	needed   int64            // bytes on disk that are, at least half of them
	pending  *group           // what waits to be written; nil: nothing
	waiting  int              // bytes of records that are not written yet
	eased    chan struct{}    // closed when they are few again; nil: nobody asked
	spare    []byte           // the buffer of a group that was written
	closed   bool
	broken   error // an ErrBroken
}

// segment is a file of the journal.
type segment struct {
	number uint64
	base   int64 // position of its first byte
	size   int64
}

func (s segment) end() int64 { return s.base + s.size }

const (
	suffix = ".journal"
	fresh  = ".new" // after the name of a segment that is being made
)

func segmentName(number uint64) string { return fmt.Sprintf("%016x", number) + suffix }

func segmentNumber(name string) (number uint64, ok bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != 16 {
		return 0, false
	}
	number, err := strconv.ParseUint(digits, 16, 64)
	return number, err == nil && segmentName(number) == name
}

// Open opens the journal that is in fs, or makes one, and brings it in order: a torn
// end is cut back. Nobody else may use fs meanwhile. Errors: a *[CorruptError] for
// damage; ErrVersion; those of fs.
func Open(fsys FS, opts Options) (*Journal, error) {
	j := newJournal(fsys, opts)
	if err := j.load(); err != nil {
		if j.file != nil {
			_ = j.file.Close()
		}
		return nil, err
	}
	go j.writeLoop()
	return j, nil
}

func newJournal(fsys FS, opts Options) *Journal {
	opts = opts.withDefaults()
	return &Journal{
		fs:       fsys,
		opts:     opts,
		wake:     make(chan struct{}, 1),
		done:     make(chan struct{}),
		attempts: map[Key]*attempt{},
		tombs:    newTombs(opts.Keep, opts.MaxTombs),
		jobs:     map[string]int64{},
	}
}

// ID is the journal's own: another journal has another, and so has a copy.
func (j *Journal) ID() string { return j.id }

// CopyOf is the id of the journal of which this one was found to be a copy as it was opened, or which was
// put back from one; empty: it was not. What that journal has written since is not known.
func (j *Journal) CopyOf() string {
	if !j.copied {
		return ""
	}
	return j.was
}

// Err is an ErrBroken where the journal has to be closed and opened anew.
func (j *Journal) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.broken
}

// Close writes and syncs what waits for it and closes the journal. The error is why
// that failed.
func (j *Journal) Close() error {
	j.mu.Lock()
	first := !j.closed
	j.closed = true
	g := j.pending
	j.mu.Unlock()
	wake.Signal(j.wake)
	<-j.done
	if !first {
		return nil
	}
	err := j.file.Close()
	if g != nil {
		err = errors.Join(g.commit.Wait(), err)
	}
	return err
}

// load reads the segments, or makes the first.
func (j *Journal) load() error {
	numbers, err := j.list()
	if err != nil {
		return err
	}
	if len(numbers) == 0 {
		j.id = rand.Text()
		return j.create(segment{number: 1})
	}
	l := loading{j: j, first: 1, last: numbers[len(numbers)-1], now: time.Now()}
	for _, n := range numbers {
		if err := l.segment(n); err != nil {
			return err
		}
	}
	if err := l.finish(); err != nil {
		return err
	}
	if err := j.adopt(); err != nil {
		return err
	}
	j.due = l.outdated
	j.settlePlace(l.place)
	return l.removeOld() // only now is on disk what makes them needless
}

// list returns the numbers of the segments, and removes what never became one.
func (j *Journal) list() ([]uint64, error) {
	names, err := j.fs.List()
	if err != nil {
		return nil, ioError("list", err)
	}
	var numbers []uint64
	for _, name := range names {
		if n, ok := segmentNumber(name); ok {
			numbers = append(numbers, n)
		} else if strings.HasSuffix(name, suffix+fresh) {
			if err := j.fs.Remove(name); err != nil {
				return nil, ioError("remove", err)
			}
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// adopt opens the last segment to go on with, without its torn end, and syncs what
// is there: the process that wrote it may have died before.
func (j *Journal) adopt() error {
	s := j.segments[len(j.segments)-1]
	f, err := j.fs.Open(segmentName(s.number))
	if err != nil {
		return ioError("open", err)
	}
	j.file = f
	size, err := f.Size()
	if err != nil {
		return ioError("size", err)
	}
	if size > s.size {
		if err := f.Truncate(s.size); err != nil {
			return ioError("truncate", err)
		}
	}
	if err := f.Sync(); err != nil {
		return ioError("sync", err)
	}
	if err := j.fs.SyncDir(); err != nil {
		return ioError("sync directory", err)
	}
	return nil
}

// readFile reads a file whole.
func readFile(fsys FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	data := make([]byte, size)
	return data, readAt(f, data, 0)
}

// readAt fills b.
func readAt(f File, b []byte, off int64) error {
	if n, err := f.ReadAt(b, off); n < len(b) {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	return nil
}

// removeIfThere removes a file that may be gone.
func removeIfThere(fsys FS, name string) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
