package badger_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/table"

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
