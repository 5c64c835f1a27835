//go:build unix

package access

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// maxLinks is how many symbolic links the kernel follows on one way.
const maxLinks = 40

// systemDirs are where a distribution may let a group of its own write, as Debian lets
// staff in /usr/local.
var systemDirs = []string{"/usr/local", "/usr/local/bin", "/usr/local/sbin"}

// CheckPath reports whether only root, this process's user and those users could change
// what a path leads to: the file or directory at its end, and every directory and link on
// the way. The error is an *[UntrustedError], or that of the file system; fs.ErrNotExist
// if there is none.
func CheckPath(path string, users ...uint32) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	w := walk{users: append(users, 0, uint32(os.Geteuid())), at: "/"} //nolint:gosec // an id is never negative
	return w.to(path)
}

// CheckOwn reports whether a file or directory, which is no link, is this process's user's
// and nobody else may write it. Errors: as CheckPath.
func CheckOwn(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	uid, gid := owner(info)
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return &UntrustedError{path, "is a link: it must have been made by the agent"}
	case int64(uid) != int64(os.Geteuid()):
		return &UntrustedError{path, fmt.Sprintf("is owned by user %d: it must be owned by the agent's user, %d", uid, os.Geteuid())}
	case othersWrite(info, uid, gid):
		return writable(path, info)
	}
	return nil
}

// walk is the way to a file.
type walk struct {
	users []uint32 // those that may change what is on it
	at    string   // a directory that was reached, by a path without links
	links int
}

func (w *walk) to(path string) error {
	if strings.HasPrefix(path, "/") {
		w.at = "/"
		if err := w.check("/", nil); err != nil {
			return err
		}
	}
	for name := range strings.SplitSeq(path, "/") {
		if err := w.step(name); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) step(name string) error {
	switch name {
	case "", ".":
		return nil
	case "..":
		w.at = filepath.Dir(w.at)
		return nil
	}
	next := filepath.Join(w.at, name)
	info, err := os.Lstat(next)
	if err != nil {
		return err
	}
	if err := w.check(next, info); err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink == 0 {
		w.at = next
		return nil
	}
	if w.links++; w.links > maxLinks {
		return &fs.PathError{Op: "follow", Path: next, Err: syscall.ELOOP}
	}
	target, err := os.Readlink(next)
	if err != nil {
		return err
	}
	return w.to(target)
}

// check looks at one thing on the way. What is in a directory that others may write is
// safe if that is sticky: only its owner can replace it, and the owner is looked at.
func (w *walk) check(path string, info fs.FileInfo) error {
	if info == nil {
		var err error
		if info, err = os.Lstat(path); err != nil {
			return err
		}
	}
	uid, gid := owner(info)
	switch mode := info.Mode(); {
	case !slices.Contains(w.users, uid):
		return &UntrustedError{path, fmt.Sprintf("is owned by user %d, who could run anything: it must be owned by root or the agent's user", uid)}
	case mode&fs.ModeSymlink != 0, mode.IsDir() && mode&fs.ModeSticky != 0:
		return nil
	case mode.IsDir() && mode.Perm()&0o002 == 0 && slices.Contains(systemDirs, path):
		return nil
	case othersWrite(info, uid, gid):
		return writable(path, info)
	}
	return nil
}

// othersWrite reports whether others than the owner may write. The group of a directory
// that has the owner's number is the owner's alone, as many distributions make one.
func othersWrite(info fs.FileInfo, uid, gid uint32) bool {
	perm := info.Mode().Perm()
	return perm&0o002 != 0 || perm&0o020 != 0 && (!info.IsDir() || uid != gid)
}

func writable(path string, info fs.FileInfo) error {
	return &UntrustedError{path, fmt.Sprintf("can be written by others (%v), who could run anything: chmod go-w", info.Mode().Perm())}
}

func owner(info fs.FileInfo) (uid, gid uint32) {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Uid, stat.Gid
	}
	return 0, 0
}
