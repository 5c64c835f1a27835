package journal

import (
	"cmp"
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

	mu       sync.Mutex // guards what follows; never held while blocked
	segments []segment  // in order, at least one; only what is synced
	attempts map[Key]*attempt
	tombs    map[Key]tomb
	buried   []Key            // the tombs, about in order
	jobs     map[string]int64 // bytes held, by job
	used     int64            // bytes held
	needed   int64            // bytes on disk that are, at least half of them
	pending  *group           // what waits to be written; nil: nothing
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
// end is cut back. Damage is a *[CorruptError]. Nobody else may use fs meanwhile.
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
	return &Journal{
		fs:       fsys,
		opts:     opts.withDefaults(),
		wake:     make(chan struct{}, 1),
		done:     make(chan struct{}),
		attempts: map[Key]*attempt{},
		tombs:    map[Key]tomb{},
		jobs:     map[string]int64{},
	}
}

// ID is the journal's own: another journal has another.
func (j *Journal) ID() string { return j.id }

// Position is how much was ever written to the journal and synced. It never falls,
// unless the journal was rolled back.
func (j *Journal) Position() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.segments[len(j.segments)-1].end()
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
	signal(j.wake)
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
	l := loading{j: j, first: 1, last: numbers[len(numbers)-1]}
	for _, n := range numbers {
		if err := l.segment(n); err != nil {
			return err
		}
	}
	if err := l.finish(); err != nil {
		return err
	}
	return j.adopt()
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

// loading is a journal that is being read.
type loading struct {
	j     *Journal
	last  uint64
	first uint64   // segments before it are not needed
	old   []uint64 // segments before one that is missing
}

// segment reads a segment.
func (l *loading) segment(number uint64) error {
	name := segmentName(number)
	data, err := readFile(l.j.fs, name)
	if err != nil {
		return ioError("read "+name, err)
	}
	head, n, err := parse(data, 0)
	if err != nil || head.kind != kindHead || head.number != number {
		return &CorruptError{File: name, Reason: "this is not the head of the segment"}
	}
	s := segment{number: number, base: head.base}
	if err := l.follows(name, s, head.id); err != nil {
		return err
	}
	for s.size = int64(n); s.size < int64(len(data)); s.size += int64(n) {
		var e entry
		e, n, err = parse(data[s.size:], s.base+s.size)
		if err != nil && number == l.last && isTorn(data, s.size, n, err) {
			break
		}
		if err == nil {
			err = l.apply(e, number, s.size, n)
		}
		if err != nil {
			return &CorruptError{File: name, Offset: s.size, Reason: err.Error()}
		}
	}
	l.j.segments = append(l.j.segments, s)
	return nil
}

// follows checks that a segment continues the one before it.
func (l *loading) follows(name string, s segment, id string) error {
	if len(l.j.segments) == 0 && len(l.old) == 0 {
		l.j.id = id
		return nil
	}
	before := l.j.segments[len(l.j.segments)-1]
	switch {
	case id != l.j.id:
		return &CorruptError{File: name, Reason: "the segment is another journal's"}
	case s.number != before.number+1:
		l.restart()
	case s.base != before.end():
		return &CorruptError{File: segmentName(before.number), Offset: before.size, Reason: "the segment does not end where the next one begins"}
	}
	return nil
}

// restart forgets what was read, as a segment is missing: it should be one that is
// not needed, and then nothing before it is.
func (l *loading) restart() {
	j := l.j
	for _, s := range j.segments {
		l.old = append(l.old, s.number)
	}
	j.segments, j.buried = nil, nil
	clear(j.attempts)
	clear(j.tombs)
}

// isTorn reports whether a bad entry at off is what a crash leaves of a write that
// was not synced: cut short, or zeros in place of its end. n is its size, 0 if that
// is not known.
func isTorn(data []byte, off int64, n int, err error) bool {
	if errors.Is(err, errCut) {
		return true
	}
	if n == 0 {
		n = entryHead
	}
	zeros := int64(len(data))
	for zeros > off && data[zeros-1] == 0 {
		zeros--
	}
	if zeros == off {
		return true
	}
	zeros = (zeros + sector - 1) &^ (sector - 1)
	return zeros < off+int64(n) && zeros < int64(len(data))
}

// apply takes an entry that was read. Entries that were written again may follow
// later ones, and the segment of an attempt's beginning may be gone if its state was
// written again.
func (l *loading) apply(e entry, number uint64, off int64, size int) error {
	switch e.kind {
	case kindHead:
		return errBad
	case kindFirst:
		if e.number > number {
			return errBad
		}
		l.first = max(l.first, e.number)
		return nil
	case kindTomb:
		delete(l.j.attempts, e.key)
		l.j.buryLocked(e.key, tomb{at: e.at, home: number})
		return nil
	case kindWithdrawn:
		delete(l.j.attempts, e.key)
		return nil
	default:
	}
	l.attempt(e, number, func() *extent { return &extent{segment: number, offset: off, size: size} })
	return nil
}

// attempt takes an entry of an attempt.
func (l *loading) attempt(e entry, number uint64, here func() *extent) {
	a := l.j.attempts[e.key]
	begins := e.kind == kindAccept || e.kind == kindBegin
	if a == nil || begins {
		a = &attempt{home: number, state: Accepted}
		l.j.attempts[e.key] = a
		delete(l.j.tombs, e.key)
	}
	switch e.kind {
	case kindAccept, kindBegin:
		a.accepted, a.fence, a.info = true, e.fence, slices.Clone(e.info)
		if e.kind == kindBegin {
			a.state, a.started = Started, e.started
		}
	case kindStart:
		a.state, a.started = Started, e.started
	case kindStop:
		a.state, a.stop = Stopping, e.stop
	case kindEnd:
		x := here()
		x.cost = endCost(e.body)
		a.state, a.end, a.dropped, a.next = Ended, x, e.dropped, max(a.next, e.count)
	case kindRecords:
		x := here()
		x.first, x.count, x.cost = e.count, int64(len(e.records)), extentCost
		for _, r := range e.records {
			x.cost += int64(len(r)) + recordCost
		}
		a.add(x)
	case kindAcked:
		a.ack(e.count)
	case kindState:
		a.accepted, a.state, a.fence, a.info = true, e.state, e.fence, slices.Clone(e.info)
		a.started, a.stop, a.dropped = e.started, e.stop, e.dropped
		a.next, a.home = max(a.next, e.count), number
		a.ack(e.acked)
	default:
	}
}

// finish checks what was read as a whole, and removes what is not needed.
func (l *loading) finish() error {
	j := l.j
	if n := j.segments[0].number; n > l.first {
		return &CorruptError{File: segmentName(n - 1), Reason: "the segment is missing"}
	}
	for k, a := range j.attempts {
		if err := l.check(k, a); err != nil {
			return err
		}
		a.ack(a.acked)
		j.accountLocked(k, size{}, a.size())
	}
	slices.SortFunc(j.buried, func(a, b Key) int { return cmp.Compare(j.tombs[a].at, j.tombs[b].at) })
	j.expireLocked(time.Now())
	for j.segments[0].number < l.first {
		l.old = append(l.old, j.segments[0].number)
		j.segments = j.segments[1:]
	}
	for _, n := range l.old {
		if err := j.fs.Remove(segmentName(n)); err != nil {
			return ioError("remove", err)
		}
	}
	return nil
}

// check says whether all that belongs to an attempt was there.
func (l *loading) check(k Key, a *attempt) error {
	if a.accepted && (a.state == Ended) == (a.end != nil) && a.acked <= a.next {
		return nil
	}
	first := l.j.segments[0]
	return &CorruptError{File: segmentName(first.number), Reason: fmt.Sprintf("attempt %d of job %s is here or later in part only", k.Attempt, k.Job)}
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

// signal wakes who waits on a channel of one slot.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
