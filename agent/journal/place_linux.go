package journal

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// birthOf is the number of a file in its file system (inode) and when it was made, which no copy of it
// has: numbers are used again; empty: it is not known.
func birthOf(f *os.File) string { return birthAt(int(f.Fd()), "", unix.AT_EMPTY_PATH) }

// birthOfDir is birthOf for a directory, which need not be opened: files may have run out.
func birthOfDir(path string) string { return birthAt(unix.AT_FDCWD, path, 0) }

func birthAt(dir int, path string, flags int) string {
	var s unix.Statx_t
	if err := unix.Statx(dir, path, flags, unix.STATX_INO|unix.STATX_BTIME, &s); err != nil {
		return ""
	}
	if s.Mask&unix.STATX_BTIME == 0 {
		return fmt.Sprint(s.Ino)
	}
	return fmt.Sprintf("%d@%d.%09d", s.Ino, s.Btime.Sec, s.Btime.Nsec)
}
