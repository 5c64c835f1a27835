package rows

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
)

// doneRow is what came of an operation that an operator asked for, for those who ask
// again.
type doneRow struct {
	Digest  []byte `msgpack:"digest"` // of what was asked for
	Missing bool   `msgpack:"missing,omitempty"`
	Refused bool   `msgpack:"refused,omitempty"` // a host's removal: the host was not to be removed
	Count   int    `msgpack:"count,omitempty"`
	More    bool   `msgpack:"more,omitempty"` // it was broken off, having done that much
	Through uint64 `msgpack:"no,omitempty"`   // a cancel of a queue: of its jobs up to this number
}

// documentsRow is what the digest of a change of documents is of.
type documentsRow struct {
	By    harp.Principal `msgpack:"by"`
	Asked []byte         `msgpack:"documents"`
}

// removeRow is what the digest of a host's removal is of.
type removeRow struct {
	By   harp.Principal `msgpack:"by"`
	Host string         `msgpack:"host"`
}

// askedRow is what the digest of an operation on a queue is of.
type askedRow struct {
	By          harp.Principal `msgpack:"by"`
	Queue       []byte         `msgpack:"queue"`
	Cancel      bool           `msgpack:"cancel"`
	Paused      *bool          `msgpack:"paused"`
	Concurrency *int           `msgpack:"conc"`
	Reason      string         `msgpack:"reason,omitempty"`
	Until       time.Time      `msgpack:"until,omitempty"`
	Batch       []byte         `msgpack:"batch,omitempty"`
	Change      string         `msgpack:"change,omitempty"`
	Wave        int            `msgpack:"wave,omitempty"`
}

// doOnce runs an operation unless one with its id was run before, to its end, and returns what came
// of it then; one that was broken off goes on, unless it is refused. what is what is asked for, and by whom. Errors: harp.ErrInvalid (id),
// harp.ErrConflict when its id is that of another operation, harp.ErrPruned when what came
// of it may be forgotten, op.Refused, run's.
func (s *Store) doOnce(t *tx, op store.Operation, what any, run func() (doneRow, error)) (done doneRow, err error) {
	if op.ID == "" {
		return run()
	}
	i, ok := parseID(op.ID)
	if !ok || i.isMember() {
		return doneRow{}, harp.CheckID(op.ID)
	}
	digest := sha256.Sum256(encode(what))
	before, again, err := s.readDone(t, i, digest)
	if err != nil || again && !before.More {
		return before, err
	}
	if op.Refused != nil {
		return doneRow{}, op.Refused
	}
	key := i.key(prefixDone)
	if done, err = run(); err != nil {
		return done, err
	}
	done.Count += before.Count
	done.Digest = digest[:]
	t.put(key, encode(done))
	at := placeOf(s.sched.Steady(nanos(op.Time)), 0)
	entry := slices.Concat(indexKey(byDone), at[:8], i[:])
	t.write(entry, seal(entry, nil))
	return done, nil
}

// readDone returns what came of an operation with that id; false if there was none. Errors: as
// doOnce.
func (s *Store) readDone(from getter, i id, digest [sha256.Size]byte) (done doneRow, again bool, err error) {
	again, err = read(from, i.key(prefixDone), &done)
	switch {
	case err != nil:
		return doneRow{}, false, err
	case again && !bytes.Equal(done.Digest, digest[:]):
		return doneRow{}, false, failures.New("conflict", "the id belongs to another request").Err()
	case !again && s.isForgotten(i):
		return doneRow{}, false, failures.New("pruned", "request "+i.String()+" is too old to be remembered").Err()
	}
	return done, again, nil
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
