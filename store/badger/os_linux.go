package badger

import (
	"os"
	"syscall"
)

const keepSize = 1 // FALLOC_FL_KEEP_SIZE

// allocate takes blocks for so many bytes of a file. It becomes no longer by them.
func allocate(f *os.File, from, size int64) error {
	return syscall.Fallocate(int(f.Fd()), keepSize, from, size)
}
