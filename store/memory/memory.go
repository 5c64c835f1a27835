// Package memory is a store.Store without a disk: the rules of the others, for
// tests and for callers that keep nothing. What is in it ends with its process.
package memory

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"log/slog"

	"github.com/tidwall/btree"

	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/internal/rows"
)

// Options of a store; the zero value is the default.
type Options struct {
	// MaxStored is how many bytes of records a job stores; what comes after is
	// only counted. 0: 256 MiB.
	MaxStored int64

	// Logger gets what nobody asked for. nil: discarded.
	Logger *slog.Logger
}

// Open returns an empty store.
func Open(opts *Options) store.Store { return OpenDisk(NewDisk(), opts) }

func open(e *engine, opts *Options) store.Store {
	if opts == nil {
		opts = &Options{}
	}
	s, err := rows.Open(e, rows.Options{MaxStored: opts.MaxStored, Logger: opts.Logger})
	if err != nil {
		panic("memory: " + err.Error()) // an engine without a disk does not fail
	}
	return s
}

// engine is a store's hold of a disk: a tree that is copied on write, so that a view
// is a copy of its root.
type engine struct{ disk *Disk }

func (e *engine) View() (rows.Snapshot, error) {
	d := e.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	return &snapshot{d.tree.Copy()}, nil
}

func (e *engine) Commit(writes []rows.Write) error {
	d := e.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.owner != e:
		return ErrCrashed
	case d.fail != nil:
		return d.fail
	}
	if size := sizeOf(writes); size > rows.MaxCommit {
		return fmt.Errorf("store/memory: a commit of %d bytes, at most %d", size, rows.MaxCommit) // a disk would not take it
	}
	for _, w := range writes {
		if w.Value == nil {
			d.tree.Delete(rows.Item{Key: w.Key})
		} else {
			d.tree.Set(rows.Item(w))
		}
	}
	return nil
}

func sizeOf(writes []rows.Write) (size int) {
	for _, w := range writes {
		size += len(w.Key) + len(w.Value) + rows.WriteCost
	}
	return size
}

func (e *engine) Space() store.Space {
	d := e.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.space
}

// Compact implements rows.Engine: what was deleted is gone already.
func (e *engine) Compact(ctx context.Context) error { return context.Cause(ctx) }

// Size implements rows.Engine.
func (e *engine) Size() (int64, error) {
	d := e.disk
	d.mu.Lock()
	tree := d.tree.Copy()
	d.mu.Unlock()
	var size int64
	tree.Scan(func(item rows.Item) bool {
		size += int64(len(item.Key) + len(item.Value))
		return true
	})
	return size, nil
}

func (e *engine) Close() error { return nil }

type snapshot struct{ tree *btree.BTreeG[rows.Item] }

func (s *snapshot) Get(key []byte) ([]byte, error) {
	item, _ := s.tree.Get(rows.Item{Key: key})
	return item.Value, nil
}

func (s *snapshot) Scan(prefix, from []byte, reverse bool) iter.Seq2[rows.Item, error] {
	return func(yield func(rows.Item, error) bool) {
		step := func(item rows.Item) bool {
			return bytes.HasPrefix(item.Key, prefix) && yield(item, nil)
		}
		switch {
		case !reverse && from == nil:
			s.tree.Ascend(rows.Item{Key: prefix}, step)
		case !reverse:
			s.tree.Ascend(rows.Item{Key: from}, step)
		case from != nil:
			s.tree.Descend(rows.Item{Key: from}, step)
		default:
			s.tree.Descend(rows.Item{Key: rows.PrefixEnd(prefix)}, step)
		}
	}
}

func (s *snapshot) Keys(prefix []byte) iter.Seq2[rows.Entry, error] {
	return func(yield func(rows.Entry, error) bool) {
		s.tree.Ascend(rows.Item{Key: prefix}, func(item rows.Item) bool {
			return bytes.HasPrefix(item.Key, prefix) && yield(rows.Entry{Key: item.Key, Size: len(item.Value)}, nil)
		})
	}
}

func (s *snapshot) Close() {}
