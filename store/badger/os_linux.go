package badger

import (
	"errors"
	"math"
	"os"
	"syscall"
)

const keepSize = 1 // FALLOC_FL_KEEP_SIZE

// descriptors is how many file descriptors the process may open yet. It is false if that
// is not known.
func descriptors() (left int, known bool) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, false
	}
	f, err := os.Open("/proc/self/fd")
	if err != nil {
		return 0, errors.Is(err, syscall.EMFILE)
	}
	defer f.Close()
	open, err := f.Readdirnames(-1)
	if err != nil {
		return 0, false
	}
	return int(min(limit.Cur, math.MaxInt32)) - len(open) + 1, true
}

// allocate takes blocks for so many bytes of a file. It becomes no longer by them.
func allocate(f *os.File, from, size int64) error {
	return syscall.Fallocate(int(f.Fd()), keepSize, from, size)
}
