package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// ProbePrivateTmp tries whether commands can have a /tmp of their own here. The error is of
// the system.
func ProbePrivateTmp() error {
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this
		failed <- ownMounts()
	}()
	return <-failed
}

// ownMounts gives this thread mounts of its own, in which those of the machine go on to
// appear, but not the other way round.
func ownMounts() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	return os.NewSyscallError("mount", unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""))
}

// hideTmp makes a directory the /tmp and the /var/tmp of this thread and of what it
// executes. kept, if there is one, is seen where it was. Both are opened first: the paths
// may lead into what is hidden. A link in the place of either is not followed, as kept is
// in the hands of the command's user.
func hideTmp(dir, kept string) error {
	if err := ownMounts(); err != nil {
		return err
	}
	own, err := openDir(dir)
	if err != nil {
		return err
	}
	defer own.Close()
	var keep *os.File
	if kept != "" {
		if keep, err = openDir(kept); err != nil {
			return err
		}
		defer keep.Close()
	}
	for _, at := range []string{"/tmp", "/var/tmp"} {
		if err := bind(own, at); err != nil && (at == "/tmp" || !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	if kept == "" {
		return nil
	}
	if _, err := os.Lstat(kept); !errors.Is(err, fs.ErrNotExist) {
		return err // it is not hidden
	}
	if err := os.MkdirAll(kept, 0o755); err != nil {
		return err
	}
	return bind(keep, kept)
}

func openDir(name string) (*os.File, error) {
	return os.OpenFile(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

func bind(dir *os.File, at string) error {
	err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()), at, "", unix.MS_BIND, "")
	if err != nil {
		return &fs.PathError{Op: "mount", Path: at, Err: err}
	}
	return nil
}
