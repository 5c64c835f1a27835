package badger

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/harpcaller/harp/internal/synced"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/internal/rows"
)

// ErrNotEmpty is what Restore returns for a directory that has something in it.
var ErrNotEmpty = errors.New("store/badger: the directory is not empty")

// unfinished is the file that marks a directory while a backup is restored into it.
// It goes last: what a crash leaves behind is not opened.
const unfinished = "RESTORING"

// Restore makes a store in a directory, which is made or must be empty, of what a
// store's Backup wrote: with a new id, and every job that had not ended as
// lost(restored), for it may have run since the backup. With an error the directory is
// empty again; after a crash Open refuses it. Errors: ErrNotEmpty, harp.ErrNoSpace,
// and of what is no complete backup.
func Restore(dir string, r io.Reader, opts *Options) (store.Restored, error) {
	return restoreAt(dir, r, time.Now(), opts)
}

func restoreAt(dir string, r io.Reader, at time.Time, opts *Options) (store.Restored, error) {
	o := opts.filled()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return store.Restored{}, err
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		return store.Restored{}, errors.Join(err, fmt.Errorf("%w: %s", ErrNotEmpty, dir))
	}
	mark := filepath.Join(dir, unfinished)
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		return store.Restored{}, err
	}
	did, err := restore(dir, r, at, o)
	if err != nil {
		return did, errors.Join(err, empty(dir))
	}
	if err := os.Remove(mark); err != nil {
		return did, err
	}
	return did, synced.Dir(dir)
}

// restore fills a directory that is marked.
func restore(dir string, r io.Reader, at time.Time, o Options) (store.Restored, error) {
	if err := synced.Dir(dir); err != nil {
		return store.Restored{}, err
	}
	e, err := openEngine(dir, o)
	if err != nil {
		return store.Restored{}, err
	}
	return rows.Restore(e, r, at, o.rows())
}

// empty removes what is in a directory, the mark last.
func empty(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if f.Name() != unfinished {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, f.Name())))
		}
	}
	if err != nil {
		return err
	}
	return os.Remove(filepath.Join(dir, unfinished))
}
