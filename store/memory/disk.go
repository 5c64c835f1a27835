package memory

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/tidwall/btree"

	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/internal/rows"
)

// ErrCrashed is what a store's commits fail with once its disk has been crashed or
// opened by another store.
var ErrCrashed = errors.New("store/memory: the disk was taken away")

// ErrNotEmpty is what Restore returns for a disk that holds a store.
var ErrNotEmpty = errors.New("store/memory: there is a store on the disk")

// Disk is what outlives a store in memory: what has been committed. A store that
// was closed, or crashed, is opened on it again with the same id and content:
//
//	d := memory.NewDisk()
//	st := memory.OpenDisk(d, nil)
//	d.Crash()
//	st = memory.OpenDisk(d, nil)
//
// It is for tests. All methods are safe for concurrent use.
type Disk struct {
	mu    sync.Mutex
	tree  *btree.BTreeG[rows.Item] // guarded by mu
	owner *engine                  // guarded by mu: who may write
	space store.Space              // guarded by mu
	fail  error                    // guarded by mu
}

// NewDisk returns an empty disk with plenty of space.
func NewDisk() *Disk {
	less := func(a, b rows.Item) bool { return bytes.Compare(a.Key, b.Key) < 0 }
	return &Disk{
		tree:  btree.NewBTreeGOptions(less, btree.Options{NoLocks: true}),
		space: store.SpacePlenty,
	}
}

// OpenDisk opens the store on a disk, a new one on an empty disk. A store that has it
// open loses it, as by Crash; it must be closed all the same.
func OpenDisk(d *Disk, opts *Options) store.Store { return open(d.engine(), opts) }

// Restore fills an empty disk with what a store's Backup wrote, as a store with a new
// id whose jobs that had not ended are lost(restored) at this time. With an error the
// disk is as empty as it was. Errors: of what is no complete backup.
func Restore(d *Disk, r io.Reader, at time.Time, opts *Options) (store.Restored, error) {
	if opts == nil {
		opts = &Options{}
	}
	scratch := NewDisk()
	did, err := rows.Restore(scratch.engine(), r, at, rows.Options{MaxStored: opts.MaxStored, Logger: opts.Logger})
	if err != nil {
		return did, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tree.Len() > 0 {
		return store.Restored{}, ErrNotEmpty
	}
	d.tree = scratch.tree
	return did, nil
}

// Crash takes the disk away from the store that has it open, as the end of its
// process would: each of its further commits fails with ErrCrashed and leaves
// nothing. What it has committed stays.
func (d *Disk) Crash() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.owner = nil
}

// SetSpace says how much room there is from now on.
func (d *Disk) SetSpace(s store.Space) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.space = s
}

// FailCommits makes every commit fail with err from now on, leaving nothing; with
// nil no more. A store whose commit has failed is poisoned.
func (d *Disk) FailCommits(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = err
}

// engine takes the disk for a new owner.
func (d *Disk) engine() *engine {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.owner = &engine{disk: d}
	return d.owner
}
