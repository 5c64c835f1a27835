package rows

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/internal/schedule"
)

// An op is an operation on its way through the committer.
type op struct {
	run   func(t *tx) error
	needs Space
	ahead bool // goes before those that wait
	scans bool // looks at more than single keys
	err   error
	done  chan error // takes one
}

// tx is the state an operation works on: what is committed, over it what the group
// before has written, which may not be on disk yet, and over that what this group has
// written so far.
type tx struct {
	snap       Snapshot
	view       rereader // what snap is; here as it would get into the heap apart
	before     *tx      // that of the group before; nil: it is on disk
	space      Space
	writes     []Write
	index      map[string]int // of writes, by key
	pieces     map[string]int // how many further pieces a value that was read has
	size       int            // bytes of writes
	sizeBefore int            // size, when the operation under way began
	jobCache   *jobCache
	jobs       map[id]*store.Job // as the group has made or met them; nil: not at hand
	wrote      bool              // whether the operation under way has written

	call    callRow  // what was encoded last; here as it would get into the heap for each
	life    lifeRow  // likewise
	event   eventRow // likewise
	of      id       // that the event is about
	encoded []byte   // the last row, in memory for the next

	operator harp.Principal // who asked for the event under way, if that was not a cancel
	sched    *schedule.Schedule
	damaged  []*schedule.Queue // those whose rows the operation under way could not read
	feed     *feed
	feedRows feedRows       // by the group
	cohorts  map[id]*cohort // of the jobs that have not ended
	changed  map[*cohort]*changedCohort
	filling  *cohort // takes the next new job
	moves    []move
	batches  map[id]*changedBatch
	open     map[id]*batch // that have not ended
	touched  []*batch      // of which the operation under way has ended members, or freed slots
	freed    []freed       // what its events have left to others
	firstOne [1]freed      // where the first of these is
	reached  int           // hosts of batches by the operation under way
	left     []*store.Job  // members that it has ended as their hosts were reached
	over     []string      // batches that it has had reach no more hosts
	ended    []ended
	classes  map[uint32]*store.RetentionClass // as the group has made them; nil: gone
	usage    usage
}

// get returns what is stored under key, nil if nothing. Errors: ErrDamaged, the
// engine's.
func (t *tx) get(key []byte) ([]byte, error) {
	payload, more, err := loadValue(key, t.getRaw)
	if more > 0 {
		t.pieces[string(key)] = more
	}
	return payload, err
}

func (t *tx) getRaw(key []byte) ([]byte, error) {
	if value, ok := t.written(key); ok {
		return value, nil
	}
	if t.before != nil {
		if value, ok := t.before.written(key); ok {
			t.usage.noteStored(key, len(value))
			return value, nil
		}
	}
	value, err := t.snap.Get(key)
	t.usage.noteStored(key, len(value))
	return value, err
}

// written returns what the group has written under a key: nil if that was to delete it.
func (t *tx) written(key []byte) (value []byte, ok bool) {
	i, ok := t.index[string(key)]
	if !ok {
		return nil, false
	}
	return t.writes[i].Value, true
}

// loadValue reads a value with all its pieces, nil if there is none.
func loadValue(key []byte, get func([]byte) ([]byte, error)) (payload []byte, more int, err error) {
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

// putRow stores a row that every job has under key, as put does.
func (t *tx) putRow(key []byte, row any) {
	t.encoded = appendRow(t.encoded[:0], row)
	t.put(key, t.encoded)
}

// put stores payload, of which it keeps nothing, under key. What may be there already has
// been read before.
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

// readOld reads what put or remove is to take the place of, if it can be read.
func (t *tx) readOld(key []byte) error {
	_, err := t.get(key)
	if !errors.Is(err, ErrDamaged) {
		return err
	}
	for n := 0; ; n++ { // how many pieces it had may not be known
		piece, err := t.getRaw(pieceKey(key, n))
		if err != nil {
			return err
		}
		if piece == nil {
			t.pieces[string(key)] = n
			return nil
		}
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
	t.usage.countWrite(key, len(value))
	if i, ok := t.index[string(key)]; ok {
		t.size += len(value) - len(t.writes[i].Value)
		t.writes[i].Value = value
		return
	}
	t.index[string(key)] = len(t.writes)
	t.appendWrite(key, value)
}

// appendIndexEntry writes an entry of an index, which no operation reads. What it says, an id, takes the memory
// behind its key.
func (t *tx) appendIndexEntry(key []byte, i id) {
	end := len(key)
	key = append(append(key, make([]byte, crcSize)...), i[:]...)
	key, value := key[:end:end], key[end:]
	binary.BigEndian.PutUint32(value, checksum(key, value[crcSize:]))
	t.appendWrite(key, value)
}

func (t *tx) appendWrite(key, value []byte) {
	t.wrote = true
	t.writes = append(t.writes, Write{key, value})
	t.size += len(key) + len(value) + WriteCost
}

// hasRoom reports whether the operation under way may write so many bytes more. One that
// works on many jobs asks before each, and leaves the others to another.
func (t *tx) hasRoom(size int) bool { return t.size-t.sizeBefore+size <= maxOp }

// putNumber stores a number of eight bytes.
func (t *tx) putNumber(key []byte, n uint64) { t.write(key, sealNumbers(key, n)) }

// sealNumbers is what is stored of numbers of eight bytes each.
func sealNumbers(key []byte, numbers ...uint64) []byte {
	var payload []byte
	for _, n := range numbers {
		payload = binary.BigEndian.AppendUint64(payload, n)
	}
	value, _ := split(key, payload)
	return value
}

// do runs an operation in the committer and returns when what it wrote is on disk.
// ctx counts until the operation is taken; then its outcome is near. Errors: the
// operation's, harp.ErrNoSpace, harp.ErrClosed, store.ErrPoisoned, ctx's.
func (s *Store) do(ctx context.Context, needs Space, run func(t *tx) error) error {
	return s.runOp(ctx, s.ops, op{run: run, needs: needs})
}

// doScan is do for what looks at more than single keys, and so only at what is
// committed. Each waits for a group of its own, so one at a time does: what else is asked for goes between them.
func (s *Store) doScan(ctx context.Context, needs Space, run func(t *tx) error) error {
	select {
	case s.scanning <- struct{}{}:
		defer func() { <-s.scanning }()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.closing:
		return harp.ErrClosed
	}
	return s.runOp(ctx, s.ops, op{run: run, needs: needs, scans: true})
}

// doAhead is do for what jobs on their way need: it goes before the operations that
// wait, so that what is new keeps nothing waiting that has begun.
func (s *Store) doAhead(ctx context.Context, needs Space, run func(t *tx) error) error {
	return s.runOp(ctx, s.ahead, op{run: run, needs: needs, ahead: true})
}

// recycleOp keeps the memory of an operation that is over for another.
func (s *Store) recycleOp(o *op) {
	*o = op{done: o.done}
	s.over.Put(o)
}

// runOp gives an operation to the committer.
func (s *Store) runOp(ctx context.Context, to chan<- *op, what op) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	o, ok := s.over.Get().(*op)
	if !ok {
		o = &op{done: make(chan error, 1)}
	}
	what.done = o.done
	*o = what
	defer s.recycleOp(o)
	select {
	case to <- o:
		return <-o.done
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.closing:
		return harp.ErrClosed
	}
}

func noSpace() error {
	return failures.New("no_space", "the dispatcher's disk is almost full").Err()
}
