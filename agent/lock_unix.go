//go:build linux || darwin || freebsd

package agent

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// lockDir keeps a second process out of an agent's directory. The lock is gone with
// the process that has it, however that ends. The error is a *DirInUseError while
// another has it.
func lockDir(dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return func() { f.Close() }, nil
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = &DirInUseError{Dir: dir}
	}
	return nil, errors.Join(err, f.Close())
}
