package journal

import "sync"

// Failing is an [FS] of which one call fails, of the directory's and the files'
// alike. Closing a file is no call. A write that fails leaves half its bytes.
type Failing struct {
	fs FS

	// Forever lets every call after the one that failed fail too.
	Forever bool
	// Anyway lets a call that fails do its work in full first.
	Anyway bool

	mu    sync.Mutex // guards what follows
	left  int        // calls until the one that fails
	calls int
	err   error
}

// FailAt is fs with its call n, from 1, failing with err.
func FailAt(fs FS, n int, err error) *Failing { return &Failing{fs: fs, left: n, err: err} }

// Calls is how many there were.
func (f *Failing) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// call counts a call and returns its error.
func (f *Failing) call() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	f.left--
	if f.left == 0 || f.left < 0 && f.Forever {
		return f.err
	}
	return nil
}

// do makes a call unless it fails.
func (f *Failing) do(call func() error) error {
	err := f.call()
	if err == nil {
		return call()
	}
	if f.Anyway {
		_ = call()
	}
	return err
}

// List is that of [FS].
func (f *Failing) List() (names []string, err error) {
	err = f.do(func() (err error) { names, err = f.fs.List(); return err })
	return names, err
}

// Open is that of [FS].
func (f *Failing) Open(name string) (File, error) { return f.open(name, f.fs.Open) }

// Create is that of [FS].
func (f *Failing) Create(name string) (File, error) { return f.open(name, f.fs.Create) }

func (f *Failing) open(name string, open func(string) (File, error)) (File, error) {
	var file File
	if err := f.do(func() (err error) { file, err = open(name); return err }); err != nil {
		if file != nil {
			_ = file.Close()
		}
		return nil, err
	}
	return failingFile{f: f, file: file}, nil
}

// Rename is that of [FS].
func (f *Failing) Rename(from, to string) error {
	return f.do(func() error { return f.fs.Rename(from, to) })
}

// Remove is that of [FS].
func (f *Failing) Remove(name string) error {
	return f.do(func() error { return f.fs.Remove(name) })
}

// SyncDir is that of [FS].
func (f *Failing) SyncDir() error { return f.do(f.fs.SyncDir) }

// failingFile is a file of a Failing.
type failingFile struct {
	f    *Failing
	file File
}

func (f failingFile) Write(p []byte) (int, error) {
	err := f.f.call()
	switch {
	case err == nil:
		return f.file.Write(p)
	case f.f.Anyway:
		n, _ := f.file.Write(p)
		return n, err
	}
	n, _ := f.file.Write(p[:len(p)/2])
	return n, err
}

func (f failingFile) ReadAt(p []byte, off int64) (n int, err error) {
	err = f.f.do(func() (err error) { n, err = f.file.ReadAt(p, off); return err })
	return n, err
}

func (f failingFile) Size() (size int64, err error) {
	err = f.f.do(func() (err error) { size, err = f.file.Size(); return err })
	return size, err
}

func (f failingFile) Truncate(size int64) error {
	return f.f.do(func() error { return f.file.Truncate(size) })
}

func (f failingFile) Sync() error  { return f.f.do(f.file.Sync) }
func (f failingFile) Close() error { return f.file.Close() }
