package supervisor

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/harpcaller/harp/internal/needs"
)

// allocated is how much room a file takes.
func allocated(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Sys().(*syscall.Stat_t).Blocks * 512, nil
}

// smallVolume is a file system of so many bytes.
func smallVolume(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		needs.Missing(t, "no volume of its own can be had: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestFullDisk checks that a full disk costs records, but not the end.
func TestFullDisk(t *testing.T) {
	dir := smallVolume(t, "1m")
	f, err := createFile(filepath.Join(dir, "spool"), testHeader(64<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	added, size, lost := 0, int64(0), int64(0)
	for lost == 0 {
		for range 10 {
			r := testRecord(added, 2000)
			r.Truncated, size = 0, size+outputSize(r)
			f.add(r)
			added++
		}
		lost = f.flush()
	}
	var kept int64
	if err := f.cursor(0).read(f.count(), func(_ int64, r Record) error { kept += outputSize(&r); return nil }); err != nil {
		t.Fatal(err)
	}
	if kept+lost != size || f.count() == 0 {
		t.Errorf("of %d bytes %d are there and %d are said to be lost", size, kept, lost)
	}
	result := make([]byte, 100)
	if err := errors.Join(f.noteEnd(End{Records: f.count(), Result: result}), f.sync()); err != nil {
		t.Fatalf("the end was not written: %v", err)
	}
	m, err := readRemains(f.f.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.end == nil || m.end.Records != f.count() || len(m.end.Result) != 100 {
		t.Errorf("the end is %+v", m.end)
	}
	f.keep(f.count())
	f.add(testRecord(0, 2000))
	if lost := f.flush(); lost > 0 {
		t.Error("what was kept has not made room")
	}
}

// TestNoRoomForTheEnd checks that nothing is begun whose end could not be written.
func TestNoRoomForTheEnd(t *testing.T) {
	dir := smallVolume(t, "64k")
	if _, err := createFile(filepath.Join(dir, "spool"), testHeader(64<<20)); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("the error is %v", err)
	}
}

// TestCgroupsOfOneAttempt checks that a supervisor which is too late to begin does not
// remove the cgroup of the next for the same attempt.
func TestCgroupsOfOneAttempt(t *testing.T) {
	spec := Spec{Key: Key{"job", 1}}
	first, err := newCgroup(spec)
	if err != nil {
		t.Fatal(err)
	}
	second, err := newCgroup(spec)
	if err != nil {
		t.Fatal(err)
	}
	if first == "" && second == "" {
		needs.Missing(t, "there are no cgroups here")
	}
	defer removeCgroup(second)
	removeCgroup(first)
	if _, err := os.Stat(second); err != nil || first == second {
		t.Errorf("%s and %s: %v", first, second, err)
	}
}
