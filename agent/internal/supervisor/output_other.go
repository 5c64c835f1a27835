//go:build !unix

package supervisor

import (
	"errors"
	"os"
)

// readNow is for Unix only: the error is errors.ErrUnsupported.
func readNow(*os.File, []byte) (n int, err error) { return 0, errors.ErrUnsupported }
