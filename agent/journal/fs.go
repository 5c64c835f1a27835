package journal

import (
	"io"
)

// FS is the directory of a journal: flat, owned by one journal at a time. Nothing
// is durable before it was synced: of a file what was written, of the directory
// which names there are.
type FS interface {
	// List names the files.
	List() ([]string, error)
	// Open opens a file that is there, for reading and appending; without it the
	// error is io/fs.ErrNotExist.
	Open(name string) (File, error)
	// Create makes an empty file, in place of one of that name.
	Create(name string) (File, error)
	// Rename gives a file another name, in place of a file of that name.
	Rename(from, to string) error
	// Remove removes a file.
	Remove(name string) error
	// SyncDir makes Create, Rename and Remove durable.
	SyncDir() error
}

// File is an open file of an [FS]. Write appends. A Write that fails may have
// written a part; after a Sync that fails nothing is known of what was not synced.
type File interface {
	io.WriteCloser
	io.ReaderAt
	// Size is how many bytes it has.
	Size() (int64, error)
	// Truncate cuts it to so many bytes; the next Write follows them.
	Truncate(size int64) error
	// Sync makes what was written durable.
	Sync() error
}
