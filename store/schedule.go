package store

import (
	"context"
	"slices"
	"time"

	"github.com/harpcaller/harp"
)

// Schedule is a schedule as it is stored: what was put, and where it is in its times.
type Schedule struct {
	Name     string    `msgpack:"-"`
	Document []byte    `msgpack:"-"`                   // what was put; nil: it cannot be read
	Revision uint64    `msgpack:"revision"`            // raised by each change; 0: where it is in its times cannot be read
	KeptFrom time.Time `msgpack:"kept_from,omitempty"` // entries of its ledger about times before are not kept

	ScheduleState
}

// ScheduleState is where a schedule is in its times, as whoever fires it keeps it.
type ScheduleState struct {
	Version    uint64         `msgpack:"version"` // of the document
	LastBatch  string         `msgpack:"last,omitempty"`
	Runs       []ScheduleRun  `msgpack:"runs,omitempty"`        // whose ends were not seen yet, in their order
	BackfillBy harp.Principal `msgpack:"backfill_by,omitempty"` // who asked for it

	ScheduleLife
}

// ScheduleRun is a batch of a schedule.
type ScheduleRun struct {
	Batch string    `msgpack:"batch"`
	Since time.Time `msgpack:"since"`
	Fires FireKind  `msgpack:"fires,omitempty"`
	Late  bool      `msgpack:"late,omitempty"` // it was told that it takes longer than was expected

	Restored bool `msgpack:"restored,omitempty"` // it was there as a backup was made
}

// Restore returns the state of a schedule that was restored from a backup. Of which ends nobody knows whether they were followed since is told by the runs
// and ends that are in it, not by the time: the clock may have been wrong as it was restored.
func (s ScheduleState) Restore(at time.Time) ScheduleState {
	s = s.Clone()
	s.ScheduleLife = s.ScheduleLife.Restore(at)
	for i := range s.Runs {
		s.Runs[i].Restored = true
	}
	return s
}

// Clone returns a copy of the state that shares no memory with it.
func (s ScheduleState) Clone() ScheduleState {
	s.Runs = slices.Clone(s.Runs)
	s.Pauses, s.Skips, s.Backfill = slices.Clone(s.Pauses), slices.Clone(s.Skips), slices.Clone(s.Backfill)
	s.Lost = slices.Clone(s.Lost)
	s.Ends, s.Waits = slices.Clone(s.Ends), slices.Clone(s.Waits)
	return s
}

// ScheduleKind is the kind of documents that what was put is kept as.
const ScheduleKind = "schedule"

// Schedules keeps schedules, where each is in its times, and what became of those: the ledger. What is
// decided about them is [ScheduleLife]'s matter.
type Schedules interface {
	// StepSchedule makes all of a step in one commit, or nothing of it: what was put, where
	// the schedule is in its times, the entry of the ledger, and the batch that it fires, as SubmitBatch
	// stores it. So a time fires once, however often it is tried. Asked again under the same id it
	// changes nothing, and returns what came of the first time. Errors: harp.ErrConflict when the schedule is not of
	// the step's Revision, a backfill of a time that has fired, a batch that is stored, or an id that is
	// that of another operation; harp.ErrInvalid for a document of more than 1 MiB, a state of more
	// than 256 KiB and a Detail of more than 4 KiB; of a batch what SubmitBatch returns;
	// harp.ErrNoSpace; harp.ErrPruned, harp.ErrInvalid (id) as CancelQueue. A step that deletes the schedule, or writes neither
	// a document nor an entry, needs no more room than a cancel.
	StepSchedule(ctx context.Context, s ScheduleStep, now time.Time) (ScheduleStepped, error)

	// Schedule returns a schedule. Errors: harp.ErrNotFound.
	Schedule(ctx context.Context, name string) (*Schedule, error)

	// ListSchedules returns up to limit schedules in the order of their names, from the one
	// after the cursor, about 1 MiB of them and at least one if there is one; also those of which
	// something cannot be read. Errors: harp.ErrInvalid (cursor).
	ListSchedules(ctx context.Context, cursor string, limit int) (page []*Schedule, next string, err error)

	// ScheduleRuns returns the batches that are not over of a schedule, also of one of that name which was deleted, in the order in which they
	// were made. It costs no read.
	ScheduleRuns(name string) []ScheduleRun

	// ScheduleLedger returns a page of entries of the ledger, by their first times, newest first, without any that
	// cannot be read: of a schedule, which may be deleted, or of all. It examines at most MaxExamined,
	// and may come back short with a Cursor. Errors: harp.ErrInvalid (cursor).
	ScheduleLedger(ctx context.Context, f harp.LedgerFilter, cursor string) (harp.Page[harp.LedgerEntry], error)
}

// LedgerKept is how many entries of a schedule are kept, however old.
const LedgerKept = 100

// ScheduleStep is a change of a schedule.
type ScheduleStep struct {
	Name     string
	Revision uint64              // that it has; 0: it is not there, or where it is in its times cannot be read
	Document []byte              // nil: stays as it is
	State    ScheduleState       // after it
	Delete   bool                // the schedule, whose ledger and batches stay; State counts for nothing
	Entry    *harp.LedgerEntry   // takes the place of the one of the same kind and first time, but of a manual run, of another After, and of several times of a backfill; nil: none
	Entries  []*harp.LedgerEntry // likewise, others
	Batch    *BatchSubmission    // that it fires; nil: none
	Events   []harp.Event
	Op       Operation
	Count    int // what came of it, for whoever asks again
}

// ScheduleStepped is what came of a step.
type ScheduleStepped struct {
	Revision uint64 // of the schedule after it; 0: it is deleted, or the step was made before, under the same id
	Count    int
}
