// Package memory is a store.Store without a disk: the rules of the others, for
// tests and for callers that keep nothing. What is in it ends with its process.
package memory

import (
	"bytes"
	"iter"
	"log/slog"
	"sync"

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
func Open(opts *Options) store.Store { return open(newEngine(), opts) }

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

// engine is a tree that is copied on write, so that a view is a copy of its root.
type engine struct {
	mu   sync.Mutex
	tree *btree.BTreeG[rows.Item] // guarded by mu
}

func newEngine() *engine {
	less := func(a, b rows.Item) bool { return bytes.Compare(a.Key, b.Key) < 0 }
	return &engine{tree: btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})}
}

func (e *engine) View() (rows.Snapshot, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return &snapshot{e.tree.Copy()}, nil
}

func (e *engine) Commit(writes []rows.Write) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, w := range writes {
		if w.Value == nil {
			e.tree.Delete(rows.Item{Key: w.Key})
		} else {
			e.tree.Set(rows.Item(w))
		}
	}
	return nil
}

func (e *engine) Space() rows.Space { return rows.SpacePlenty }

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

func (s *snapshot) Close() {}
