package badger

import (
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/harpcaller/harp/store/internal/rows"
)

// engine is a rows.Engine over a badger database.
type engine struct {
	*guard
	db *badger.DB

	closing chan struct{}
	loops   sync.WaitGroup

	mu         sync.Mutex
	isClosed   bool        // guarded by mu
	compacting *compaction // guarded by mu: under way
}

func newEngine(db *badger.DB, g *guard) *engine {
	e := &engine{guard: g, db: db, closing: make(chan struct{})}
	e.loops.Go(e.collectLoop)
	e.loops.Go(e.watchLoop)
	return e
}

// View implements rows.Engine.
func (e *engine) View() (rows.Snapshot, error) {
	return &snapshot{e.db.NewTransaction(false)}, nil
}

// Commit implements rows.Engine. A group is far below what badger takes in one
// transaction.
func (e *engine) Commit(writes []rows.Write) error {
	txn := e.db.NewTransaction(true)
	defer txn.Discard()
	size := 0
	defer func() { e.wrote(size) }()
	for _, w := range writes {
		size += len(w.Key) + len(w.Value)
		if err := set(txn, w); err != nil {
			return fmt.Errorf("write of %d: %w", len(writes), err)
		}
	}
	return txn.Commit()
}

func set(txn *badger.Txn, w rows.Write) error {
	if w.Value == nil {
		return txn.Delete(w.Key)
	}
	return txn.Set(w.Key, w.Value)
}

// Close implements rows.Engine.
func (e *engine) Close() error {
	e.mu.Lock()
	e.isClosed = true
	e.mu.Unlock()
	close(e.closing)
	e.loops.Wait()
	return e.db.Close()
}

// collectEvery is how often the value log is asked for space. It holds next to
// nothing, but its first file may.
const collectEvery = 10 * time.Minute

func (e *engine) collectLoop() {
	tick := time.NewTicker(collectEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			e.collect()
		case <-e.closing:
			return
		}
	}
}

// collect frees files of the value log, one each time, until there is none.
func (e *engine) collect() {
	for e.db.RunValueLogGC(0.5) == nil {
		select {
		case <-e.closing:
			return
		default:
		}
	}
}

// watchEvery is how often the disk is asked when nothing is written: others may fill
// it.
const watchEvery = time.Second

func (e *engine) watchLoop() {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			e.ask()
		case <-e.closing:
			return
		}
	}
}

// snapshot is a read-only transaction. It is kept for the length of one question:
// badger cleans up nothing that it could still see.
type snapshot struct{ txn *badger.Txn }

func (s *snapshot) Close() { s.txn.Discard() }

func (s *snapshot) Get(key []byte) ([]byte, error) {
	item, err := s.txn.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return item.ValueCopy(nil)
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
			if !yield(rows.Entry{Key: item.Key(), Size: int(item.ValueSize())}, nil) {
				return
			}
		}
	}
}

// logger gives badger's lines to slog, one level lower than badger thinks of them:
// its news of tables and levels is no operator's.
type logger struct{ log *slog.Logger }

func (l logger) Errorf(format string, args ...any)   { l.log.Error(line(format, args)) }
func (l logger) Warningf(format string, args ...any) { l.log.Warn(line(format, args)) }
func (l logger) Infof(format string, args ...any)    { l.log.Debug(line(format, args)) }
func (l logger) Debugf(string, ...any)               {}

func line(format string, args []any) string {
	return "badger: " + strings.TrimSpace(fmt.Sprintf(format, args...))
}
