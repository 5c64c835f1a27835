//go:build !linux && !darwin && !freebsd

package agent

import (
	"context"
	"errors"
	"fmt"
)

// lockDir keeps nobody out here: there is no lock that is gone with its process.
func lockDir(context.Context, string) (unlock func(), err error) { return func() {}, nil }

// lockToRead keeps nobody out either.
func lockToRead(string) (unlock func(), err error) { return func() {}, nil }

// numberOf is 0 here: directories have no numbers.
func numberOf(string) (int64, error) { return 0, nil }

// FindProcess returns the id of the process whose agent uses a directory. It is not known
// here: the error is errors.ErrUnsupported.
func FindProcess(dir string) (pid int, err error) {
	return 0, fmt.Errorf("agent: which process uses %s: %w", dir, errors.ErrUnsupported)
}
