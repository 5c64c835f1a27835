//go:build !(linux || darwin || freebsd)

package badger

import (
	"errors"
	"os"
)

// lock does nothing: badger's own lock has to do.
func lock(string) (unlock func(), err error) { return func() {}, nil }

func diskSpace(string) (free, total uint64, err error) {
	return 0, 0, errors.New("not known on this system")
}

func isFull(error) bool { return false }

// blocks is how long a file is: how much of it is on the disk is not known.
func blocks(name string) (int64, error) {
	info, err := os.Lstat(name)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// inodes is not known.
func inodes(string) (left uint64, known bool) { return 0, false }
