package badger

import (
	"encoding/binary"
	"errors"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4"

	"github.com/harpcaller/harp/store/internal/rows"
)

// snapshot is a read-only transaction, of all who ask between two commits.
type snapshot struct {
	txn     *badger.Txn
	version uint64
	of      *views
	holders int // guarded by of.mu
}

// views gives out snapshots of what was committed last, without waiting for the commit
// under way, as badger's own would: the versions of transactions are given here. Badger
// keeps what the oldest of them could still see.
type views struct {
	db      *badger.DB
	discard *atomic.Uint64 // the version up to which badger cleans up

	mu      sync.Mutex
	version uint64      // guarded by mu: of the last commit
	open    []*snapshot // guarded by mu: the newest last
}

func newViews(db *badger.DB, discard *atomic.Uint64) *views {
	v := &views{db: db, discard: discard, version: db.MaxVersion()}
	v.forgetLocked()
	return v
}

// now returns the snapshot of the last commit, for one more holder.
func (v *views) now() *snapshot {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := len(v.open)
	if n == 0 || v.open[n-1].version < v.version {
		s := &snapshot{txn: v.db.NewTransactionAt(v.version, false), version: v.version, of: v}
		v.open = append(v.open, s)
		n++
	}
	s := v.open[n-1]
	s.holders++
	return s
}

func (v *views) lastVersion() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.version
}

// committed has snapshots show one more commit from now on.
func (v *views) committed(version uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.version = version
	v.forgetLocked()
}

// forgetLocked lets badger clean up what nobody can see.
func (v *views) forgetLocked() {
	oldest := v.version
	if len(v.open) > 0 {
		oldest = v.open[0].version
	}
	v.discard.Store(oldest)
	v.db.SetDiscardTs(oldest)
}

func (s *snapshot) Close() {
	v := s.of
	v.mu.Lock()
	defer v.mu.Unlock()
	if s.holders--; s.holders > 0 {
		return
	}
	s.txn.Discard()
	v.open = slices.DeleteFunc(v.open, func(o *snapshot) bool { return o == s })
	v.forgetLocked()
}

func (s *snapshot) Get(key []byte) ([]byte, error) { return s.get(key, nil) }

// get returns the value of a key, in a buffer that it may use; nil if there is none.
//
// Collecting the value log removes a file once its values lie elsewhere, without
// minding who has looked up where they were. Badger tells of such a value that it is
// empty, which none of rows' is: it is looked up again. One that is lost is empty
// every time, and rows finds it damaged.
func (s *snapshot) get(key, buf []byte) ([]byte, error) {
	const tries = 3
	for range tries {
		item, err := s.txn.Get(key)
		if errors.Is(err, badger.ErrKeyNotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if buf, err = item.ValueCopy(buf); err != nil || len(buf) > 0 {
			return buf, err
		}
	}
	return buf, nil
}

func (s *snapshot) Scan(prefix, from []byte, reverse bool) iter.Seq2[rows.Item, error] {
	return func(yield func(rows.Item, error) bool) {
		it := s.txn.NewIterator(badger.IteratorOptions{Prefix: prefix, Reverse: reverse})
		defer it.Close()
		switch {
		case from != nil:
		case reverse:
			from = rows.PrefixEnd(prefix) // badger would begin before the prefix
		default:
			from = prefix
		}
		var value []byte
		for it.Seek(from); it.ValidForPrefix(prefix); it.Next() {
			item := it.Item()
			var err error
			value, err = item.ValueCopy(value)
			if err == nil && len(value) == 0 {
				value, err = s.get(item.Key(), value)
			}
			if !yield(rows.Item{Key: item.Key(), Value: value}, err) || err != nil {
				return
			}
		}
	}
}

// Keys implements rows.Snapshot.
func (s *snapshot) Keys(prefix []byte) iter.Seq2[rows.Entry, error] {
	return func(yield func(rows.Entry, error) bool) {
		it := s.txn.NewIterator(badger.IteratorOptions{Prefix: prefix})
		defer it.Close()
		for it.Seek(prefix); it.ValidForPrefix(prefix); it.Next() {
			item := it.Item()
			if !yield(rows.Entry{Key: item.Key(), Size: valueSize(item)}, nil) {
				return
			}
		}
	}
}

// valueSize is how long a value is. Of one in the value log badger knows how long the
// entry is, and takes the header for as long as it usually is.
func valueSize(item *badger.Item) int {
	size := item.ValueSize()
	if item.EstimatedSize() == item.KeySize()+size {
		return int(size) // in a table
	}
	const (
		usual   = 6 // bytes of a header
		fixed   = 3 // of the header, beside the lengths: two of flags, no expiry
		version = 8 // bytes behind the key
	)
	rest := size + usual - fixed - varintLen(item.KeySize()+version) // the value and its length
	for n := int64(1); ; n++ {
		if varintLen(rest-n) <= n {
			return int(rest - n)
		}
	}
}

func varintLen(n int64) int64 {
	var buf [binary.MaxVarintLen64]byte
	return int64(binary.PutUvarint(buf[:], uint64(n)))
}
