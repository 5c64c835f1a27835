// Package lab is where things are measured: a directory on a real disk, certificates,
// and processes.
package lab

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// Lab is a directory for everything that a run makes, in the process that measures
// and in those that it starts.
type Lab struct {
	Dir   string
	Quick bool // be content with less

	// Profile is the beginning of the names of files to which processes that are
	// started write where they spent their time; "": they do not.
	Profile string

	ca *authority
}

// New makes a lab in a directory of its own below dir.
func New(dir string) (*Lab, error) {
	path, err := os.MkdirTemp(dir, "harp-bench-")
	if err != nil {
		return nil, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	// Servers that refuse to run as root run as somebody else, who must get in.
	if err := os.Chmod(path, 0o711); err != nil { //nolint:gosec // others may pass, not look
		return nil, err
	}
	ca, err := newAuthority()
	if err != nil {
		return nil, err
	}
	l := &Lab{Dir: path, ca: ca}
	return l, errors.Join(ca.write(l.Path("ca.pem")), l.writeServerFiles())
}

// Open opens the lab of another process.
func Open(dir string) (*Lab, error) {
	l := &Lab{Dir: dir}
	var err error
	l.ca, err = readAuthority(l.Path("ca.pem"))
	return l, err
}

// Path is the path of a file in the lab.
func (l *Lab) Path(name ...string) string {
	return filepath.Join(append([]string{l.Dir}, name...)...)
}

// Fresh makes a directory that nothing is in.
func (l *Lab) Fresh(name string) (string, error) {
	return os.MkdirTemp(l.Dir, strings.ReplaceAll(name, string(filepath.Separator), "-")+"-")
}

// Close removes the lab.
func (l *Lab) Close() error { return os.RemoveAll(l.Dir) }
