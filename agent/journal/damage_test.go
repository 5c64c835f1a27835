package journal

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/harpcaller/harp/internal/needs"
)

func now() time.Time { return time.Unix(1_800_000_000, 0) }

// played is what the files hold after the script, and what the journal says then.
func played(t *testing.T, opts Options) (*Memory, model, int64) {
	t.Helper()
	mem, h := NewMemory(), newHistory()
	j, err := Open(mem, opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := play(j, h); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return mem, h.now, positionOf(j)
}

// TestDamage: bytes are flipped or cut off. The journal refuses, naming the file, or
// opens with what it once held: all of it, or its position tells.
func TestDamage(t *testing.T) {
	t.Run("one segment", func(t *testing.T) { damage(t, Options{}, 300, 300) })
	t.Run("many segments", func(t *testing.T) { damage(t, small, 900, 0) })
}

func damage(t *testing.T, opts Options, refusedLeast, openedLeast int) {
	whole, want, position := played(t, opts)
	names, _ := whole.List()
	opened, refused := 0, 0
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 0))
		mem := NewMemory()
		victim := names[r.IntN(len(names))]
		for _, name := range names {
			data := whole.Bytes(name)
			if name == victim && r.IntN(2) == 0 {
				data = data[:r.IntN(len(data))]
			} else if name == victim {
				data[r.IntN(len(data))] ^= byte(1 + r.IntN(255))
			}
			mem.Put(name, data)
		}
		j, err := Open(mem, opts)
		var corrupt *CorruptError
		switch {
		case errors.As(err, &corrupt):
			if !strings.HasSuffix(corrupt.File, suffix) || !strings.Contains(err.Error(), corrupt.File) {
				t.Fatalf("seed %d: %v", seed, err)
			}
			refused++
			continue
		case err != nil:
			t.Fatalf("seed %d: %v", seed, err)
		}
		opened++
		got, err := look(j, universe)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if !once(got) {
			t.Fatalf("seed %d: it never held\n%+v", seed, got)
		}
		if positionOf(j) == position && len(got) != len(want) || positionOf(j) > position {
			t.Fatalf("seed %d: position %d of %d", seed, positionOf(j), position)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d refused, %d opened", refused, opened)
	if refused < refusedLeast || opened < openedLeast {
		t.Errorf("%d refused, %d opened", refused, opened)
	}
}

// once reports whether each attempt is as it was at some moment of the script.
func once(got model) bool {
	h := newHistory()
	h.since = []model{{}}
	for _, o := range script() {
		o.model(h.now)
		h.since = append(h.since, h.now.clone())
	}
	return h.allows(got) == nil
}

// TestDamagedRead: a byte that flips while the journal is open is noticed when it
// is read.
func TestDamagedRead(t *testing.T) {
	dir := t.TempDir()
	j, err := Open(Disk(dir), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	k := Key{"a", 1}
	if err := j.AcceptStart(k, Accept{}, now()); err != nil {
		t.Fatal(err)
	}
	c, err := j.Append(k, 0, []byte("needle"))
	if err := wait(c, err); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, segmentName(1))
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(strings.Replace(string(data), "needle", "noodle", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := j.Records(k, 0, 100); !errors.Is(err, ErrCorrupt) {
		t.Errorf("reading it: %v", err)
	}
}

// TestReadOfARemovedSegment checks that what was in a file that somebody has removed is an error, and not waited for as what is
// moved elsewhere.
func TestReadOfARemovedSegment(t *testing.T) {
	mem, k := NewMemory(), Key{"job", 1}
	j, err := Open(mem, Options{})
	must(t, err)
	must(t, j.AcceptStart(k, Accept{}, now()))
	_, _, err = j.End(k, End{Body: []byte("end")})
	must(t, errors.Join(err, j.Sync(), mem.Remove(segmentName(1))))
	if end, err := j.Ended(k); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%q, %v", end, err)
	}
	must(t, j.Close())
}

// TestCheckOpensNothingToWrite checks that what is opened to be checked can be read and nothing else, as its disk may have become
// read-only.
func TestCheckOpensNothingToWrite(t *testing.T) {
	dir := t.TempDir()
	j, err := Open(Disk(dir), Options{})
	must(t, err)
	must(t, j.Close())
	f, err := DiskToRead(dir).Open(segmentName(1))
	must(t, err)
	if _, err := f.Write([]byte("x")); err == nil {
		t.Error("it can be written")
	}
	must(t, f.Close())
	if found, err := Check(DiskToRead(dir)); err != nil || found.ID != j.ID() {
		t.Errorf("%+v, %v", found, err)
	}
}

// TestMissingSegment: a segment that was taken away is missed.
func TestMissingSegment(t *testing.T) {
	whole, _, _ := played(t, small)
	names, _ := whole.List()
	for _, victim := range names[:len(names)-1] {
		mem := NewMemory()
		for _, name := range names {
			if name != victim {
				mem.Put(name, whole.Bytes(name))
			}
		}
		if j, err := Open(mem, small); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), victim) {
			t.Errorf("without %s of %v: %v", victim, names, err)
			if err == nil {
				_ = j.Close()
			}
		}
	}
}

// counting is a Memory that counts the files that are open.
type counting struct {
	*Memory
	open *atomic.Int64
}

type countedFile struct {
	File
	open *atomic.Int64
}

func (c counting) Open(name string) (File, error)   { return c.count(c.Memory.Open(name)) }
func (c counting) Create(name string) (File, error) { return c.count(c.Memory.Create(name)) }

func (c counting) count(f File, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	c.open.Add(1)
	return countedFile{f, c.open}, nil
}

func (f countedFile) Close() error {
	f.open.Add(-1)
	return f.File.Close()
}

// TestSyncedDirectoryIsClosed: syncing a directory on disk leaves no file open.
func TestSyncedDirectoryIsClosed(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which would close what was left open
	files := func() int {
		open, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			needs.Missing(t, err)
		}
		return len(open)
	}
	d := Disk(t.TempDir())
	must(t, d.SyncDir())
	before := files()
	for range 10 {
		must(t, d.SyncDir())
	}
	if after := files(); after > before {
		t.Errorf("%d files are open, %d were", after, before)
	}
}

// TestFilesAreClosed: a journal has one file open, whatever it has done, and none when it
// is closed, could not be opened, or was only checked.
func TestFilesAreClosed(t *testing.T) {
	fsys := counting{NewMemory(), &atomic.Int64{}}
	want := func(what string, n int64) {
		t.Helper()
		if got := fsys.open.Load(); got != n {
			t.Errorf("%s: %d files are open, expected %d", what, got, n)
		}
	}
	for range 2 {
		j, err := Open(fsys, small)
		must(t, err)
		want("opened", 1)
		if len(j.Held()) == 0 {
			must(t, play(j, newHistory()))
		}
		_, err = look(j, universe)
		must(t, err)
		must(t, j.Sync())
		want("read", 1)
		must(t, j.Close())
		want("closed", 0)
	}
	_, err := Check(fsys)
	must(t, err)
	_, err = Salvage(fsys, counting{NewMemory(), fsys.open})
	must(t, err)
	want("checked and salvaged", 0)
	for n := 1; ; n++ {
		j, err := Open(FailAt(fsys, n, errMedium), small)
		if err == nil {
			must(t, j.Close())
			break
		}
		want("not opened", 0)
	}
	for n := 1; n < 10; n++ {
		empty := counting{NewMemory(), fsys.open}
		if j, err := Open(FailAt(empty, n, errMedium), small); err == nil {
			must(t, j.Close())
		}
		want("not made", 0)
	}
	names, err := fsys.List()
	must(t, err)
	fsys.Put(names[0], []byte("x"))
	if _, err := Open(fsys, small); !errors.Is(err, ErrCorrupt) {
		t.Error(err)
	}
	want("corrupt", 0)
}

// TestPartOfAnAttempt: of an attempt whose beginning is not there it is said in which file it should be, also where
// there is only one.
func TestPartOfAnAttempt(t *testing.T) {
	mem := NewMemory()
	f, err := mem.Create(segmentName(1))
	must(t, err)
	head := appendEntry(nil, &entry{kind: kindHead, id: "id", number: 1})
	seal(head, 0)
	start := appendEntry(nil, &entry{kind: kindStart, key: key(1), started: 3})
	seal(start, int64(len(head)))
	_, err = f.Write(append(head, start...))
	must(t, err)
	must(t, f.Sync())
	must(t, f.Close())
	_, err = Open(mem, Options{})
	var damage *CorruptError
	if !errors.As(err, &damage) || damage.File != segmentName(1) {
		t.Errorf("it opens with %v", err)
	}
}

// TestNamesOfSegments: only what a journal would call a segment is one.
func TestNamesOfSegments(t *testing.T) {
	for name, want := range map[string]bool{
		"000000000000000a.journal": true, "000000000000000A.journal": false, "00000000000000-a.journal": false,
		"00000000000000_a.journal": false, "a.journal": false, "000000000000000a": false, "000000000000000a.journal.new": false,
	} {
		if n, is := segmentNumber(name); is != want || is && n != 10 {
			t.Errorf("%s is segment %d: %t", name, n, is)
		}
	}
}
