package journal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestTear: a crash may leave all, nothing, the beginning of what was not synced, or
// what has a hole in its middle; and of names each change or not. What was synced is
// always there.
func TestTear(t *testing.T) {
	synced, later := bytes.Repeat([]byte("s"), 700), bytes.Repeat([]byte("l"), 3000)
	seen := map[string]int{}
	for seed := range uint64(400) {
		mem := NewMemory()
		f, err := mem.Create("f")
		must(t, err)
		_, err = f.Write(synced)
		must(t, err)
		must(t, f.Sync())
		_, err = mem.Create("removed")
		must(t, err)
		must(t, mem.SyncDir())
		_, err = f.Write(later)
		must(t, err)
		must(t, mem.Remove("removed"))
		_, err = mem.Create("made")
		must(t, err)
		mem.Tear(rand.New(rand.NewPCG(seed, 0)))
		got, is := bytes.CutPrefix(mem.Bytes("f"), synced)
		if !is {
			t.Fatalf("seed %d: what was synced is gone", seed)
		}
		whole := bytes.TrimLeft(got, "l")
		switch {
		case len(got) == 0:
			seen["nothing"]++
		case len(got) == len(later) && len(whole) == 0:
			seen["all"]++
		case len(whole) == 0:
			seen["the beginning"]++
		case bytes.HasSuffix(got, []byte("l")):
			seen["a hole"]++
		case len(bytes.Trim(whole, "\x00")) == 0:
			seen["zeros"]++
		default:
			seen["what was there before"]++
		}
		names, err := mem.List()
		must(t, err)
		seen[fmt.Sprint(names)]++
	}
	for _, what := range []string{
		"nothing", "all", "the beginning", "a hole", "zeros", "what was there before",
		"[f]", "[f made]", "[f removed]", "[f made removed]",
	} {
		if seen[what] < 5 {
			t.Errorf("%s: %d times of 400", what, seen[what])
		}
	}
}

// lastGroup is a segment, where its last group begins, and where it ends. The group
// has five entries of more than a sector each.
func lastGroup(t *testing.T) (data []byte, begin, end int) {
	t.Helper()
	mem := NewMemory()
	j, err := Open(mem, Options{})
	must(t, err)
	for i := range 5 {
		must(t, j.AcceptStart(key(i), Accept{}, now()))
	}
	begin = len(mem.Bytes(segmentName(1)))
	for i := range 5 {
		_, err := j.Append(key(i), 0, bytes.Repeat([]byte("r"), 700))
		must(t, err)
	}
	must(t, j.Sync())
	data = mem.Bytes(segmentName(1))
	must(t, j.Close())
	return data, begin, len(data)
}

// withoutSector is data without the sector at an offset, of which what was there before
// is left.
func withoutSector(data []byte, at, begin int, fill byte) []byte {
	torn := bytes.Clone(data)
	for i := max(at, begin); i < min(at+sector, len(torn)); i++ {
		torn[i] = fill
	}
	return torn
}

// TestTornInTheMiddle: a crash lost one sector of the last group and none behind it, as
// disks write them in any order. What was synced before is there, and of the group
// nothing behind the hole; the journal goes on.
func TestTornInTheMiddle(t *testing.T) {
	data, begin, end := lastGroup(t)
	for at := begin &^ (sector - 1); at < end; at += sector {
		for _, fill := range []byte{0, 0xff, 'r'} {
			mem := NewMemory()
			mem.Put(segmentName(1), withoutSector(data, at, begin, fill))
			for range 2 {
				j, err := Open(mem, Options{})
				if err != nil {
					t.Fatalf("without sector %d of %d to %d: %v", at, begin, end, err)
				}
				spooled := 0
				for i := range 5 {
					h, is := j.Get(key(i))
					if !is || h.State != Started {
						t.Errorf("attempt %d is %+v", i, h)
					}
					spooled += int(h.Records)
				}
				if fill != 'r' && spooled > (at-begin)/700 || positionOf(j) < int64(begin) {
					t.Errorf("without sector %d of %d to %d: %d records, position %d", at, begin, end, spooled, positionOf(j))
				}
				must(t, j.AcceptStart(Key{fmt.Sprint("then", positionOf(j)), 1}, Accept{}, now()))
				mem.Crash()
				_ = j.Close()
			}
		}
	}
}

// TestHoleInWhatWasSynced: the same hole is damage where something proves that the
// group was synced: a later group, or that the journal was closed.
func TestHoleInWhatWasSynced(t *testing.T) {
	data, begin, end := lastGroup(t)
	for what, proof := range map[string]func(j *Journal){
		"a later group": func(j *Journal) { must(t, j.AcceptStart(key(9), Accept{}, now())) },
		"a close":       func(*Journal) {},
	} {
		mem := NewMemory()
		mem.Put(segmentName(1), data)
		j, err := Open(mem, Options{})
		must(t, err)
		proof(j)
		if what == "a close" {
			must(t, j.Close())
		} else {
			mem.Crash()
			_ = j.Close()
		}
		whole := mem.Bytes(segmentName(1))
		for at := begin &^ (sector - 1); at+sector < end; at += sector {
			mem := NewMemory()
			mem.Put(segmentName(1), withoutSector(whole, at, begin, 0))
			j, err := Open(mem, Options{})
			var corrupt *CorruptError
			if !errors.As(err, &corrupt) || !strings.Contains(err.Error(), segmentName(1)) {
				t.Errorf("%s, without sector %d of %d to %d: %v", what, at, begin, end, err)
			}
			if err == nil {
				_ = j.Close()
			}
		}
	}
}

// TestFailing: a call that fails answers the error, having done nothing, or half of a
// write, or all, as it was told; and the calls after it fail too, or do not.
func TestFailing(t *testing.T) {
	boom := errors.New("boom")
	for mode := range 4 {
		anyway, forever := mode&1 == 1, mode&2 == 2
		mem := NewMemory()
		mem.Put("f", []byte("12345678"))
		open := func(calls int) (*Failing, File) {
			fails := FailAt(mem, calls+2, boom)
			fails.Anyway, fails.Forever = anyway, forever
			f, err := fails.Open("f")
			must(t, err)
			for range calls {
				_, err := f.Size()
				must(t, err)
			}
			return fails, f
		}
		_, f := open(0)
		if n, err := f.Write([]byte("90")); err != boom || anyway && n != 2 || !anyway && n != 1 { //nolint:errorlint // the very same
			t.Errorf("mode %d: write: %d, %v", mode, n, err)
		}
		if got, want := string(mem.Bytes("f")), map[bool]string{true: "1234567890", false: "123456789"}[anyway]; got != want {
			t.Errorf("mode %d: the file is %q", mode, got)
		}
		if _, err := f.Size(); (err != nil) != forever {
			t.Errorf("mode %d: the call after it: %v", mode, err)
		}
		fails, f := open(3)
		if err := f.Truncate(4); err != boom || (len(mem.Bytes("f")) == 4) != anyway { //nolint:errorlint // the very same
			t.Errorf("mode %d: truncate: %v, and there are %d bytes", mode, err, len(mem.Bytes("f")))
		}
		if _, err := fails.Open("f"); (err != nil) != forever || fails.Calls() != 6 {
			t.Errorf("mode %d: %d calls, the last: %v", mode, fails.Calls(), err)
		}
	}
}
