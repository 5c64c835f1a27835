//go:build !linux

package supervisor

import "io/fs"

// version tells a file from what it was before it was written. The zero value is no file.
type version struct {
	size     int64
	modified int64
}

func versionOf(info fs.FileInfo) version { return version{info.Size(), info.ModTime().UnixNano()} }
