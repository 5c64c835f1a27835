package badger

import (
	"fmt"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/harpcaller/harp/store/internal/rows"
)

// engine is a rows.Engine over a badger database.
type engine struct {
	*guard
	db  *badger.DB
	log *logger

	closing chan struct{}
	loops   sync.WaitGroup

	views *views

	mu         sync.Mutex
	isClosed   bool        // guarded by mu
	compacting *compaction // guarded by mu: under way
}

func newEngine(db *badger.DB, g *guard, log *logger) *engine {
	e := &engine{guard: g, db: db, log: log, views: newViews(db), closing: make(chan struct{})}
	e.loops.Go(e.collectLoop)
	e.loops.Go(e.watchLoop)
	return e
}

// View implements rows.Engine.
func (e *engine) View() (rows.Snapshot, error) { return e.views.now(), nil }

// Commit implements rows.Engine. A group is far below what badger takes in one
// transaction.
func (e *engine) Commit(writes []rows.Write) error {
	last := e.views.lastVersion()
	txn := e.db.NewTransactionAt(last, true)
	defer txn.Discard()
	size := 0
	defer func() { e.wrote(size) }()
	for _, w := range writes {
		size += len(w.Key) + len(w.Value)
		if err := set(txn, w); err != nil {
			return fmt.Errorf("write of %d: %w", len(writes), err)
		}
	}
	if err := txn.CommitAt(last+1, nil); err != nil {
		return err
	}
	e.views.committed(last + 1)
	return e.log.failure()
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
