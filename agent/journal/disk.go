package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/harpcaller/harp/internal/synced"
)

// Disk is a directory on disk. It is made, for its owner only, when the first file
// in it is.
func Disk(dir string) FS { return disk{dir} }

// DiskToRead is Disk, of which the files are opened to be read: also where nothing can be written any more.
func DiskToRead(dir string) FS { return diskToRead{disk{dir}} }

type diskToRead struct{ disk }

func (d diskToRead) Open(name string) (File, error) { return d.open(name, os.O_RDONLY) }

type disk struct{ dir string }

func (d disk) path(name string) string { return filepath.Join(d.dir, name) }

func (d disk) List() ([]string, error) {
	entries, err := os.ReadDir(d.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func (d disk) Open(name string) (File, error) {
	return d.open(name, os.O_RDWR|os.O_APPEND)
}

func (d disk) Create(name string) (File, error) {
	if err := d.makeDir(); err != nil {
		return nil, err
	}
	return d.open(name, os.O_RDWR|os.O_APPEND|os.O_CREATE|os.O_TRUNC)
}

func (d disk) open(name string, flag int) (File, error) {
	f, err := os.OpenFile(d.path(name), flag, 0o600)
	if err != nil {
		return nil, err
	}
	return diskFile{f, d.dir}, nil
}

// makeDir makes the directory, and its name durable.
func (d disk) makeDir() error {
	if _, err := os.Stat(d.dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return err
	}
	return synced.Dir(filepath.Dir(d.dir))
}

func (d disk) Rename(from, to string) error { return os.Rename(d.path(from), d.path(to)) }
func (d disk) Remove(name string) error     { return os.Remove(d.path(name)) }
func (d disk) SyncDir() error               { return synced.Dir(d.dir) }

// diskFile is a file on disk, opened to append.
type diskFile struct {
	*os.File
	dir string
}

// Sync implements File.
func (f diskFile) Sync() error {
	if err := f.File.Sync(); err != nil {
		return err
	}
	return synced.Confirm(f.File)
}

func (f diskFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
