//go:build unix

package command

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// trusted reports whether only root or this process's user can write a file or a
// directory; the error says who else.
func trusted(info fs.FileInfo) error {
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return fmt.Errorf("can be written by others (%v), who could run anything: chmod go-w", mode)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if ok && stat.Uid != 0 && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("is owned by user %d, who could run anything: it must be root's, or the agent's own", stat.Uid)
	}
	return nil
}
