//go:build unix

package lab

import (
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// as lets a command run as another user where this process is root's.
func as(cmd *exec.Cmd, name string) error {
	if name == "" || os.Getuid() != 0 {
		return nil
	}
	uid, gid, err := ids(name)
	if err != nil {
		return err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}} //nolint:gosec // ids
	cmd.Dir = "/"
	return nil
}

func ids(name string) (uid, gid int, err error) {
	u, err := user.Lookup(name)
	if err != nil {
		return 0, 0, err
	}
	if uid, err = strconv.Atoi(u.Uid); err != nil {
		return 0, 0, err
	}
	gid, err = strconv.Atoi(u.Gid)
	return uid, gid, err
}

// Give gives a directory and all in it to another user where this process is root's.
func Give(dir, name string) error {
	if os.Getuid() != 0 {
		return nil
	}
	uid, gid, err := ids(name)
	if err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, gid)
	})
}

// stop asks a process to end.
func stop(p *os.Process) error { return p.Signal(syscall.SIGINT) }
