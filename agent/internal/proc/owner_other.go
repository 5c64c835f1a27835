//go:build !unix

package proc

import "errors"

// Owner is for Unix only: the error is errors.ErrUnsupported.
func (Spec) Owner() (Owner, error) { return Owner{}, errors.ErrUnsupported }

// Self is for Unix only.
func Self() Identity { return Identity{} }

// IdentityOf is for Unix only.
func IdentityOf(int) Identity { return Identity{} }

// CloseOnExec does nothing here.
func CloseOnExec() {}
