//go:build linux || darwin || freebsd

package badger

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lock takes the lock that badger takes on a directory it has open.
func lock(dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close() //nolint:errcheck // nothing was written
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s", ErrInUse, dir)
		}
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return func() { f.Close() }, nil
}

func diskSpace(dir string) (free, total uint64, err error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, 0, err
	}
	size, available := uint64(st.Bsize), uint64(st.Bavail) //nolint:unconvert // signed on FreeBSD
	if os.Geteuid() == 0 {
		available = st.Bfree // some may be kept for root
	}
	return available * size, st.Blocks * size, nil
}

// inodes is how many files the disk that holds a directory has room for yet. It is false if
// that is not known: some make inodes as they are needed, and say that there are none.
func inodes(dir string) (left uint64, known bool) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil || st.Files == 0 {
		return 0, false
	}
	return uint64(st.Ffree), true //nolint:unconvert // signed on FreeBSD
}

// isFull reports whether an error says that there are no more blocks.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// blocks is how many bytes of disk a file takes.
func blocks(name string) (int64, error) {
	var st syscall.Stat_t
	if err := syscall.Lstat(name, &st); err != nil {
		return 0, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	return st.Blocks * 512, nil
}
