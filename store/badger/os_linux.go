package badger

import (
	"os"
	"syscall"
)

// allocate takes blocks for so many bytes of a file.
func allocate(f *os.File, size int64) error { return syscall.Fallocate(int(f.Fd()), 0, 0, size) }
