package rows

import (
	"bytes"
	"crypto/sha256"
	"slices"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// doneRow is what came of an operation that an operator asked for, for those who ask
// again.
type doneRow struct {
	Digest  []byte `msgpack:"digest"` // of what was asked for
	Missing bool   `msgpack:"missing,omitempty"`
	Count   int    `msgpack:"count,omitempty"`
	Through uint64 `msgpack:"no,omitempty"` // a cancel of a queue: of its jobs up to this number
}

// askedRow is what an operation's digest is of.
type askedRow struct {
	By          harp.Principal `msgpack:"by"`
	Queue       []byte         `msgpack:"queue"`
	Cancel      bool           `msgpack:"cancel"`
	Paused      *bool          `msgpack:"paused"`
	Concurrency *int           `msgpack:"conc"`
}

// doOnce runs an operation unless one with its id was run before, and returns what came
// of it then. Errors: harp.ErrInvalid (id), harp.ErrConflict when its id is that of another
// operation, harp.ErrPruned when what came of it may be forgotten, run's.
func (s *Store) doOnce(t *tx, op store.Operation, what askedRow, run func() (doneRow, error)) (done doneRow, err error) {
	if op.ID == "" {
		return run()
	}
	i, ok := parseID(op.ID)
	if !ok {
		return doneRow{}, harp.CheckID(op.ID)
	}
	what.By = op.By
	digest := sha256.Sum256(encode(what))
	key := i.key(prefixDone)
	if again, err := read(t, key, &done); err != nil || again {
		if err == nil && !bytes.Equal(done.Digest, digest[:]) {
			err = harp.NewFailure("conflict", "the id is that of another request").Err()
		}
		return done, err
	}
	if s.isForgotten(i) {
		return done, harp.NewFailure("pruned", "request "+op.ID+" is older than what is remembered").Err()
	}
	if done, err = run(); err != nil {
		return done, err
	}
	done.Digest = digest[:]
	t.put(key, encode(done))
	at := placeOf(s.sched.Steady(nanos(op.Time)), 0)
	entry := slices.Concat(indexKey(byDone), at[:8], i[:])
	t.write(entry, seal(entry, nil))
	return done, nil
}

// pruneOperations forgets those that nobody asks for again.
func (p *pruning) pruneOperations() error {
	over := p.steady - int64(store.TombstoneTime)
	return p.sweep(byDone, func(item Item, at int64) (bool, error) {
		if at > over {
			return true, nil
		}
		i := id(item.Key[len(item.Key)-len(id{}):])
		if !p.forgets(i) {
			return false, nil
		}
		p.write(i.key(prefixDone), nil)
		p.write(bytes.Clone(item.Key), nil)
		return false, nil
	})
}
