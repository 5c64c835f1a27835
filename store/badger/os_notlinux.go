//go:build !linux

package badger

import (
	"errors"
	"os"
)

// descriptors is not known.
func descriptors() (left int, known bool) { return 0, false }

// allocate cannot be done.
func allocate(*os.File, int64, int64) error { return errors.ErrUnsupported }
