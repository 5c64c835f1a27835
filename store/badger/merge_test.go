package badger_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"
	"pgregory.net/rapid"

	"github.com/harpcaller/harp/store"
	harpbadger "github.com/harpcaller/harp/store/badger"
	"github.com/harpcaller/harp/store/internal/rows"
)

// mergedEnv names the directory in which the test binary, started again, compacts a store and is
// killed between badger's change of the manifest and the look at it; anewEnv says whether the
// manifest is made anew then.
const (
	mergedEnv = "HARP_TEST_STORE_MERGED"
	anewEnv   = "HARP_TEST_STORE_ANEW"
)

func init() {
	if dir := os.Getenv(mergedEnv); dir != "" {
		if err := compactAndDie(dir); err != nil {
			fmt.Println(err)
		}
		os.Exit(0)
	}
}

func compactAndDie(dir string) error {
	e, err := harpbadger.OpenEngine(dir, quiet(harpbadger.Options{}))
	if err != nil {
		return err
	}
	if err := takeTables(dir, someTables); err != nil {
		return err
	}
	if os.Getenv(anewEnv) != "" {
		harpbadger.MakeAnew(e)
	}
	harpbadger.DieAtNextChange()
	if err := e.Compact(context.Background()); err != nil {
		return err
	}
	return errors.New("it compacted nothing")
}

const (
	mergedRows = 8000
	someTables = 3 // of those that the next compaction makes
	allTables  = 100
)

// mergedRow is a row, sealed as those of package rows.
func mergedRow(i int) rows.Write {
	key, payload := fmt.Appendf(nil, "%08d", i), bytes.Repeat([]byte{byte(i)}, 1000)
	sum := crc32.Checksum(slices.Concat(key, payload), crc32.MakeTable(crc32.Castagnoli))
	return rows.Write{Key: key, Value: append(binary.BigEndian.AppendUint32(nil, sum), payload...)}
}

// commitRows commits every other row, beginning with this one.
func commitRows(t *testing.T, e rows.Engine, first int) {
	t.Helper()
	for i := first; i < mergedRows; {
		var writes []rows.Write
		for ; i < mergedRows && len(writes) < 500; i += 2 {
			writes = append(writes, mergedRow(i))
		}
		commit(t, e, writes...)
	}
}

// onSmallDisk is a disk on which closing compacts nothing.
func onSmallDisk(string) (free, total uint64, err error) { return 1 << 30, 1 << 30, nil }

// makeLevels makes a store that has rows on two levels, which the next compaction makes one of.
func makeLevels(t *testing.T, dir string) {
	t.Helper()
	e := openEngine(t, dir)
	commitRows(t, e, 0)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e, err := harpbadger.OpenEngine(dir, quiet(harpbadger.Options{Disk: onSmallDisk}))
	if err != nil {
		t.Fatal(err)
	}
	commitRows(t, e, 1)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

// takeTables takes names of the next tables, so that they cannot be made: the third, if it is to
// be some, or all of so many.
func takeTables(dir string, many int) error {
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil {
		return err
	}
	var last uint64
	for _, name := range tables {
		id, _ := table.ParseFileID(name)
		last = max(last, id)
	}
	first := 1
	if many == someTables {
		first = many
	}
	for n := first; n <= many; n++ {
		if err := os.Mkdir(table.NewFilename(last+uint64(n), dir), 0o700); err != nil {
			return err
		}
	}
	return nil
}

// giveTables gives the names back.
func giveTables(t *testing.T, dir string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.IsDir() {
			if err := os.Remove(filepath.Join(dir, f.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func manifestOf(t *testing.T, dir string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, badger.ManifestFilename))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// checkMerged opens a store and looks whether it has all rows, also after a compaction.
func checkMerged(t *testing.T, dir string) {
	t.Helper()
	giveTables(t, dir)
	e := openEngine(t, dir)
	check := func() {
		t.Helper()
		snap := view(t, e)
		defer snap.Close()
		missing := 0
		for i := range mergedRows {
			if got, err := snap.Get(mergedRow(i).Key); err != nil || !bytes.Equal(got, mergedRow(i).Value) {
				missing++
			}
		}
		if missing > 0 {
			t.Fatalf("%d rows of %d are gone", missing, mergedRows)
		}
	}
	check()
	if err := e.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	check()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestCompactionThatCannotMakeATable takes the names of tables that a compaction is to make. Badger
// drops what it cannot make a table of, without an error: the store fails, and all that
// was committed is there when it is opened again.
func TestCompactionThatCannotMakeATable(t *testing.T) {
	for _, many := range []int{someTables, allTables} {
		for _, anew := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d tables, a manifest made anew: %t", many, anew), func(t *testing.T) {
				dir := t.TempDir()
				makeLevels(t, dir)
				had := manifestOf(t, dir)
				e := openEngine(t, dir)
				if anew {
					harpbadger.MakeAnew(e)
				}
				if err := takeTables(dir, many); err != nil {
					t.Fatal(err)
				}
				if err := e.Compact(t.Context()); !errors.Is(err, harpbadger.ErrUnmade) {
					t.Errorf("compaction: %v, want ErrUnmade", err)
				}
				if !bytes.Equal(manifestOf(t, dir), had) {
					t.Error("the manifest is not what it was")
				}
				if err := e.Commit([]rows.Write{mergedRow(0)}); !errors.Is(err, harpbadger.ErrUnmade) {
					t.Errorf("a commit: %v, want ErrUnmade", err)
				}
				giveTables(t, dir)
				if err := e.Close(); !errors.Is(err, harpbadger.ErrUnmade) {
					t.Errorf("closing: %v, want ErrUnmade", err)
				}
				harpbadger.CloseAnyway(e)
				checkMerged(t, dir)
			})
		}
	}
}

// TestCloseThatCannotMakeATable closes a store, which compacts it, where a table cannot be made.
func TestCloseThatCannotMakeATable(t *testing.T) {
	dir := t.TempDir()
	e := openEngine(t, dir)
	commitRows(t, e, 0)
	commitRows(t, e, 1)
	if err := takeTables(dir, someTables); err != nil { // the first is made of what is in memory
		t.Fatal(err)
	}
	if err := e.Close(); !errors.Is(err, harpbadger.ErrUnmade) {
		t.Errorf("closing: %v, want ErrUnmade", err)
	}
	checkMerged(t, dir)
}

// TestFlushThatCannotMakeATable compacts a store on a small disk where no table can be made of what is in
// memory: badger has its memory table twice then, and would use it after it is released. The store fails, and all
// that was committed is in the logs.
func TestFlushThatCannotMakeATable(t *testing.T) {
	dir := t.TempDir()
	e, err := harpbadger.OpenEngine(dir, quiet(harpbadger.Options{Disk: onSmallDisk}))
	if err != nil {
		t.Fatal(err)
	}
	commitRows(t, e, 0)
	commitRows(t, e, 1)
	if err := takeTables(dir, allTables); err != nil {
		t.Fatal(err)
	}
	if err := e.Compact(t.Context()); err == nil {
		t.Error("it compacted what it could make no table of")
	}
	giveTables(t, dir)
	if err := e.Commit([]rows.Write{mergedRow(0)}); err == nil {
		t.Error("it goes on")
	}
	if err := e.Compact(t.Context()); err == nil {
		t.Error("it compacts again")
	}
	if err := e.Close(); err == nil {
		t.Error("it is closed as if nothing had been")
	}
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	harpbadger.CloseAnyway(e)
	checkMerged(t, copied)
}

// TestFlushThatBadgerTriesAgain fills memory tables of which badger can make no tables, which it tries again each second: the
// store fails, instead of taking more until commits wait for that, and all that was committed is in the logs.
func TestFlushThatBadgerTriesAgain(t *testing.T) {
	dir := t.TempDir()
	e := openEngine(t, dir)
	if err := takeTables(dir, allTables); err != nil {
		t.Fatal(err)
	}
	const most = 100 // MiB, before commits wait
	row := func(n int) rows.Write {
		return rows.Write{Key: fmt.Appendf(nil, "%08d", n), Value: bytes.Repeat([]byte{byte(n)}, 2<<10)}
	}
	n := 0
	for err := error(nil); err == nil; n++ {
		if n == most {
			t.Fatalf("it took %d MiB and goes on", most)
		}
		var writes []rows.Write
		for i := range 512 {
			writes = append(writes, row(512*n+i))
		}
		err = e.Commit(writes)
	}
	if err := e.Close(); err == nil {
		t.Error("it is closed as if nothing had been")
	}
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil { // before badger can try again
		t.Fatal(err)
	}
	giveTables(t, copied)
	giveTables(t, dir)
	harpbadger.CloseAnyway(e)
	e = openEngine(t, copied)
	snap := view(t, e)
	for i := range 512 * (n - 1) {
		if got, err := snap.Get(row(i).Key); err != nil || !bytes.Equal(got, row(i).Value) {
			t.Fatalf("row %d of %d has %d bytes, %v", i, 512*(n-1), len(got), err)
		}
	}
	snap.Close()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// TestCloseThatBadgerTriesAgain closes a store of whose memory table no table can be made, which badger tries again for
// as long as that lasts: closing says why. With the disk well again it is closed, and nothing is missing.
func TestCloseThatBadgerTriesAgain(t *testing.T) {
	dir := t.TempDir()
	e := openEngine(t, dir)
	commitRows(t, e, 0)
	commitRows(t, e, 1)
	if err := takeTables(dir, allTables); err != nil {
		t.Fatal(err)
	}
	if err := inTime(t, e.Close); err == nil {
		t.Error("it is closed as if nothing had been")
	}
	if _, err := harpbadger.OpenEngine(dir, quiet(harpbadger.Options{})); !errors.Is(err, harpbadger.ErrInUse) {
		t.Errorf("opened meanwhile: %v, want ErrInUse", err)
	}
	giveTables(t, dir)
	if err := inTime(t, func() error { return closedAtLast(dir) }); err != nil {
		t.Fatal(err)
	}
	checkMerged(t, dir)
}

// TestOpenThatBadgerTriesAgain opens a store that was killed with logs of more memory tables than badger takes at a time, and
// none of the tables can be made: opening says why. With the disk well again nothing is missing.
func TestOpenThatBadgerTriesAgain(t *testing.T) {
	dir := t.TempDir()
	e := openEngine(t, dir)
	const most = 64 // commits, of 3.5 MiB: three memory tables that wait, and a part of one
	release := harpbadger.HoldManifest()
	copied, n := t.TempDir(), 0
	for ; logsOfMem(t, dir) < 4; n++ {
		if n == most {
			t.Fatalf("%d logs of memory tables", logsOfMem(t, dir))
		}
		commit(t, e, largeRows(n)...)
	}
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	release(nil)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	small := harpbadger.Options{Disk: onSmallDisk} // where one memory table may wait
	var opened rows.Engine
	err := inTime(t, func() (err error) {
		taken := false
		small.Disk = func(string) (free, total uint64, err error) {
			if !taken { // tables that a kill has left are removed before
				taken = true
				err = takeTables(copied, allTables)
			}
			return 1 << 30, 1 << 30, err
		}
		opened, err = harpbadger.OpenEngine(copied, quiet(small))
		return err
	})
	if err == nil {
		err = opened.Close()
		t.Errorf("it was opened, and closed: %v", err)
	}
	giveTables(t, copied)
	if err := inTime(t, func() error { return closedAtLast(copied) }); err != nil {
		t.Fatal(err)
	}
	e = openEngine(t, copied)
	snap := view(t, e)
	for i := range n {
		for _, row := range largeRows(i) {
			if got, err := snap.Get(row.Key); err != nil || !bytes.Equal(got, row.Value) {
				t.Fatalf("row %s has %d bytes, %v", row.Key, len(got), err)
			}
		}
	}
	snap.Close()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// TestCommitThatWaitsForAFlush lets commits fill all memory tables while a table is being made, the last of them
// waits, and the table then cannot be made: that commit says why.
func TestCommitThatWaitsForAFlush(t *testing.T) {
	dir := t.TempDir()
	e := openEngine(t, dir)
	release := harpbadger.HoldManifest()
	waits := make(chan error, 1)
	began := make(chan struct{}, 1<<20)
	go func() {
		for n := 0; ; n++ {
			began <- struct{}{}
			if err := e.Commit(largeRows(n)); err != nil {
				waits <- err
				return
			}
		}
	}()
	for still := false; !still; { // until one does not come to its end
		select {
		case <-began:
		case err := <-waits:
			t.Fatal(err)
		case <-time.After(2 * time.Second):
			still = true
		}
	}
	if err := takeTables(dir, allTables); err != nil {
		t.Fatal(err)
	}
	release(errors.New("the disk has failed"))
	if err := inTime(t, func() error { return <-waits }); err == nil {
		t.Error("it was committed")
	}
	if err := inTime(t, e.Close); err == nil {
		t.Error("it is closed as if nothing had been")
	}
	giveTables(t, dir)
	harpbadger.CloseAnyway(e)
}

// TestCompactThatWaitsForAFlush compacts a store on a small disk while a table is being made of what is in memory, which then
// cannot be made: badger waits for that before it makes one of the rest. The compaction says why, and the store can be closed.
func TestCompactThatWaitsForAFlush(t *testing.T) {
	dir := t.TempDir()
	e, err := harpbadger.OpenEngine(dir, quiet(harpbadger.Options{Disk: onSmallDisk}))
	if err != nil {
		t.Fatal(err)
	}
	release := harpbadger.HoldManifest()
	for n := 0; logsOfMem(t, dir) < 2; n++ {
		commit(t, e, largeRows(n)...)
	}
	compacted := make(chan error, 1)
	go func() { compacted <- e.Compact(context.Background()) }()
	select {
	case err := <-compacted:
		t.Fatal(err)
	case <-time.After(time.Second):
	}
	if err := takeTables(dir, allTables); err != nil {
		t.Fatal(err)
	}
	release(errors.New("the disk has failed"))
	if err := inTime(t, func() error { return <-compacted }); err == nil {
		t.Error("it compacted what it could make no table of")
	}
	if err := inTime(t, e.Close); err == nil {
		t.Error("it is closed as if nothing had been")
	}
	giveTables(t, dir)
	harpbadger.CloseAnyway(e)
}

// largeRows are the rows of a commit, which are in memory tables as they are.
func largeRows(n int) []rows.Write {
	const rowsOfOne, size = 1000, 3500
	writes := make([]rows.Write, rowsOfOne)
	for i := range writes {
		writes[i] = rows.Write{Key: fmt.Appendf(nil, "%04d.%04d", n, i), Value: bytes.Repeat([]byte{byte(n)}, size)}
	}
	return writes
}

// logsOfMem is how many logs of memory tables are in a directory that something was written to.
func logsOfMem(t *testing.T, dir string) (n int) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.mem"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if info, err := os.Stat(name); err == nil && info.Size() > 0 {
			n++
		}
	}
	return n
}

// inTime calls what may hang, and fails the test if it does.
func inTime(t *testing.T, do func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		t.Fatal("it hangs")
		return nil
	}
}

// closedAtLast waits until a database is closed that badger goes on to close.
func closedAtLast(dir string) error {
	for {
		e, err := harpbadger.OpenEngine(dir, quiet(harpbadger.Options{Disk: onSmallDisk}))
		if err == nil {
			return e.Close()
		}
		if !errors.Is(err, harpbadger.ErrInUse) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// blockEnd is the length of a block's checksum, and the header and the row that the next block begins with.
var blockEnd = regexp.MustCompile(`\x00\x00\x00[\x01-\x10]\x00\x00\x10\x00[0-9]{8}`)

// TestCompactionOfADamagedBlock damages the last table of an open store but one so that badger cannot read a block near its
// end, and compacts. Badger takes such a block for the end of the table, without an error, and leaves out what
// is behind: the store fails, and with the block as it was nothing is missing. So it does where a flipped bit hides
// a row otherwise: in its key, say. One of a value hides no row, and is compacted.
func TestCompactionOfADamagedBlock(t *testing.T) {
	last := mergedRow(mergedRows - 2)     // the very last one is of the other level, and so is what shows a gap
	valueOf := func(content []byte) int { // of another, before which are its key, its version, two bytes of flags and when it is over
		return bytes.LastIndex(content, mergedRow(mergedRows-4).Value)
	}
	for _, c := range []struct {
		name string
		at   func(content []byte) int
		bit  int
		want error
	}{
		{"the length of a checksum", func(content []byte) int {
			ends := blockEnd.FindAllIndex(content, -1)
			return ends[len(ends)-1][0]
		}, 6, store.ErrDamaged},
		{"a key, in its order", func(content []byte) int { return valueOf(content) - 3 - 8 - 1 }, 0, store.ErrDamaged},
		{"a version", func(content []byte) int { return valueOf(content) - 3 - 1 }, 3, store.ErrDamaged},
		{"that it is there", func(content []byte) int { return valueOf(content) - 3 }, 0, store.ErrDamaged},
		{"when it is over", func(content []byte) int { return valueOf(content) - 1 }, 0, store.ErrDamaged},
		{"a value", func(content []byte) int { return bytes.LastIndex(content, last.Value) + 500 }, 6, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			makeLevels(t, dir)
			e := openEngine(t, dir)
			name, whole := tableUpTo(t, dir, last)
			undo := flipBit(t, name, whole, 8*c.at(whole)+c.bit)
			if err := e.Compact(t.Context()); !errors.Is(err, c.want) {
				t.Errorf("compaction: %v, want %v", err, c.want)
			}
			undo()
			if err := e.Close(); !errors.Is(err, c.want) {
				t.Errorf("closing: %v, want %v", err, c.want)
			}
			harpbadger.CloseAnyway(e)
			if c.want != nil {
				checkMerged(t, dir)
			}
		})
	}
}

// tableUpTo returns the table in a directory that ends with a row.
func tableUpTo(t *testing.T, dir string, w rows.Write) (name string, content []byte) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if read, err := table.OpenInMemoryTable(content, 1, &table.Options{}); err == nil && bytes.HasPrefix(read.Biggest(), w.Key) {
			return name, content
		}
	}
	t.Fatalf("no table ends with row %q", w.Key)
	return "", nil
}

// TestOpenThatFailsAndCannotMakeATable has opening a store fail where the database is open, and
// is closed again, which compacts it. None of its tables can be made.
func TestOpenThatFailsAndCannotMakeATable(t *testing.T) {
	dir := t.TempDir()
	makeLevels(t, dir)
	probe := filepath.Join(dir, "PROBE")
	if err := os.Remove(probe); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(probe, 0o700); err != nil {
		t.Fatal(err)
	}
	taken := false
	_, err := harpbadger.OpenEngine(dir, quiet(harpbadger.Options{Disk: func(string) (free, total uint64, err error) {
		if !taken { // what was there before that is removed
			taken = true
			err = takeTables(dir, allTables)
		}
		return 1 << 40, 1 << 40, err
	}}))
	if err == nil {
		t.Fatal("it was opened")
	}
	checkMerged(t, dir)
}

// TestKilledBeforeTheTablesAreCounted kills a process between badger's change of the manifest, in
// which a table is missing, and the look at it.
func TestKilledBeforeTheTablesAreCounted(t *testing.T) {
	for _, anew := range []bool{false, true} {
		t.Run(fmt.Sprintf("a manifest made anew: %t", anew), func(t *testing.T) {
			dir := t.TempDir()
			makeLevels(t, dir)
			had := manifestOf(t, dir)
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), mergedEnv+"="+dir)
			if anew {
				cmd.Env = append(cmd.Env, anewEnv+"=1")
			}
			out, err := cmd.CombinedOutput()
			if err == nil || len(out) > 0 {
				t.Fatalf("%v: %s", err, out)
			}
			if now := manifestOf(t, dir); bytes.Equal(now, had) || anew == bytes.HasPrefix(now, had) {
				t.Fatalf("the manifest had %d bytes and has %d", len(had), len(now))
			}
			checkMerged(t, dir)
		})
	}
}

// TestMergeModel merges tables as badger does, with rows that were deleted, several versions, and
// tables further below, and leaves out what was deleted where badger does. If all tables are made nothing is
// missing; if any is not made, something is.
func TestMergeModel(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		m := merging{dir: dir, before: map[uint64]uint32{}, after: map[uint64]uint32{}}
		version := rapid.Uint64Range(1, 40)
		entries := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) mergeEntry {
			return mergeEntry{rapid.IntRange(0, 60).Draw(t, "row"), version.Draw(t, "version"), rapid.Bool().Draw(t, "deleted")}
		}), 1, 80, func(e mergeEntry) [2]uint64 { return [2]uint64{uint64(e.row), e.version} }).Draw(t, "entries")
		discard := version.Draw(t, "discard")
		var read [3][]mergeEntry // two tables above, one below
		for _, e := range entries {
			n := rapid.IntRange(0, 2).Draw(t, "table")
			read[n] = append(read[n], e)
		}
		for n, entries := range read {
			if len(entries) > 0 {
				m.before[m.make(t, entries)] = []uint32{0, 0, 5}[n]
			}
		}
		first, last := slices.MinFunc(entries, byRow).row, slices.MaxFunc(entries, byRow).row
		overlapped := false
		for range rapid.IntRange(0, 2).Draw(t, "below") {
			from := rapid.IntRange(-20, 80).Draw(t, "from")
			to := from + rapid.IntRange(0, 10).Draw(t, "to")
			id := m.make(t, []mergeEntry{{row: from, version: 1}, {row: to, version: 2}})
			m.before[id], m.after[id] = 6, 6
			overlapped = overlapped || from <= last && to >= first
		}
		kept := keptOf(entries, discard, overlapped)
		var made []uint64
		for len(kept) > 0 {
			n := rapid.IntRange(1, len(kept)).Draw(t, "rows of a table")
			id := m.make(t, slices.Concat(kept[:n]...))
			m.after[id], made, kept = 5, append(made, id), kept[n:]
		}
		if err := harpbadger.CheckMerge(dir, m.before, m.after, discard); err != nil {
			t.Fatalf("nothing is missing: %v", err)
		}
		if len(made) == 0 {
			return
		}
		lost := maps.Clone(m.after)
		for _, id := range rapid.SliceOfNDistinct(rapid.SampledFrom(made), 1, -1, rapid.ID).Draw(t, "lost") {
			delete(lost, id)
		}
		if err := harpbadger.CheckMerge(dir, m.before, lost, discard); !errors.Is(err, harpbadger.ErrUnmade) {
			t.Fatalf("%d of %d tables are missing: %v, want ErrUnmade", len(m.after)-len(lost), len(made), err)
		}
	})
}

type mergeEntry struct {
	row     int
	version uint64
	deleted bool
}

func byRow(a, b mergeEntry) int { return cmp.Compare(a.row, b.row) }

func (e mergeEntry) key() []byte { return y.KeyWithTs(fmt.Appendf(nil, "%04d", e.row+100), e.version) }

// keptOf are the entries that badger keeps of those that it reads, row by row.
func keptOf(entries []mergeEntry, discard uint64, overlapped bool) (kept [][]mergeEntry) {
	sorted := slices.SortedFunc(slices.Values(entries), func(a, b mergeEntry) int { return y.CompareKeys(a.key(), b.key()) })
	for len(sorted) > 0 {
		n := 1
		for n < len(sorted) && sorted[n].row == sorted[0].row {
			n++
		}
		var of []mergeEntry
		for _, e := range sorted[:n] {
			if e.version > discard {
				of = append(of, e)
				continue
			}
			if !e.deleted || overlapped {
				of = append(of, e)
			}
			break
		}
		if len(of) > 0 {
			kept = append(kept, of)
		}
		sorted = sorted[n:]
	}
	return kept
}

// merging makes tables in a directory.
type merging struct {
	dir           string
	before, after map[uint64]uint32
}

var mergedTables atomic.Uint64

func (m *merging) make(t *rapid.T, entries []mergeEntry) (id uint64) {
	builder := table.NewTableBuilder(table.Options{BlockSize: 64, BloomFalsePositive: 0.01})
	defer builder.Close()
	for _, e := range slices.SortedFunc(slices.Values(entries), func(a, b mergeEntry) int { return y.CompareKeys(a.key(), b.key()) }) {
		value := y.ValueStruct{Value: []byte("value")}
		if e.deleted {
			value = y.ValueStruct{Meta: 1}
		}
		builder.Add(e.key(), value, 0)
	}
	id = mergedTables.Add(1)
	if err := os.WriteFile(table.NewFilename(id, m.dir), builder.Finish(), 0o600); err != nil {
		t.Fatal(err)
	}
	return id
}

// flipBit flips a bit of a file in place: one that is written anew waits for the disk.
func flipBit(t *testing.T, name string, whole []byte, bit int) (undo func()) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	write := func(c byte) {
		if _, err := f.WriteAt([]byte{c}, int64(bit/8)); err != nil {
			t.Fatal(err)
		}
	}
	write(whole[bit/8] ^ 1<<(bit%8))
	return func() {
		write(whole[bit/8])
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}
