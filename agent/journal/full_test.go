package journal

import (
	"sync/atomic"
	"syscall"
)

// fullDisk is an FS that takes nothing more as long as it is full.
type fullDisk struct {
	FS
	is    atomic.Bool
	tried atomic.Int64 // writes meanwhile
}

func (d *fullDisk) Open(name string) (File, error) {
	f, err := d.FS.Open(name)
	return fullFile{f, d}, err
}

func (d *fullDisk) Create(name string) (File, error) {
	f, err := d.FS.Create(name)
	return fullFile{f, d}, err
}

type fullFile struct {
	File
	d *fullDisk
}

func (f fullFile) Write(p []byte) (int, error) {
	if f.d.is.Load() {
		f.d.tried.Add(1)
		return 0, syscall.ENOSPC
	}
	return f.File.Write(p)
}
