package rows

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/internal/schedule"
	"github.com/harpcaller/harp/window"
)

// formatVersion is the version of the keys and rows that this code reads and writes. A
// store of another is not opened.
const formatVersion = 7

// DefaultMaxStored is how many bytes of records a job stores by default.
const DefaultMaxStored = 256 << 20

// Options of a Store.
type Options struct {
	// MaxStored is how many bytes of records a job stores; what comes after is
	// only counted. 0: DefaultMaxStored.
	MaxStored int64

	restored bool // what cannot be read of what has not ended is left as it is

	// Logger gets what nobody asked for: a row that is damaged. nil: discarded.
	Logger *slog.Logger
}

// Store is a store.Store over an Engine: a Reader, the schedule and the committer.
type Store struct {
	Reader
	opts Options

	ops       chan *op
	ahead     chan *op      // those that go first
	scanning  chan struct{} // has one while an operation scans
	over      sync.Pool     // of *op, for the next
	wentAhead int           // since one that waited had its turn; belongs to formLoop
	groups    chan *group   // to be committed
	committer sync.WaitGroup
	keptAhead int64 // what is stored of clockAhead; belongs to commitLoop
	closeOnce sync.Once

	mu         sync.Mutex
	sched      *schedule.Schedule // guarded by mu
	knowsTime  bool               // guarded by mu: it has been named since the store was opened
	swept      map[string][]byte  // guarded by mu: where Prune goes on, by index
	sweptClass uint32             // guarded by mu: with which class
	finding    finding            // guarded by mu: of the row at which that had enough
	weighing   weighing           // guarded by mu: of the batch at which that had enough
	feed       feed

	rules     []harp.RetentionRule             // guarded by mu: in their order; never changed
	classes   map[uint32]*store.RetentionClass // guarded by mu
	lastClass uint32                           // guarded by mu: the highest number of one

	forgotten uint64 // guarded by mu: the youngest id that may have been forgotten, by its time

	jobCache   jobCache
	unended    unendedJobs
	cohorts    map[id]*cohort    // guarded by mu: of the jobs that have not ended
	batches    map[id]*batch     // guarded by mu: that have not ended
	drifts     map[string]uint64 // guarded by mu: the names under which checks mark hosts, and the number of the first batch of each
	counted    counts            // what is stored of all jobs together; belongs to commitLoop
	places     places
	stored     atomic.Int64 // bytes that jobs store; set by the committer
	clockAhead atomic.Int64 // sched.Ahead
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
		opts: opts, ops: make(chan *op), ahead: make(chan *op), scanning: make(chan struct{}, 1), groups: make(chan *group), sched: schedule.New(),
		feed: feed{first: 1, changed: make(chan struct{})}, swept: map[string][]byte{}, classes: map[uint32]*store.RetentionClass{}, cohorts: map[id]*cohort{}, batches: map[id]*batch{}, drifts: map[string]uint64{},
	}
	s.start(e, opts.Logger)
	if err := s.loadState(); err != nil {
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

// loadState reads the format and the schedule, or makes the store if it is empty.
func (s *Store) loadState() error {
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
	ahead, err := readNumber(snap, keyAhead)
	if err != nil {
		return err
	}
	s.sched.Ahead, s.keptAhead = int64(ahead), int64(ahead)
	s.clockAhead.Store(s.sched.Ahead)
	if s.forgotten, err = readNumber(snap, keyForgotten); err != nil {
		return err
	}
	if err := s.loadFeed(snap); err != nil {
		return err
	}
	if err := s.loadRetention(snap); err != nil {
		return err
	}
	if err := s.loadQueues(snap); err != nil {
		return err
	}
	if err := s.loadDrifts(snap); err != nil {
		return err
	}
	if err := s.loadBatches(snap); err != nil {
		return err
	}
	if err := s.loadJobs(snap); err != nil {
		return err
	}
	return s.checkBatches()
}

// readNumber reads a number of eight bytes; 0 if there is none.
func readNumber(from getter, key []byte) (uint64, error) {
	payload, _, err := loadValue(key, from.Get)
	if err != nil || len(payload) != 8 {
		return 0, err
	}
	return binary.BigEndian.Uint64(payload), nil
}

// counts is what is stored of all jobs together.
type counts struct {
	number  uint64 // the last submit number
	stored  int64  // bytes that they store
	unended int    // how many have not ended
}

func (c counts) write() Write {
	return Write{keyNumber, sealNumbers(keyNumber, c.number, uint64(c.stored), uint64(c.unended))}
}

// readCounts reads them; false if they are not there. Of a store that does not say how many have not
// ended that is -1.
func readCounts(from getter) (c counts, found bool, err error) {
	payload, _, err := loadValue(keyNumber, from.Get)
	if err != nil || len(payload) < 16 {
		return c, false, err
	}
	c.number, c.stored, c.unended = binary.BigEndian.Uint64(payload), int64(binary.BigEndian.Uint64(payload[8:])), -1
	if len(payload) >= 24 {
		c.unended = int(binary.BigEndian.Uint64(payload[16:]))
	}
	return c, true, nil
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
			err = fmt.Errorf("store: there is data, but not a harp store")
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

// Close implements store.Store.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		s.stop()
		s.committer.Wait()
	})
	return s.closeEngine()
}

// SetGate implements store.Store.
func (s *Store) SetGate(host string, g store.Gate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sched.SetGate(host, g)
}

// SetHolds implements store.Jobs.
func (s *Store) SetHolds(host string, g *window.Gate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sched.SetHolds(host, g)
}

// NextDue implements store.Store.
func (s *Store) NextDue() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fromNanos(s.sched.NextDue())
}

// QuotaUsed implements store.Jobs.
func (s *Store) QuotaUsed(who harp.Principal) store.Quota {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sched.QuotaUsed(who)
}
