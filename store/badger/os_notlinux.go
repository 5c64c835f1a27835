//go:build !linux

package badger

import (
	"errors"
	"os"
)

// allocate cannot be done.
func allocate(*os.File, int64, int64) error { return errors.ErrUnsupported }
