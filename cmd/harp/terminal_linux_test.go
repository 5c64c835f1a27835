package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/harpcaller/harp/internal/needs"
)

// newTerminal returns both ends of a terminal: the person's, and the program's.
func newTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		needs.Missing(t, "there are no terminals here: ", err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		needs.Missing(t, "there are no terminals here: ", err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

func TestIsTerminal(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if isTerminal(null) || isTerminal(&bytes.Buffer{}) {
		t.Error("what is no terminal is taken for one")
	}
	if _, slave := newTerminal(t); !isTerminal(slave) {
		t.Error("a terminal is not taken for one")
	}
}

// What was typed before a question was shown is no answer to it: yes twice approves no wave that nobody has seen.
func TestWhatWasTypedBeforeIsNoAnswer(t *testing.T) {
	person, program := newTerminal(t)
	write := func(text string) {
		if _, err := person.WriteString(text); err != nil {
			t.Error(err)
		}
	}
	write("y\n")
	arrived := []unix.PollFd{{Fd: int32(program.Fd()), Events: unix.POLLIN}} //nolint:gosec // a small number
	for n := 0; n == 0; {                                                    // an error is an interrupt
		n, _ = unix.Poll(arrived, -1)
		n = max(n, 0)
	}
	asked := writerFunc(func() { write("n\n") })
	c := newCLI(program, io.Discard, asked, func(string) string { return "" })
	err := c.ask(t.Context(), "Go on?", "nothing was done")
	var no *abortedError
	if !errors.As(err, &no) {
		t.Errorf("the answer is %v", err)
	}
}

// writerFunc does something when it is written to.
type writerFunc func()

func (f writerFunc) Write(b []byte) (int, error) {
	f()
	return len(b), nil
}
