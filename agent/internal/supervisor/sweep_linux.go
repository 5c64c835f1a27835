package supervisor

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sweepSecrets removes the secrets in a directory whose process died without, as it was killed together with its
// agent, if they are older than that could have seen to it.
func sweepSecrets(dir string, age time.Duration) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // tried again by the next agent
	}
	for _, entry := range entries {
		if name := entry.Name(); strings.HasPrefix(name, secretPrefix) && strings.HasSuffix(name, lockSuffix) {
			sweepSecret(filepath.Join(dir, name), age)
		}
	}
}

// sweepSecret removes the secrets beside a file, unless it is young, locked, or not this user's own: others can make
// files of such names there.
func sweepSecret(path string, age time.Duration) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer drop(f)
	info, err := f.Stat()
	if err != nil || !isOwn(info) || time.Since(info.ModTime()) < age {
		return
	}
	if locked, err := isLocked(f); err == nil && !locked {
		secretDir{path: strings.TrimSuffix(path, lockSuffix)}.remove()
	}
}

// isOwn reports whether something is a file of this process's user.
func isOwn(info fs.FileInfo) bool {
	stat, is := info.Sys().(*syscall.Stat_t)
	return is && info.Mode().IsRegular() && int64(stat.Uid) == int64(os.Geteuid())
}
