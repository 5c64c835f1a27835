package badger

import (
	"context"
	"os"
	"path/filepath"

	"github.com/harpcaller/harp"
)

// compaction is one Compact under way. Badger cannot be asked to end it: who does not
// want to wait any more leaves it to go on, and the engine waits for it.
type compaction struct {
	done chan struct{}
	err  error // set before done is closed
}

// Compact implements rows.Engine. It moves all tables to one level, which is where
// badger drops what was deleted, and then frees files of the value log. What is in
// memory tables, at most 96 MiB, and in the last file of the value log is not reached. One runs at a time: who comes later
// waits for it.
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

func (e *engine) compact() error {
	if err := e.db.Flatten(1); err != nil {
		return err
	}
	e.collect(compactly)
	return nil
}

// Size implements rows.Engine. It counts the blocks that are in use, for badger makes
// its logs sparse and much larger than what is in them; those of the ballast are
// nobody's.
func (e *engine) Size() (int64, error) {
	files, err := os.ReadDir(e.dir)
	if err != nil {
		return 0, err
	}
	var size int64
	for _, f := range files {
		if f.Name() == ballastName {
			continue
		}
		n, err := blocks(filepath.Join(e.dir, f.Name()))
		if err != nil && !os.IsNotExist(err) { // compaction may have removed it
			return 0, err
		}
		size += n
	}
	return size, nil
}
