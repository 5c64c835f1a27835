//go:build !linux

package badger

import (
	"errors"
	"os"
)

// allocate cannot be done: the file is written.
func allocate(*os.File, int64) error { return errors.ErrUnsupported }
