//go:build !unix

package proc

import "errors"

// Owner is for Unix only: the error is errors.ErrUnsupported.
func (Spec) Owner() (uid, gid int, err error) { return 0, 0, errors.ErrUnsupported }

// Self is for Unix only.
func Self() Identity { return Identity{} }

// CloseOnExec does nothing here.
func CloseOnExec() {}
