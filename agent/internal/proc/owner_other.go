//go:build !unix

package proc

import "errors"

// Owner is for Unix only: the error is errors.ErrUnsupported.
func (Spec) Owner() (Owner, error) { return Owner{}, errors.ErrUnsupported }

// Self is for Unix only.
func Self() (Identity, error) { return Identity{}, errors.ErrUnsupported }

// IdentityOf is for Unix only.
func IdentityOf(int) Identity { return Identity{} }

// CheckFiles is for Unix only.
func CheckFiles() error { return nil }

// CloseOnExec does nothing here.
func CloseOnExec() {}
