//go:build !unix

package main

import (
	"io"
	"os"
)

// isTerminal reports whether w is a terminal, as far as can be told.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// terminalSize is how many columns and lines a terminal has; 0 where that is not known.
func terminalSize(io.Writer) (columns, lines int) { return 0, 0 }
