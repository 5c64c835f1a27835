//go:build linux

package badger_test

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/harpcaller/harp/store/badger"
)

// TestReadOnlyFolder opens a store in a folder that cannot be written: that is said by an error
// that programs know.
func TestReadOnlyFolder(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	dir := t.TempDir()
	run(t, "mount", "--bind", dir, dir)
	run(t, "mount", "-o", "remount,ro,bind", dir)
	if _, err := badger.Open(dir, nil); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("got %v", err)
	}
	run(t, "umount", dir)
	st, err := badger.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Error(err)
	}
}
