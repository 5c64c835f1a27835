//go:build !linux

package supervisor

import (
	"errors"
	"os"
	"time"
)

// allocate takes the room for a file of so many bytes and makes it that long.
func allocate(f *os.File, size int64) error { return writeZeros(f, size) }

// punch is only on Linux.
func punch(*os.File, int64, int64) error { return errors.ErrUnsupported }

// lock is only on Linux, as supervisors are.
func lock(*os.File) error { return nil }

// sweepSecrets is only on Linux.
func sweepSecrets(string, time.Duration) {}
