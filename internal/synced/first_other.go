//go:build !linux

package synced

import (
	"errors"
	"os"
)

// allocateFirst is only on Linux.
func allocateFirst(*os.File) error { return errors.ErrUnsupported }
