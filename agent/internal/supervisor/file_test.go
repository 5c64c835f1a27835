package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp/agent/internal/proc"
	"github.com/harpcaller/harp/internal/needs"
)

func testHeader(maxSpool int64) header {
	return header{
		Supervisor: proc.Identity{PID: 7, Start: 8, Boot: "boot"}, Created: 9,
		Spec: Spec{Key: Key{"job", 1}, MaxSpool: maxSpool, Result: Result{Max: 100}, Grace: time.Second},
	}
}

func newFile(t *testing.T, maxSpool int64) *file {
	t.Helper()
	f, err := createFile(filepath.Join(t.TempDir(), "spool"), testHeader(maxSpool))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// fill adds records, and flushes each.
func fill(t *testing.T, s spool, from, to, size int) {
	t.Helper()
	for i := from; i < to; i++ {
		s.add(testRecord(i, size))
		if lost := s.flush(); lost > 0 {
			t.Fatalf("record %d: %d bytes were lost", i, lost)
		}
	}
}

func testRecord(i, size int) *Record {
	text := fmt.Appendf(nil, "%d:", i)
	return &Record{
		Time: int64(i), Kind: kinds[i%3], Partial: i%2 == 0, Truncated: int64(i % 5),
		Value: append(text, bytes.Repeat([]byte{'x'}, size)...),
	}
}

// checkRecords checks that a spool has the records of fill.
func checkRecords(t *testing.T, s spool, from, to, size int) {
	t.Helper()
	next := from
	err := s.cursor(int64(from)).read(int64(to), func(n int64, r Record) error {
		if want := testRecord(next, size); n != int64(next) || !reflect.DeepEqual(r, *want) {
			return fmt.Errorf("record %d is %d: %+v", next, n, r)
		}
		next++
		return nil
	})
	if err != nil || next != to {
		t.Fatalf("up to record %d of %d: %v", next, to, err)
	}
}

// What a record is counted as is what it takes in a file.
func TestSizeOfRecords(t *testing.T) {
	s := newFile(t, 1<<20)
	was := 0
	for _, truncated := range []int64{0, 1, 127, 128, 1 << 40} {
		r := testRecord(1, 100)
		r.Truncated = truncated
		is := s.add(r)
		if n := recordSize(r); n != int64(is-was) {
			t.Errorf("with %d bytes truncated it takes %d bytes, counted as %d", truncated, is-was, n)
		}
		was = is
	}
}

func TestSpools(t *testing.T) {
	for name, s := range map[string]spool{"file": newFile(t, 1<<20), "memory": newMemory(1 << 20)} {
		t.Run(name, func(t *testing.T) {
			fill(t, s, 0, 1000, 100)
			if s.count() != 1000 {
				t.Errorf("there are %d records", s.count())
			}
			checkRecords(t, s, 0, 1000, 100)
			checkRecords(t, s, 777, 1000, 100)
			s.add(testRecord(1000, 100))
			if s.count() != 1000 {
				t.Error("a record is seen before it was flushed")
			}
			s.flush()
			s.keep(500)
			checkRecords(t, s, 500, 1001, 100)
			if err := s.cursor(100).read(200, nil); !errors.Is(err, errKept) {
				t.Errorf("reading what is kept elsewhere returned %v", err)
			}
			if full, passes := s.full(1 << 20); !full || !passes {
				t.Errorf("full: %v, %v", full, passes)
			}
			if full, _ := s.full(1 << 19); full {
				t.Error("there is no room for half of it")
			}
			s.keep(5000)
			if full, _ := s.full(1 << 30); full {
				t.Error("an empty spool takes no large record")
			}
			fill(t, s, 1001, 1101, 10)
			checkRecords(t, s, 1001, 1101, 10)
		})
	}
}

// TestThatADiskCannotBeReadIsTold checks that an agent tells a disk that cannot be read, which may be so for a moment, from what is damaged.
func TestThatADiskCannotBeReadIsTold(t *testing.T) {
	for cause, want := range map[error]syscall.Errno{&os.PathError{Op: "read", Err: syscall.EIO}: syscall.EIO, errDamaged: 0} {
		var told syscall.Errno
		errors.As(problemOf(&DamagedError{Path: "spool", Err: cause}).err(), &told)
		if told != want {
			t.Errorf("of %v is told %d", cause, told)
		}
	}
}

// What is kept elsewhere up to a mark is let go of up to there, and by what is said of less
// later nothing more.
func TestKeepUpToAMark(t *testing.T) {
	f := newFile(t, 1<<20)
	fill(t, f, 0, 1000, 100)
	at := f.marks[len(f.marks)/2]
	for _, next := range []int64{at.n, at.n - 1, 0} {
		if f.keep(next); f.taken != at {
			t.Errorf("kept up to %d, it begins at %+v, want %+v", next, f.taken, at)
		}
	}
	checkRecords(t, f, int(at.n), 1000, 100)
}

func TestFileIsReadAgain(t *testing.T) {
	f := newFile(t, 1<<20)
	fill(t, f, 0, 500, 50)
	stop, end := Stop{Cause: "cancel", Since: 5}, End{Time: 6, Records: 500, OK: true, Result: []byte("a\x00")}
	leader := started{proc.Identity{PID: 3, Start: 4, Boot: "boot"}, 5}
	if err := errors.Join(f.note(entryStarted, leader, nil), f.note(entryStop, stop, nil), f.noteEnd(end)); err != nil {
		t.Fatal(err)
	}
	m, err := readRemains(f.f.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	want := testHeader(1 << 20)
	if m.Supervisor != want.Supervisor || m.Spec.Key != want.Spec.Key || m.Spec.Grace != time.Second || m.leader != leader {
		t.Errorf("the header is %+v, started %+v", m.header, m.leader)
	}
	if !reflect.DeepEqual(*m.stop, stop) || !reflect.DeepEqual(*m.end, end) {
		t.Errorf("the notes are %+v and %+v", m.stop, m.end)
	}
	checkRecords(t, m, 0, 500, 50)
}

// remade writes a changed copy of a spool file and reads it.
func remade(t *testing.T, b []byte) (*remains, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "spool")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := readRemains(path)
	if m != nil {
		t.Cleanup(func() { m.Close() })
	}
	return m, err
}

func TestWhatWasCutOffIsIgnored(t *testing.T) {
	f := newFile(t, 1<<20)
	fill(t, f, 0, 3, 20)
	whole := f.next.offset
	fill(t, f, 3, 4, 20)
	b, err := os.ReadFile(f.f.Name())
	if err != nil {
		t.Fatal(err)
	}
	for size := whole; size < int64(len(b)); size++ {
		damaged := bytes.Clone(b)
		damaged[max(size, whole+frameHeader)] ^= 1
		for name, b := range map[string][]byte{"cut off": b[:size], "damaged": damaged} {
			m, err := remade(t, b)
			if err != nil {
				t.Fatalf("%s at %d of %d: %v", name, size, len(b), err)
			}
			if m.count() != 3 || m.damage != nil {
				t.Fatalf("%s at %d of %d: there are %d records", name, size, len(b), m.count())
			}
			checkRecords(t, m, 0, 3, 20)
		}
	}
	for _, n := range []int64{1, frameHeader, 5000, readStep, 2*readStep + 1} {
		zeros := append(b[:whole:whole], make([]byte, n)...)
		m, err := remade(t, zeros)
		if err != nil || m.count() != 3 || m.damage != nil {
			t.Errorf("%d zeros at the end: %v, %+v", n, err, m)
		}
		if n <= frameHeader {
			continue
		}
		zeros[len(zeros)-1] = 1
		m, err = remade(t, zeros)
		var d *DamagedError
		if err != nil || m.count() != 3 || !errors.As(m.damage, &d) || d.Offset != whole {
			t.Errorf("something behind %d zeros: %v, %+v", n-1, err, m)
		}
	}
}

func TestDamage(t *testing.T) {
	f := newFile(t, 1<<20)
	fill(t, f, 0, 4, 20)
	if err := f.noteEnd(End{Records: 4}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(f.f.Name())
	if err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string]int64{
		"the header": 20, "a record": f.records + 15, "a length": f.records + 2, "the last record": int64(len(b)) - 1,
	} {
		damaged := bytes.Clone(b)
		damaged[at] ^= 1
		m, err := remade(t, damaged)
		if m != nil {
			checkRecords(t, m, 0, int(m.count()), 20)
			err = m.damage
		}
		var d *DamagedError
		if !errors.As(err, &d) || filepath.Base(d.Path) != "spool" || !errors.Is(err, errDamaged) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
}

func TestRoomIsGivenBack(t *testing.T) {
	f := newFile(t, 4<<20)
	const size = 1000
	for i := 0; i < 20_000; i += 1000 {
		fill(t, f, i, i+1000, size)
		f.keep(int64(i + 900))
	}
	if f.noPunch {
		needs.Missing(t, "the file system has no holes")
	}
	if n, err := allocated(f.f); err != nil || n > 3<<20 {
		t.Errorf("the file takes %d bytes, %v", n, err)
	}
	m, err := readRemains(f.f.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.gone.n < 15_000 || m.count() != 20_000 {
		t.Errorf("there are the records from %d to %d", m.gone.n, m.count())
	}
	checkRecords(t, m, int(m.gone.n), 20_000, size)
	checkRecords(t, f, 19_900, 20_000, size)
}

// TestRoomThatIsNotGivenBack checks that a file does not grow beyond its bounds where the room of what
// is kept elsewhere cannot be given back for a while, and takes more when it can.
func TestRoomThatIsNotGivenBack(t *testing.T) {
	const limit = 1 << 20
	f := newFile(t, limit)
	readonly, err := os.Open(f.f.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer readonly.Close()
	writable, next := f.f, 0
	for full := false; !full; next += 10 {
		fill(t, f, next, next+10, 1000)
		f.f = readonly
		f.keep(int64(next + 10))
		f.f = writable
		var passes bool
		if full, passes = f.full(1000); full && passes {
			t.Error("who prints would wait for room that does not come")
		}
		if size := f.next.offset - f.records; size > 2*limit {
			t.Fatalf("the records take %d bytes", size)
		}
	}
	f.keep(int64(next))
	if full, _ := f.full(1000); full && !f.noPunch {
		t.Error("there is no room, though it was given back")
	}
	checkRecords(t, f, next, next, 1000)
}

// TestRoomOfLessThanABlock checks that a small spool has room again when all of it is kept elsewhere, wherever in the
// blocks of the disk its first records lie: a command would not be held back, and lose what it prints.
func TestRoomOfLessThanABlock(t *testing.T) {
	const limit, size = 4096, 700
	for offset := 0; offset < blockSize; offset += 500 {
		h := testHeader(limit)
		h.Spec.Procedure = strings.Repeat("p", offset)
		f, err := createFile(filepath.Join(t.TempDir(), "spool"), h)
		if err != nil {
			t.Fatal(err)
		}
		for n := range 20 {
			fill(t, f, n, n+1, size)
			f.keep(int64(n + 1))
			if full, passes := f.full(size); full && !passes && !f.noPunch {
				t.Errorf("at %d there is no room behind %d records, and none will come", f.records%blockSize, n+1)
			}
		}
		drop(f)
	}
}

// TestSlots checks that a slot that was not written as a whole is passed over.
func TestSlots(t *testing.T) {
	f := newFile(t, 4<<20)
	fill(t, f, 0, 2000, 1000)
	f.keep(500)
	first := f.gone
	f.keep(1500)
	if f.noPunch {
		needs.Missing(t, "the file system has no holes")
	}
	if f.slot != 2 {
		t.Fatalf("%d slots are written", f.slot)
	}
	if _, err := f.f.WriteAt([]byte{0xff}, f.slots+slotSize); err != nil {
		t.Fatal(err)
	}
	m, err := readRemains(f.f.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var d *DamagedError
	if !errors.As(m.damage, &d) || d.Offset != first.offset {
		t.Errorf("the records begin at the older slot, which is a hole: %v", m.damage)
	}
}

func TestFileExists(t *testing.T) {
	f := newFile(t, 1<<20)
	if _, err := createFile(f.f.Name(), testHeader(1)); !errors.Is(err, os.ErrExist) {
		t.Errorf("the error is %v", err)
	}
}

// TestUnreadIsNotDamaged checks that of a file which cannot be read now, as its disk fails or
// memory has run out, nothing is said but that.
func TestUnreadIsNotDamaged(t *testing.T) {
	whole := newFile(t, 1<<20)
	fill(t, whole, 0, 3, 20)
	unreadable, err := os.OpenFile(whole.f.Name(), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unreadable.Close()
	m, err := readRemains(whole.f.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	readable := m.f
	m.f, m.next = unreadable, m.gone
	defer func() { m.f = readable }()
	for name, read := range map[string]func() error{
		"the header":         func() error { _, _, err := headerOf(unreadable); return err },
		"what is left":       m.readSlots,
		"the notes":          func() error { return m.readNotes(m.slots + 2*slotSize) },
		"the records":        m.scan,
		"the last record":    func() error { _, err := m.cutOff(errDamaged, m.records+1); return err },
		"behind the records": func() error { _, err := m.zerosFrom(m.records, m.records+1); return err },
	} {
		var damaged *DamagedError
		if err := read(); !errors.Is(err, syscall.EBADF) || errors.As(err, &damaged) || m.damage != nil {
			t.Errorf("%s: the error is %v, damage %v", name, err, m.damage)
		}
	}
}

// TestRoomThatCouldNotBeGivenBack checks that the room of what is kept elsewhere is given back as soon as it can be, though
// nobody says again that it is: a spool that is full of it has nothing new to be kept. Until then that is tried now and
// then.
func TestRoomThatCouldNotBeGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFile(t, 64<<10)
		fill(t, f, 0, 500, 100)
		disk := f.f
		ill, err := os.Open(disk.Name()) // nothing can be written to it
		if err != nil {
			t.Fatal(err)
		}
		defer ill.Close()
		f.f = ill
		f.keep(500)
		tries := map[time.Time]bool{}
		for range 100 {
			if full, passes := f.full(32 << 10); !full || passes {
				t.Errorf("full: %t, and it passes: %t", full, passes)
			}
			tries[f.tried] = true
			time.Sleep(punchAgain / 20)
		}
		if len(tries) < 4 || len(tries) > 6 {
			t.Errorf("it was tried %d times in 5 s", len(tries))
		}
		f.f = disk
		time.Sleep(punchAgain)
		if full, passes := f.full(32 << 10); full || !passes {
			t.Errorf("full: %t, and it passes: %t", full, passes)
		}
		fill(t, f, 500, 700, 100)
		checkRecords(t, f, 500, 700, 100)
	})
}
