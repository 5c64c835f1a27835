//go:build linux || darwin || freebsd

package agent_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/internal/needs"
)

// connectIn is how an agent begins in a directory; it has no dispatcher to find.
func connectIn(t *testing.T, dir string) error {
	t.Helper()
	a := newAgent(t, loopback{}, func(c *agent.Config) { c.Dir = dir })
	over, cancel := context.WithCancel(t.Context())
	cancel()
	return a.Connect(over, "nowhere")
}

// TestForeignDirsAreRefused checks that an agent keeps nothing in, and takes nothing
// from, what others have made or could change: they would decide what it believes to run,
// where it writes, and what it removes.
func TestForeignDirsAreRefused(t *testing.T) {
	elsewhere := t.TempDir()
	for _, test := range []struct {
		name string
		root bool // only root can make it so
		make func(dir string) error
		at   string // what is named, below the directory's parent
		want string
	}{
		{name: "open", make: func(dir string) error { return os.Chmod(dir, 0o777) }, at: "agent", want: "can be written by others"},                 //nolint:gosec // that is what is tested
		{name: "parent open", make: func(dir string) error { return os.Chmod(filepath.Dir(dir), 0o777) }, at: "", want: "can be written by others"}, //nolint:gosec // that is what is tested
		{name: "foreign", root: true, make: func(dir string) error { return os.Chown(dir, 65534, 65534) }, at: "agent", want: "is owned by user 65534"},
		{name: "foreign run", root: true, make: func(dir string) error { return foreign(filepath.Join(dir, "run")) }, at: "agent/run", want: "is owned by user 65534"},
		{name: "foreign attempt behind another", root: true, make: func(dir string) error {
			if err := os.MkdirAll(filepath.Join(dir, "run", "00JOB.1"), 0o700); err != nil {
				return err
			}
			return foreign(filepath.Join(dir, "run", "01JOB.1"))
		}, at: "agent/run/01JOB.1", want: "is owned by user 65534"},
		{name: "foreign journal", root: true, make: func(dir string) error { return foreign(filepath.Join(dir, "journal")) }, at: "agent/journal", want: "is owned by user 65534"},
		{name: "open run", make: func(dir string) error { return openDir(filepath.Join(dir, "run")) }, at: "agent/run", want: "can be written by others"},
		{name: "open journal", make: func(dir string) error { return openDir(filepath.Join(dir, "journal")) }, at: "agent/journal", want: "can be written by others"},
		{name: "link for journal", make: func(dir string) error { return os.Symlink(elsewhere, filepath.Join(dir, "journal")) }, at: "agent/journal", want: "is a link"},
		{name: "link for run", make: func(dir string) error { return os.Symlink(elsewhere, filepath.Join(dir, "run")) }, at: "agent/run", want: "is a link"},
		{name: "link for lock", make: func(dir string) error {
			return os.Symlink(filepath.Join(elsewhere, "made"), filepath.Join(dir, "lock"))
		}, at: "agent/lock", want: "is a link"},
		{name: "file for run", make: func(dir string) error { return os.WriteFile(filepath.Join(dir, "run"), nil, 0o600) }, at: "agent/run", want: "must be a directory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.root {
				needs.Root(t)
			}
			parent := filepath.Join(t.TempDir(), "parent")
			dir := filepath.Join(parent, "agent")
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := test.make(dir); err != nil {
				t.Fatal(err)
			}
			err := connectIn(t, dir)
			if path := filepath.Join(parent, test.at); err == nil || !strings.Contains(err.Error(), path+" "+test.want) {
				t.Errorf("the agent says %v; want %s %s", err, path, test.want)
			}
			if made, err := fs.Glob(os.DirFS(elsewhere), "*"); err != nil || len(made) > 0 {
				t.Errorf("it has made %v elsewhere, %v", made, err)
			}
		})
	}
}

func foreign(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return os.Chown(dir, 65534, 65534)
}

func openDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return os.Chmod(dir, 0o777) //nolint:gosec // that is what is tested
}

// TestOwnDirsAreTaken checks that an agent takes what it has made itself again, also
// behind a link that is its own.
func TestOwnDirsAreTaken(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "agent")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Dir(dir)+"/agent", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{dir, dir, link} {
		if err := connectIn(t, dir); err != nil && !strings.Contains(err.Error(), context.Canceled.Error()) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// TestDirIsInUseThoughItsLockWasRemoved checks that a second agent is kept out of a directory whose
// lock somebody has removed, as one that is said to be in use: both would write one journal.
func TestDirIsInUseThoughItsLockWasRemoved(t *testing.T) {
	t.Parallel() // it waits two seconds for the directory
	dir := t.TempDir()
	a := newAgent(t, loopback{}, func(c *agent.Config) { c.Dir = dir })
	connect(t, loopback{}, a)
	if err := os.Remove(filepath.Join(dir, "lock")); err != nil {
		t.Fatal(err)
	}
	unlock, err := agent.LockDir(t.Context(), dir)
	if err == nil {
		unlock()
	}
	if used := new(agent.DirInUseError); !errors.As(err, &used) {
		t.Errorf("a second agent is told %v", err)
	}
}

// TestCheckOfAnothersJournal checks that root can read the journal of an agent that is another user's, as after that has drained,
// and leaves nothing there that is root's, which the agent would refuse.
func TestCheckOfAnothersJournal(t *testing.T) {
	needs.Root(t)
	dir := journalDir(t)
	if err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Chown(path, 65534, 65534))
	}); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"", "lock"} { // it may have been removed
		if file != "" {
			if err := errors.Join(os.WriteFile(filepath.Join(dir, file), nil, 0o600), os.Chown(filepath.Join(dir, file), 65534, 65534)); err != nil {
				t.Fatal(err)
			}
		}
		if found, err := agent.CheckJournal(dir); err != nil || len(found.Held) != 2 {
			t.Errorf("%+v, %v", found, err)
		}
		if made, err := os.Lstat(filepath.Join(dir, "lock")); (err == nil) != (file != "") || err == nil && made.Size() > 0 {
			t.Errorf("the lock is %+v, %v", made, err)
		}
	}
}

// TestAPipeForALockKeepsNobodyWaiting checks that a user who reads the lock of an agent that may be another user's, as root does to drain it, does not wait
// for ever because a pipe lies there.
func TestAPipeForALockKeepsNobodyWaiting(t *testing.T) {
	dir := journalDir(t)
	path := filepath.Join(dir, "lock")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, isOpen := range []bool{false, true} {
		if isOpen { // by somebody who writes nothing
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
		}
		if pid, err := agent.FindProcess(dir); err == nil {
			t.Errorf("process %d is found", pid)
		}
		if _, err := agent.CheckJournal(dir); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("the check says %v", err)
		}
	}
}
