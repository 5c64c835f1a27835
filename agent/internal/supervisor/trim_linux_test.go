package supervisor

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTrimKeepsWhatWasRelocated checks that a supervisor keeps those pages of its program that are
// not as they are in the file: the loader writes to some of a position-independent one, and has
// them read only from then on.
func TestTrimKeepsWhatWasRelocated(t *testing.T) {
	program, err := os.Open(selfPath)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	page := os.Getpagesize()
	relocated, err := unix.Mmap(int(program.Fd()), 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(relocated) }() // it is gone with the test else
	want := ^relocated[page]
	relocated[page] = want
	if err := unix.Mprotect(relocated, unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	trim()
	if relocated[page] != want {
		t.Error("it is as in the file again")
	}
}
