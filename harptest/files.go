package harptest

import (
	"io/fs"
	"sync"

	"github.com/harpcaller/harp/agent/journal"
)

// files are a disk as long as an agent runs on it: when that has crashed it must not
// write where the next one does.
type files struct {
	fs     journal.FS
	slow   *slowness
	faults *diskFaults

	mu   sync.RWMutex // held to read while fs is used
	lost bool
}

// lose takes the disk away; crash is what that does to it.
func (f *files) lose(crash func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost = true
	crash()
}

// onDisk runs do on the disk while there is one and it works.
func (f *files) onDisk(do func(journal.FS) error) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.lost {
		return fs.ErrClosed
	}
	if err := f.faults.touch(); err != nil {
		return err
	}
	return do(f.fs)
}

func (f *files) List() (names []string, err error) {
	err = f.onDisk(func(d journal.FS) error { names, err = d.List(); return err })
	return names, err
}

func (f *files) Open(name string) (file journal.File, err error) {
	err = f.onDisk(func(d journal.FS) error { file, err = d.Open(name); return err })
	return openFile{file, f}, err
}

func (f *files) Create(name string) (file journal.File, err error) {
	if err := f.faults.grow(); err != nil {
		return nil, err
	}
	err = f.onDisk(func(d journal.FS) error { file, err = d.Create(name); return err })
	return openFile{file, f}, err
}

func (f *files) Rename(from, to string) error {
	return f.onDisk(func(d journal.FS) error { return d.Rename(from, to) })
}

func (f *files) Remove(name string) error {
	return f.onDisk(func(d journal.FS) error { return d.Remove(name) })
}

func (f *files) SyncDir() error { return f.onDisk(journal.FS.SyncDir) }

// openFile is a file that takes its time to sync, on a disk that may be in trouble. To
// an agent that crashed meanwhile no sync succeeds: nothing begins after the crash.
type openFile struct {
	journal.File
	disk *files
}

// Write leaves half of what it is given where there is no room.
func (f openFile) Write(p []byte) (int, error) {
	err := f.disk.faults.grow()
	if err == nil {
		return f.File.Write(p)
	}
	n, _ := f.File.Write(p[:len(p)/2])
	return n, err
}

func (f openFile) Truncate(size int64) error {
	if err := f.disk.faults.touch(); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f openFile) Sync() (err error) {
	f.disk.slow.around(func() {
		if err = f.disk.faults.touch(); err == nil {
			err = f.File.Sync()
		}
	})
	if f.disk.isLost() {
		return fs.ErrClosed
	}
	return err
}

func (f *files) isLost() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.lost
}
