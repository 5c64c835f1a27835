// Package store says what a dispatcher needs of the place where its jobs are kept.
//
// A [Store] is shaped by what the dispatcher does: submit jobs, claim those that
// may start, move them through their life, append records, and read all of it
// back. The life of a job, who may follow whom, is [Life.Next], a pure function; a
// Store runs it inside the commit that writes what it returns.
//
// What a method acknowledges is durable: a method that writes returns after the
// commit has reached the disk. Its context counts until the write is begun; then the
// outcome is near, and is waited for. Implementations share no memory with their callers:
// who receives a slice or map owns it. A [Job] that a
// Store returns is nobody's: it is never changed again, and so is shared.
//
// Package storetest holds the tests every Store passes.
package store

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/window"
)

// Errors beside those of package harp. A method returns harp.ErrNotFound for what
// is not there, harp.ErrPruned for a job that retention deleted, harp.ErrNoSpace
// when a write was refused because the disk is almost full.
var (
	// ErrFenced refuses a write that names an older fence or attempt than the
	// job has: another owner or another attempt has taken over.
	ErrFenced = errors.New("store: fenced: the job has moved on")

	// ErrIllegal refuses an event that may not follow in the job's life.
	ErrIllegal = errors.New("store: event not possible in this state")

	// ErrDamaged is what reading returns when the bytes that are stored are not those
	// that were written.
	ErrDamaged = errors.New("store: damaged value")

	// ErrPoisoned is what every method returns after a commit failed: whether
	// it reached the disk is unknown, and only opening the store anew tells.
	ErrPoisoned = errors.New("store: a commit failed; the store must be reopened")
)

// Store keeps jobs, their records, queues and hosts. All methods are safe for
// concurrent use. Times are given by the dispatcher; a Store has no clock.
type Store interface {
	Jobs
	Batches
	Records
	Queues
	Hosts
	Drifts
	Documents
	Schedules
	Feed
	Upkeep

	// ID is the store's identity: random, made with the store, new in a
	// restored backup.
	ID() string

	// Close flushes and releases the store; calls under way return
	// harp.ErrClosed. It is idempotent. Errors: harp.ErrNoSpace, after which the store is not
	// released, and Close may be called again when there is space.
	Close() error
}

// Jobs submits jobs and moves them through their life.
type Jobs interface {
	// Submit stores new jobs, all in one commit, and gives each its submit
	// number. A job that may start at once, by its host's [Gate], its queue and
	// its NotBefore, is claimed in the same commit: it comes back as sent.
	// The outcome of each stands at its index: a job whose id is stored already
	// comes back as it is with New false when the digests are equal, else with
	// Err harp.ErrConflict. For want of space new jobs are refused, and those that
	// are there come back all the same. Err of one does not touch the others.
	// Errors: harp.ErrInvalid for more than about 3 MiB at a time, harp.ErrNoSpace
	// if that is the Err of all; ctx's, when nothing is stored.
	Submit(ctx context.Context, jobs []Submission, now time.Time) ([]Submitted, error)

	// Claim takes up to n queued jobs that may start on these hosts, in the
	// order of their queues, moves each to sent under a raised fence and returns
	// them, also with an error: what is claimed must be sent. Fewer than n without one
	// means that there are no more.
	Claim(ctx context.Context, hosts []string, n int, now time.Time) ([]*Job, error)

	// Apply moves jobs through their lives, one after the other, in as few commits as
	// their size allows. The outcome of each stands at its index. A change that gives a
	// queue slot back claims what may start by it in the same commit: the next job of
	// that queue, and the next of that host if it had as many as its gate lets through.
	// All changes of a commit are counted before that, as failures among them may stop a batch, and what they start
	// stands in Change.Claimed of the last that came about. Err is harp.ErrNotFound, ErrFenced or ErrIllegal, which
	// Claimed is too, and does not touch the others. Errors: harp.ErrInvalid for
	// an event of more than about 2 MiB; after any other those whose Err is nil are stored all the same, and
	// what they claimed must be sent.
	Apply(ctx context.Context, ts ...Transition) ([]Change, error)

	// Advance does what time alone has made due: it ends jobs that did not
	// start in time, gives up attempts whose hosts have been silent too long, claims
	// those whose NotBefore or pause between attempts is over and those that a change of
	// their queue lets start, and rewrites rows of
	// cancelled queues, a bounded number of each. More says that it should be
	// called again at once. The first one says what time it is to what was read as the store was opened: what a clock that was ahead has
	// submitted waits for its absent host from then on, and pauses that began by it begin then.
	Advance(ctx context.Context, now time.Time) (Advanced, error)

	// NextDue is when Advance will have something to do, as far as is known
	// now; the zero time if nothing waits for time. It costs no read.
	NextDue() time.Time

	// QuotaUsed is how much a principal has now of what a [Quota] bounds, hosts of batches that are
	// not reached among the jobs that wait. It costs no read.
	QuotaUsed(who harp.Principal) Quota

	// SetGate says whether jobs may start on a host now. It is kept in memory,
	// for this process; a host without a gate is closed with reason offline.
	// Opening a gate claims nothing: that is Claim's.
	SetGate(host string, g Gate)

	// SetHolds says which windows and pauses keep jobs of a host from starting; nil: none do, as of a host
	// of which nothing was said. It is kept in memory, for this process. A claim asks the gate at its own time: what
	// is kept back is queued with the reason window until the gate, or another, lets it start; that is done by
	// Advance, which is due at once if there is something to do.
	SetHolds(host string, g *window.Gate)

	// Wake lets the jobs that wait because the agent of a host was busy wait no
	// longer: they may be claimed. That is kept in memory, for this process.
	Wake(ctx context.Context, host string, now time.Time) error

	// Job returns a job's row. For a queued one Reason is what it waits for at
	// this moment and QueuePos its place among all that wait in its queue.
	// Errors: harp.ErrNotFound, harp.ErrPruned.
	Job(ctx context.Context, id string) (*Job, error)

	// Obstacles returns all that keeps a queued job from starting at this moment, first what its
	// Reason tells; nothing of any other. Errors: as Job.
	Obstacles(ctx context.Context, id string) ([]harp.Obstacle, error)

	// Request returns the request of a job, byte for byte, and its signature.
	// Errors: as Job.
	Request(ctx context.Context, id string) (harp.Submission, error)

	// Value returns what the job's procedure returned; nil if it has not or
	// nothing. Errors: as Job.
	Value(ctx context.Context, id string) (harp.Value, error)

	// Silence moves every job that holds an attempt on this host to unknown, in as few
	// commits as their size allows, usually one: nothing was heard of it. Those that are not reconciled by lostAt end as
	// lost(too_long), by Advance, those too that were unknown before. It returns the jobs it moved.
	Silence(ctx context.Context, host string, at, lostAt time.Time) ([]*Job, error)

	// Returning returns the jobs whose last attempt an agent may still speak of
	// though they wait for another: queued, their last attempt lost, on this host;
	// on all if it is "".
	Returning(ctx context.Context, host string) ([]*Job, error)

	// Active returns the jobs that hold an attempt, in sent, running,
	// cancelling or unknown, on this host; on all if it is "".
	Active(ctx context.Context, host string) ([]*Job, error)

	// List returns a page of jobs, newest first: by their SubmitTime, then their
	// number. It examines at most MaxExamined index entries, as few as the most
	// selective part of the filter allows, and may come back short with a Cursor,
	// which is good for the same filter with any Limit. Reason of a queued job is
	// as in Job. Errors: harp.ErrInvalid (cursor).
	List(ctx context.Context, f Filter, cursor string) (Page, error)
}

// Records keeps what procedures emit.
type Records interface {
	// Append stores consecutive records of an attempt, or that so many are missing, in the
	// place of which there is one of kind harp.KindLog that says so. What is stored already
	// is not stored again. It returns the job's row after it. A job that has
	// ended, or waits for another attempt, takes no new ones unless the last attempt
	// was lost. Beyond what a job may store one more is stored, with Truncated and
	// no value, and the rest are only counted: Life.Full. Errors: harp.ErrNotFound, ErrFenced, ErrGap when First
	// is beyond the next number, in which case nothing is stored, and
	// harp.ErrInvalid for a record of more than 2 MiB. Many records may take several
	// commits: after an error the first of them may be stored.
	Append(ctx context.Context, a Append) (*Job, error)

	// Read returns committed records of a job, from the job's number `from` on:
	// at least one if there is one. Errors: harp.ErrNotFound, harp.ErrPruned; ErrDamaged where the
	// next one cannot be read.
	Read(ctx context.Context, id string, from uint64, most ReadLimit) ([]harp.Record, error)
}

// ReadLimit is how much is read at a time.
type ReadLimit struct {
	Records int // 0: any number
	Bytes   int // about
}

// ErrGap refuses records that do not follow what the attempt has.
var ErrGap = errors.New("store: records are missing before these")

// Queues looks at queues and cancels them.
type Queues interface {
	// Queue returns one queue by its canonical name. Errors: harp.ErrNotFound.
	Queue(ctx context.Context, name harp.Value) (harp.QueueStatus, error)

	// ListQueues returns up to limit queues in the order of their names, from
	// the one after the cursor. Errors: harp.ErrInvalid (cursor).
	ListQueues(ctx context.Context, cursor string, limit int) (page []harp.QueueStatus, next string, err error)

	// CancelQueue cancels, in one commit, all that is in the queue: from then
	// on every queued job of it counts and is shown as cancelled, and every
	// other one that has not ended as asked to cancel, with its Cancel set. The
	// latter are returned in Active, as they are shown; applying CancelReq to
	// one writes its row and says once that its agent is to be told. The rows of
	// the former are written by Advance, which reports them as ended. Asked again
	// under the same id it touches nothing that came since, and returns the same Count,
	// and in Active what is left. Errors: harp.ErrNotFound, harp.ErrConflict (the id is
	// that of another operation), harp.ErrInvalid (id), harp.ErrPruned (it may be forgotten).
	CancelQueue(ctx context.Context, name harp.Value, op Operation) (QueueCancelled, error)

	// ChangeQueue pauses or unpauses a queue, or gives it another concurrency, 0 that of
	// the first job when it is made anew. What runs goes on. A queue that is paused or was
	// given a concurrency is kept without jobs. A pause takes the place of one before it, and
	// is over with the first Advance from its Until on. What may start by it is claimed
	// by Advance, which is due at once then. Asked again under the same id it changes
	// nothing. Errors: harp.ErrNotFound, but for a pause, which makes the queue;
	// harp.ErrInvalid (a field of the change; until, which is not after the operation's time);
	// harp.ErrConflict, harp.ErrInvalid (id) and harp.ErrPruned as CancelQueue.
	ChangeQueue(ctx context.Context, name harp.Value, c harp.QueueChange, op Operation) error
}

// Feed is the events, written in the commits of what they tell of.
type Feed interface {
	// AppendEvents writes events of which nothing else is stored. Cursor is the store's to
	// set, and Time if it is zero.
	AppendEvents(ctx context.Context, events ...harp.Event) error

	// Events returns events after a cursor that the filter selects, at most about
	// maxBytes of them and at least one if there is one. It examines at most
	// MaxExamined and may come back empty with a Cursor that has moved. For events that
	// cannot be read there is one of type harp.EventsMissing. Errors:
	// harp.ErrInvalid (after, types), harp.ErrPruned.
	Events(ctx context.Context, f harp.EventFilter, maxBytes int) (harp.EventPage, error)

	// EventNumber returns the number of the event with a cursor, though it be from before a restore; 0 for what is none.
	EventNumber(cursor string) uint64

	// Changed returns what is closed when the next event has been committed. Who
	// gets it first and then reads misses none.
	Changed() <-chan struct{}
}

// Upkeep deletes what is old and copies all.
type Upkeep interface {
	// Prune deletes a bounded number of what retention does not keep, the oldest
	// first: jobs with all that belongs to them, of which a tombstone stays for
	// TombstoneTime, batches whole; events; entries of ledgers as old, but for the last LedgerKept of each schedule that there is; tombstones and idempotency keys whose time is over.
	// What ended under a rule goes when that says so. It examines about as many entries as it deletes.
	Prune(ctx context.Context, r Retention, now time.Time) (Pruned, error)

	// RetentionClasses returns the classes there are of what has ended under rules, as they were then, by their numbers. It
	// costs no read.
	RetentionClasses() []RetentionClass

	// ClockSet says that the clock by which times are given was set forward by so
	// much, or back: of what lasts a time as much is left as before. That is what is
	// measured from when something was, as a wait for a host, a pause between attempts or
	// the patience with a silent host, and how long idempotency keys and tombstones
	// last, over a restart too: it returns when that is on disk, if it can be.
	// StartAfter, StartBefore, the Until of a pause and Retention name times, which stay.
	ClockSet(by time.Duration)

	// Compact gives the space of what was deleted back to the file system, as far
	// as it can be. It may take minutes and ends early with ctx. Other methods go on
	// meanwhile.
	Compact(ctx context.Context) error

	// Size is how many bytes of disk the store takes.
	Size() (int64, error)

	// Space says how much room there is for writing.
	Space() Space

	// Backup writes a copy of all, as it is at one moment, to w. Errors: w's, ctx's.
	Backup(ctx context.Context, w io.Writer) error

	// AwaitFailure returns when a commit has failed, with the ErrPoisoned that every
	// method returns from then on, and why. Errors: also harp.ErrClosed once the store
	// is closed, ctx's.
	AwaitFailure(ctx context.Context) error
}

// TombstoneTime is how long a pruned job's id is remembered, at least: until the id is that
// old by the clock as it is, too. Of ids that are no younger than one that was forgotten all
// that are not stored are refused as pruned, wherever the clock is set to.
const TombstoneTime = 31 * 24 * time.Hour

// Retention says what is kept. A zero field keeps all.
type Retention struct {
	EndedBefore  time.Time // what no rule says how long to keep, and ended before, is deleted
	EventsBefore time.Time // so are events
	RulesAt      time.Time // what a rule has kept long enough by then is deleted
	MaxBytes     int64     // of what jobs store: those that ended first are deleted, whatever rules say, and the events of their time
}

// Pruned is what Prune did.
type Pruned struct {
	Jobs   int
	Events int
	More   bool // it should be called again at once
}

// Space is how much room there is for writing.
type Space int

// The spaces, each including what the one before allows.
const (
	SpaceFull     Space = iota - 1 // nothing
	SpaceCritical                  // cancels and deletes only: nothing of agents is acknowledged
	SpaceLow                       // all but new jobs
	SpacePlenty                    // all
)

// String names the space.
func (s Space) String() string {
	switch s {
	case SpaceFull:
		return "full"
	case SpaceCritical:
		return "critical"
	case SpaceLow:
		return "low"
	default:
		return "plenty"
	}
}

// Hosts keeps what is known of hosts that have connected.
type Hosts interface {
	// OpenSession notes what a host's agent says of itself as it connects, and raises the host's
	// epoch, which it returns. That the host is connected is for PutHost to say, once the session has begun. Of a host of which it is lost what was stored, a Journal that is
	// not known is stored as one that no agent has.
	OpenSession(ctx context.Context, s Session) (epoch uint64, err error)

	// PutHost replaces what is known of a host, but for its epoch. Errors:
	// harp.ErrNotFound if it never had a session.
	PutHost(ctx context.Context, h Host) error

	// Host returns one host. Taken is the highest of that of PutHost and those of events since its session began. A
	// store that was restored is another, of which no journal has taken any call. Errors: harp.ErrNotFound.
	Host(ctx context.Context, name string) (Host, error)

	// RemoveHost forgets a host, with its marks. First it ends what has not ended on it, in as few commits as
	// their size allows: what waits is cancelled, an attempt is lost, both with the reason
	// harp.LostHostRemoved; then, in one commit, it forgets the host, but for its epoch. A job that is
	// submitted meanwhile may be left, as of a host that is away. Asked again under the same id it
	// goes on where it was broken off, unless op.Refused, or touches nothing, and returns the same Count; where op.Refused was a
	// harp.ErrConflict it stays refused with one. Claimed
	// and Ended come also with an error. Errors: op.Refused, harp.ErrNotFound, harp.ErrConflict,
	// harp.ErrInvalid (id) and harp.ErrPruned as CancelQueue.
	RemoveHost(ctx context.Context, name string, op Operation) (HostRemoved, error)

	// ListHosts returns up to limit hosts in the order of their names, from the
	// one after the cursor, without any whose row cannot be read. Errors:
	// harp.ErrInvalid (cursor).
	ListHosts(ctx context.Context, cursor string, limit int) (page []Host, next string, err error)
}

// Documents keeps small things whole: the hosts registry, groups, labels of hosts, schedules, later
// windows and tokens.
type Documents interface {
	// Document returns a document. Errors: harp.ErrNotFound.
	Document(ctx context.Context, kind, name string) ([]byte, error)

	// ListDocuments returns up to limit documents of a kind in the order of their names,
	// from the one after the cursor, about 1 MiB of them and at least one if there is one.
	// One that cannot be read has no Content. Errors: harp.ErrInvalid (cursor).
	ListDocuments(ctx context.Context, kind, cursor string, limit int) (page []Document, next string, err error)

	// PutDocument replaces a document, atomically. Errors: harp.ErrInvalid for
	// more than 1 MiB.
	PutDocument(ctx context.Context, kind, name string, content []byte) error

	// ChangeDocuments changes documents and schedules and writes events, all or none, in one commit, and
	// returns Count. Asked again under the same id it changes nothing, and returns the
	// Count of the first time. Errors: harp.ErrConflict when a document is not as it is to
	// be before the change, or a schedule not of the step's Revision, which is named, or the id is that of another operation;
	// harp.ErrInvalid for a document of more than 1 MiB, one that is changed twice, a step
	// that StepSchedule refuses so or that has a batch, more
	// than about 2.5 MiB in all, and an id that is none; harp.ErrPruned, as CancelQueue.
	ChangeDocuments(ctx context.Context, c DocumentChanges) (count int, err error)

	// DocumentsChanged returns what ChangeDocuments has returned to this operation; done is
	// false if it was not asked before. Errors: harp.ErrConflict, harp.ErrInvalid (id),
	// harp.ErrPruned, as ChangeDocuments.
	DocumentsChanged(ctx context.Context, op Operation) (count int, done bool, err error)
}

// Document is a document of a listing.
type Document struct {
	Name    string
	Content []byte // nil: it is damaged
}

// DocumentChange puts one content in the place of another. A document that cannot be read
// counts as one that is not there.
type DocumentChange struct {
	Kind, Name string
	Old        []byte // what it is before; nil: it is not there
	New        []byte // nil: it is deleted
}

// DocumentChanges are made together.
type DocumentChanges struct {
	Changes []DocumentChange
	Steps   []ScheduleStep // without Batch, Op and Count; the Revision of each schedule becomes one more
	Op      Operation
	Count   int // what came of it, for whoever asks again
	Events  []harp.Event
}

// MaxExamined is how many index entries a page of a listing examines at most.
const MaxExamined = 5000

// A Gate says whether jobs may start on a host.
type Gate struct {
	Open      bool
	Most      int       // attempts that may be sent and not ended at a time; the store counts them
	Reason    string    // closed: harp.ReasonOffline and the like
	LastHeard time.Time // closed for absence: since when; ahead: it is about to return
	Awaited   time.Time // until then none of its attempts is given up
}

// A Quota is how much one principal may have at a time; a zero field is no limit.
type Quota struct {
	Waiting int // jobs that have not ended and hold no attempt
	Queues  int // in which it has jobs that have not ended, or which it has paused or given a concurrency
}

// QuotaName is what quotas are called by where one refuses something, and the field behind it.
const QuotaName = "limits.per_principal."

// Submission is a new job with its request.
type Submission struct {
	Job     Job // State, No, Life are the store's to set, but for Life.Retry
	Request harp.Submission
	Digest  [32]byte

	// Key is the idempotency key, with all that it is within: whose it is, host,
	// procedure. "": none. While KeyUntil has not come, another submission under it
	// is answered with the job of the first, or harp.ErrConflict if the digests
	// differ, whatever its id.
	Key      string
	KeyUntil time.Time

	// Most is how much the job's principal may have: with that much already, a new job is refused
	// with Err harp.ErrRefused.
	Most Quota

	// Refused is for a call that must not be stored: it is answered if it is there
	// already, by its id or under its key, else with Err harp.ErrNotFound. Of Job
	// only the ID counts.
	Refused bool
}

// Submitted is the outcome of one submission.
type Submitted struct {
	Job *Job // nil with Err
	New bool
	Err error
}

// Transition is one event in the life of one job.
type Transition struct {
	ID    string
	Event Event
}

// Change is the outcome of a transition.
type Change struct {
	Job     *Job // after it; nil with Err
	Effect  Effect
	Claimed []*Job   // started by the slots that came free
	Left    []*Job   // members of batches that ended as the turn of their hosts came by it, and never waited
	Over    []string // batches that reach no more of their hosts since
	Err     error
}

// Advanced is what Advance did.
type Advanced struct {
	Ended   []*Job
	Claimed []*Job
	Asked   []*Job   // members of a batch that was cancelled: their agents are to be told
	Batches []string // that it has moved
	Over    []string // that reach no more of their hosts since
	More    bool
}

// Operation is what an operator asks for once, however often it is asked: what came of
// it is kept under its id as long as that of a pruned job.
type Operation struct {
	ID    string // as of a job; "": it is never asked again
	By    harp.Principal
	Time  time.Time
	Most  Quota  // that By may have
	Asked []byte // of documents: what was asked for, by which it is told from others

	// Refused is why By may not do it now: only what came of it before is answered. nil: By may.
	Refused error
}

// QueueCancelled is what CancelQueue did.
type QueueCancelled struct {
	Count  int    // jobs that had not ended
	Active []*Job // those of them that hold an attempt and are to be asked to stop
	More   bool   // there are more of those, which could not be read: it is to be asked again
}

// HostRemoved is what RemoveHost did.
type HostRemoved struct {
	Count   int      // jobs that it ended
	Ended   []*Job   // those of them that this call has ended
	Claimed []*Job   // started by the slots that came free
	Left    []*Job   // as in a Change
	Over    []string // batches that reach no more of their hosts since
}

// Append is consecutive records of an attempt on their way into the store.
type Append struct {
	ID      string
	Attempt int
	Fence   uint64
	First   uint64        // the attempt's number of the first
	Records []harp.Record // Seq and Attempt are the store's to set
	Missing uint64        // in place of Records: so many are missing, which one says that has the number of the first
	Arrived time.Time
}

// Session is an agent's session as it begins.
type Session struct {
	Host        string
	Fingerprint string // of the agent's key
	Owner       string // the dispatcher that holds it
	Instance    string
	Boot        string
	Journal     string
	Taken       uint64 // how many calls of this store that has taken
	Software    string
	Labels      map[string]string
	At          time.Time
}

// Host is what is known of a host.
type Host struct {
	Name        string              `msgpack:"-"`
	Fingerprint string              `msgpack:"fingerprint,omitempty"`
	Owner       string              `msgpack:"owner,omitempty"`
	Epoch       uint64              `msgpack:"epoch"`
	Instance    string              `msgpack:"instance,omitempty"`
	Boot        string              `msgpack:"boot,omitempty"`
	Journal     string              `msgpack:"journal,omitempty"`
	Taken       uint64              `msgpack:"-"` // how many calls of this store the journal has taken
	Software    string              `msgpack:"software,omitempty"`
	Labels      map[string]string   `msgpack:"labels,omitempty"`
	Facts       harp.Value          `msgpack:"facts,omitempty"`
	Procedures  []harp.ProcedureDoc `msgpack:"procedures,omitempty"`
	LastHeard   time.Time           `msgpack:"heard,omitempty"`
	Connected   bool                `msgpack:"connected,omitempty"` // a session was open when this was written; the feed tells when that changes
	Removed     bool                `msgpack:"removed,omitempty"`   // only its epoch is left, and nobody is shown it
	RemovedNo   uint64              `msgpack:"removedno,omitempty"` // the last submit number then: what has a later one is of a host that was known again
	At          time.Time           `msgpack:"-"`                   // when PutHost is told this; zero: when it was last heard
}

// Filter selects jobs; a zero field selects all.
type Filter struct {
	Host      string
	Procedure string
	Queue     harp.Value // canonical
	States    []harp.State
	Labels    map[string]string
	Since     time.Time
	Until     time.Time
	Limit     int // of jobs in the page
}

// Matches reports whether the filter selects a job.
func (f *Filter) Matches(j *Job) bool {
	for k, v := range f.Labels {
		if has, ok := j.Labels[k]; !ok || has != v {
			return false
		}
	}
	switch {
	case f.Host != "" && f.Host != j.Host, f.Procedure != "" && f.Procedure != j.Procedure,
		f.Queue != nil && !bytes.Equal(f.Queue, j.Queue),
		len(f.States) > 0 && !slices.Contains(f.States, j.State),
		!f.Since.IsZero() && j.SubmitTime.Before(f.Since), !f.Until.IsZero() && !j.SubmitTime.Before(f.Until):
		return false
	default:
		return true
	}
}

// Page is a part of a listing.
type Page struct {
	Jobs     []*Job
	Cursor   string // "": there are no more
	Examined int    // index entries
}
