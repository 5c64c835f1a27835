package badger

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// compaction is one Compact under way. Badger cannot be asked to end it: a caller that does not
// want to wait any more leaves it to go on, and the engine waits for it.
type compaction struct {
	done chan struct{}
	err  error // set before done is closed
}

// Compact implements rows.Engine. It moves all tables to one level, which is where badger
// drops what was deleted, and then frees files of the value log. What is in memory tables
// is reached on small disks, and where much came since, the last file of the value log is not. One runs at a
// time: a call that comes later waits for it.
func (e *engine) Compact(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	c, err := e.compaction()
	if err != nil {
		return err
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// compaction returns the one under way, or begins one. Errors: harp.ErrClosed.
func (e *engine) compaction() (*compaction, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.isClosed:
		return nil, harp.ErrClosed
	case e.compacting != nil:
		return e.compacting, nil
	}
	c := &compaction{done: make(chan struct{})}
	e.compacting = c
	e.loops.Go(func() {
		defer close(c.done)
		c.err = e.compact()
		e.mu.Lock()
		defer e.mu.Unlock()
		e.compacting = nil
	})
	return c, nil
}

// compact does what there is room for. The disk is asked at once how much that has given:
// another may be about to take it, and the ballast is to be whole before.
func (e *engine) compact() error {
	defer e.measure()
	if err := e.flatten(); err != nil {
		return err
	}
	e.collect(compactly)
	return nil
}

// flatten moves all tables to one level, if there is room for that.
func (e *engine) flatten() error {
	e.flattening.Lock()
	defer e.flattening.Unlock()
	if err := e.failure(); err != nil {
		return err
	}
	if !e.hasRoom(e.unwritten()) {
		e.opts.Logger.Warn("there is no room, or there are too few file descriptors or inodes, to compact the store", "dir", e.dir)
		return nil
	}
	if e.driven || e.unflushed.Load() >= e.opts.flushAfter {
		if err := e.flush(); err != nil {
			return err
		}
		e.unflushed.Store(0)
	}
	return e.db.Flatten(1)
}

// flushAfter is how much of the value log may be of values of which badger does not know that they were deleted: that stands in the tables of
// memory, which become full of keys alone, after many times as many bytes of values. Commits wait while they are written.
const flushAfter = 512 << 20

// mark is a key that no row has, for flush.
var mark = []byte("\xffflush")

// flush writes what is in memory tables to tables: on a small disk, or of long values, what was deleted last
// would be too little for long to make badger do that by itself. It has no function for
// that, but does so when it drops a prefix. Reads and commits wait meanwhile. Where that fails
// badger has none, or a released, memory table, or has not synced its log: the store fails.
func (e *engine) flush() error {
	e.commits.Lock()
	defer e.commits.Unlock()
	err := e.log.unless(&e.log.broken, e.dropMark, nil)
	if err != nil {
		e.failed.CompareAndSwap(nil, &err)
	}
	return err
}

// dropMark has badger write its memory tables.
func (e *engine) dropMark() error {
	last := e.views.lastVersion()
	txn := e.db.NewTransactionAt(last, true)
	defer txn.Discard()
	if err := txn.Set(mark, []byte{1}); err != nil {
		return err
	}
	if err := txn.CommitAt(last+1, nil); err != nil {
		return err
	}
	return e.db.DropPrefix(mark)
}

// compactEvery is how often a small disk is looked at.
const compactEvery = 100 * time.Millisecond

// compactLoop has badger compact where it does not by itself: on a small disk, where it
// must wait until there is room.
func (e *engine) compactLoop() {
	tick := time.NewTicker(compactEvery)
	defer tick.Stop()
	for {
		select {
		case <-e.open.Done():
			return
		case <-tick.C:
		}
		tables := e.db.Levels()[0].NumTables
		if tables >= 2 || tables == 1 && e.guard.Space() < store.SpacePlenty {
			e.flattenIfRoom()
		}
	}
}

// flattenIfRoom moves the tables that there are to one level, if there is room for that.
func (e *engine) flattenIfRoom() {
	e.flattening.Lock()
	defer e.flattening.Unlock()
	if e.failure() != nil || !e.hasRoom(e.unwritten()) {
		return
	}
	if err := e.db.Flatten(1); err != nil {
		e.opts.Logger.Warn("compaction", "dir", e.dir, "err", err)
	}
}

// Size implements rows.Engine. It counts the blocks that are in use, for badger makes
// its logs sparse and much larger than what is in them; those of the ballast, and
// those that the logs are given ahead, are nobody's, and those of the manifest count once.
func (e *engine) Size() (int64, error) {
	files, err := os.ReadDir(e.dir)
	if err != nil {
		return 0, err
	}
	var size int64
	for _, f := range files {
		if f.Name() == ballastName || f.Name() == keptName {
			continue
		}
		n, err := blocks(filepath.Join(e.dir, f.Name()))
		if err != nil && !os.IsNotExist(err) { // compaction may have removed it
			return 0, err
		}
		size += n
	}
	return max(0, size-e.unused.Load()), nil
}
