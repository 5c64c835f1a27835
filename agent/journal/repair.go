package journal

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Report is what can be read of a journal.
type Report struct {
	ID       string // empty: there is no journal, or nothing of it can be read
	Segments int
	Bytes    int64  // of the segments
	Torn     int64  // bytes at the end that a crash left, which is no damage
	Held     []Held // attempts of which all that matters can be read, by job and number
	Partial  []Key  // attempts of which it cannot be said what became of them
	Tombs    int

	// Damage is what keeps the journal from being opened; nil: nothing does.
	Damage []*CorruptError
}

// Check reads a journal that nobody has open, as far as it can be read, and changes
// nothing. Errors: ErrVersion; those of fs.
func Check(fsys FS) (Report, error) {
	s, err := newSurvey(fsys)
	if err != nil {
		return Report{}, err
	}
	if err := s.read(func(*entry) error { return nil }); err != nil {
		return Report{}, err
	}
	return s.report(), nil
}

// Salvage makes a journal in to, which must be empty, of what can be read of the one in
// from, and reports that. The new one has another id, by which a dispatcher knows that
// something may be missing. Attempts in Partial, and those that were accepted and not
// started, get tombstones: they will not be started again. Those that are known elsewhere
// get none, and are absent. Errors: ErrInvalid if there are files in to; ErrVersion; those of
// both file systems.
func Salvage(from, to FS, elsewhere ...Key) (Report, error) {
	if names, err := to.List(); err != nil {
		return Report{}, ioError("list", err)
	} else if len(names) > 0 {
		return Report{}, fmt.Errorf("%w: there are files where the journal is to be", ErrInvalid)
	}
	s, err := newSurvey(from)
	if err != nil {
		return Report{}, err
	}
	w := &salvage{j: newJournal(to, Options{}), g: newGroup()}
	w.j.id = rand.Text()
	if err := w.j.create(segment{number: 1}); err != nil {
		return Report{}, err
	}
	err = errors.Join(w.copy(s, elsewhere), w.j.file.Close())
	return s.report(), err
}

// survey is a journal that is read as far as it can be.
type survey struct {
	l       loading
	numbers []uint64
	bytes   int64
	torn    int64
	held    []Held
	partial []Key
	tombs   int
	damage  []*CorruptError
}

func newSurvey(fsys FS) (*survey, error) {
	names, err := fsys.List()
	if err != nil {
		return nil, ioError("list", err)
	}
	s := &survey{}
	for _, name := range names {
		if n, ok := segmentNumber(name); ok {
			s.numbers = append(s.numbers, n)
		}
	}
	slices.Sort(s.numbers)
	s.begin(fsys)
	return s, nil
}

// begin forgets what was read.
func (s *survey) begin(fsys FS) {
	now := time.Now()
	s.l = loading{j: newJournal(fsys, Options{}), first: max(s.l.first, 1), now: now}
	if n := len(s.numbers); n > 0 {
		s.l.last = s.numbers[n-1]
	}
	s.bytes, s.torn, s.tombs, s.damage = 0, 0, 0, nil
}

func (s *survey) report() Report {
	return Report{
		ID: s.l.j.id, Segments: len(s.l.j.segments), Bytes: s.bytes, Torn: s.torn,
		Held: s.held, Partial: s.partial, Tombs: s.tombs, Damage: s.damage,
	}
}

// read reads all segments that are needed, and lets visit see the tombstones.
func (s *survey) read(visit func(*entry) error) error {
	if err := s.segments(func(*entry) error { return nil }); err != nil {
		return err
	}
	s.numbers = slices.DeleteFunc(s.numbers, func(n uint64) bool { return n < s.l.first })
	s.begin(s.l.j.fs)
	if err := s.segments(visit); err != nil {
		return err
	}
	s.judge()
	return nil
}

// segments reads the segments.
func (s *survey) segments(visit func(*entry) error) error {
	heads := make([]segment, len(s.numbers)) // base -1: not known
	for i, n := range s.numbers {
		var err error
		if heads[i], err = s.head(n); err != nil {
			return err
		}
	}
	// A segment whose head is damaged lies between its neighbours.
	for i := 1; i < len(heads); i++ {
		if heads[i].base < 0 && heads[i-1].base >= 0 {
			heads[i].base = heads[i-1].end()
		}
	}
	for i := len(heads) - 2; i >= 0; i-- {
		if heads[i].base < 0 && heads[i+1].base >= 0 {
			heads[i].base = heads[i+1].base - heads[i].size
		}
	}
	for i, head := range heads {
		s.follows(heads[:i], head)
		if err := s.segment(head, visit); err != nil {
			return err
		}
	}
	return nil
}

// head finds out where a segment begins.
func (s *survey) head(number uint64) (segment, error) {
	found := segment{number: number, base: -1}
	data, err := s.content(number)
	if err != nil {
		return found, err
	}
	found.size = int64(len(data))
	if err := checkVersion(data); err != nil {
		return found, err
	}
	e, _, err := parse(data, 0)
	if err != nil || e.kind != kindHead || e.number != number {
		s.damaged(number, 0, "this is not the head of the segment")
		return found, nil
	}
	if id := s.l.j.id; id != "" && !e.isOf(id) {
		s.damaged(number, 0, "the segment is another journal's")
		return found, nil
	}
	s.l.j.id, found.base = e.id, e.base
	return found, nil
}

// follows notes where a segment does not continue those before it.
func (s *survey) follows(before []segment, head segment) {
	switch {
	case len(before) == 0 && head.number > s.l.first, len(before) > 0 && head.number != before[len(before)-1].number+1:
		s.damaged(head.number-1, 0, "the segment is missing")
	case len(before) > 0 && head.base != before[len(before)-1].end():
		last := before[len(before)-1]
		s.damaged(last.number, last.size, "the segment does not end where the next one begins")
	}
}

func (s *survey) damaged(number uint64, off int64, reason string) {
	s.damage = append(s.damage, &CorruptError{File: segmentName(number), Offset: off, Reason: reason})
}

// segment reads the entries of a segment.
func (s *survey) segment(head segment, visit func(*entry) error) error {
	data, err := s.content(head.number)
	if err != nil {
		return err
	}
	s.bytes += int64(len(data))
	s.l.j.segments = append(s.l.j.segments, head)
	for off := int64(0); off < int64(len(data)); {
		e, n, err := parseAt(data, off, head.base)
		switch {
		case err != nil:
		case (e.kind == kindHead) != (off == 0):
			err = errBad
		case off > 0:
			err = s.takeEntry(e, head.number, off, n, visit)
		}
		switch {
		case err == nil:
			off += int64(n)
		case !errors.Is(err, errCut) && !errors.Is(err, errSum) && !errors.Is(err, errBad):
			return err
		case off > 0 && head.number == s.l.last && !wasSynced(data, off, head.base):
			s.torn = int64(len(data)) - off
			return nil
		default:
			if off > 0 { // the head was looked at
				s.damaged(head.number, off, err.Error())
			}
			off = nextEntry(data, off+1, head.base)
		}
	}
	return nil
}

// takeEntry takes an entry that was read.
func (s *survey) takeEntry(e entry, number uint64, off int64, n int, visit func(*entry) error) error {
	if e.kind == kindTomb && !s.l.j.tombs.past(e.at, s.l.now) {
		s.tombs++
		if err := visit(&e); err != nil {
			return err
		}
	}
	return s.l.apply(e, number, off, n)
}

// parseAt reads the entry at an offset of a segment.
func parseAt(data []byte, off, base int64) (entry, int, error) {
	if off == 0 {
		return parse(data, 0)
	}
	return parse(data[off:], base+off)
}

// nextEntry is the offset of the first whole entry from off on, or the end.
func nextEntry(data []byte, off, base int64) int64 {
	for ; off < int64(len(data)); off++ {
		if _, _, err := parse(data[off:], base+off); err == nil {
			return off
		}
	}
	return off
}

// judge says of each attempt whether what was read of it will do.
func (s *survey) judge() {
	j := s.l.j
	sound := len(s.damage) == 0
	for k, a := range j.attempts {
		if err := s.l.check(k, a); err != nil && sound {
			var corrupt *CorruptError
			errors.As(err, &corrupt)
			s.damage = append(s.damage, corrupt)
		}
	}
	sound = len(s.damage) == 0
	for k, a := range j.attempts {
		a.mend() // changes nothing of a sound journal
		if a.accepted && (sound || a.state != Accepted) {
			s.held = append(s.held, a.held(k))
		} else {
			s.partial = append(s.partial, k)
		}
	}
	slices.SortFunc(s.partial, compareKeys)
	slices.SortFunc(s.held, func(a, b Held) int { return compareKeys(a.Key, b.Key) })
}

func compareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Attempt, b.Attempt))
}

// mend makes of an attempt what can be said when something of it may be missing: one that
// has done something was started, and one whose END is gone has not ended here.
func (a *attempt) mend() {
	if a.state == Accepted && a.next > 0 || a.state == Ended && a.end == nil {
		a.state = Started
		if a.stop != nil {
			a.state = Stopping
		}
	}
	a.next = max(a.next, a.acked)
	a.ack(a.acked)
}

// content is what can be read of a segment: in place of blocks that the disk does not
// give are zeros.
func (s *survey) content(number uint64) ([]byte, error) {
	name := segmentName(number)
	data, err := readFile(s.l.j.fs, name)
	if err == nil {
		return data, nil
	}
	f, err := s.l.j.fs.Open(name)
	if err != nil {
		return nil, ioError("open "+name, err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, ioError("size of "+name, err)
	}
	const block = 4 << 10
	data = make([]byte, size)
	for off := int64(0); off < size; off += block {
		b := data[off:min(off+block, size)]
		if _, err := f.ReadAt(b, off); err != nil && !errors.Is(err, io.EOF) {
			clear(b)
		}
	}
	return data, nil
}

// salvage writes what was read to another journal.
type salvage struct {
	j *Journal
	g *group
}

func (w *salvage) copy(s *survey, elsewhere []Key) error {
	if err := s.read(w.add); err != nil {
		return err
	}
	at := time.Now().UnixNano()
	for _, k := range s.partial {
		if slices.Contains(elsewhere, k) {
			continue
		}
		if err := w.add(&entry{kind: kindTomb, key: k, at: at}); err != nil {
			return err
		}
	}
	for _, h := range s.held {
		if err := w.attempt(s, h.Key); err != nil {
			return err
		}
	}
	if err := w.write(); err != nil {
		return err
	}
	w.j.writeClosed()
	return nil
}

// attempt writes an attempt. What can be read no more is left out: records, which are
// then told as dropped.
func (w *salvage) attempt(s *survey, k Key) error {
	j := s.l.j
	a := j.attempts[k]
	if err := w.add(a.entry(k)); err != nil {
		return err
	}
	extents := a.spool
	if a.end != nil {
		extents = append(slices.Clip(extents), a.end)
	}
	for _, x := range extents {
		found, err := j.find(k, func(*attempt) ([]*extent, error) { return []*extent{x}, nil })
		if err != nil {
			return err
		}
		e, err := j.fetchOne(found[0])
		if err != nil {
			return err
		}
		if err := w.add(&e); err != nil {
			return err
		}
	}
	return nil
}

// add writes an entry, with others.
func (w *salvage) add(e *entry) error {
	w.g.buf = appendEntry(w.g.buf, e)
	if len(w.g.buf) < 1<<20 {
		return nil
	}
	return w.write()
}

func (w *salvage) write() error {
	if len(w.g.buf) == 0 {
		return nil
	}
	_, err := w.j.write(w.g)
	w.g.buf = w.g.buf[:0]
	return err
}

// String says in a line what there is.
func (r *Report) String() string {
	states := map[State]int{}
	for _, h := range r.Held {
		states[h.State]++
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d segments, %d bytes; attempts:", r.Segments, r.Bytes)
	for s := Accepted; s <= Ended; s++ {
		fmt.Fprintf(&b, " %d %v,", states[s], s)
	}
	fmt.Fprintf(&b, " %d in part; %d tombstones", len(r.Partial), r.Tombs)
	return b.String()
}
