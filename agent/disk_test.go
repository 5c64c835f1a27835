package agent_test

import (
	"errors"
	"io"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/harpcaller/harp/agent/journal"
)

// ailing is a journal's directory that can be made to fail.
type ailing struct {
	journal.FS
	ill    *atomic.Pointer[error] // what its calls return
	blind  *atomic.Pointer[error] // what reading returns
	anyway bool                   // writes are done all the same
}

func newAiling(fs journal.FS) ailing {
	return ailing{FS: fs, ill: new(atomic.Pointer[error]), blind: new(atomic.Pointer[error])}
}

func (a ailing) fail(err error) { a.ill.Store(&err) }

func (a ailing) heal() { a.ill.Store(nil) }

func (a ailing) err() error {
	if err := a.ill.Load(); err != nil {
		return *err
	}
	return nil
}

func (a ailing) Open(name string) (journal.File, error) { return a.open(name, a.FS.Open) }

func (a ailing) Create(name string) (journal.File, error) { return a.open(name, a.FS.Create) }

func (a ailing) open(name string, open func(string) (journal.File, error)) (journal.File, error) {
	if err := a.err(); err != nil {
		return nil, err
	}
	f, err := open(name)
	return ailingFile{f, a}, err
}

// ailingFile is a file of an ailing directory. A disk that is full lets a file be
// cut, and what is there be synced; one that is broken lets nothing.
type ailingFile struct {
	journal.File
	of ailing
}

func (f ailingFile) Write(p []byte) (int, error) {
	err := f.of.err()
	if err == nil || f.of.anyway {
		n, other := f.File.Write(p)
		return n, errors.Join(err, other)
	}
	return 0, err
}

func (f ailingFile) ReadAt(p []byte, at int64) (int, error) {
	if err := f.of.blind.Load(); err != nil {
		return 0, *err
	}
	return f.File.ReadAt(p, at)
}

func (f ailingFile) Truncate(size int64) error {
	if err := f.of.err(); err != nil && !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	return f.File.Truncate(size)
}

// slowDisk is a directory whose files take a while to be synced, or are not.
type slowDisk struct {
	journal.FS
	delay atomic.Int64
	fails atomic.Bool
}

func (d *slowDisk) Open(name string) (journal.File, error) {
	f, err := d.FS.Open(name)
	return slowFile{f, d}, err
}

func (d *slowDisk) Create(name string) (journal.File, error) {
	f, err := d.FS.Create(name)
	return slowFile{f, d}, err
}

type slowFile struct {
	journal.File
	of *slowDisk
}

func (f slowFile) Sync() error {
	time.Sleep(time.Duration(f.of.delay.Load()))
	if f.of.fails.Load() {
		return io.ErrShortWrite
	}
	return f.File.Sync()
}
