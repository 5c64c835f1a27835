package supervisor

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sort"
	"sync"
	"syscall"
	"time"

	"github.com/harpcaller/harp/agent/internal/proc"
	"github.com/harpcaller/harp/internal/synced"
)

// A spool file begins with the frame of its header. After that comes the reserve, room
// that is taken before the command starts, so that how it ended can be written also to
// a full disk: two slots that say which records are gone, and the frames of notes. The
// frames of the records are the rest, in their order; their beginning becomes a hole as
// they are kept elsewhere.
//
// Entries are written as they come: what a supervisor that is killed has written is
// there. What was written last before the machine stopped may be cut off, or zeros. That the
// command is executed next is synced.

const (
	spoolVersion = 1
	slotSize     = 64
	reserveBase  = 64 << 10  // of the reserve: the slots, and notes without the result
	punchStep    = 256 << 10 // what is kept is punched out in steps of this, less of a small spool
	blockSize    = 4096

	punchAgain = time.Second // the pause before room is given back that could not be
)

// header is what a spool file begins with.
type header struct {
	Version    int           `json:"version"`
	Supervisor proc.Identity `json:"supervisor"`
	Created    int64         `json:"created"` // nanoseconds, UTC
	Spec       Spec          `json:"spec"`
	Cgroup     string        `json:"cgroup,omitempty"`  // directory
	Secrets    string        `json:"secrets,omitempty"` // directory
	Reserve    int64         `json:"reserve"`           // bytes
}

// started is the note that the command runs.
type started struct {
	Leader proc.Identity `json:"leader"`
	Time   int64         `json:"time"` // nanoseconds, UTC
}

// mark is a place in the file where a record begins.
type mark struct {
	n, offset int64
}

// file is a spool file that is written.
type file struct {
	f       *os.File
	max     int64
	slots   int64 // where the slots are
	notes   int64 // where the next note goes
	records int64 // where the records begin
	step    int64 // bytes from one mark to the next
	buf     []byte

	punching sync.Mutex // guards slot; held while room is given back, and taken before mu
	slot     uint64     // how often a slot was written

	mu    sync.Mutex // guards what follows; never held while the disk is waited for
	next  mark       // where the next record goes
	gone  mark       // the first record that is there
	taken mark       // the first that was not kept elsewhere; a mark at or before it
	marks []mark

	stuck   bool      // room could not be given back
	tried   time.Time // when that was tried last, if so
	noPunch bool      // the file system has no holes
}

// createFile makes a spool file, which is locked as long as this process lives. It has room
// for the end of the attempt: the error is syscall.ENOSPC if there is none.
func createFile(path string, h header) (*file, error) {
	h.Version, h.Reserve = spoolVersion, reserveBase+h.Spec.Result.room()
	head, err := jsonFrame(entryHeader, h, nil)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	start := int64(len(head))
	if err = lock(f); err == nil {
		err = allocate(f, start+h.Reserve)
	}
	if err == nil {
		_, err = f.WriteAt(head, 0)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	first := mark{0, start + h.Reserve}
	return &file{
		f: f, max: h.Spec.MaxSpool, step: max(h.Spec.MaxSpool/1024, 512),
		slots: start, notes: start + 2*slotSize, records: first.offset,
		next: first, gone: first, taken: first, marks: []mark{first},
	}, nil
}

func (s *file) add(r *Record) int {
	s.buf = appendFrame(s.buf, entryRecord, func(b []byte) []byte { return appendRecord(b, r) })
	return len(s.buf)
}

// flush writes what was added. Where the disk takes only a part, whole records of it
// remain.
func (s *file) flush() (lost int64) {
	b := s.buf
	s.buf = s.buf[:0]
	if len(b) == 0 || s.write(b) {
		return 0
	}
	for len(b) > 0 {
		n := frameLen(b)
		if lost > 0 || !s.write(b[:n]) {
			r, _ := decodeRecord(b[frameHeader+1 : n])
			lost += outputSize(&r) + r.Truncated
		}
		b = b[n:]
	}
	return lost
}

// frameLen is how many bytes the frame that b begins with takes.
func frameLen(b []byte) int { return frameHeader + int(binary.BigEndian.Uint32(b)) }

// write appends frames to the file, all of them or none.
func (s *file) write(b []byte) bool {
	if _, err := s.f.WriteAt(b, s.next.offset); err != nil {
		_ = s.f.Truncate(s.next.offset) // the next one is written over it if that fails
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(b) > 0 {
		n := frameLen(b)
		b = b[n:]
		s.next.n, s.next.offset = s.next.n+1, s.next.offset+int64(n)
		if s.next.offset-s.marks[len(s.marks)-1].offset >= s.step {
			s.marks = append(s.marks, s.next)
		}
	}
	return true
}

func (s *file) count() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next.n
}

// full tries now and then to give back the room that could not be: of what is kept nobody says so again.
func (s *file) full(size int64) (full, passes bool) {
	full, passes, again := s.measureRoom(size)
	if again {
		s.keep(0)
		full, passes, _ = s.measureRoom(size)
	}
	return full, passes
}

// measureRoom is full, and says whether to try again.
func (s *file) measureRoom(size int64) (full, passes, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	used := s.next.offset - s.taken.offset + int64(len(s.buf))
	if s.stuck && !s.noPunch {
		used += s.taken.offset - s.gone.offset
	}
	full = used > 0 && used+size > s.max
	return full, !s.noPunch && !s.stuck, full && s.stuck && time.Since(s.tried) >= punchAgain
}

// punchSize is how many bytes are given back at a time.
func (s *file) punchSize() int64 { return max(min(punchStep, s.max/4), blockSize) }

// keep lets go of records and gives their room back, in large steps. Where the file
// system has no holes the room stays taken.
func (s *file) keep(next int64) {
	s.punching.Lock()
	defer s.punching.Unlock()
	from, to, due := s.letGo(next)
	if !due {
		return
	}
	err := s.punch(from, to)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stuck = err != nil; s.stuck {
		s.noPunch, s.tried = errors.Is(err, errors.ErrUnsupported), time.Now()
		return
	}
	s.gone = to
}

// letGo lets go of records, and returns which of them take room, and whether that is to be given
// back now.
func (s *file) letGo(next int64) (from, to mark, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.noPunch {
		return s.gone, s.taken, false
	}
	if next >= s.next.n {
		s.taken, s.marks = s.next, append(s.marks[:0], s.next)
	} else if i := sort.Search(len(s.marks), func(i int) bool { return s.marks[i].n > next }); i > 1 {
		s.taken = s.marks[i-1]
		s.marks = append(s.marks[:0], s.marks[i-1:]...)
	}
	return s.gone, s.taken, s.taken.offset-s.gone.offset >= s.punchSize()
}

// punch makes a hole of what was kept, after a slot says so on the disk.
func (s *file) punch(from, to mark) error {
	begin := from.offset &^ (blockSize - 1)
	if from.n == 0 {
		begin = (from.offset + blockSize - 1) &^ (blockSize - 1)
	}
	end := to.offset &^ (blockSize - 1)
	if err := s.writeSlot(to); err != nil || end <= begin { // no whole block
		return err
	}
	return punch(s.f, begin, end-begin)
}

// writeSlot says where the first record is that is there.
func (s *file) writeSlot(first mark) error {
	b := make([]byte, 4, slotSize)
	b = binary.BigEndian.AppendUint64(b, s.slot+1)
	b = binary.BigEndian.AppendUint64(b, uint64(first.n))
	b = binary.BigEndian.AppendUint64(b, uint64(first.offset))
	binary.BigEndian.PutUint32(b, crc32.Checksum(b[4:], castagnoli))
	if _, err := s.f.WriteAt(b, s.slots+int64(s.slot%2)*slotSize); err != nil {
		return err
	}
	s.slot++
	return s.f.Sync()
}

// note appends to the reserve.
func (s *file) note(kind byte, v any, raw []byte) error {
	b, err := jsonFrame(kind, v, raw)
	if err != nil {
		return err
	}
	if s.notes+int64(len(b)) > s.records {
		return fmt.Errorf("the note %c of %d bytes does not fit in the reserve: %w", kind, len(b), syscall.ENOSPC)
	}
	if _, err := s.f.WriteAt(b, s.notes); err != nil {
		return err
	}
	s.notes += int64(len(b))
	return nil
}

// noteEnd keeps the result beside the JSON, as the bytes that it is.
func (s *file) noteEnd(end End) error {
	raw := end.Result
	end.Result = nil
	return s.note(entryEnd, end, raw)
}

func (s *file) sync() error {
	if err := s.f.Sync(); err != nil {
		return err
	}
	return synced.Confirm(s.f)
}

func (s *file) Close() error { return s.f.Close() }

// find is the mark to look for a record from; or errKept.
func (s *file) find(n int64) (mark, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n < s.taken.n {
		return mark{}, &KeptError{s.taken.n}
	}
	i := sort.Search(len(s.marks), func(i int) bool { return s.marks[i].n > n })
	return s.marks[i-1], nil
}

func (s *file) cursor(from int64) cursor { return &fileCursor{file: s, from: from} }

// fileCursor reads a file from a record on.
type fileCursor struct {
	file *file
	from int64 // the record to begin with
	at   mark  // the next; 0: not known yet
	buf  *bufio.Reader
	in   frames
}

func (c *fileCursor) read(to int64, fn func(int64, Record) error) error {
	if c.from >= to {
		return nil
	}
	if c.buf == nil {
		at, err := c.file.find(c.from)
		if err != nil {
			return err
		}
		c.at, c.buf = at, bufio.NewReaderSize(nil, 32<<10)
		c.in.r = c.buf
	}
	c.buf.Reset(io.NewSectionReader(c.file.f, c.at.offset, 1<<62))
	for c.at.n < to {
		if err := c.one(fn); err != nil {
			return err
		}
	}
	return nil
}

// one reads the next record and hands it over, if it is none before the first wanted.
func (c *fileCursor) one(fn func(int64, Record) error) error {
	f, err := c.in.next()
	var r Record
	if err == nil {
		r, err = decodeEntry(f)
	}
	if err != nil {
		if _, gone := c.file.find(c.at.n); gone != nil {
			return gone
		}
		return &DamagedError{Path: c.file.f.Name(), Offset: c.at.offset, Err: err}
	}
	size := f.size()
	if c.at.n >= c.from {
		if err := fn(c.at.n, r); err != nil {
			return err
		}
		c.from = c.at.n + 1
	}
	c.at.n, c.at.offset = c.at.n+1, c.at.offset+size
	return nil
}

func decodeEntry(f frame) (Record, error) {
	if f.kind != entryRecord {
		return Record{}, errDamaged
	}
	return decodeRecord(f.body)
}

// writeZeros takes room where it can only be taken by writing.
func writeZeros(f *os.File, size int64) error {
	zeros := make([]byte, readStep)
	for at := int64(0); at < size; at += readStep {
		if _, err := f.WriteAt(zeros[:min(readStep, size-at)], at); err != nil {
			return err
		}
	}
	return nil
}
