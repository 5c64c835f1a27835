package supervisor

import (
	"bufio"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// trim gives back memory that only the beginning needed: what the collector has, and the
// pages of the program that were read while its packages, of which a supervisor uses few,
// were initialized. Those that are needed are mapped again.
func trim() {
	debug.FreeOSMemory()
	program, err := os.Readlink(selfPath)
	if err != nil {
		return
	}
	smaps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return
	}
	defer smaps.Close()
	var start, size uintptr
	unchanged := false // the part of the memory that is read is as it is in the file
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		switch name, value, _ := strings.Cut(lines.Text(), ":"); {
		case strings.Contains(name, "-"): // a part begins
			start, size, unchanged = readOnlyOf(lines.Text(), program)
		case name == "Anonymous", name == "Swap":
			unchanged = unchanged && strings.TrimSpace(value) == "0 kB"
		case name == "VmFlags" && unchanged: // which is said last
			// Pages of a file: nothing is lost. Where it fails they stay.
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, start, size, unix.MADV_DONTNEED)
		}
	}
}

// readOnlyOf is the part of the memory that a line of proc_pid_maps(5) is about, if that
// is a part of a program that cannot be written. It may have been: the loader relocates what
// a position-independent program has for reading only.
func readOnlyOf(line, program string) (start, size uintptr, ok bool) {
	fields := strings.SplitN(line, " ", 6)
	if len(fields) < 6 || strings.TrimSpace(fields[5]) != program || fields[1] != "r--p" && fields[1] != "r-xp" {
		return 0, 0, false
	}
	from, to, _ := strings.Cut(fields[0], "-")
	first, err := strconv.ParseUint(from, 16, 64)
	if err != nil {
		return 0, 0, false
	}
	end, err := strconv.ParseUint(to, 16, 64)
	return uintptr(first), uintptr(end - first), err == nil && end > first
}
