//go:build unix

package demo

import (
	"io/fs"
	"syscall"
)

// deviceOf tells file systems apart.
func deviceOf(info fs.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Dev) //nolint:unconvert // other systems have other types
	}
	return 0
}
