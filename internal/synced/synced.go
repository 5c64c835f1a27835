// Package synced tells whether a sync did what it said, and syncs directories.
//
// On Linux fsync, fdatasync and msync may return without an error though nothing is on the
// disk: when the journal of an ext4 is aborted, or an XFS is shut down, while they wait. What
// ext4 had written then lies in blocks that stay marked as unwritten, for that was to go through
// the journal, and fs/ext4/page-io.c keeps to itself that it did not. Only syncs that begin
// later fail (docs/decisions/0013-syncs-are-confirmed.md).
package synced

import (
	"errors"
	"os"
	"syscall"
)

// Confirm returns why the file system of f, which is open for writing and has a block, takes
// no changes any more. It is called after a sync and before anybody is told that it was made:
// nil says that the sync did what it said. It asks for the first block of f, which f has, as
// that begins a transaction of the file system, and one that begins after an abort is refused.
// Where a file system gives no blocks in advance it is always nil.
//
// Other questions do not serve: statfs, setting the times of a file and a second fsync
// succeed in the moment in which it matters.
func Confirm(f *os.File) error {
	err := allocateFirst(f)
	for errors.Is(err, syscall.EINTR) {
		err = allocateFirst(f)
	}
	switch {
	case err == nil, errors.Is(err, errors.ErrUnsupported):
		return nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return nil // it looks for space first, and is asked because it works
	}
	return &os.PathError{Op: "confirm the sync of", Path: f.Name(), Err: err}
}
