package supervisor

import (
	"errors"
	"fmt"
)

// Conditions of attempts and their supervisors.
var (
	ErrNotFound = errors.New("no such attempt is supervised")
	ErrExists   = errors.New("the attempt is supervised already")
	ErrReplaced = errors.New("another one follows the attempt now")
	ErrLost     = errors.New("the supervisor is gone")    // Attach tells what is left
	ErrRunning  = errors.New("the attempt has not ended") // so it cannot be forgotten
	ErrVersion  = errors.New("the supervisor speaks another version of the protocol")
	ErrClosed   = errors.New("the handle is closed")
	ErrGone     = errors.New("the supervisor is dead, with its command, and what it left cannot be read")
)

// KeptError says that records are not there any more, as they were kept elsewhere.
type KeptError struct{ First int64 } // the first that may be there

func (e *KeptError) Error() string { return errKept.Error() }

// Is reports whether target says the same.
func (e *KeptError) Is(target error) bool { return target == errKept }

// DamagedError says that a spool file is not as it was written.
type DamagedError struct {
	Path   string
	Offset int64
	Err    error
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("%s is damaged at byte %d: %v", e.Path, e.Offset, e.Err)
}

func (e *DamagedError) Unwrap() error { return e.Err }
