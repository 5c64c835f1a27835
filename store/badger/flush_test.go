package badger_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	harpbadger "github.com/harpcaller/harp/store/badger"
	"github.com/harpcaller/harp/store/internal/rows"
)

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
