//go:build !race

package badger_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4/y"
	"pgregory.net/rapid"

	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/badger"
	"github.com/harpcaller/harp/store/internal/rows"
)

// TestCloseAfterReadingDamage reads a long value of which the log says another length than it
// has. That is damage, and the store can be closed all the same.
func TestCloseAfterReadingDamage(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir, badger.Options{})
	s := submission("h")
	s.Request.Request = bytes.Repeat([]byte{7}, 8<<10)
	out, err := st.Submit(t.Context(), []store.Submission{s}, time.Now())
	if err != nil || out[0].Err != nil {
		t.Fatal(err, out)
	}
	for range 2 { // the log is not the newest any more
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
		st = open(t, dir, badger.Options{})
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "000001.vlog")
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	// The header of the log is of 20 bytes, that of its first entry begins with two of flags
	// and the length of the key in one.
	const valueLength = 20 + 2 + 1
	content[valueLength] ^= 0x40
	overwrite(t, name, content)

	st = open(t, dir, badger.Options{})
	if _, err := st.Request(t.Context(), out[0].Job.ID); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("the request: %v, want ErrDamaged", err)
	}
	closed := make(chan error)
	go func() { closed <- st.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the store does not close")
	}
}

// TestCollectADamagedLog checks that of a log in which one value is damaged no other is lost
// as the space of those is given back that were deleted, that the log goes once nothing of it
// is in use, and that badger is not believed that this is so: it counts twice what is left out
// by a compaction that is killed and made again.
func TestCollectADamagedLog(t *testing.T) {
	const n, length, damaged = 300, 60 << 10, 30
	key := func(i int) []byte { return fmt.Appendf(nil, "k%06d", i) }
	value := func(i int) []byte { return bytes.Repeat([]byte{byte(i), byte(i >> 8), 1}, length/3) }
	kept := func(i int) bool { return i%3 == 0 }
	dir := t.TempDir()
	small := quiet(badger.Options{Ballast: -1, Disk: func(string) (uint64, uint64, error) { return 3 << 30, 4 << 30, nil }})
	reopen := func(e rows.Engine) rows.Engine {
		if e != nil {
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
		}
		e, err := badger.OpenEngine(dir, small)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	e := reopen(nil)
	for i := range n {
		commit(t, e, rows.Write{Key: key(i), Value: value(i)})
	}
	remove := func(which func(i int) bool) {
		for i := range n {
			if which(i) {
				commit(t, e, rows.Write{Key: key(i)})
			}
		}
	}
	remove(func(i int) bool { return !kept(i) })
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "000001.vlog")
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	content[bytes.Index(content, value(damaged))+100] ^= 1
	overwrite(t, name, content)
	killed := t.TempDir() // as it is before the compaction, but for what badger counts
	if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		if err := e.Compact(t.Context()); err != nil {
			t.Error(err)
		}
		snap := view(t, e)
		defer snap.Close()
		for i := range n {
			if got, err := snap.Get(key(i)); kept(i) && i != damaged && (err != nil || !bytes.Equal(got, value(i))) {
				t.Errorf("value %d has %d bytes, %v", i, len(got), err)
			}
		}
	}
	e = reopen(nil)
	check()
	counted, err := os.ReadFile(filepath.Join(dir, "DISCARD"))
	if err != nil {
		t.Fatal(err)
	}
	remove(kept)
	e = reopen(e)
	defer func() { e.Close() }()
	if err := e.Compact(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the damaged log is there though all of it was deleted: %v", err)
	}

	overwrite(t, filepath.Join(killed, "DISCARD"), counted)
	dir = killed
	e = reopen(e)
	check()
}

// TestCheckEntries checks that whatever is damaged in a log is found.
func TestCheckEntries(t *testing.T) {
	dir := t.TempDir()
	e := openEngine(t, dir)
	for i := range 3 {
		commit(t, e, rows.Write{Key: []byte{byte(i)}, Value: bytes.Repeat([]byte{byte(i)}, badger.ValueThreshold+i)})
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "000001.vlog")
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range [][]byte{whole, append(bytes.Clone(whole), make([]byte, 1000)...)} {
		overwrite(t, name, content)
		if err := badger.CheckEntries(name); err != nil {
			t.Errorf("a log of %d bytes: %v", len(content), err)
		}
	}
	const header = 20
	entry := (len(whole) - header) / 3
	for at := header; at < len(whole); at++ {
		if at%entry > 2*header && at%97 > 0 {
			continue // within a value, as others
		}
		broken := bytes.Clone(whole)
		broken[at] ^= 1 << (at % 8)
		overwrite(t, name, broken)
		if badger.CheckEntries(name) == nil {
			t.Errorf("byte %d is another, and nothing is found", at)
		}
	}
	for length := header + 1; length < header+entry-2; length += 1 + length/100 {
		overwrite(t, name, whole[:length])
		if badger.CheckEntries(name) == nil {
			t.Errorf("only %d bytes are there, and nothing is found", length)
		}
	}
}

// TestDamagedMemoryLog flips a bit of what a store has written last, which is in a log only, and was
// killed: where others were synced behind it the store is refused, as those would be deleted. What was written
// last of all may have been on its way as the power failed.
func TestDamagedMemoryLog(t *testing.T) {
	const n = 5
	key := func(i int) []byte { return fmt.Appendf(nil, "k%06d", i) }
	value := func(i int) []byte { return fmt.Appendf(nil, "value %06d", i) }
	dir, killed := t.TempDir(), t.TempDir()
	e := openEngine(t, dir)
	for i := range n {
		commit(t, e, rows.Write{Key: key(i), Value: value(i)}, rows.Write{Key: append(key(i), 'x'), Value: value(i)})
	}
	if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob(filepath.Join(killed, "*.mem"))
	if err != nil || len(logs) == 0 {
		t.Fatal(logs, err)
	}
	name := logs[0]
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		for _, at := range []int{bytes.Index(whole, value(i)), bytes.Index(whole, key(i)) - 4} { // or a header
			try := t.TempDir()
			if err := os.CopyFS(try, os.DirFS(killed)); err != nil {
				t.Fatal(err)
			}
			content := bytes.Clone(whole)
			content[at] ^= 1
			overwrite(t, filepath.Join(try, filepath.Base(name)), content)
			e, err := badger.OpenEngine(try, quiet(badger.Options{}))
			if i < n-1 {
				if !errors.Is(err, store.ErrDamaged) {
					t.Errorf("commit %d of %d is damaged at %d: %v, want ErrDamaged", i, n, at, err)
				}
			} else if err != nil {
				t.Errorf("the last commit was on its way: %v", err)
			}
			if err != nil {
				continue
			}
			snap := view(t, e)
			for k := range n - 1 {
				if got, err := snap.Get(key(k)); err != nil || !bytes.Equal(got, value(k)) {
					t.Errorf("commit %d is damaged: value %d is %q, %v", i, k, got, err)
				}
			}
			snap.Close()
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestDamagedNewestLog flips a bit of a long value in the newest file of the value log: no other of that file is
// lost as the store is opened.
func TestDamagedNewestLog(t *testing.T) {
	const n = 5
	key := func(i int) []byte { return fmt.Appendf(nil, "k%06d", i) }
	value := func(i int) []byte { return bytes.Repeat([]byte{byte(i), 7, 1}, 10<<10) }
	for _, damaged := range []int{0, 2, n - 1} {
		dir := t.TempDir()
		e := openEngine(t, dir)
		for i := range n {
			commit(t, e, rows.Write{Key: key(i), Value: value(i)})
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, "000001.vlog")
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		content[bytes.Index(content, value(damaged))+100] ^= 1
		overwrite(t, name, content)
		for range 2 {
			e = openEngine(t, dir)
			commit(t, e, rows.Write{Key: []byte("more"), Value: value(9)})
			snap := view(t, e)
			for i := range n {
				if got, err := snap.Get(key(i)); i != damaged && (err != nil || !bytes.Equal(got, value(i))) || i == damaged && bytes.Equal(got, value(i)) {
					t.Errorf("value %d is damaged: value %d has %d bytes, %v", damaged, i, len(got), err)
				}
			}
			if got, err := snap.Get([]byte("more")); err != nil || !bytes.Equal(got, value(9)) {
				t.Errorf("what is new has %d bytes, %v", len(got), err)
			}
			snap.Close()
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestDamagedNewestLogCannotBeSynced opens a store with a damaged long value on a disk that cannot sync its log just then: the store does not
// open, and nothing behind that value is lost as it is opened again.
func TestDamagedNewestLogCannotBeSynced(t *testing.T) {
	const n = 5
	key := func(i int) []byte { return fmt.Appendf(nil, "k%06d", i) }
	value := func(i int) []byte { return bytes.Repeat([]byte{byte(i), 7, 1}, 10<<10) }
	dir := t.TempDir()
	e := openEngine(t, dir)
	for i := range n {
		commit(t, e, rows.Write{Key: key(i), Value: value(i)})
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "000001.vlog")
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	content[bytes.Index(content, value(0))+100] ^= 1
	overwrite(t, name, content)
	mend := badger.FailLogSync(syscall.EIO)
	_, err = badger.Open(dir, quiet(badger.Options{}))
	mend()
	if !errors.Is(err, syscall.EIO) {
		t.Errorf("it opens with %v", err)
	}
	e = openEngine(t, dir)
	snap := view(t, e)
	for i := 1; i < n; i++ {
		if got, err := snap.Get(key(i)); err != nil || !bytes.Equal(got, value(i)) {
			t.Errorf("value %d has %d bytes, %v", i, len(got), err)
		}
	}
	snap.Close()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// logEntry is an entry of a log as badger writes it.
func logEntry(flags byte, key, value []byte) []byte {
	e := binary.AppendUvarint([]byte{flags, 0}, uint64(len(key)))
	e = append(binary.AppendUvarint(e, uint64(len(value))), 0)
	e = slices.Concat(e, key, value)
	return binary.BigEndian.AppendUint32(e, crc32.Checksum(e, crc32.MakeTable(crc32.Castagnoli)))
}

// killedWithLogs makes a store of some commits that was killed, with those from `second` on in another log of a memory
// table, which badger turns to while the one before it becomes a table.
func killedWithLogs(t *testing.T, key, value func(i int) []byte, n, second int) (dir string, logs [2][]byte) {
	t.Helper()
	made, dir := t.TempDir(), t.TempDir()
	e := openEngine(t, made)
	for i := range n {
		commit(t, e, rows.Write{Key: key(i), Value: value(i)})
	}
	if err := os.CopyFS(dir, os.DirFS(made)); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(dir, memLogs[0]))
	if err != nil {
		t.Fatal(err)
	}
	const header, entryHeader = 20, 5
	from := bytes.Index(whole, key(second)) - entryHeader
	logs[0] = append(bytes.Clone(whole[:from]), make([]byte, len(whole)-from)...)
	logs[1] = append(bytes.Clone(whole[:header]), whole[from:]...)
	for i, name := range memLogs {
		overwrite(t, filepath.Join(dir, name), logs[i])
	}
	return dir, logs
}

// memLogs are the first logs of memory tables.
var memLogs = [2]string{"00001.mem", "00002.mem"}

// TestDamagedOlderMemoryLog damages the end of a log behind which there is another: of what was written last in that
// nothing was on its way when the store was killed.
func TestDamagedOlderMemoryLog(t *testing.T) {
	const n, second = 6, 3
	key := func(i int) []byte { return fmt.Appendf(nil, "k%06d", i) }
	value := func(i int) []byte { return fmt.Appendf(nil, "value %06d", i) }
	killed, logs := killedWithLogs(t, key, value, n, second)
	end := bytes.Index(logs[0], value(second-1))
	moved := logEntry(0, y.KeyWithTs(key(0), 1), value(0))
	flipped := func(content []byte, at int) []byte {
		content = bytes.Clone(content)
		content[at] ^= 1
		return content
	}
	for _, c := range []struct {
		name    string
		first   []byte
		second  []byte // nil: is not there
		fourth  []byte // likewise
		damaged bool
		left    int // so many commits are there
	}{
		{"whole", logs[0], logs[1], nil, false, n},
		{"a flipped bit at the end of the first", flipped(logs[0], end), logs[1], nil, true, 0},
		{"the end of the first is zeros", append(bytes.Clone(logs[0][:end-20]), make([]byte, 1000)...), logs[1], nil, true, 0},
		{"that was on its way and is written again", flipped(logs[0], end), append(bytes.Clone(logs[0][:20]), logs[0][bytes.Index(logs[0], key(second-1))-5:]...), nil, false, second},
		{"the first alone", flipped(logs[0], end), nil, nil, false, second - 1},
		{"others became tables between them", append(bytes.Clone(logs[0][:end-20]), make([]byte, 1000)...), nil, logs[1], false, second - 1},
		{"a moved value is behind it", slices.Concat(bytes.TrimRight(flipped(logs[0], end), "\x00"), moved), nil, nil, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(killed)); err != nil {
				t.Fatal(err)
			}
			overwrite(t, filepath.Join(dir, memLogs[0]), c.first)
			overwrite(t, filepath.Join(dir, memLogs[1]), c.second)
			if c.fourth != nil {
				overwrite(t, filepath.Join(dir, "00004.mem"), c.fourth)
			}
			e, err := badger.OpenEngine(dir, quiet(badger.Options{}))
			if c.damaged {
				if !errors.Is(err, store.ErrDamaged) {
					t.Errorf("opening: %v, want ErrDamaged", err)
				}
				if err == nil {
					t.Error(e.Close())
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			snap := view(t, e)
			for i := range n {
				if got, err := snap.Get(key(i)); err != nil || bytes.Equal(got, value(i)) != (i < c.left || i >= second && c.fourth != nil) {
					t.Errorf("value %d is %q, %v", i, got, err)
				}
			}
			snap.Close()
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestMemoryLogModel tears what was written last to a log of a memory table, which is no damage, or changes a bit of a
// transaction before, which is.
func TestMemoryLogModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		content := make([]byte, 20)
		write := func(flags byte, key string, version uint64, value []byte) {
			content = append(content, logEntry(flags, y.KeyWithTs([]byte(key), version), value)...)
		}
		version := rapid.Uint64Range(1, 1000).Draw(t, "first version")
		type group struct {
			from, to int
			isMoved  bool
		}
		var groups []group
		for n := range rapid.IntRange(1, 12).Draw(t, "groups") {
			g := group{from: len(content), isMoved: rapid.IntRange(0, 5).Draw(t, "is moved") == 0}
			flags := byte(1 << 6)
			if g.isMoved {
				flags = 0
			}
			for range rapid.IntRange(1, 4).Draw(t, "entries") {
				write(flags, fmt.Sprint(n), version, rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "value"))
			}
			if !g.isMoved {
				write(1<<7, "!badger!txn", version, fmt.Append(nil, version))
				version++
			}
			g.to = len(content)
			groups = append(groups, g)
		}
		if _, damaged := badger.CheckMem(content, 0); damaged {
			t.Fatal("it is whole")
		}
		last := groups[len(groups)-1]
		if before := groups[rapid.IntRange(0, len(groups)-1).Draw(t, "damaged")]; before != last && !before.isMoved {
			bit := rapid.IntRange(8*before.from, 8*before.to-1).Draw(t, "bit")
			broken := bytes.Clone(content)
			broken[bit/8] ^= 1 << (bit % 8)
			if _, damaged := badger.CheckMem(broken, 0); !damaged {
				t.Fatal("a transaction that was synced is damaged, and nothing is found")
			}
		}
		for range rapid.IntRange(1, 3).Draw(t, "times") {
			from := rapid.IntRange(last.from, last.to).Draw(t, "from")
			clear(content[from:rapid.IntRange(from, last.to).Draw(t, "to")])
		}
		if _, damaged := badger.CheckMem(content, 0); damaged {
			t.Fatal("what was on its way is torn")
		}
	})
}

// TestTornBesideForgedEntries cuts the power as a value is written that a caller has made of entries of a log, and of which the
// beginning did not reach the disk: it was on its way, and nothing behind it was synced.
func TestTornBesideForgedEntries(t *testing.T) {
	const n = 3
	key := func(i int) []byte { return fmt.Appendf(nil, "k%06d", i) }
	forged := bytes.Repeat(slices.Concat(
		logEntry(1<<7, []byte("!badger!txn12345678"), []byte("1099511627776")),
		logEntry(0, y.KeyWithTs([]byte("k"), 1), []byte("value")),
	), 30)
	value := func(i int) []byte {
		if i < n {
			return fmt.Appendf(nil, "value %06d", i)
		}
		return forged
	}
	dir, logs := killedWithLogs(t, key, value, n+1, n)
	whole := slices.Concat(bytes.TrimRight(logs[0], "\x00"), logs[1][20:])
	at := bytes.Index(whole, key(n))
	for _, torn := range []int{5, 200} { // bytes before what is there
		content := bytes.Clone(whole)
		clear(content[at-5 : at+torn])
		try := t.TempDir()
		if err := os.CopyFS(try, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		overwrite(t, filepath.Join(try, memLogs[0]), content)
		overwrite(t, filepath.Join(try, memLogs[1]), nil)
		e, err := badger.OpenEngine(try, quiet(badger.Options{}))
		if err != nil {
			t.Errorf("%d bytes are missing: %v", torn, err)
			continue
		}
		snap := view(t, e)
		for i := range n + 1 {
			if got, err := snap.Get(key(i)); err != nil || bytes.Equal(got, value(i)) != (i < n) {
				t.Errorf("value %d has %d bytes, %v", i, len(got), err)
			}
		}
		snap.Close()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestTornNewestLog cuts the power while long values are on their way to the disk, which writes the last of them first:
// that is no damage. The log ends before them, so that the space of what is deleted of it is given back.
func TestTornNewestLog(t *testing.T) {
	const n, size = 5, 10 << 10
	key := func(i int) []byte { return fmt.Appendf(nil, "k%06d", i) }
	value := func(i int) []byte { return bytes.Repeat([]byte{byte(i), 7, 1}, size) }
	made, dir := t.TempDir(), t.TempDir()
	e := openEngine(t, made)
	for i := range n {
		commit(t, e, rows.Write{Key: key(i), Value: value(i)})
	}
	before, err := os.ReadFile(filepath.Join(made, memLogs[0]))
	if err != nil {
		t.Fatal(err)
	}
	commit(t, e, rows.Write{Key: key(n), Value: value(n)}, rows.Write{Key: key(n + 1), Value: value(n + 1)})
	if err := os.CopyFS(dir, os.DirFS(made)); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "000001.vlog")
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	torn := bytes.Index(content, value(n))
	clear(content[torn : torn+4<<10])
	overwrite(t, name, content)
	overwrite(t, filepath.Join(dir, memLogs[0]), before) // which is written and synced when the values are
	e = openEngine(t, dir)
	snap := view(t, e)
	for i := range n + 2 {
		if got, err := snap.Get(key(i)); err != nil || bytes.Equal(got, value(i)) != (i < n) {
			t.Errorf("value %d has %d bytes, %v", i, len(got), err)
		}
	}
	snap.Close()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if err := badger.CheckEntries(name); err != nil {
		t.Errorf("the log: %v", err)
	}
}
