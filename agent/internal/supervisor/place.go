package supervisor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/harpcaller/harp/agent/internal/proc"
)

// A directory of attempts has one directory for each, named by job and attempt, with the
// spool file and the socket. What begins with a dot is not there yet, or not any more.
const (
	spoolName  = "spool"
	socketName = "socket"
	crashName  = "crash" // what a supervisor that crashed said last

	unfinished  = ".new-"
	finished    = ".old-"
	leftOverAge = time.Hour // after which what is unfinished or finished is left over
)

// place is the directory of an attempt.
type place struct {
	root, path string
}

// placeOf is the directory of an attempt. The error is a *harp.FieldError.
func placeOf(o Options, k Key) (place, error) {
	if err := k.check(); err != nil {
		return place{}, err
	}
	root, err := filepath.Abs(o.Dir)
	return place{root, filepath.Join(root, k.name())}, err
}

func (p place) spool() string { return filepath.Join(p.path, spoolName) }

func (p place) exists() bool {
	if p.path == "" {
		return false
	}
	_, err := os.Lstat(p.path)
	return err == nil
}

// prepare makes a directory that is not there yet for who looks for attempts.
func (p place) prepare() (place, error) {
	if err := os.MkdirAll(p.root, 0o700); err != nil {
		return p, err
	}
	path, err := os.MkdirTemp(p.root, unfinished)
	return place{p.root, path}, err
}

// appear gives a prepared directory its name. The error is ErrExists if there is one
// already.
func (p place) appear(as place) error {
	err := os.Rename(p.path, as.path)
	if errors.Is(err, fs.ErrExist) || err != nil && as.exists() {
		return ErrExists
	}
	return err
}

// remove removes a directory and what is in it; from the first moment it cannot be found.
func (p place) remove() error {
	gone, err := os.MkdirTemp(p.root, finished)
	if err != nil {
		return os.RemoveAll(p.path) // no room for another name
	}
	if err := os.Rename(p.path, filepath.Join(gone, "attempt")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, os.Remove(gone))
	}
	return os.RemoveAll(gone)
}

// List returns the attempts that are supervised, or of which something is left, and removes what is left over of
// others. The error is of the file system.
func List(o Options) ([]Key, error) {
	proc.SweepCgroups(leftOverAge)
	sweepSecrets(os.TempDir(), leftOverAge)
	if o.Dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(o.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var keys []Key
	for _, entry := range entries {
		if k, ok := parseKey(entry.Name()); ok && entry.IsDir() {
			keys = append(keys, k)
		}
		sweep(o.Dir, entry)
	}
	return keys, err
}

// sweep removes what is left over from a supervisor that died before it had begun, or
// when it was done.
func sweep(dir string, entry fs.DirEntry) {
	name := entry.Name()
	if !strings.HasPrefix(name, unfinished) && !strings.HasPrefix(name, finished) {
		return
	}
	if info, err := entry.Info(); err == nil && time.Since(info.ModTime()) > leftOverAge {
		_ = os.RemoveAll(filepath.Join(dir, name)) // tried again with the next list
	}
}

// children are the supervisors that this process started and did not reap. A number is not
// enough: that of one which is dead, and is not its child, may be one's that lives.
var children = struct {
	sync.Mutex
	processes map[proc.Identity]*os.Process
}{processes: map[proc.Identity]*os.Process{}}

// reap waits for the end of a supervisor, which is near, if this process started it.
func (place) reap(id proc.Identity) {
	children.Lock()
	p := children.processes[id]
	delete(children.processes, id)
	children.Unlock()
	if p != nil {
		_, _ = p.Wait() // how it ended says nothing
	}
}
