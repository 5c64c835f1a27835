//go:build darwin || freebsd

package journal

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// birthOf is the number of a file in its file system (inode), which a copy of it beside it has not;
// empty: it is not known.
func birthOf(f *os.File) string { return numberOf(f.Stat()) }

// birthOfDir is birthOf for a directory, which need not be opened: files may have run out.
func birthOfDir(path string) string { return numberOf(os.Stat(path)) }

func numberOf(info fs.FileInfo, err error) string {
	if err != nil {
		return ""
	}
	stat, _ := info.Sys().(*syscall.Stat_t) // always is one here
	return fmt.Sprint(stat.Ino)
}
