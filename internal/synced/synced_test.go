package synced_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/harpcaller/harp/internal/synced"
)

// TestConfirm confirms the sync of a file, which stays as it is, and not that of one for which
// the file system refuses a change.
func TestConfirm(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, content := range []string{"", "a", "more"} {
		if _, err := f.WriteString(content); err != nil {
			t.Fatal(err)
		}
		before, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if err := synced.Confirm(f); err != nil {
			t.Errorf("after %q: %v", content, err)
		}
		if after, err := f.Stat(); err != nil || after.Size() != before.Size() {
			t.Errorf("it had %d bytes and has %d: %v", before.Size(), after.Size(), err)
		}
	}
	read, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	if err := synced.Confirm(read); runtime.GOOS == "linux" && !errors.Is(err, syscall.EBADF) {
		t.Errorf("a file that cannot be changed: %v", err)
	}
}
