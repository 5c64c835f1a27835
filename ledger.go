package harp

import (
	"fmt"
	"slices"
	"time"
)

// LedgerEntry says what became of a time of a schedule, or of several in a row of which the same is to
// be said. Times are UTC.
type LedgerEntry struct {
	Schedule string        `json:"schedule" msgpack:"schedule"`
	Kind     LedgerKind    `json:"kind" msgpack:"kind"`
	Outcome  TimeOutcome   `json:"outcome" msgpack:"outcome"`
	Reason   string        `json:"reason,omitempty" msgpack:"reason,omitempty"`    // of skipped, missed and failed: one of Time...
	Detail   string        `json:"detail,omitempty" msgpack:"detail,omitempty"`    // overlap: the batch, and which job of it on which host is not over; paused: by whom and why; fired: how many hosts maintenance held then; behind it, of after, which runs ended, and how
	From     time.Time     `json:"from,omitzero" msgpack:"from"`                   // the first nominal time; of a manual run when it was asked for
	To       time.Time     `json:"to,omitzero" msgpack:"to"`                       // the last one
	Count    int           `json:"count" msgpack:"count"`                          // how many
	AtLeast  bool          `json:"at_least,omitempty" msgpack:"atleast,omitempty"` // there were more than were counted
	At       time.Time     `json:"at,omitzero" msgpack:"at"`                       // when it was written, by the dispatcher's clock
	Late     time.Duration `json:"late,omitempty" msgpack:"late,omitempty"`        // fired: by how much after its time
	Batch    string        `json:"batch,omitempty" msgpack:"batch,omitempty"`      // fired: the id of the run
	After    string        `json:"after,omitempty" msgpack:"after,omitempty"`      // of after: the id of the run of another schedule that ended, the last of them
	By       Principal     `json:"by,omitzero" msgpack:"by"`                       // who asked for it; zero: nobody did
	Err      error         `json:"-" msgpack:"failure,omitempty"`                  // failed: why the run was refused
}

// LedgerKind says where an entry comes from. An unknown word, from a newer dispatcher, is kept as it is.
type LedgerKind string

// The kinds.
const (
	LedgerTime     LedgerKind = "time"     // a time came
	LedgerManual   LedgerKind = "manual"   // somebody triggered the schedule
	LedgerBackfill LedgerKind = "backfill" // somebody had a time that passed run
	LedgerAfter    LedgerKind = "after"    // runs of other schedules ended: see Schedule.After
)

// TimeOutcome is what became of a time of a schedule. An unknown word, from a newer dispatcher, is kept
// as it is.
type TimeOutcome string

// The outcomes.
const (
	TimeFired   TimeOutcome = "fired"   // a batch was submitted
	TimeSkipped TimeOutcome = "skipped" // there was a rule, or somebody, that said no
	TimeMissed  TimeOutcome = "missed"  // it could not be in time
	TimeFailed  TimeOutcome = "failed"  // its batch was refused, and ran nothing
)

// Why a time was skipped, missed or failed: LedgerEntry.Reason.
const (
	TimeOverlap    = "overlap"    // skipped: the last batch was not over
	TimePaused     = "paused"     // skipped: the schedule was paused
	TimeNoHosts    = "no_hosts"   // skipped: the target selected none
	TimeWindow     = "window"     // skipped: a maintenance window refused all hosts
	TimeByHand     = "by_hand"    // skipped: somebody asked for it, or changed the times of the schedule while this one waited for its jitter, or deleted it while this one was to be decided
	TimeDependency = "dependency" // skipped: a run of another schedule did not end as Schedule.After says, or counts no more
	TimeDown       = "down"       // missed: no dispatcher was there
	TimeRestored   = "restored"   // missed: the store was restored from a backup, and it may have fired since that was made
	TimeTooLate    = "catch_up"   // missed: later than CatchUp or Within, or more than CatchUpMost
	TimeClock      = "clock"      // missed: the clock was set forward over it
	TimeNoSpace    = "no_space"   // missed: the dispatcher's disk had no room
	TimeZone       = "zone"       // failed: the schedule's zone was gone, or what else says when its times are; how many there were nobody knows
)

// LedgerFilter selects entries; a zero field selects all.
type LedgerFilter struct {
	Schedule string        `msgpack:"schedule,omitempty"`
	Outcomes []TimeOutcome `msgpack:"outcomes,omitempty"`
	From     time.Time     `msgpack:"from,omitempty"` // whose last nominal time is at or after it
	To       time.Time     `msgpack:"to,omitempty"`   // whose first nominal time is before it
	Limit    int           `msgpack:"-"`              // of entries in a page; 0: as many as fit
}

// Check returns ErrInvalid, naming the field, for a filter that cannot be.
func (f LedgerFilter) Check() error {
	if err := checkText("schedule", f.Schedule, MaxScheduleName); err != nil {
		return err
	}
	outcomes := []TimeOutcome{TimeFired, TimeSkipped, TimeMissed, TimeFailed}
	if len(f.Outcomes) > len(outcomes) {
		return &FieldError{Field: "outcomes", Message: fmt.Sprintf("at most %d", len(outcomes))}
	}
	for _, outcome := range f.Outcomes {
		if !slices.Contains(outcomes, outcome) {
			return &FieldError{Field: "outcomes", Message: fmt.Sprintf("%q is not one of fired, skipped, missed and failed", string(outcome))}
		}
	}
	if err := checkTime("from", f.From); err != nil {
		return err
	}
	return checkTime("to", f.To)
}
