package rows

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// formatVersion is the version of the keys and rows that this code reads and writes. A
// store of another is not opened.
const formatVersion = 4

// DefaultMaxStored is how many bytes of records a job stores by default.
const DefaultMaxStored = 256 << 20

// Options of a Store.
type Options struct {
	// MaxStored is how many bytes of records a job stores; what comes after is
	// only counted. 0: DefaultMaxStored.
	MaxStored int64

	// Logger gets what nobody asked for: a row that is damaged. nil: discarded.
	Logger *slog.Logger
}

// Store is a store.Store over an Engine.
type Store struct {
	engine Engine
	opts   Options
	log    *slog.Logger
	id     string

	ops       chan *op
	ahead     chan *op        // those that go first
	wentAhead int             // since one that waited had its turn; belongs to formLoop
	groups    chan *group     // to be committed
	closing   chan struct{}   // closed by Close
	open      context.Context // ends with it
	shut      context.CancelCauseFunc
	committer sync.WaitGroup
	readers   sync.RWMutex // held for reading while a view is open
	keptAhead int64        // what is stored of clockAhead; belongs to commitLoop
	closeOnce sync.Once
	closed    bool  // guarded by readers
	closeErr  error // guarded by readers
	broken    atomic.Pointer[error]
	failed    chan struct{} // closed once broken is set

	mu    sync.Mutex
	sched *schedule       // guarded by mu
	swept map[byte][]byte // guarded by mu: where Prune goes on, by index
	feed  feed

	forgotten uint64 // guarded by mu: the youngest id that may have been forgotten, by its time

	recent     recent
	stored     atomic.Int64 // bytes that jobs store; set by the committer
	clockAhead atomic.Int64 // sched.ahead
}

var _ store.Store = (*Store)(nil)

type formatRow struct {
	Version int    `msgpack:"version"`
	ID      string `msgpack:"id"`
}

// Open makes a store of an engine, which it owns from then on, also when it fails.
// It reads what has not ended. Errors: of a format that this code does not know,
// ErrDamaged, the engine's.
func Open(e Engine, opts Options) (*Store, error) {
	if opts.MaxStored <= 0 {
		opts.MaxStored = DefaultMaxStored
	}
	s := &Store{
		engine: e, opts: opts, log: opts.Logger,
		ops: make(chan *op), ahead: make(chan *op), groups: make(chan *group), closing: make(chan struct{}), failed: make(chan struct{}), sched: newSchedule(),
		feed: feed{first: 1, changed: make(chan struct{})}, swept: map[byte][]byte{},
	}
	s.open, s.shut = context.WithCancelCause(context.Background())
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if err := s.load(); err != nil {
		return nil, closing(e, err)
	}
	s.committer.Go(s.formLoop)
	s.committer.Go(s.commitLoop)
	return s, nil
}

func closing(e Engine, err error) error {
	if also := e.Close(); also != nil {
		return fmt.Errorf("%w (and closing: %w)", err, also)
	}
	return err
}

// load reads the format and the schedule, or makes the store if it is empty.
func (s *Store) load() error {
	snap, err := s.engine.View()
	if err != nil {
		return err
	}
	defer snap.Close()
	var format formatRow
	found, err := read(snap, keyFormat, &format)
	switch {
	case err != nil:
		return err
	case !found:
		return s.create(snap)
	case format.Version != formatVersion:
		return otherFormat(format.Version)
	}
	s.id = format.ID
	if s.sched.number, err = readNumber(snap, keyNumber); err != nil {
		return err
	}
	stored, err := readNumber(snap, keyStored)
	if err != nil {
		return err
	}
	s.stored.Store(int64(stored))
	ahead, err := readNumber(snap, keyAhead)
	if err != nil {
		return err
	}
	s.sched.ahead, s.keptAhead = int64(ahead), int64(ahead)
	s.clockAhead.Store(s.sched.ahead)
	if s.forgotten, err = readNumber(snap, keyForgotten); err != nil {
		return err
	}
	if err := s.loadFeed(snap); err != nil {
		return err
	}
	if err := s.loadQueues(snap); err != nil {
		return err
	}
	return s.loadJobs(snap)
}

// readNumber reads a number of eight bytes; 0 if there is none.
func readNumber(from getter, key []byte) (uint64, error) {
	payload, _, err := load(key, from.Get)
	if err != nil || len(payload) != 8 {
		return 0, err
	}
	return binary.BigEndian.Uint64(payload), nil
}

// otherFormat is about a store, or a backup of one, that this code cannot read.
func otherFormat(version int) error {
	use := "a newer"
	if version < formatVersion {
		use = "an older"
	}
	return fmt.Errorf("store: its format is version %d and this software knows only %d: use %s one", version, formatVersion, use)
}

// create writes the format of a new store with a new id.
func (s *Store) create(snap Snapshot) error {
	for _, err := range snap.Scan(nil, nil, false) {
		if err == nil {
			err = fmt.Errorf("store: there is something, but no harp store")
		}
		return err
	}
	id, format := newFormat()
	s.id = id
	return s.engine.Commit(format)
}

// newFormat is what makes an engine a store of this format, with a new id.
func newFormat() (id string, writes []Write) {
	var random [16]byte
	rand.Read(random[:])
	id = hex.EncodeToString(random[:])
	first, _ := split(keyFormat, encode(formatRow{Version: formatVersion, ID: id}))
	return id, []Write{{keyFormat, first}}
}

func (s *Store) loadQueues(snap Snapshot) error {
	for item, err := range snap.Scan([]byte{prefixQueue}, nil, false) {
		if err != nil {
			return err
		}
		var row queueRow
		if err := readItem(snap, item, &row); err != nil {
			return err
		}
		q := s.sched.queue(string(item.Key[1:]), row.Concurrency)
		q.fixed, q.paused, q.through, q.marks = row.Fixed, row.Paused, row.through(), row.Marks
	}
	return nil
}

// notEnded are the states of a job that has not ended.
var notEnded = []harp.State{harp.StateQueued, harp.StateSent, harp.StateRunning, harp.StateCancelling, harp.StateUnknown}

// loadJobs reads the jobs that have not ended, which the index by state has in a
// row each.
func (s *Store) loadJobs(snap Snapshot) error {
	for _, state := range notEnded {
		for item, err := range snap.Scan(indexKey(byState, string(state)), nil, false) {
			if err != nil {
				return err
			}
			i, err := indexed(item)
			if err != nil {
				return err
			}
			j, err := readJob(snap, i)
			if err != nil {
				return fmt.Errorf("store: job %s: %w", i, err)
			}
			s.sched.add(i, &j, math.MinInt64, nanos(j.Since))
		}
	}
	return nil
}

// ID implements store.Store.
func (s *Store) ID() string { return s.id }

// Close implements store.Store.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		close(s.closing)
		s.shut(harp.ErrClosed)
		s.committer.Wait()
	})
	s.readers.Lock() // until the last view is closed
	defer s.readers.Unlock()
	if !s.closed {
		s.closeErr = s.engine.Close()
		s.closed = !errors.Is(s.closeErr, harp.ErrNoSpace)
	}
	return s.closeErr
}

// SetGate implements store.Store.
func (s *Store) SetGate(host string, g store.Gate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sched.setGate(host, g)
}

// NextDue implements store.Store.
func (s *Store) NextDue() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fromNanos(s.sched.nextDue())
}

// view calls f with a view of what is committed. Errors: harp.ErrClosed,
// store.ErrPoisoned, f's.
func (s *Store) view(f func(snap Snapshot) error) error {
	s.readers.RLock()
	defer s.readers.RUnlock()
	if err := s.usable(); err != nil {
		return err
	}
	snap, err := s.engine.View()
	if err != nil {
		return err
	}
	defer snap.Close()
	return f(snap)
}

// usable is why nothing can be read any more: harp.ErrClosed or store.ErrPoisoned.
func (s *Store) usable() error {
	select {
	case <-s.closing:
		return harp.ErrClosed
	default:
		return s.poisoned()
	}
}
