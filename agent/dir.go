package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/internal/access"
	"github.com/harpcaller/harp/agent/internal/supervisor"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
)

// CopiedDirError says that an agent's directory is a copy, made since the machine has booted, of
// one in which something had begun that had not ended: that may run, under the agent of that one.
type CopiedDirError struct {
	Dir     string
	Job     string
	Attempt int64
}

func (e *CopiedDirError) Error() string {
	return fmt.Sprintf("agent: %s is a copy of the directory in which attempt %d of job %s was begun, which may run: "+
		"use that one, or boot the machine anew", e.Dir, e.Attempt, e.Job)
}

// Is reports whether target is harp.ErrConflict.
func (e *CopiedDirError) Is(target error) bool { return target == harp.ErrConflict }

// prepareDir makes an agent's directory if there is none. What others have made in it, or
// could change, is refused: it decides what the agent believes to run, and where it writes.
// Errors: *harp.FieldError, and those of the file system.
func prepareDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("agent: directory: %w", err)
	}
	err := checkOwnDir(dir)
	var untrusted *access.UntrustedError
	if errors.As(err, &untrusted) {
		return &harp.FieldError{Field: "dir", Message: untrusted.Error()}
	}
	return err
}

// checkCopied returns a *CopiedDirError if something that may run was begun in this boot by the agent
// of another directory, of which this one is a copy then: it would be taken for dead here, and ended. What cannot be
// read now is looked at again when it can be, before anything is done to it.
func (a *Agent) checkCopied(left []supervisor.Key) error {
	for _, h := range a.journal.current().Held() {
		if h.State != journal.Started && h.State != journal.Stopping {
			continue
		}
		if a.isOfAnotherDir(h.Info) {
			return &CopiedDirError{a.cfg.Dir, h.Job, h.Attempt}
		}
	}
	for _, k := range left {
		if info, err := supervisor.Info(a.supervision(), k); err == nil && a.isOfAnotherDir(info) {
			return &CopiedDirError{a.cfg.Dir, k.Job, k.Attempt}
		}
	}
	return nil
}

// isOfAnotherDir reports whether what is noted of an attempt says that it was begun by the agent of
// another directory. What was before the machine has booted is over, whosever it was.
func (a *Agent) isOfAnotherDir(noted []byte) bool {
	var info journalInfo
	_ = wire.Decode(noted, &info) // what cannot be read says nothing
	return info.Dir != 0 && info.Dir != a.dirNumber && info.Boot == bootID()
}

// checkOwnDir looks at the directory, the way to it, and what the agent keeps there.
func checkOwnDir(dir string) error {
	if err := access.CheckPath(dir); err != nil {
		return err
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	if err := access.CheckOwn(dir); err != nil {
		return err
	}
	if err := access.CheckOwn(filepath.Join(dir, "lock")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, name := range []string{"journal", repairedName, "run"} {
		if err := checkOwnFiles(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// checkOwnFiles looks at a directory and what is in it, if there is one.
func checkOwnFiles(dir string) error {
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = access.CheckOwn(dir)
	}
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return &access.UntrustedError{Path: dir, Message: "must be a directory"}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		err := access.CheckOwn(filepath.Join(dir, e.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a supervisor may remove its own meanwhile
			return err
		}
	}
	return nil
}
