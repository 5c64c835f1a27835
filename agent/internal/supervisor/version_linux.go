package supervisor

import (
	"io/fs"
	"syscall"
)

// version tells a file from what it was before it was written or replaced. The zero value
// is no file.
type version struct {
	device, inode uint64
	size          int64
	changed       syscall.Timespec // which nobody can set
}

func versionOf(info fs.FileInfo) version {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return version{}
	}
	return version{uint64(stat.Dev), stat.Ino, stat.Size, stat.Ctim} //nolint:unconvert // not of 64 bits everywhere
}
