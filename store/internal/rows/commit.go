package rows

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// An op is an operation on its way through the committer.
type op struct {
	run   func(t *tx) error
	needs Space
	err   error
	done  chan error // takes one
}

// tx is the state an operation works on: what is committed, with what the group
// has written so far over it.
type tx struct {
	snap   Snapshot
	space  Space
	writes []Write
	index  map[string]int // of writes, by key
	pieces map[string]int // how many further pieces a value that was read has
	size   int            // bytes of writes
	recent *recent
	jobs   map[id]*store.Job // as the group has made or met them; nil: not at hand
	wrote  bool              // whether the operation under way has written

	operator harp.Principal // who asked for the event under way, if that was not a cancel
	feed     *feed
	kept     kept
	pruned   bool // whether the group has a Prune in it
}

// get returns what is stored under key, nil if nothing. Errors: ErrDamaged, the
// engine's.
func (t *tx) get(key []byte) ([]byte, error) {
	payload, more, err := load(key, t.raw)
	if more > 0 {
		t.pieces[string(key)] = more
	}
	return payload, err
}

func (t *tx) raw(key []byte) ([]byte, error) {
	if i, ok := t.index[string(key)]; ok {
		return t.writes[i].Value, nil
	}
	value, err := t.snap.Get(key)
	t.kept.met(key, len(value))
	return value, err
}

// load reads a value with all its pieces, nil if there is none.
func load(key []byte, get func([]byte) ([]byte, error)) (payload []byte, more int, err error) {
	value, err := get(key)
	if err != nil || value == nil {
		return nil, 0, err
	}
	first, err := unseal(key, value)
	if err != nil {
		return nil, 0, err
	}
	return join(key, first, get)
}

// put stores payload under key. What may be there already has been read before.
func (t *tx) put(key, payload []byte) {
	first, more := split(key, payload)
	t.write(key, first)
	for i, piece := range more {
		k := pieceKey(key, i)
		t.write(k, seal(k, piece))
	}
	for i := len(more); i < t.pieces[string(key)]; i++ {
		t.write(pieceKey(key, i), nil)
	}
	delete(t.pieces, string(key))
	if len(more) > 0 {
		t.pieces[string(key)] = len(more)
	}
}

// remove deletes what lies under key with all its pieces. It has been read before.
func (t *tx) remove(key []byte) {
	t.write(key, nil)
	for i := range t.pieces[string(key)] {
		t.write(pieceKey(key, i), nil)
	}
	delete(t.pieces, string(key))
}

func (t *tx) write(key, value []byte) {
	t.wrote = true
	t.kept.note(key, len(value))
	if i, ok := t.index[string(key)]; ok {
		t.size += len(value) - len(t.writes[i].Value)
		t.writes[i].Value = value
		return
	}
	t.index[string(key)] = len(t.writes)
	t.add(key, value)
}

// add writes under a key that no operation reads: an entry of an index, an event.
func (t *tx) add(key, value []byte) {
	t.wrote = true
	t.writes = append(t.writes, Write{key, value})
	t.size += len(key) + len(value) + WriteCost
}

// do runs an operation in the committer and returns when what it wrote is on disk.
// ctx counts until the operation is taken; then its outcome is near. Errors: the
// operation's, harp.ErrNoSpace, harp.ErrClosed, store.ErrPoisoned, ctx's.
func (s *Store) do(ctx context.Context, needs Space, run func(t *tx) error) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	o := &op{run: run, needs: needs, done: make(chan error, 1)}
	select {
	case s.ops <- o:
		return <-o.done
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.closing:
		return harp.ErrClosed
	}
}

// commitLoop runs what arrives, group by group.
func (s *Store) commitLoop() {
	for {
		select {
		case o := <-s.ops:
			s.commitGroup(o)
		case <-s.closing:
			return
		}
	}
}

// commitGroup runs one operation and those that wait behind it, commits what they
// wrote and answers them, those too that were refused: what they were refused for
// may have been written by the same group.
func (s *Store) commitGroup(o *op) {
	snap, err := s.begin()
	if err != nil {
		o.done <- err
		return
	}
	t := &tx{
		snap: snap, space: s.engine.Space(), index: map[string]int{}, pieces: map[string]int{}, feed: &s.feed,
		recent: &s.recent, jobs: map[id]*store.Job{},
	}
	var group []*op
	for o != nil {
		o.err = s.runOp(t, o)
		group = append(group, o)
		o = s.next(t)
	}
	snap.Close()
	if len(t.writes) > 0 && s.poisoned() == nil {
		s.commit(t)
	}
	for _, o := range group {
		if err := s.poisoned(); err != nil {
			o.err = err
		}
		o.done <- o.err
	}
}

// commit puts on disk what a group has written.
func (s *Store) commit(t *tx) {
	s.stored.Add(t.kept.grown)
	if t.kept.grown != 0 {
		t.putNumber(keyStored, uint64(s.stored.Load()))
	}
	s.recent.changes(t.jobs)
	if err := s.engine.Commit(t.writes); err != nil {
		s.poison(err)
		return
	}
	s.recent.add(t.jobs)
	s.feed.announce(s.feed.number)
}

// putNumber stores a number of eight bytes.
func (t *tx) putNumber(key []byte, n uint64) {
	first, _ := split(key, binary.BigEndian.AppendUint64(nil, n))
	t.write(key, first)
}

// begin opens the view that a group starts from.
func (s *Store) begin() (Snapshot, error) {
	if err := s.poisoned(); err != nil {
		return nil, err
	}
	return s.engine.View()
}

// next takes one more operation of the group, if one waits and there is room.
func (s *Store) next(t *tx) *op {
	if t.size >= maxGroup || s.poisoned() != nil {
		return nil
	}
	select {
	case o := <-s.ops:
		return o
	default:
		return nil
	}
}

// runOp runs an operation. One that fails after it has written leaves half of
// itself in the group: nothing may be committed any more.
func (s *Store) runOp(t *tx, o *op) error {
	if t.space < o.needs {
		return noSpace()
	}
	t.wrote = false
	s.mu.Lock()
	err := o.run(t)
	s.mu.Unlock()
	if err != nil && t.wrote {
		s.poison(err)
	}
	return err
}

func noSpace() error {
	return harp.NewFailure("no_space", "the dispatcher's disk is almost full").Err()
}

// poison makes the store refuse everything from now on, if err is one.
func (s *Store) poison(err error) {
	if err != nil {
		err = fmt.Errorf("%w: %w", store.ErrPoisoned, err)
		s.broken.CompareAndSwap(nil, &err)
	}
}

// poisoned returns ErrPoisoned once a commit has failed.
func (s *Store) poisoned() error {
	if err := s.broken.Load(); err != nil {
		return *err
	}
	return nil
}
