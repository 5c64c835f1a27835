package badger

import (
	"encoding/binary"
	"errors"
	"iter"
	"sync"

	"github.com/dgraph-io/badger/v4"

	"github.com/harpcaller/harp/store/internal/rows"
)

// snapshot is a read-only transaction, of all who ask between two commits: badger has
// who wants another wait for the commit under way. It is kept until the next commit, and
// for the length of the questions that were asked before: badger cleans up nothing that it
// could still see.
type snapshot struct {
	txn     *badger.Txn
	of      *sharedView
	holders int // guarded by of.mu
}

// sharedView is the snapshot of what was committed last.
type sharedView struct {
	db *badger.DB

	mu  sync.Mutex
	now *snapshot // guarded by mu; nil: none was asked for
}

// open returns the snapshot, for one more holder.
func (v *sharedView) open() *snapshot {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.now == nil {
		v.now = v.begin()
	}
	v.now.holders++
	return v.now
}

// begin is held by the view itself.
func (v *sharedView) begin() *snapshot {
	return &snapshot{txn: v.db.NewTransaction(false), of: v, holders: 1}
}

// renew has the view show what was committed since. No commit is under way.
func (v *sharedView) renew() {
	now := v.begin()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.dropLocked()
	v.now = now
}

// drop ends the snapshot, but for those who hold it.
func (v *sharedView) drop() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.dropLocked()
}

func (v *sharedView) dropLocked() {
	if v.now != nil {
		v.now.closeLocked()
		v.now = nil
	}
}

func (s *snapshot) Close() {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.closeLocked()
}

func (s *snapshot) closeLocked() {
	if s.holders--; s.holders == 0 {
		s.txn.Discard()
	}
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
