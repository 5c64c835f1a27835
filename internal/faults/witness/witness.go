//go:build linux

// Package witness is the truth about executions: procedures write to a file, outside
// of harp, that they begin and that they end.
package witness

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// What is witnessed.
const (
	Begin = "begin"
	End   = "end"
	Quit  = "quit" // it returned before its end
)

// Line is one thing that was witnessed.
type Line struct {
	What    string
	Job     string
	Attempt int
	PID     int
	Boot    string // of the process
	At      int64  // monotonic nanoseconds, the same clock in all processes
}

// File is a witness that is written to, by several processes.
type File struct {
	f    *os.File
	pid  int
	boot string
}

// Open opens the file for a process that calls itself boot.
func Open(path, boot string) (*File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return &File{f: f, pid: os.Getpid(), boot: boot}, nil
}

// Write adds a line, with one write(2), so that lines of several processes are not
// mixed. When it returns the line survives the death of this process.
func (w *File) Write(what, job string, attempt int) error {
	_, err := fmt.Fprintf(w.f, "%s %s %d %d %s %d\n", what, job, attempt, w.pid, w.boot, Now())
	return err
}

// Close closes the file.
func (w *File) Close() error { return w.f.Close() }

// Read returns the lines in the order in which they were written. No file is no
// lines.
func Read(path string) ([]Line, error) {
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var lines []Line
	for in := bufio.NewScanner(f); in.Scan(); {
		var l Line
		if _, err := fmt.Sscan(strings.TrimSpace(in.Text()), &l.What, &l.Job, &l.Attempt, &l.PID, &l.Boot, &l.At); err != nil {
			return nil, fmt.Errorf("witness line %q: %w", in.Text(), err)
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// Now is the time on the machine's monotonic clock.
func Now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // there is no Linux without this clock
	}
	return t.Nano()
}
