//go:build linux && !race

package badger_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/harpcaller/harp/store/badger"
	"github.com/harpcaller/harp/store/internal/rows"
)

// TestDamagedLogOnAFullDisk opens a store whose last value is damaged on a disk that others have filled: what that writes comes out of the ballast.
func TestDamagedLogOnAFullDisk(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	for _, kind := range []string{"tmpfs", "ext4"} {
		mount := disk{kind, 400}.mount(t)
		dir, made := filepath.Join(mount, "store"), t.TempDir()
		value := bytes.Repeat([]byte{1, 7, 2}, 4<<10)
		e, err := badger.OpenEngine(made, quiet(badger.Options{}))
		if err != nil {
			t.Fatal(err)
		}
		commit(t, e, rows.Write{Key: []byte("short"), Value: []byte("short")}, rows.Write{Key: []byte("long"), Value: value})
		run(t, "cp", "-a", "--sparse=always", made, dir)
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "BALLAST"), bytes.Repeat([]byte{1}, 90<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, "000001.vlog")
		values, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		at := bytes.Index(values, []byte("long")) + 5000
		if _, err := f.WriteAt([]byte{values[at] ^ 1}, int64(at)); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		takeRest(t, mount)
		e, err = badger.OpenEngine(dir, quiet(badger.Options{}))
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		snap := view(t, e)
		if got, err := snap.Get([]byte("short")); err != nil || string(got) != "short" {
			t.Errorf("%s: %q, %v", kind, got, err)
		}
		snap.Close()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}
