// Package access says whether others could change what this process is about to trust: a
// file that it runs, or a directory that it keeps things in.
package access

// UntrustedError says that somebody could change a file, or what a path leads to.
type UntrustedError struct {
	Path    string // what could be changed: the file, or a directory or a link on the way to it
	Message string // what is wrong with it, and what it must be
}

func (e *UntrustedError) Error() string { return e.Path + " " + e.Message }
