//go:build unix

package dev

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// lock keeps a second process out of a folder. It is gone with the process that
// holds it, however that ends.
type lock struct{ f *os.File }

// takeLock takes the lock at path. The error says which process has it.
func takeLock(path string) (*lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = inUse(path)
		}
		return nil, errors.Join(err, f.Close())
	}
	if err := errors.Join(f.Truncate(0), writePID(f)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &lock{f}, nil
}

func writePID(f *os.File) error {
	_, err := fmt.Fprintln(f, os.Getpid())
	return err
}

func inUse(path string) error {
	who := ""
	if text, err := os.ReadFile(path); err == nil && len(text) > 0 {
		who = " (process " + strings.TrimSpace(string(text)) + ")"
	}
	return fmt.Errorf("%s is in use by another harp dev%s; choose another --dir", strings.TrimSuffix(path, "/lock"), who)
}

// unlock gives the lock back; of none it does nothing.
func (l *lock) unlock() error {
	if l == nil {
		return nil
	}
	return l.f.Close()
}
