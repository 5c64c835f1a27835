//go:build darwin || freebsd

package journal

import (
	"fmt"
	"os"
	"syscall"
)

// birthOf is the number of a file in its file system (inode), which a copy of it beside it has not;
// empty: it is not known.
func birthOf(f *os.File) string {
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	stat, _ := info.Sys().(*syscall.Stat_t) // always is one here
	return fmt.Sprint(stat.Ino)
}
