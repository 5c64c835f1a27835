package badger

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"

	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/ristretto/v2/z"

	"github.com/harpcaller/harp/store"
)

// checkTables looks for damage in the tables of a directory before badger opens them. Badger
// opens tables in goroutines of its own, in which a panic ends the process. Errors:
// store.ErrDamaged, the system's.
func checkTables(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var names []string
	var size int64
	for _, f := range files {
		if _, is := table.ParseFileID(f.Name()); !is {
			continue
		}
		info, err := f.Info()
		if err != nil {
			return err
		}
		size += info.Size()
		names = append(names, filepath.Join(dir, f.Name()))
	}
	var looks sync.WaitGroup
	errs := make([]error, 3) // as many tables at a time as badger opens: disks are faster so
	for first := range errs {
		looks.Go(func() {
			for i := first; i < len(names) && errs[first] == nil; i += len(errs) {
				errs[first] = checkTable(names[i], size <= maxVerified)
			}
		})
	}
	looks.Wait()
	return cmp.Or(errs...)
}

// checkTable reads what badger reads of a table as it opens it, or verifies all of it.
func checkTable(name string, all bool) error {
	content, err := mapTable(name)
	if err != nil {
		return err
	}
	defer z.Munmap(content) //nolint:errcheck // nothing was written
	id, _ := table.ParseFileID(name)
	if err := checkTableContent(id, content, all); err != nil {
		return fmt.Errorf("store/badger: %w: table %s: %w", store.ErrDamaged, name, err)
	}
	return nil
}

// mapTable maps the file of a table. Errors: store.ErrDamaged of an empty one, the system's.
func mapTable(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() == 0 {
		return nil, fmt.Errorf("store/badger: %w: table %s is empty", store.ErrDamaged, name)
	}
	content, err := z.Mmap(f, false, info.Size())
	if err != nil {
		return nil, &os.PathError{Op: "mmap", Path: name, Err: err}
	}
	return content, nil
}

var errUnreadable = errors.New("its index, or a block, cannot be read")

// checkTableContent is checkTable of what is mapped. Where a length is damaged badger panics, and
// its reason has the whole index in it; where the disk cannot read a page the runtime panics.
func checkTableContent(id uint64, content []byte, all bool) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			err = errUnreadable
		}
	}()
	t, err := table.OpenInMemoryTable(content, id, &table.Options{})
	if err != nil || !all {
		return err
	}
	return t.VerifyChecksum()
}
