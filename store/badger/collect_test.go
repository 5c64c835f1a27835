package badger_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/harpcaller/harp/store/badger"
	"github.com/harpcaller/harp/store/internal/rows"
)

func openEngine(t *testing.T, dir string) rows.Engine {
	t.Helper()
	e, err := badger.OpenEngine(dir, quiet(badger.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func commit(t *testing.T, e rows.Engine, writes ...rows.Write) {
	t.Helper()
	if err := e.Commit(writes); err != nil {
		t.Fatal(err)
	}
}

func view(t *testing.T, e rows.Engine) rows.Snapshot {
	t.Helper()
	snap, err := e.View()
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

// TestValueSizes checks how long values are said to be, wherever they lie.
func TestValueSizes(t *testing.T) {
	e := openEngine(t, t.TempDir())
	defer e.Close()
	sizes := map[string]int{}
	for _, size := range []int{
		1, 127, 128, badger.ValueThreshold - 1, badger.ValueThreshold, badger.ValueThreshold + 1,
		1<<14 - 2, 1<<14 - 1, 1 << 14, 1<<14 + 1, 1<<14 + 2, 64 << 10, 1<<16 + 100,
	} {
		for _, n := range []int{10, 119, 120, 121, 200} { // the length of a key has one or two bytes
			key := fmt.Sprintf("%0*d", n, size)
			sizes[key] = size
			commit(t, e, rows.Write{Key: []byte(key), Value: make([]byte, size)})
		}
	}
	snap := view(t, e)
	defer snap.Close()
	found := 0
	for entry, err := range snap.Keys([]byte("0")) {
		if err != nil {
			t.Fatal(err)
		}
		found++
		if want := sizes[string(entry.Key)]; entry.Size != want {
			t.Errorf("a value of %d bytes under a key of %d: said to be %d", want, len(entry.Key), entry.Size)
		}
	}
	if found != len(sizes) {
		t.Errorf("%d keys found of %d", found, len(sizes))
	}
}

// TestCollectWhileRead frees files of the value log while what is left in them is
// read: the space comes back, and all values stay what they were.
func TestCollectWhileRead(t *testing.T) {
	if testing.Short() {
		t.Skip("writes much")
	}
	const n, length = 3000, 60 << 10
	key := func(i int) []byte { return fmt.Appendf(nil, "k%06d", i) }
	value := func(i int) []byte { return bytes.Repeat([]byte{byte(i), byte(i >> 8)}, length/2) }
	kept := func(i int) bool { return i%3 == 0 }
	dir := t.TempDir()
	e := openEngine(t, dir)
	for i := range n {
		commit(t, e, rows.Write{Key: key(i), Value: value(i)})
	}
	for i := range n {
		if !kept(i) {
			commit(t, e, rows.Write{Key: key(i)})
		}
	}
	if err := e.Close(); err != nil { // what is in the tables of memory comes to the disk
		t.Fatal(err)
	}
	e = openEngine(t, dir)
	defer e.Close()
	read := func(i int) {
		snap := view(t, e)
		defer snap.Close()
		got, err := snap.Get(key(i))
		if err != nil || kept(i) && !bytes.Equal(got, value(i)) || !kept(i) && got != nil {
			t.Errorf("value %d has %d bytes, kept %v: %v", i, len(got), kept(i), err)
		}
	}
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
					read(i % n)
				}
			}
		})
	}
	if err := e.Compact(t.Context()); err != nil {
		t.Error(err)
	}
	close(done)
	readers.Wait()
	size, err := e.Size()
	if most := int64(n / 3 * length * 12 / 10); err != nil || size > most+1<<20 {
		t.Errorf("the directory takes %d bytes, %d at most: %v", size, most, err)
	}
	for i := range n {
		read(i)
	}
	if found := scanned(t, e, value); found != n/3 {
		t.Errorf("%d values are found, %d were kept", found, n/3)
	}
}

// scanned reads all values in their order and returns how many there are.
func scanned(t *testing.T, e rows.Engine, value func(i int) []byte) (found int) {
	t.Helper()
	snap := view(t, e)
	defer snap.Close()
	for item, err := range snap.Scan([]byte("k"), nil, false) {
		var i int
		if _, scan := fmt.Sscanf(string(item.Key), "k%d", &i); err != nil || scan != nil {
			t.Fatal(err, scan)
		}
		if !bytes.Equal(item.Value, value(i)) {
			t.Errorf("value %d has other bytes", i)
		}
		found++
	}
	return found
}

// TestDiskFailure checks that nothing is acknowledged once badger has said that the
// disk failed: it says so of the value log, and goes on. A full disk, a quota or one that
// became read-only fails as a broken one does.
func TestDiskFailure(t *testing.T) {
	for _, failure := range []error{syscall.EIO, syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS} {
		t.Run(failure.Error(), func(t *testing.T) {
			e := openEngine(t, t.TempDir())
			write := rows.Write{Key: []byte("key"), Value: []byte("value")}
			badger.Say(e, "this is nothing: %v", errors.New("nothing"))
			commit(t, e, write)
			badger.Say(e, "Error while curlf sync: %v\n", failure)
			if err := e.Commit([]rows.Write{write}); !errors.Is(err, failure) {
				t.Errorf("a commit on a disk that has failed: %v", err)
			}
			if err := e.Compact(t.Context()); !errors.Is(err, failure) {
				t.Errorf("compacting: %v", err)
			}
			if err := e.Close(); !errors.Is(err, failure) || !badger.CloseAnyway(e) {
				t.Errorf("closing: %v; it writes tables", err)
			}
		})
	}
}

// TestFailedWriteToldAsText has badger tell that something could not be written, with an error that is a text
// by then: nothing is committed behind it.
func TestFailedWriteToldAsText(t *testing.T) {
	e := openEngine(t, t.TempDir())
	badger.Say(e, "writeRequests: %v", errors.New("writeRequests err: "+syscall.EIO.Error()))
	if err := e.Commit([]rows.Write{{Key: []byte("key"), Value: []byte("value")}}); err == nil {
		t.Error("it goes on")
	}
	if err := e.Close(); err == nil || !badger.CloseAnyway(e) {
		t.Errorf("closing: %v; it writes tables", err)
	}
}

// TestCollectThatCannotWrite collects the value log where what is in use of it cannot be written again, as badger
// can make no further log: the store fails, as with a commit that cannot be written.
func TestCollectThatCannotWrite(t *testing.T) {
	const n, length = 400, 60 << 10
	row := func(i int) rows.Write {
		return rows.Write{Key: fmt.Appendf(nil, "k%06d", i), Value: bytes.Repeat([]byte{byte(i)}, length)}
	}
	dir := t.TempDir()
	small := quiet(badger.Options{Ballast: -1, Disk: func(string) (uint64, uint64, error) { return 3 << 30, 4 << 30, nil }})
	e, err := badger.OpenEngine(dir, small)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n { // 24 MB, of which the first log has 16
		commit(t, e, row(i))
	}
	const first = 250
	for i := range first {
		if i%2 > 0 {
			commit(t, e, rows.Write{Key: row(i).Key})
		}
	}
	for i := range 100 { // the second is almost full
		commit(t, e, row(n+i))
	}
	if err := os.WriteFile(filepath.Join(dir, "000003.vlog"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := e.Compact(t.Context()); err != nil {
		t.Error(err)
	}
	if err := e.Commit([]rows.Write{{Key: []byte("short"), Value: []byte("value")}}); err == nil {
		t.Error("it goes on")
	}
	if err := e.Close(); err == nil {
		t.Error("it is closed as if nothing had been")
	}
	badger.CloseAnyway(e)
}
