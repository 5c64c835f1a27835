package demo

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// mayNotReadAll lets the goroutine have no other rights on files than a user that is
// not root, until the test ends. Root could read everything.
func mayNotReadAll(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	const nobody = 65534
	runtime.LockOSThread()
	if err := syscall.Setfsuid(nobody); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Setfsuid(0); err != nil {
			t.Error(err) // and the thread ends with the goroutine
			return
		}
		runtime.UnlockOSThread()
	})
}

func TestDiskUsageSaysWhatItCouldNotRead(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{filepath.Dir(dir): 0o755, dir: 0o755} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "locked"), 0); err != nil {
		t.Fatal(err)
	}
	mayNotReadAll(t)
	var got list[UsageRecord]
	total, err := diskUsage(t.Context(), UsageArgs{Path: dir}, got.emit)
	if err != nil || total.Unreadable != 1 || got.records[1].Error == "" {
		t.Errorf("total %+v, %v, records %+v", total, err, got.records)
	}
}
