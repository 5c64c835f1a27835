//go:build !unix

package command

import "io/fs"

// trusted cannot tell here who can write a file.
func trusted(fs.FileInfo) error { return nil }
