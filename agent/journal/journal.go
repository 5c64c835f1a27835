// Package journal is an agent's durable memory of attempts: which it accepted,
// started, was told to stop and ended, and the records that a dispatcher has not
// taken yet. It knows nothing of jobs but their ids, and nothing of sessions.
//
// A journal is a row of segments that are only appended to. What is written while
// one sync runs is synced together by the next; nobody waits for company. A call
// that returned without error, or whose [Commit] did, is on disk. After a write or
// sync that failed the segment is cut back to what was synced, and that is synced,
// before anybody hears of it; where that fails too the journal is broken and every
// call returns [ErrBroken] until it is opened anew.
package journal

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// Errors of a journal. What the files themselves answer is wrapped.
var (
	// ErrBroken means that it is not known what is on disk.
	ErrBroken = errors.New("journal: broken")
	// ErrClosed means that the journal was closed.
	ErrClosed = errors.New("journal: closed")
	// ErrCorrupt is what a *CorruptError is.
	ErrCorrupt = errors.New("journal: corrupt")
	// ErrFull is what a *FullError is, and a disk that is full.
	ErrFull = errors.New("journal: full")
	// ErrKnown means that the attempt is in the journal already, or a tombstone is.
	ErrKnown = errors.New("journal: attempt is known")
	// ErrUnknown means that the attempt is not in the journal.
	ErrUnknown = errors.New("journal: no such attempt")
	// ErrState means that the attempt is not in a state for this: it was not
	// started, or has started or ended before.
	ErrState = errors.New("journal: not in this state of the attempt")
	// ErrGap means that records would not follow those before them.
	ErrGap = errors.New("journal: records are missing")
	// ErrVersion means that the journal was written by older or newer software, which reads
	// it. It is not damaged.
	ErrVersion = errors.New("journal: of other software")
	// ErrInvalid means that an argument makes no sense.
	ErrInvalid = errors.New("journal: invalid")
)

// FullError says which limit does not leave the room.
type FullError struct {
	Job      string // empty: the limit is the agent's
	Limit    int64
	Attempts bool // the limit is of attempts, not of bytes
}

func (e *FullError) Error() string {
	switch {
	case e.Attempts:
		return fmt.Sprintf("journal: full: the agent holds at most %d attempts", e.Limit)
	case e.Job != "":
		return fmt.Sprintf("journal: full: job %s holds at most %d bytes", e.Job, e.Limit)
	}
	return fmt.Sprintf("journal: full: the agent holds at most %d bytes", e.Limit)
}

// Is reports whether target is ErrFull.
func (e *FullError) Is(target error) bool { return target == ErrFull }

// CorruptError says where a journal is damaged. What a crash may leave of the last
// group, of which nothing proves that it was synced, is no damage.
type CorruptError struct {
	File   string
	Offset int64
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("journal: corrupt: %s at offset %d: %s", e.File, e.Offset, e.Reason)
}

// Is reports whether target is ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// ioError is an error of the files, named as a full disk if that is what it is.
func ioError(doing string, err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("%w: %s: %w", ErrFull, doing, err)
	}
	return fmt.Errorf("journal: %s: %w", doing, err)
}

const (
	// Reserve is held for each attempt until it ends, so that an END without its
	// value always fits.
	Reserve = 1 << 10
	// MaxBare bounds an END without its value.
	MaxBare = 800
	// maxJobID and maxCause keep an END within its reserve.
	maxJobID = 128
	maxCause = 64
	// stateCost is what is counted for what is known of an attempt, roughly.
	stateCost = 256
	// recordCost is what is counted for a record, and extentCost for those written
	// together, beside the bytes.
	recordCost, extentCost = 4, 80
	// tombCost is about what a tombstone takes.
	tombCost = 80
)

// Options are a journal's limits. Zero means the default.
type Options struct {
	MaxJob      int64         // bytes of records and ENDs per job; 64 MiB
	MaxAgent    int64         // bytes in all; 1 GiB
	MaxAttempts int           // that are accepted while others are held; 1,048,576
	SegmentSize int64         // bytes, about; 4 MiB
	SyncWithin  time.Duration // until the sync of a record begins; 100 ms
	SyncBytes   int           // of records, which are synced at once; 64 KiB
	Keep        time.Duration // tombstones, and an eighth of it more at most; 7 days
	MaxTombs    int           // tombstones, of which the oldest go first; 1,048,576
}

func (o Options) withDefaults() Options {
	fill(&o.MaxJob, 64<<20)
	fill(&o.MaxAgent, 1<<30)
	fill(&o.MaxAttempts, 1<<20)
	fill(&o.SegmentSize, 4<<20)
	fill(&o.SyncWithin, 100*time.Millisecond)
	fill(&o.SyncBytes, 64<<10)
	fill(&o.Keep, 7*24*time.Hour)
	fill(&o.MaxTombs, 1<<20)
	return o
}

func fill[T int | int64 | time.Duration](v *T, value T) {
	if *v <= 0 {
		*v = value
	}
}

// Key names an attempt.
type Key struct {
	Job     string // at most 128 bytes
	Attempt int64  // from 1
}

func checkKey(k Key) error {
	if k.Job == "" || len(k.Job) > maxJobID || k.Attempt < 1 {
		return fmt.Errorf("%w: attempt %d of job %.*q", ErrInvalid, k.Attempt, maxJobID, k.Job)
	}
	return nil
}

// State is how far an attempt is.
type State uint8

// The states of an attempt.
const (
	Absent    State = iota // or withdrawn, or its tombstone was dropped after its time
	Accepted               // not started
	Started                // not ended
	Stopping               // not ended, and a limit or cancel was journalled
	Ended                  // and not yet acknowledged
	Forgotten              // its end was acknowledged, or nobody asks: there is a tombstone
)

func (s State) String() string {
	names := [...]string{"absent", "accepted", "started", "stopping", "ended", "forgotten"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("State(%d)", s)
}

// Accept is what ACCEPT says.
type Accept struct {
	Fence int64
	// Store is the id of the store of the dispatcher whose call it is, at most 128 bytes: see [Journal.Taken].
	// Empty: it is not counted.
	Store string
	// Info is the caller's: what it must know of the attempt after a restart, such
	// as its limits and the host's boot id.
	Info []byte
	// Elsewhere is how many bytes of the attempt's records may be kept elsewhere until
	// it has ended. They count as if they were here. It is not journalled: see
	// [Journal.KeepElsewhere].
	Elsewhere int64
}

// Stop is what LIMIT or CANCEL says.
type Stop struct {
	Cause string // at most 64 bytes
	Since time.Time
	Limit time.Duration
}

// End is what END says.
type End struct {
	Body    []byte
	Bare    []byte // the same without its value, at most MaxBare bytes; a Body as small needs none
	Records int64  // how many the attempt has
}

// Held is what the journal holds of an attempt.
type Held struct {
	Key
	State   State
	Fence   int64
	Info    []byte
	Started time.Time // zero: not
	Stop    *Stop     // nil: nothing was journalled
	Records int64     // numbered: one more than the last record's number
	Spooled int64     // the same of the last record that came here, or was acknowledged
	Acked   int64     // the first record that was not acknowledged
	Dropped bool      // END was journalled without its value
}

// Commit is one sync, of everything that was journalled together.
type Commit struct {
	done chan struct{}
	err  error
}

// Done is closed when it is known whether the commit succeeded.
func (c *Commit) Done() <-chan struct{} { return c.done }

// Wait waits until what was journalled is on disk. With an error nothing of it is,
// except that ErrBroken means that this is not known.
func (c *Commit) Wait() error {
	<-c.done
	return c.err
}
