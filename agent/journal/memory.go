package journal

import (
	"bytes"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
)

// Memory is an [FS] that forgets what was not synced when it is crashed.
type Memory struct {
	mu     sync.Mutex // guards what follows, and every inode
	names  map[string]*inode
	synced map[string]*inode // names as of the last SyncDir
	crash  int               // files opened before the last crash are dead

	changes []func(names map[string]*inode) // of names since the last SyncDir
}

// inode is a file's content.
type inode struct {
	data   []byte
	synced []byte // as of the last Sync
}

// NewMemory is an empty one.
func NewMemory() *Memory {
	return &Memory{names: map[string]*inode{}, synced: map[string]*inode{}}
}

// Crash forgets what was not synced. Files that are open are dead.
func (m *Memory) Crash() { m.crashed(func(n *inode) []byte { return n.synced }) }

// Tear is a crash of which r decides how much of what was written and not synced
// is there afterwards: each sector or not, in any order. In place of one that is not
// there are zeros, or what lay on the disk before. Of the names that were made or
// removed since the last SyncDir, too, each change may have happened or not.
func (m *Memory) Tear(r *rand.Rand) {
	m.mu.Lock()
	for _, change := range m.changes {
		if r.IntN(2) == 0 {
			change(m.synced)
		}
	}
	m.mu.Unlock()
	m.crashed(func(n *inode) []byte { return n.torn(r) })
}

// torn is what the file may be after a crash.
func (n *inode) torn(r *rand.Rand) []byte {
	from, to := len(n.synced), len(n.data)
	size := []int{from, min(from, to) + r.IntN(max(from, to)-min(from, to)+1), to}[r.IntN(3)]
	left := make([]byte, size)
	stale := r.IntN(2) == 0
	written := r.IntN(4) // of three sectors, about
	for at := 0; at < size; at += sector {
		end := min(at+sector, size)
		if stale && at >= from {
			for i := at; i < end; i++ {
				left[i] = byte(r.IntN(256))
			}
		}
		if at < from {
			copy(left[at:end], n.synced[at:])
		}
		if at < to && r.IntN(3) < written {
			copy(left[at:end], n.data[at:])
		}
	}
	return left
}

func (m *Memory) crashed(left func(*inode) []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.crash++
	m.names, m.changes = maps.Clone(m.synced), nil
	for _, n := range m.names {
		n.data = bytes.Clone(left(n))
		n.synced = bytes.Clone(n.data)
	}
}

// Bytes returns what a file holds; nil if there is none.
func (m *Memory) Bytes(name string) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.names[name]; n != nil {
		return bytes.Clone(n.data)
	}
	return nil
}

// Put makes a file of that content, synced.
func (m *Memory) Put(name string, data []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := &inode{data: bytes.Clone(data), synced: bytes.Clone(data)}
	m.names[name], m.synced[name] = n, n
}

// Mount is m as one process has it: dead once m was crashed, as that process would
// be.
func (m *Memory) Mount() FS {
	m.mu.Lock()
	defer m.mu.Unlock()
	return mount{m: m, crash: m.crash}
}

// now is m whatever happened to it.
func (m *Memory) now() mount { return mount{m: m, crash: always} }

// always is the crash that never comes.
const always = -1

// List is that of [FS].
func (m *Memory) List() ([]string, error) { return m.now().List() }

// Open is that of [FS].
func (m *Memory) Open(name string) (File, error) { return m.now().Open(name) }

// Create is that of [FS].
func (m *Memory) Create(name string) (File, error) { return m.now().Create(name) }

// Rename is that of [FS].
func (m *Memory) Rename(from, to string) error { return m.now().Rename(from, to) }

// Remove is that of [FS].
func (m *Memory) Remove(name string) error { return m.now().Remove(name) }

// SyncDir is that of [FS].
func (m *Memory) SyncDir() error { return m.now().SyncDir() }

// mount is a Memory until it is crashed.
type mount struct {
	m     *Memory
	crash int
}

// use runs do unless the mount is dead.
func (d mount) use(do func(*Memory) error) error {
	d.m.mu.Lock()
	defer d.m.mu.Unlock()
	if d.crash != always && d.crash != d.m.crash {
		return fs.ErrClosed
	}
	return do(d.m)
}

func (d mount) List() (names []string, err error) {
	err = d.use(func(m *Memory) error {
		names = slices.Sorted(maps.Keys(m.names))
		return nil
	})
	return names, err
}

func (d mount) Open(name string) (f File, err error) {
	err = d.use(func(m *Memory) error {
		n := m.names[name]
		if n == nil {
			return &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		f = &memoryFile{m: m, n: n, crash: m.crash}
		return nil
	})
	return f, err
}

func (d mount) Create(name string) (f File, err error) {
	err = d.use(func(m *Memory) error {
		n := &inode{}
		m.change(func(names map[string]*inode) { names[name] = n })
		f = &memoryFile{m: m, n: n, crash: m.crash}
		return nil
	})
	return f, err
}

func (d mount) Rename(from, to string) error {
	return d.use(func(m *Memory) error {
		n := m.names[from]
		if n == nil {
			return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
		}
		m.change(func(names map[string]*inode) {
			if names[from] == n {
				delete(names, from)
				names[to] = n
			}
		})
		return nil
	})
}

func (d mount) Remove(name string) error {
	return d.use(func(m *Memory) error {
		if m.names[name] == nil {
			return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
		}
		m.change(func(names map[string]*inode) { delete(names, name) })
		return nil
	})
}

func (d mount) SyncDir() error {
	return d.use(func(m *Memory) error {
		m.synced, m.changes = maps.Clone(m.names), nil
		return nil
	})
}

// change changes the names, durably with the next SyncDir.
func (m *Memory) change(change func(names map[string]*inode)) {
	change(m.names)
	m.changes = append(m.changes, change)
}

// memoryFile is an open file of a Memory.
type memoryFile struct {
	m     *Memory
	n     *inode
	crash int
}

// use runs f on the file's content unless the file is dead.
func (f *memoryFile) use(do func(*inode)) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.crash != f.m.crash {
		return fs.ErrClosed
	}
	do(f.n)
	return nil
}

func (f *memoryFile) Write(p []byte) (int, error) {
	if err := f.use(func(n *inode) { n.data = append(n.data, p...) }); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (f *memoryFile) ReadAt(p []byte, off int64) (n int, err error) {
	err = f.use(func(in *inode) {
		if off < int64(len(in.data)) {
			n = copy(p, in.data[off:])
		}
	})
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

func (f *memoryFile) Size() (size int64, err error) {
	err = f.use(func(n *inode) { size = int64(len(n.data)) })
	return size, err
}

func (f *memoryFile) Truncate(size int64) error {
	return f.use(func(n *inode) {
		if size <= int64(len(n.data)) {
			n.data = slices.Clone(n.data[:size])
		}
	})
}

func (f *memoryFile) Sync() error {
	// What was written is never written over, so the two may share it.
	return f.use(func(n *inode) { n.synced = slices.Clip(n.data) })
}

func (f *memoryFile) Close() error { return nil }
