package synced

import (
	"os"

	"golang.org/x/sys/unix"
)

// allocateFirst gives f the block that it begins with. It becomes no longer by it.
func allocateFirst(f *os.File) error {
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, 1)
}
