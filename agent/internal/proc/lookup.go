//go:build unix

package proc

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

var (
	errNoArgv      = errors.New("there is no argv")
	errNotAbsolute = errors.New("not an absolute path")
	errNotDir      = errors.New("not a directory")
)

// The variables of a command's environment that say of which attempt it is. Processes are
// known by them that have left everything else behind.
const (
	jobVariable     = "HARP_JOB"
	attemptVariable = "HARP_ATTEMPT"
)

// lookup returns the path of the program: argv[0] if that has a slash, from the command's
// directory on if it is relative, else the first of that name in the PATH of its
// environment that can be executed. What is not absolute in that PATH is passed over.
func (s Spec) lookup() (string, error) {
	if len(s.Argv) == 0 || s.Argv[0] == "" {
		return "", &ExecError{stageLookup, errNoArgv}
	}
	name := s.Argv[0]
	if filepath.IsAbs(name) {
		return name, nil
	}
	if strings.Contains(name, "/") {
		return filepath.Join(s.dir(), name), nil
	}
	why := fs.ErrNotExist
	for _, dir := range filepath.SplitList(s.env("PATH")) {
		if !filepath.IsAbs(dir) {
			continue
		}
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		switch {
		case err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0:
			return path, nil
		case err == nil && info.Mode().IsRegular(), errors.Is(err, fs.ErrPermission):
			why = fs.ErrPermission
		case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR):
			why = errors.Unwrap(err) // it may be there, and cannot be looked at
		}
	}
	return "", &ExecError{stageLookup, &fs.PathError{Op: "look up", Path: name, Err: why}}
}

func (s Spec) dir() string {
	if s.Dir == "" {
		return "/"
	}
	return s.Dir
}

// checkDir says why the command cannot run where it should, as far as this process sees.
func (s Spec) checkDir() error {
	info, err := os.Stat(s.dir())
	switch {
	case !filepath.IsAbs(s.dir()):
		err = &fs.PathError{Op: "chdir", Path: s.Dir, Err: errNotAbsolute}
	case err == nil && !info.IsDir():
		err = &fs.PathError{Op: "chdir", Path: s.Dir, Err: errNotDir}
	}
	if err != nil {
		return &ExecError{stageDir, err}
	}
	return nil
}

// env returns a variable of the command's environment: the first of the name, as for
// getenv(3).
func (s Spec) env(name string) string {
	for _, setting := range s.Env {
		if value, ok := strings.CutPrefix(setting, name+"="); ok {
			return value
		}
	}
	return ""
}

// cookie is what tells the command's processes by their environment: the job and the
// attempt that they are of; nil if it is not of one.
func (s Spec) cookie() []string {
	job, attempt := s.env(jobVariable), s.env(attemptVariable)
	if job == "" || attempt == "" {
		return nil
	}
	return []string{jobVariable + "=" + job, attemptVariable + "=" + attempt}
}
