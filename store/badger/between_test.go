//go:build linux && !race

package badger_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/harpcaller/harp/store/badger"
	"github.com/harpcaller/harp/store/internal/rows"
)

// takenEnv names the directory in which the test binary, started again, compacts a store on
// a disk of which another takes all but so many MiB once it was asked for its room.
const takenEnv = "HARP_TEST_STORE_TAKEN"

func init() {
	if words := os.Getenv(takenEnv); words != "" {
		if err := compactTaken(words); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
}

// TestRoomIsTakenAsACompactionBegins has another take what is free between the look at the
// disk and what the compaction writes. That may kill the process. The store then opens on the
// disk as it is, and all that was committed is there.
func TestRoomIsTakenAsACompactionBegins(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	for _, kind := range []string{"tmpfs", "ext4"} {
		for _, left := range []int{0, 10} {
			mount := disk{kind, 400}.mount(t)
			dir := filepath.Join(mount, "store")
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d", takenEnv, dir, left))
			out, err := cmd.CombinedOutput()
			if !strings.Contains(string(out), "taken") {
				t.Fatalf("%s: %v\n%.1000s", kind, err, out)
			}
			t.Logf("%s with %d MiB left: %v", kind, left, err)
			checkTaken(t, dir)
			if err := os.Remove(filepath.Join(mount, "rest")); err != nil {
				t.Fatal(err)
			}
			checkTaken(t, dir)
		}
	}
}

const takenRows = 15_000

func takenRow(i int) rows.Write {
	return rows.Write{Key: fmt.Appendf(nil, "%08d", i), Value: bytes.Repeat([]byte{byte(i)}, 3<<10)}
}

// checkTaken opens the store and looks for all that was committed.
func checkTaken(t *testing.T, dir string) {
	t.Helper()
	e := openEngine(t, dir)
	v := view(t, e)
	missing := 0
	for i := range takenRows {
		if value, err := v.Get(takenRow(i).Key); err != nil || !bytes.Equal(value, takenRow(i).Value) {
			missing++
		}
	}
	v.Close()
	if missing > 0 {
		t.Fatalf("%d rows of %d are gone", missing, takenRows)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

// compactTaken is the process that compacts.
func compactTaken(words string) error {
	var dir string
	var left int64
	if _, err := fmt.Sscan(words, &dir, &left); err != nil {
		return err
	}
	var begins atomic.Bool
	o := quiet(badger.Options{})
	o.Disk = func(dir string) (free, total uint64, err error) {
		var st syscall.Statfs_t
		if err := syscall.Statfs(dir, &st); err != nil {
			return 0, 0, err
		}
		if begins.CompareAndSwap(true, false) {
			err = takeAllBut(filepath.Join(filepath.Dir(dir), "rest"), left<<20)
			fmt.Println("taken")
		}
		return st.Bfree * uint64(st.Bsize), st.Blocks * uint64(st.Bsize), err
	}
	e, err := badger.OpenEngine(dir, o)
	if err != nil {
		return err
	}
	for i := 0; i < takenRows; i += 500 {
		var writes []rows.Write
		for n := range 500 {
			writes = append(writes, takenRow(i+n))
		}
		if err := e.Commit(writes); err != nil {
			return err
		}
	}
	if err := e.Compact(context.Background()); err != nil {
		return err
	}
	if err := e.Commit([]rows.Write{takenRow(0), takenRow(takenRows / 2), takenRow(takenRows - 1)}); err != nil {
		return err
	}
	begins.Store(true)
	return e.Compact(context.Background())
}

// takeAllBut makes a file that takes all blocks of its disk but so many bytes.
func takeAllBut(name string, left int64) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	size := int64(0)
	for _, step := range []int64{1 << 20, 4 << 10} {
		for syscall.Fallocate(int(f.Fd()), 0, size, step) == nil {
			size += step
		}
	}
	return f.Truncate(size - min(size, left))
}
