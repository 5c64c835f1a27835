package supervisor

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// allocate takes the room for a file of so many bytes and makes it that long.
func allocate(f *os.File, size int64) error {
	err := ignoringEINTR(func() error { return unix.Fallocate(int(f.Fd()), 0, 0, size) })
	if errors.Is(err, unix.EOPNOTSUPP) {
		return writeZeros(f, size)
	}
	return err
}

// lock locks a file as long as this process lives: the kernel unlocks it then, whatever
// ends the process.
func lock(f *os.File) error {
	return os.NewSyscallError("flock", unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB))
}

// isLocked reports whether a process has locked a file.
func isLocked(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, os.NewSyscallError("flock", err)
}

// punch gives the room of a part of a file back. The error is errors.ErrUnsupported
// if the file system has no holes.
func punch(f *os.File, offset, size int64) error {
	return ignoringEINTR(func() error {
		return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, offset, size)
	})
}

func ignoringEINTR(fn func() error) error {
	for {
		if err := fn(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
