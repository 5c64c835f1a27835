//go:build linux || darwin || freebsd

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/harpcaller/harp"
)

// lockTime is how long a lock is waited for. The one of a process that was killed is gone a
// moment later, if a child that it had begun to start has the descriptor until it executes
// its program, and FindProcess has it for a moment.
const (
	lockTime  = 2 * time.Second
	lockPause = 10 * time.Millisecond
	lockTries = 20 // of FindProcess
)

// lockDir keeps a second process out of an agent's directory. The lock is gone with
// the process that has it, however that ends. The error is a *DirInUseError while
// another has it, after some time or when ctx ends.
func lockDir(ctx context.Context, dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	d, err := lockBoth(ctx, f, dir, syscall.LOCK_EX)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	notePID(f)
	return func() {
		_ = f.Truncate(0) // else the id is that of a process that has no lock
		_ = d.Close()
		_ = f.Close()
	}, nil
}

// lockToRead keeps agents out of a directory, which may be another user's, and changes nothing there. The error is a
// *DirInUseError while an agent has it, after some time.
func lockToRead(dir string) (unlock func(), err error) {
	f, err := openLock(dir)
	if errors.Is(err, fs.ErrNotExist) { // somebody has removed it
		f, err = os.Open(dir)
	}
	if err != nil {
		return nil, err
	}
	d, err := lockBoth(context.Background(), f, dir, syscall.LOCK_SH)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() {
		_ = d.Close()
		_ = f.Close()
	}, nil
}

// openLock opens the lock of a directory, which may be another user's, to read it: a pipe that lies in its place keeps nobody waiting.
func openLock(dir string) (*os.File, error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("agent: %s is no regular file", path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// lockBoth locks the file of a directory, and the directory.
func lockBoth(ctx context.Context, f *os.File, dir string, how int) (d *os.File, err error) {
	if err = waitLock(ctx, f, how); err == nil {
		d, err = lockItself(ctx, dir, how)
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = &DirInUseError{Dir: dir}
	}
	return d, err
}

// lockItself locks the directory as well, of which the file may have been removed, by who took it for
// one that was left behind. Where a directory cannot be locked, as on some networks, the file alone is.
func lockItself(ctx context.Context, dir string, how int) (*os.File, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := waitLock(ctx, d, how); errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// numberOf is the number that a directory has in its file system (inode). It keeps it when it is
// renamed and when that is mounted elsewhere.
func numberOf(dir string) (int64, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return 0, err
	}
	stat, _ := info.Sys().(*syscall.Stat_t) // always is one here
	return int64(stat.Ino), nil
}

// waitLock locks a file that another may have locked for a moment.
func waitLock(ctx context.Context, f *os.File, how int) error {
	for began := time.Now(); ; {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) || time.Since(began) >= lockTime {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(lockPause):
		}
	}
}

// notePID says in the lock which process has it, for FindProcess. Where the disk is full it does not:
// the agent can do without.
func notePID(f *os.File) {
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
}

// FindProcess returns the id of the process whose agent uses a directory. The error is
// harp.ErrNotFound if there is none.
func FindProcess(dir string) (pid int, err error) {
	f, err := openLock(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, noAgent(dir)
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 32))
	if err != nil {
		return 0, err
	}
	pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
	if pid < 1 { // it has ended in order, or there was no room
		return 0, noAgent(dir)
	}
	// One that was killed has left its id behind.
	for try := 0; ; try++ {
		switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); {
		case err == nil:
			return 0, noAgent(dir)
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return 0, err
		case mayHaveOpen(pid, f):
			return pid, nil
		case try == lockTries:
			return 0, fmt.Errorf("agent: the lock in %s names process %d, which does not hold it: is the agent in a container?", dir, pid)
		}
		time.Sleep(lockPause) // it may just be ending
	}
}

// mayHaveOpen reports whether a process has a file open, as far as the system says.
func mayHaveOpen(pid int, f *os.File) bool {
	of := fmt.Sprintf("/proc/%d/fd", pid)
	open, err := os.ReadDir(of)
	if err != nil {
		_, none := os.Stat("/proc/self/fd")
		return none != nil || errors.Is(err, fs.ErrPermission)
	}
	want, err := f.Stat()
	for _, fd := range open {
		if got, missing := os.Stat(filepath.Join(of, fd.Name())); err == nil && missing == nil && os.SameFile(want, got) {
			return true
		}
	}
	return err != nil
}

func noAgent(dir string) error { return fmt.Errorf("%w: no agent runs with %s", harp.ErrNotFound, dir) }
