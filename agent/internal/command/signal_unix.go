//go:build unix

package command

import (
	"golang.org/x/sys/unix"
)

// signalNumber is the number of a signal such as SIGTERM; 0 if there is none.
func signalNumber(name string) int { return int(unix.SignalNum(name)) }
