package main

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// dropTyped drops what was typed at a terminal before now.
func dropTyped(r io.Reader) {
	if f, ok := r.(*os.File); ok {
		_ = unix.IoctlSetInt(int(f.Fd()), unix.TCFLSH, unix.TCIFLUSH) // else it is no terminal
	}
}
