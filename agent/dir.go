package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/internal/access"
)

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
