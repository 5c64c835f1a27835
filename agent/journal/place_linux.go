package journal

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// birthOf is the number of a file in its file system (inode) and when it was made, which no copy of it
// has: numbers are used again; empty: it is not known.
func birthOf(f *os.File) string {
	var s unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &s); err != nil {
		return ""
	}
	if s.Mask&unix.STATX_BTIME == 0 {
		return fmt.Sprint(s.Ino)
	}
	return fmt.Sprintf("%d@%d.%09d", s.Ino, s.Btime.Sec, s.Btime.Nsec)
}
