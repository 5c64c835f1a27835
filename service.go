package harp

import (
	"context"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/harpcaller/harp/target"
)

// Service is what a Caller needs of a dispatcher: the dispatcher's own engine, or
// a connection to one. Programs that make calls have a Caller and need nothing of it; it is
// for those that stand between: an [Interceptor], or what embeds a Service. It
// grows: methods, and fields of what they take and return, are added also after 1.0, so that a
// Service that is not embedded in another is one of a test. Implementations share no memory
// with their callers.
type Service interface {
	JobService
	BatchService
	HostService
	DriftService
	QueueService
	GroupService
	ScheduleService
	MaintenanceService
	NotificationService
	RetentionService
	EventService
	UpkeepService

	// Ping says who answers.
	Ping(ctx context.Context) (ServerInfo, error)

	// Close releases what the Service holds for its caller; calls that wait
	// return ErrClosed.
	Close() error
}

// JobService submits jobs and reads them back.
type JobService interface {
	// Submit acknowledges calls, 1 to MaxCalls: when it returns, the jobs are on disk, of one
	// commit. The same request under the same id is acknowledged again. What became of
	// each stands at its index. Errors, of each: ErrInvalid, ErrNotFound (host,
	// procedure), ErrConflict (the id names another request), ErrPruned,
	// ErrUnreachable (FailFast), ErrRefused, and *CallError when it may have been
	// accepted. Errors, of all: ErrDenied, ErrUnavailable, ctx's; nothing is stored then.
	// The request of a batch is submitted alone: its id is that of the batch, and it may
	// also be ErrConflict or ErrNotFound for what its target selects.
	Submit(ctx context.Context, calls []Submission) ([]Submitted, error)

	// JobStatus returns the state of a job. Errors: ErrNotFound, ErrPruned.
	JobStatus(ctx context.Context, id string) (JobStatus, error)

	// JobResult returns how a job ended; with wait, when it has. Without, the
	// zero Result when it has not. Errors: ErrNotFound, ErrPruned, ctx's.
	JobResult(ctx context.Context, id string, wait bool) (Result, error)

	// JobResults waits until one of these jobs has ended, at most MaxWaited of them, and
	// returns how all that have by then did, as far as they fit into an answer, and
	// which cannot be asked after. Errors: ctx's.
	JobResults(ctx context.Context, ids []string) ([]JobResult, error)

	// Records returns committed records. Errors: ErrNotFound, ErrPruned, ctx's.
	Records(ctx context.Context, id string, q RecordQuery) (RecordPage, error)

	// CancelJob asks a job to stop, without a grace if that is to be now; true if
	// it had not ended. It returns when the request is on disk. Errors:
	// ErrNotFound, ErrPruned.
	CancelJob(ctx context.Context, id string, now bool) (bool, error)

	// JobRequest returns what the caller of a job or batch submitted, byte for byte; of a
	// member that of its batch. Errors: ErrNotFound, ErrPruned.
	JobRequest(ctx context.Context, id string) (Submission, error)

	// ForceLost ends a job that holds a slot as lost(forced); why is kept with it.
	// Errors: ErrNotFound, ErrPruned, ErrConflict in any other state.
	ForceLost(ctx context.Context, id, why string) error

	// ListJobs returns one page, newest first. Errors: ErrInvalid.
	ListJobs(ctx context.Context, f JobFilter, cursor string) (Page[JobStatus], error)
}

// BatchService looks at batches and changes them. [JobService.Submit] makes them.
type BatchService interface {
	// BatchStatus returns the state of a batch; with wait, when it has ended. Errors:
	// ErrNotFound, ErrPruned, ctx's.
	BatchStatus(ctx context.Context, id string, wait bool) (BatchStatus, error)

	// ListBatches returns one page, newest first. Errors: ErrInvalid.
	ListBatches(ctx context.Context, f BatchFilter, cursor string) (Page[BatchStatus], error)

	// BatchLog returns what has become of a batch's members, in the order of its log. Errors:
	// ErrNotFound, ErrPruned, ctx's.
	BatchLog(ctx context.Context, id string, q BatchQuery) (BatchPage, error)

	// ChangeBatch pauses, resumes or cancels a batch, once for an operation, whose id is as
	// that of CancelQueue; of a cancel it returns how many members had not ended. Errors:
	// ErrNotFound, ErrPruned, ErrConflict (the batch has ended or is cancelling, but for a
	// cancel; another wave than that of the change is to be approved; the id is that of another
	// request), ErrInvalid.
	ChangeBatch(ctx context.Context, operation, id string, c BatchChange) (int, error)
}

// BatchQuery says which part of a batch's log is wanted.
type BatchQuery struct {
	From    uint64 `msgpack:"from,omitempty"`    // the first number wanted
	At      uint64 `msgpack:"at,omitempty"`      // where that is of records: the first one wanted, by its job's number
	Records bool   `msgpack:"records,omitempty"` // records, too, and not the ends of members alone
	Tail    bool   `msgpack:"tail,omitempty"`    // From is ignored: what comes from now on, and
	Recent  uint64 `msgpack:"recent,omitempty"`  // with Tail, so many numbers of those that are there
	Wait    bool   `msgpack:"wait,omitempty"`    // answer when there is something or the batch has ended; not with Tail

	// MaxBytes is how much the caller can take, about; one entry is answered in any case. 0: 1
	// MiB, and never more.
	MaxBytes int `msgpack:"-"`
}

// BatchPage is a part of a batch's log, at most about 1 MiB of it.
type BatchPage struct {
	Entries []HostRecord
	Next    uint64 // where to go on
	At      uint64 // with which record of its job, if that number tells of records
	Ended   bool   // the batch has ended and there is no more
}

// BatchChange is what an operator does to a batch.
type BatchChange struct {
	Kind   BatchChangeKind `msgpack:"kind"`
	Reason string          `msgpack:"reason,omitempty"` // of a pause, for people
	Wave   int             `msgpack:"wave,omitempty"`   // of a resume: the wave that it approves, and nothing else; 0: whatever the batch is paused for
}

// BatchChangeKind says which change it is.
type BatchChangeKind string

// The changes.
const (
	PauseOfBatch  BatchChangeKind = "pause"
	ResumeOfBatch BatchChangeKind = "resume"
	CancelOfBatch BatchChangeKind = "cancel"
)

// Check returns ErrInvalid, naming the field, for a change that cannot be.
func (c BatchChange) Check() error {
	switch c.Kind {
	case PauseOfBatch, ResumeOfBatch, CancelOfBatch:
	default:
		return &FieldError{Field: "kind", Message: fmt.Sprintf("must be %q, %q or %q", PauseOfBatch, ResumeOfBatch, CancelOfBatch)}
	}
	if len(c.Reason) > MaxWhy {
		return tooLong("reason", len(c.Reason), MaxWhy)
	}
	if !utf8.ValidString(c.Reason) {
		return &FieldError{Field: "reason", Message: "must be UTF-8"}
	}
	if c.Wave < 0 || c.Wave > 0 && c.Kind != ResumeOfBatch {
		return &FieldError{Field: "wave", Message: "must be that of a resume, from 1"}
	}
	return nil
}

// HostService looks at hosts and removes them.
type HostService interface {
	// ListHosts returns one page of the hosts that a target selects, of all if it
	// is empty, by name. Errors: ErrInvalid (target), ErrNotFound (a host that is written
	// out in it and not known, or no host at all).
	ListHosts(ctx context.Context, expr, cursor string) (Page[HostStatus], error)

	// ExplainTarget returns how many hosts each part of a target selects by itself; with
	// a host, whether it selects that one and what it has there. Errors: ErrInvalid
	// (target), ErrNotFound (the host), ErrRefused (the target has more than 4,000 parts).
	ExplainTarget(ctx context.Context, expr, host string) (target.Node, error)

	// PreviewBatch returns what the submission of a batch would meet; nothing is stored. Errors: ErrInvalid (the
	// request, which is that of no batch, or hosts), ErrNotFound (a host that is written out in its target and not
	// known, or no host at all). Why else it would be refused is in the Preview.
	PreviewBatch(ctx context.Context, call Submission) (Preview, error)

	// LabelHosts sets and unsets labels of the hosts that a target selects, once for an id,
	// which is as that of CancelQueue, and returns how many hosts these are. Errors:
	// ErrInvalid (target, labels, id), ErrNotFound, as ListHosts, ErrConflict (the id is
	// that of another request), ErrPruned (it is too old).
	LabelHosts(ctx context.Context, id, expr string, set map[string]string, unset []string) (int, error)

	// HostProcedures returns one page of what a host's agent last said it
	// offers, by name. Errors: ErrNotFound.
	HostProcedures(ctx context.Context, host, cursor string) (Page[ProcedureDoc], error)

	// RemoveHost forgets a host and ends what has not ended on it: what waits is cancelled,
	// what was sent to it is lost(host_removed). It returns how many jobs it ended. id is as that of
	// CancelQueue. Errors: ErrNotFound, ErrConflict (its agent is connected, it is in the
	// hosts registry, or the id is that of another request), ErrInvalid (id), ErrPruned.
	RemoveHost(ctx context.Context, id, name string) (int, error)

	// PingHosts asks the agents of one page of the hosts that a target selects, by name,
	// whether they are there, and waits 3 s for their answers. Errors: as ListHosts.
	PingHosts(ctx context.Context, expr, cursor string) (Page[HostPing], error)

	// RefreshHosts reads the hosts registry again and returns how many hosts it
	// has. Errors: ErrRefused when there is no registry, ErrUnavailable when it
	// cannot be read; the old one is kept.
	RefreshHosts(ctx context.Context) (int, error)
}

// DriftService looks at what checks have marked hosts with.
type DriftService interface {
	// ListDrift returns one page of the marks of the hosts that a target selects, of all if it is empty, by host
	// and name; with a name those under that one. Errors: as ListHosts; ErrInvalid (name).
	ListDrift(ctx context.Context, expr, name, cursor string) (Page[DriftStatus], error)

	// ForgetDrift forgets all marks under a name, once for an id, which is as that of CancelQueue, and returns how
	// many these were. Errors: ErrInvalid (name, id), ErrNotFound, ErrConflict (the id is that of another
	// request), ErrPruned (it is too old).
	ForgetDrift(ctx context.Context, id, name string) (int, error)
}

// QueueService looks at queues and cancels them.
type QueueService interface {
	// ListQueues returns one page of queues, of the one with this canonical name
	// if it is not nil. Errors: ErrInvalid.
	ListQueues(ctx context.Context, name Value, cursor string) (Page[QueueStatus], error)

	// CancelQueue cancels all that is in the queue at this moment; it returns
	// how many jobs had not ended. id is as NewID makes them; asked again under the same
	// id it cancels nothing that came since, and returns the same. Errors: ErrNotFound,
	// ErrInvalid (id), ErrConflict (the id is that of another request), ErrPruned (it is
	// too old).
	CancelQueue(ctx context.Context, id string, name Value) (int, error)

	// ChangeQueue changes a queue, once for an id, which is as that of CancelQueue.
	// Errors: as CancelQueue, but that a pause makes the queue if it is not there;
	// ErrInvalid (a field of the change; until, which has passed).
	ChangeQueue(ctx context.Context, id string, name Value, c QueueChange) error
}

// GroupService looks at groups and changes them.
type GroupService interface {
	// ListGroups returns one page of groups, by name; of the one with this name if it is
	// not empty.
	ListGroups(ctx context.Context, name, cursor string) (Page[Group], error)

	// PutGroup makes a group or replaces its target, once for an id, which is as that of
	// CancelQueue. Errors: ErrInvalid (name, target, id), ErrRefused (there are too many),
	// ErrConflict (the id is that of another request), ErrPruned (it is too old).
	PutGroup(ctx context.Context, id, name, expr string) error

	// DeleteGroup deletes a group, once for an id. Errors: as PutGroup; ErrNotFound,
	// ErrConflict (another group, a window or a notification uses it).
	DeleteGroup(ctx context.Context, id, name string) error
}

// ScheduleService looks at schedules, changes them and has them run. An id is as that of CancelQueue.
type ScheduleService interface {
	// PutSchedule makes a schedule or replaces the one of its name, once for an id. Errors:
	// ErrInvalid (a field of it, id), ErrRefused (there are too many), ErrConflict (the id is
	// that of another request), ErrPruned (it is too old).
	PutSchedule(ctx context.Context, id string, s Schedule) error

	// DeleteSchedule deletes a schedule, once for an id. Errors: as PutSchedule; ErrNotFound.
	DeleteSchedule(ctx context.Context, id, name string) error

	// ListSchedules returns one page of schedules, by name; of the one with this name if it is
	// not empty.
	ListSchedules(ctx context.Context, name, cursor string) (Page[ScheduleStatus], error)

	// ChangeSchedule pauses or unpauses a schedule, or skips a time of it, once for an id.
	// Errors: ErrNotFound, ErrInvalid, ErrConflict (the time is settled or skipped; the id is
	// that of another request), ErrPruned.
	ChangeSchedule(ctx context.Context, id, name string, c ScheduleChange) error

	// TriggerSchedule runs a schedule now, as the batch of this id: asked again it is the same.
	// Errors: ErrNotFound, ErrInvalid, ErrConflict (it runs or is paused; the id names another
	// request), ErrPruned, those of the batch as Submit has them, and *CallError when it may have been
	// accepted.
	TriggerSchedule(ctx context.Context, batch, name string, t Trigger) (Submitted, error)

	// BackfillSchedule runs a schedule for the times in [from, to) that did not fire, and
	// returns how many, once for an id. Errors: ErrNotFound, ErrInvalid, ErrConflict, ErrPruned (the
	// ledger does not reach back so far, or the id is too old).
	BackfillSchedule(ctx context.Context, id, name string, from, to time.Time) (int, error)

	// NextTimes returns at most n times of a schedule after a time, or from now on if that is zero.
	// Errors: ErrNotFound, ErrInvalid (n, from).
	NextTimes(ctx context.Context, name string, from time.Time, n int) ([]Upcoming, error)

	// ScheduleLedger returns one page of what became of times, newest first. Errors: ErrInvalid,
	// ErrNotFound (the schedule).
	ScheduleLedger(ctx context.Context, f LedgerFilter, cursor string) (Page[LedgerEntry], error)

	// ApplyDocuments makes schedules, groups and windows what the documents say and says what that has changed, once for an
	// id; asked again it returns the Count alone. A dry run needs no id. Errors: ErrInvalid (a field of a
	// document, id), ErrRefused (there are too many), ErrConflict (another one manages what a document
	// is of; a group that is to be deleted is used; the id is that of another request), ErrPruned (it is too old).
	ApplyDocuments(ctx context.Context, id, managedBy string, documents []Document, o ApplyOptions) (Applied, error)
}

// MaintenanceService looks at maintenance windows and pauses of hosts, and changes them. An id is as that of
// CancelQueue.
type MaintenanceService interface {
	// PutWindow makes a window or replaces the one of its name, once for an id. When it returns, the window is heeded.
	// Errors: ErrInvalid (a field of it, id), ErrRefused (there are too many), ErrConflict (the id is
	// that of another request), ErrPruned (it is too old).
	PutWindow(ctx context.Context, id string, w Window) error

	// DeleteWindow deletes a window, once for an id. Errors: as PutWindow; ErrNotFound.
	DeleteWindow(ctx context.Context, id, name string) error

	// EndWindow ends the open span of a window that is once, once for an id. Errors: as PutWindow; ErrNotFound,
	// ErrConflict (it is not open, or not once).
	EndWindow(ctx context.Context, id, name string) error

	// ListWindows returns one page of windows, by name; of the one with this name if it is not empty. The Content of their
	// calendars is left out unless a name is given.
	ListWindows(ctx context.Context, name, cursor string) (Page[WindowStatus], error)

	// WindowSpans returns the spans of a window that have a moment in [from, to), at most MaxWindowSpans. Errors:
	// ErrNotFound, ErrInvalid.
	WindowSpans(ctx context.Context, name string, from, to time.Time) ([]Span, error)

	// PreviewWindow returns the spans that a window would have, at most MaxWindowSpans, and stores nothing. Errors: as PutWindow, but for
	// those of the id; ErrInvalid.
	PreviewWindow(ctx context.Context, w Window, from, to time.Time) ([]Span, error)

	// JudgeStart says what windows and pauses make of a start by hand at a moment, or now if that is zero. Errors:
	// ErrNotFound (the host), ErrInvalid (at, of which nothing is known).
	JudgeStart(ctx context.Context, host, procedure string, at time.Time) (Verdict, error)

	// PauseHosts pauses the hosts that a target selects, or ends their pauses, once for an id, and returns how many hosts
	// that are. Errors: as LabelHosts; ErrInvalid (until, which has passed).
	PauseHosts(ctx context.Context, id, expr string, c HostPauseChange) (int, error)
}

// NotificationService looks at notifications and changes them. An id is as that of CancelQueue.
type NotificationService interface {
	// PutNotification makes a notification or replaces the one of its name, once for an id. Errors: ErrInvalid (a field of
	// it, id), ErrRefused (there are too many), ErrConflict (it is managed; the id is that of another request), ErrPruned (it is too old).
	PutNotification(ctx context.Context, id string, n Notification) error

	// DeleteNotification deletes a notification and its messages, once for an id. Errors: as PutNotification; ErrNotFound.
	DeleteNotification(ctx context.Context, id, name string) error

	// ListNotifications returns one page of notifications, by name; of the one with this name if it is not empty.
	ListNotifications(ctx context.Context, name, cursor string) (Page[NotificationStatus], error)

	// ChangeNotification pauses or unpauses a notification or has messages tried again, once for an id; or it sends a test.
	// Errors: ErrNotFound (the notification; the message), ErrInvalid, ErrConflict (the id is that of another request), ErrPruned.
	ChangeNotification(ctx context.Context, id, name string, c NotificationChange) (NotificationChanged, error)

	// ListMessages returns one page of the messages of a notification that were not taken, in the order of their events.
	// Errors: ErrNotFound (the notification), ErrInvalid (cursor).
	ListMessages(ctx context.Context, name, cursor string) (Page[MessageStatus], error)
}

// RetentionService looks at the rules that say what is kept, and changes them. An id is as that of CancelQueue.
type RetentionService interface {
	// RetentionRules returns all rules in the order in which they are asked.
	RetentionRules(ctx context.Context) ([]RetentionStatus, error)

	// PutRetentionRule makes a rule or replaces the one of its name, once for an id. It holds for what ends after.
	// Errors: ErrInvalid (a field of it, id), ErrRefused (there are MaxRetentionRules), ErrConflict (its document is applied by
	// somebody; the id is that of another request), ErrPruned (it is too old).
	PutRetentionRule(ctx context.Context, id string, r RetentionRule) error

	// DeleteRetentionRule deletes a rule, once for an id. Errors: as PutRetentionRule; ErrNotFound.
	DeleteRetentionRule(ctx context.Context, id, name string) error

	// ExplainRetention says how long a job, or a batch, is kept. Errors: ErrNotFound, ErrPruned.
	ExplainRetention(ctx context.Context, id string) (Kept, error)
}

// EventService reads the feed of events.
type EventService interface {
	// Events returns events after a cursor, at most about 1 MiB of them; with wait,
	// when there is one. A page may be empty while its Cursor has moved: then there
	// was nothing for the filter. Errors: ErrInvalid (after, types), ErrPruned when
	// what comes after the cursor is not kept any more, ctx's.
	Events(ctx context.Context, f EventFilter, wait bool) (EventPage, error)
}

// UpkeepService keeps the dispatcher's store in order.
type UpkeepService interface {
	// Prune deletes jobs that ended before a time and that no retention rule keeps, and the events before it, now
	// rather than when the dispatcher's own retention would, and gives their space
	// back. It returns how many jobs. Errors: ErrRefused where the time is in the
	// future.
	Prune(ctx context.Context, endedBefore time.Time) (int, error)

	// Backup writes a copy of the store, as it is at one moment, to w. Errors: w's,
	// ErrUnavailable when it was cut short: what was written is no backup.
	Backup(ctx context.Context, w io.Writer) error
}

// Submission is a request on its way to a dispatcher. For those who implement a [Service] or
// intercept one, as all that follows; it may get more fields.
type Submission struct {
	Request   []byte `msgpack:"req"`             // as Request.Encode made it
	Signature []byte `msgpack:"sig,omitempty"`   // of Request; nil: not signed
	KeyID     string `msgpack:"key,omitempty"`   // of the key that signed
	Hosts     []byte `msgpack:"hosts,omitempty"` // of a batch that has a List: as EncodeHosts makes them; not stored with the request
}

// Submitted is what became of a submission.
type Submitted struct {
	ID      string // of its job
	Existed bool   // the job was there before
	Err     error  // why there is none
}

// JobResult is how one of several jobs ended.
type JobResult struct {
	ID     string
	Result Result
	Err    error // why it cannot be asked after: ErrInvalid (the id), ErrNotFound, ErrPruned
}

// RecordQuery says which records are wanted.
type RecordQuery struct {
	From   uint64 `msgpack:"from,omitempty"`   // the first number wanted
	Tail   bool   `msgpack:"tail,omitempty"`   // From is ignored: those that come from now on, and
	Recent uint64 `msgpack:"recent,omitempty"` // with Tail, so many of those that are there
	Wait   bool   `msgpack:"wait,omitempty"`   // answer when there is at least one or the job has ended; not with Tail

	// MaxBytes is how much of them the caller can take, about; one is answered in any
	// case. 0: 1 MiB, and never more.
	MaxBytes   int `msgpack:"-"`
	MaxRecords int `msgpack:"-"` // how many the caller can take. 0: any number
}

// RecordPage is a part of a job's records, at most about 1 MiB of them.
type RecordPage struct {
	Records []Record
	Next    uint64 // where to go on
	End     uint64 // one more than the last committed record's number
	Ended   bool   // the job has ended and there are no more
}
