//go:build !race

package badger_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dgraph-io/badger/v4/y"

	"github.com/harpcaller/harp/store/internal/rows"
)

// TestUnwrittenValues opens stores as a file system leaves them that aborted its journal amid a commit and called the sync of the value log
// a success: the log of the memory table has the commit, and the value log lacks what it points to. Nobody was answered, so the
// commit is not there, and all before it is. What is damaged otherwise is left to whoever reads it.
func TestUnwrittenValues(t *testing.T) {
	const n, vlog, block = 4, "000001.vlog", 512
	key := func(i int) []byte { return fmt.Appendf(nil, "k%06d", i) }
	short := func(i int) []byte { return fmt.Appendf(nil, "s%06d", i) }
	long := func(i int) []byte { return bytes.Repeat([]byte{byte(i + 1), 7, 1}, 4<<10) }
	zeros := fmt.Appendf(make([]byte, 8<<10), "end")
	var commits [][]rows.Write
	for i := range n {
		commits = append(commits, []rows.Write{{Key: key(i), Value: long(i)}, {Key: short(i), Value: []byte("short")}, {Key: fmt.Append(nil, i), Value: zeros}})
	}
	killed, mem := killedAfter(t, commits...)
	values, err := os.ReadFile(filepath.Join(killed, vlog))
	if err != nil {
		t.Fatal(err)
	}
	begin := func(i int) int { return bytes.Index(values, key(i)) - 6 } // behind the header of the entry
	end := func(i int) int { return begin(i) + 6 + len(key(i)) + 8 + len(long(i)) + 4 }
	values = values[:max(end(n-1), bytes.LastIndex(values, []byte("end"))+3+4)]
	versioned := func(i int) []byte { return values[begin(i)+6:][:len(key(i))+8] }
	pointTo := func(offset, size int) []byte {
		return binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, 1), uint32(size)), uint32(offset))
	}
	moved := func(i int, pointer []byte) []byte { return logEntry(1<<1, versioned(i), pointer) }
	cleared := func(from, to int) []byte {
		content := bytes.Clone(values)
		clear(content[from:to])
		return content
	}
	flipped := func(at int) []byte {
		content := bytes.Clone(values)
		content[at] ^= 1
		return content
	}
	again := logEntry(0, versioned(0), long(0))
	const last = n - 1
	for _, c := range []struct {
		name   string
		values []byte // nil: no file
		moved  []byte // behind what the log of the memory table has
		left   int    // so many commits are there
		lost   int    // the value of this one is not; -1: all are
	}{
		{"all is there", values, nil, n, -1},
		{"its first block is missing", cleared(begin(last), begin(last)+block), nil, last, -1},
		{"a block of it is missing", cleared((begin(last)/block+2)*block, (begin(last)/block+3)*block), nil, last, -1},
		{"its end is missing", cleared(end(last)/block*block, len(values)), nil, last, -1},
		{"all of it is missing", cleared(begin(last), len(values)), nil, last, -1},
		{"the file ends in it", values[:end(last)-100], nil, last, -1},
		{"the file ends before it", values[:begin(last)], nil, last, -1},
		{"a bit of it is flipped", flipped(begin(last) + 5000), nil, n, last},
		{"a block of one before it is missing", cleared((begin(1)/block+2)*block, (begin(1)/block+3)*block), nil, n, 1},
		{"a moved value is there", values, moved(0, pointTo(begin(0), end(0)-begin(0))), n, -1},
		{"a moved value is missing", values, moved(0, pointTo(end(last)+block, end(0)-begin(0))), n, -1},
		{"a moved value is missing, and moved again", slices.Concat(cleared(begin(0), end(0)), again), slices.Concat(moved(0, pointTo(begin(0), len(again))), moved(0, pointTo(len(values), len(again)))), n, -1},
		{"a moved value is missing, and one behind it is there", values, slices.Concat(moved(0, pointTo(end(last)+block, end(0)-begin(0))), moved(1, pointTo(begin(1), end(1)-begin(1)))), n, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(killed)); err != nil {
				t.Fatal(err)
			}
			overwrite(t, filepath.Join(dir, memLogs[0]), slices.Concat(mem, c.moved, make([]byte, 1<<10)))
			overwrite(t, filepath.Join(dir, vlog), c.values)
			for time := range 2 { // what is new is there the second time
				e := openEngine(t, dir)
				snap := view(t, e)
				for i := range n {
					got, err := snap.Get(short(i))
					if err != nil || string(got) == "short" != (i < c.left) {
						t.Errorf("commit %d: its short value is %q, %v", i, got, err)
					}
					got, err = snap.Get(key(i))
					isThere := i < c.left && i != c.lost
					if isThere && err != nil || bytes.Equal(got, long(i)) != isThere || i >= c.left && got != nil {
						t.Errorf("commit %d: its value has %d bytes, %v", i, len(got), err)
					}
				}
				if got, err := snap.Get([]byte("new")); err != nil || bytes.Equal(got, long(n)) != (time > 0) {
					t.Errorf("what is new has %d bytes, %v", len(got), err)
				}
				snap.Close()
				commit(t, e, rows.Write{Key: []byte("new"), Value: long(n)})
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// killedAfter makes a store of some commits that was killed, and returns the log of its memory table up to the end of the last.
func killedAfter(t *testing.T, commits ...[]rows.Write) (dir string, mem []byte) {
	t.Helper()
	made, dir := t.TempDir(), t.TempDir()
	e := openEngine(t, made)
	for _, writes := range commits {
		commit(t, e, writes...)
	}
	if err := os.CopyFS(dir, os.DirFS(made)); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	mem, err := os.ReadFile(filepath.Join(dir, memLogs[0]))
	if err != nil {
		t.Fatal(err)
	}
	return dir, mem[:bytes.LastIndex(mem, []byte("!badger!txn"))+11+8+1+4]
}

// TestUnwrittenFiles opens stores where a value was moved to a new file of the value log, as a file system may leave that which aborted its
// journal: it has lost the file, or that it has grown, and with that what was written to it. The value is where it was before.
func TestUnwrittenFiles(t *testing.T) {
	const header = 20
	key, value := []byte("key"), bytes.Repeat([]byte{1, 7, 2}, 4<<10)
	versioned := y.KeyWithTs(key, 1)
	var pointer []byte
	for _, n := range []int{2, len(logEntry(0, versioned, value)), header} {
		pointer = binary.NativeEndian.AppendUint32(pointer, uint32(n))
	}
	for name, c := range map[string]struct {
		isThere bool
		size    int
	}{
		"it is missing":         {false, 0},
		"it is empty":           {true, 0},
		"it ends at its header": {true, header},
	} {
		t.Run(name, func(t *testing.T) {
			killed, mem := killedAfter(t, []rows.Write{{Key: key, Value: value}})
			overwrite(t, filepath.Join(killed, memLogs[0]), slices.Concat(mem, logEntry(1<<1, versioned, pointer), make([]byte, 1<<10)))
			if c.isThere {
				overwrite(t, filepath.Join(killed, "000002.vlog"), make([]byte, c.size))
			}
			e := openEngine(t, killed)
			snap := view(t, e)
			if got, err := snap.Get(key); err != nil || !bytes.Equal(got, value) {
				t.Errorf("the value has %d bytes, %v", len(got), err)
			}
			snap.Close()
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCollectedValueIsNotUnwritten opens a store that was killed after a value was moved that was deleted just then, and the file that
// it went to collected, too: what was moved behind it has left its file, and is there.
func TestCollectedValueIsNotUnwritten(t *testing.T) {
	gone, kept, value := []byte("gone"), []byte("kept"), bytes.Repeat([]byte{1, 7, 2}, 4<<10)
	killed, mem := killedAfter(t, []rows.Write{{Key: gone, Value: value}, {Key: kept, Value: value}}, []rows.Write{{Key: gone}})
	const header = 20
	moved := func(key []byte, file uint32) (entry, pointer []byte) {
		versioned := y.KeyWithTs(key, 1)
		entry = logEntry(0, versioned, value)
		for _, n := range []uint32{file, uint32(len(entry)), header} {
			pointer = binary.NativeEndian.AppendUint32(pointer, n)
		}
		return entry, logEntry(1<<1, versioned, pointer)
	}
	_, toCollected := moved(gone, 2)
	entry, toThere := moved(kept, 3)
	overwrite(t, filepath.Join(killed, memLogs[0]), slices.Concat(mem, toCollected, toThere, make([]byte, 1<<10)))
	overwrite(t, filepath.Join(killed, "000003.vlog"), slices.Concat(make([]byte, header), entry))
	if err := os.Remove(filepath.Join(killed, "000001.vlog")); err != nil {
		t.Fatal(err)
	}
	e := openEngine(t, killed)
	snap := view(t, e)
	if got, err := snap.Get(kept); err != nil || !bytes.Equal(got, value) {
		t.Errorf("what was moved behind it has %d bytes, %v", len(got), err)
	}
	if got, err := snap.Get(gone); err != nil || got != nil {
		t.Errorf("what was deleted has %d bytes, %v", len(got), err)
	}
	snap.Close()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// TestUnwrittenBeforeMuchThatWasMoved clears a value that was moved, behind which very much else was: all of that was synced after it, and is there.
func TestUnwrittenBeforeMuchThatWasMoved(t *testing.T) {
	const moved, header = 200, 20
	key := func(i int) []byte { return fmt.Appendf(nil, "k%06d", i) }
	value := bytes.Repeat([]byte{1, 7, 2}, 32<<10)
	killed, mem := killedAfter(t, []rows.Write{{Key: []byte("before"), Value: []byte("short")}})
	values := make([]byte, header)
	for i := range moved {
		versioned, pointer := y.KeyWithTs(key(i), 1), []byte(nil)
		entry := logEntry(0, versioned, value)
		for _, n := range []int{1, len(entry), len(values)} {
			pointer = binary.NativeEndian.AppendUint32(pointer, uint32(n))
		}
		if i == 0 {
			clear(entry)
		}
		mem, values = append(mem, logEntry(1<<1, versioned, pointer)...), append(values, entry...)
	}
	overwrite(t, filepath.Join(killed, memLogs[0]), append(mem, make([]byte, 1<<10)...))
	overwrite(t, filepath.Join(killed, "000001.vlog"), values)
	e := openEngine(t, killed)
	snap := view(t, e)
	for i := 1; i < moved; i++ {
		if got, err := snap.Get(key(i)); err != nil || !bytes.Equal(got, value) {
			t.Fatalf("value %d has %d bytes, %v", i, len(got), err)
		}
	}
	snap.Close()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// TestDamagedLastValueAfterTwoKills flips a bit of the last value of all, and kills the store as it is opened, before a table is made of
// its log: opened again, what was committed with the value is there.
func TestDamagedLastValueAfterTwoKills(t *testing.T) {
	const vlog = "000001.vlog"
	value := bytes.Repeat([]byte{1, 7, 2}, 4<<10)
	opened, again := t.TempDir(), t.TempDir()
	killed, _ := killedAfter(t, []rows.Write{{Key: []byte("before"), Value: value}},
		[]rows.Write{{Key: []byte("short"), Value: []byte("short")}, {Key: []byte("long"), Value: value}})
	copyInto := func(to string) {
		if err := os.CopyFS(to, os.DirFS(killed)); err != nil {
			t.Fatal(err)
		}
	}
	name := filepath.Join(killed, vlog)
	values, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	values[bytes.Index(values, []byte("long"))+5000] ^= 1
	overwrite(t, name, values)
	copyInto(opened)
	if err := openEngine(t, opened).Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(opened, "*.vlog"))
	if err != nil {
		t.Fatal(err)
	}
	copyInto(again)
	for _, file := range files { // of all files the opening has changed these so far
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		overwrite(t, filepath.Join(again, filepath.Base(file)), content)
	}
	e := openEngine(t, again)
	snap := view(t, e)
	if got, err := snap.Get([]byte("short")); err != nil || string(got) != "short" {
		t.Errorf("what was committed with it is %q, %v", got, err)
	}
	if got, err := snap.Get([]byte("before")); err != nil || !bytes.Equal(got, value) {
		t.Errorf("what was committed before has %d bytes, %v", len(got), err)
	}
	if got, err := snap.Get([]byte("long")); bytes.Equal(got, value) || err == nil && got == nil {
		t.Errorf("what was damaged has %d bytes, %v", len(got), err)
	}
	snap.Close()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
