//go:build linux && !race

package badger_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/badger"
	"github.com/harpcaller/harp/store/internal/rows"
)

// TestCompactWithoutInodes compacts a store on a disk that has room and next to no inodes
// left. Badger would drop what it could not make a table of, without an error, and would not
// end closing. Whatever was committed is there, and nothing more is taken until there are
// inodes again.
func TestCompactWithoutInodes(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	for _, kind := range []string{"tmpfs", "ext4"} {
		mount := disk{kind, 400}.mount(t)
		if kind == "tmpfs" {
			run(t, "mount", "-o", "remount,nr_inodes=300", mount)
		}
		dir := filepath.Join(mount, "store")
		e := openEngine(t, dir)
		const many = 15_000
		row := func(i int) rows.Write {
			return rows.Write{Key: fmt.Appendf(nil, "%08d", i), Value: bytes.Repeat([]byte{byte(i)}, 3<<10)}
		}
		for i := 0; i < many; i += 500 {
			var writes []rows.Write
			for n := range 500 {
				writes = append(writes, row(i+n))
			}
			commit(t, e, writes...)
		}
		check := func() {
			t.Helper()
			v := view(t, e)
			defer v.Close()
			missing := 0
			for i := range many {
				if value, err := v.Get(row(i).Key); err != nil || !bytes.Equal(value, row(i).Value) {
					missing++
				}
			}
			if missing > 0 {
				t.Fatalf("%s: %d rows of %d are gone", kind, missing, many)
			}
		}
		compact(t, e)
		commit(t, e, row(0), row(many/2), row(many-1)) // all is to be written again for them
		inodes := takeInodes(t, mount)
		for _, name := range inodes[:4] {
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		}
		compact(t, e)
		check()
		awaitSpace(t, e, store.SpaceCritical)
		takeInodes(t, mount)
		if err := e.Close(); !errors.Is(err, harp.ErrNoSpace) {
			t.Errorf("%s: closing without inodes: %v, want ErrNoSpace", kind, err)
		}
		if err := os.RemoveAll(filepath.Dir(inodes[0])); err != nil {
			t.Fatal(err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		e = openEngine(t, dir)
		check()
		compact(t, e)
		check()
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOpenWithoutInodes opens a store that was killed, on a disk that has next to no inodes
// left. With too few for all that it opens badger would wait for one for ever.
func TestOpenWithoutInodes(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	mount := disk{"tmpfs", 400}.mount(t)
	run(t, "mount", "-o", "remount,nr_inodes=300", mount)
	dir, killed := filepath.Join(mount, "store"), filepath.Join(mount, "killed")
	e := openEngine(t, dir)
	written := rows.Write{Key: []byte("key"), Value: []byte("value")}
	commit(t, e, written)
	if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	inodes := takeInodes(t, mount)
	for free := range 4 {
		opened := make(chan error, 1)
		go func() {
			_, err := badger.OpenEngine(killed, quiet(badger.Options{}))
			opened <- err
		}()
		select {
		case err := <-opened:
			if !errors.Is(err, harp.ErrNoSpace) {
				t.Errorf("with %d inodes: %v, want ErrNoSpace", free, err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("with %d inodes it does not open, and says nothing", free)
		}
		if err := os.Remove(inodes[free]); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(filepath.Dir(inodes[0])); err != nil {
		t.Fatal(err)
	}
	e = openEngine(t, killed)
	v := view(t, e)
	if value, err := v.Get(written.Key); err != nil || !bytes.Equal(value, written.Value) {
		t.Errorf("what was committed is %q, %v", value, err)
	}
	v.Close()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

// takeInodes makes files until a disk has no inode for another.
func takeInodes(t *testing.T, mount string) (names []string) {
	t.Helper()
	dir := filepath.Join(mount, "inodes")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for {
		f, err := os.CreateTemp(dir, "")
		if err != nil {
			return names
		}
		names = append(names, f.Name())
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitSpace waits until there is so much space.
func awaitSpace(t *testing.T, e rows.Engine, space store.Space) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); e.Space() != space; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the space is %s, want %s", e.Space(), space)
		}
	}
}
