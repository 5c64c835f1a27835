// Package limit is what a person can build by hand for one kind of work: a committer
// that merges what many want written into one transaction of Badger, and streams of
// yamux that are kept and written together. It promises much less than harp and
// shows what the machine can do.
package limit

import (
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4"
)

// committer writes what is put, many at a time.
type committer struct {
	db   *badger.DB
	puts chan put
	done sync.WaitGroup
	last atomic.Uint64 // number of the last key
}

type put struct {
	key, value []byte
	done       chan error
}

// most is how many writes become one transaction.
const most = 4096

func openCommitter(dir string) (*committer, error) {
	o := badger.DefaultOptions(dir).WithLogger(nil).WithSyncWrites(true).
		WithMemTableSize(32 << 20).WithValueThreshold(1 << 10).WithDetectConflicts(false)
	db, err := badger.Open(o)
	if err != nil {
		return nil, err
	}
	c := &committer{db: db, puts: make(chan put, most)}
	c.done.Go(c.loop)
	return c, nil
}

// put stores a value under a new key and returns when it is on the disk.
func (c *committer) put(kind byte, value []byte) error {
	p := c.entry(kind, value, make(chan error, 1))
	c.puts <- p
	return <-p.done
}

func (c *committer) entry(kind byte, value []byte, done chan error) put {
	return put{binary.BigEndian.AppendUint64([]byte{kind}, c.last.Add(1)), value, done}
}

func (c *committer) loop() {
	for p := range c.puts {
		group := []put{p}
		for len(group) < most && len(c.puts) > 0 {
			group = append(group, <-c.puts)
		}
		err := c.commit(group)
		for _, p := range group {
			p.done <- err
		}
	}
}

func (c *committer) commit(group []put) error {
	txn := c.db.NewTransaction(true)
	for _, p := range group {
		err := txn.Set(p.key, p.value)
		if errors.Is(err, badger.ErrTxnTooBig) {
			if err = txn.Commit(); err != nil {
				return err
			}
			txn = c.db.NewTransaction(true)
			err = txn.Set(p.key, p.value)
		}
		if err != nil {
			txn.Discard()
			return err
		}
	}
	return txn.Commit()
}

// Close waits for what was put.
func (c *committer) Close() error {
	close(c.puts)
	c.done.Wait()
	return c.db.Close()
}
