package supervisor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/harpcaller/harp/internal/needs"
)

// TestKeepWhileTheDiskStandsStill checks that while the disk stands still as room is given back, it
// is known all the same whether there is room: otherwise a command that asks would count as silent.
func TestKeepWhileTheDiskStandsStill(t *testing.T) {
	dir, thaw := needs.FrozenDisk(t)
	thaw()
	f, err := createFile(filepath.Join(dir, "spool"), testHeader(1<<20))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	fill(t, f, 0, 600, 1000)
	disk, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	const freeze, unfreeze = 0xC0045877, 0xC0045878 // FIFREEZE, FITHAW
	if err := unix.IoctlSetInt(int(disk.Fd()), freeze, 0); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.IoctlSetInt(int(disk.Fd()), unfreeze, 0) }() // it is thawed below
	kept, known := make(chan struct{}), make(chan struct{})
	go func() {
		f.keep(600)
		close(kept)
	}()
	for began := time.Now(); !hasSleeper(t); time.Sleep(time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal("nothing waits for the disk")
		}
	}
	go func() {
		if full, passes := f.full(1000); full || !passes {
			t.Errorf("full %v, passes %v", full, passes)
		}
		close(known)
	}()
	select {
	case <-known:
	case <-time.After(10 * time.Second):
		t.Error("it is not known while the disk stands still")
	}
	if err := unix.IoctlSetInt(int(disk.Fd()), unfreeze, 0); err != nil {
		t.Fatal(err)
	}
	<-kept
	<-known
	if f.gone.n != 600 {
		t.Errorf("the first record that is there is %d", f.gone.n)
	}
}

// hasSleeper reports whether a thread of this process waits for a disk.
func hasSleeper(t *testing.T) bool {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range tasks {
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), ") D ") {
			return true
		}
	}
	return false
}
