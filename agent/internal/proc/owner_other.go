//go:build !unix

package proc

import "errors"

// Owner is for Unix only: the error is errors.ErrUnsupported.
func (Spec) Owner() (uid, gid int, err error) { return 0, 0, errors.ErrUnsupported }

// Self is for Unix only: the error is errors.ErrUnsupported.
func Self() (Identity, error) { return Identity{}, errors.ErrUnsupported }

// CloseOnExec does nothing here.
func CloseOnExec() {}
