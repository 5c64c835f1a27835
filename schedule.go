package harp

import (
	"fmt"
	"time"
	"unicode/utf8"
)

// Schedule makes the calls of a batch again and again: at each of its times, or after runs of other schedules, the
// dispatcher submits a copy of its Request. Package schedule has what Cron may be and what Gap and Repeat do. A zero
// field means: the default.
type Schedule struct {
	Name string `json:"name" msgpack:"name"`                   // 1 to MaxScheduleName bytes, none of them of a control character
	Doc  string `json:"doc,omitempty" msgpack:"doc,omitempty"` // for people

	Cron   string        `json:"cron,omitempty" msgpack:"cron,omitempty"`     // when: "30 2 * * *", "@daily", "every 90m", "at 2027-03-01 02:00"
	TZ     string        `json:"tz,omitempty" msgpack:"tz,omitempty"`         // of the IANA database; default: the dispatcher's time_zone as it is put, from then on
	From   time.Time     `json:"from,omitzero" msgpack:"from,omitempty"`      // the first nominal time that may be
	Until  time.Time     `json:"until,omitzero" msgpack:"until,omitempty"`    // the first that may not be any more
	Jitter time.Duration `json:"jitter,omitempty" msgpack:"jitter,omitempty"` // each time comes later than its nominal one by a part of it
	Gap    GapRule       `json:"gap,omitempty" msgpack:"gap,omitempty"`
	Repeat RepeatRule    `json:"repeat,omitempty" msgpack:"repeat,omitempty"`

	// After, instead of Cron, has it run when a run of another schedule ends; of several when one of each has, since it
	// ran itself: MaxDependencies at most. What is there of times, TZ to CatchUpMost, is empty then.
	After []Dependency `json:"after,omitempty" msgpack:"after,omitempty"`

	// Request is that of a batch, as [NewBatchRequest] makes it. What is of one call alone is
	// empty in it: ID, TraceParent, IdempotencyKey, StartAfter, StartBefore, Confirmed, Probe, and which
	// batch it makes again. Its OnStop is CancelBatch unless it is set, as nobody watches.
	Request Request `json:"request,omitzero" msgpack:"request"`

	Overlap        Overlap           `json:"overlap,omitempty" msgpack:"overlap,omitempty"`            // default: OverlapSkip
	CatchUp        time.Duration     `json:"catch_up,omitempty" msgpack:"catchup,omitempty"`           // by how much later than its time it may still fire; default 10 minutes
	CatchUpMost    int               `json:"catch_up_most,omitempty" msgpack:"catchupmost,omitempty"`  // how many of the times that are due may fire, the last ones; default 1, at most MaxCatchUp
	PauseOnFailure int               `json:"pause_on_failure,omitempty" msgpack:"pausefail,omitempty"` // after so many runs in a row that did not succeed it is paused; 0: never
	Expect         time.Duration     `json:"expect,omitempty" msgpack:"expect,omitempty"`              // a run that takes longer is told of as schedule.late, and goes on; 0: never
	Labels         map[string]string `json:"labels,omitempty" msgpack:"labels,omitempty"`              // of the schedule; those of its jobs are the Request's
}

// Overlap says what becomes of a time of a schedule at which its last batch is not over. A batch with
// a job that is unknown is not over.
type Overlap string

// The policies.
const (
	OverlapSkip      Overlap = ""           // the time is skipped
	OverlapQueue     Overlap = "queue"      // one time waits for the end of the batch, further ones are skipped
	OverlapCancelOld Overlap = "cancel_old" // the batch is cancelled, and the time waits for its end
	OverlapAllow     Overlap = "allow"      // it fires all the same
)

// GapRule says what becomes of a wall time that a clock leaves out.
type GapRule string

// The rules for gaps.
const (
	GapByExpression GapRule = ""      // by how Cron begins: see package schedule
	GapAfter        GapRule = "after" // the moment at which the gap ends
	GapSkip         GapRule = "skip"  // nothing
)

// RepeatRule says what becomes of a wall time that a clock shows twice.
type RepeatRule string

// The rules for repeated times.
const (
	RepeatByExpression RepeatRule = ""      // by how Cron begins: see package schedule
	RepeatFirst        RepeatRule = "first" // the first time only
	RepeatBoth         RepeatRule = "both"  // each time
	RepeatLast         RepeatRule = "last"  // the last time only
)

// Check returns ErrInvalid, naming the field, unless the schedule is within its limits, has one of Cron and After, and
// its Request is one of a batch that can be made again and again. What is in Cron and TZ, and whether there is what it
// comes after, is not looked at: the dispatcher does that.
func (s Schedule) Check() error {
	if err := checkShown("name", s.Name, MaxScheduleName); err != nil {
		return err
	}
	if len(s.After) > 0 {
		if err := s.checkAfter(); err != nil {
			return err
		}
	} else if err := checkName("cron", s.Cron, MaxCron); err != nil {
		return err
	}
	for _, text := range []struct {
		field, value string
		most         int
	}{{"doc", s.Doc, MaxScheduleDoc}, {"tz", s.TZ, MaxTZ}} {
		if err := checkText(text.field, text.value, text.most); err != nil {
			return err
		}
	}
	if err := s.checkTimes(); err != nil {
		return err
	}
	if err := s.checkRules(); err != nil {
		return err
	}
	if err := CheckLabels(s.Labels); err != nil {
		return err
	}
	return s.checkRequest()
}

func (s Schedule) checkTimes() error {
	if err := checkTime("from", s.From); err != nil {
		return err
	}
	if err := checkTime("until", s.Until); err != nil {
		return err
	}
	if !s.From.IsZero() && !s.Until.IsZero() && !s.Until.After(s.From) {
		return &FieldError{Field: "until", Message: "must be later than from"}
	}
	for _, n := range []struct {
		field string
		value int64
	}{
		{"jitter", int64(s.Jitter)},
		{"catch_up", int64(s.CatchUp)},
		{"catch_up_most", int64(s.CatchUpMost)},
		{"pause_on_failure", int64(s.PauseOnFailure)},
		{"expect", int64(s.Expect)},
	} {
		if n.value < 0 {
			return &FieldError{Field: n.field, Message: "must not be negative"}
		}
	}
	if s.Jitter == NoLimit {
		return errEndless("jitter")
	}
	if s.CatchUpMost > MaxCatchUp {
		return &FieldError{Field: "catch_up_most", Message: fmt.Sprintf("must be at most %d", MaxCatchUp)}
	}
	return nil
}

func (s Schedule) checkRules() error {
	switch s.Overlap {
	case OverlapSkip, OverlapQueue, OverlapCancelOld, OverlapAllow:
	default:
		return &FieldError{Field: "overlap", Message: fmt.Sprintf("must be %q, %q, %q or nothing, which skips the time", OverlapQueue, OverlapCancelOld, OverlapAllow)}
	}
	switch s.Gap {
	case GapByExpression, GapAfter, GapSkip:
	default:
		return &FieldError{Field: "gap", Message: fmt.Sprintf("must be %q, %q or nothing", GapAfter, GapSkip)}
	}
	switch s.Repeat {
	case RepeatByExpression, RepeatFirst, RepeatBoth, RepeatLast:
	default:
		return &FieldError{Field: "repeat", Message: fmt.Sprintf("must be %q, %q, %q or nothing", RepeatFirst, RepeatBoth, RepeatLast)}
	}
	return nil
}

// checkRequest refuses what is no request of a batch, or has what is of one call alone.
func (s Schedule) checkRequest() error {
	r := s.Request
	if !r.IsBatch() {
		return errNoTarget
	}
	for _, f := range []struct {
		field string
		given bool
	}{
		{"id", r.ID != ""},
		{"traceparent", r.TraceParent != ""},
		{"idempotency_key", r.IdempotencyKey != ""},
		{"start_after", !r.StartAfter.IsZero()},
		{"start_before", !r.StartBefore.IsZero()},
		{"confirmed", r.Batch.Confirmed != ""},
		{"probe", r.Batch.Probe},
		{"retry", r.RetryOf != ""},
		{"list", r.List != nil},
	} {
		if f.given {
			return &FieldError{Field: f.field, Message: "is of one call, and a schedule makes many"}
		}
	}
	if err := r.Batch.checkEnds(); err != nil {
		return err
	}
	r.ID = idOfNone
	return r.Check()
}

// idOfNone stands for the id that each run of a schedule gets.
const idOfNone = "00000000-0000-7000-8000-000000000000"

// SchedulePause says why a schedule fires nothing. Times are UTC.
type SchedulePause struct {
	By     Principal `json:"by,omitzero" msgpack:"by"` // who asked for it; zero: the schedule itself, by PauseOnFailure
	Reason string    `json:"reason,omitempty" msgpack:"reason,omitempty"`
	Since  time.Time `json:"since" msgpack:"since"`
	Until  time.Time `json:"until,omitzero" msgpack:"until,omitempty"` // zero: until somebody ends it
}

// ScheduleStatus is a schedule and where it is in its times. Times are UTC by the dispatcher's clock,
// zero where there is none.
type ScheduleStatus struct {
	Schedule
	ManagedBy string         `msgpack:"managed,omitempty"` // who applies its document; "": it was put by hand
	Version   uint64         `msgpack:"version"`           // counts the changes of the Schedule, from 1
	By        Principal      `msgpack:"by"`                // who put it; its runs are theirs
	Changed   time.Time      `msgpack:"changed"`           // when
	Through   time.Time      `msgpack:"through"`           // the last nominal time that is settled; of one that comes after others: ends before it do not count
	Waiting   time.Time      `msgpack:"waiting,omitempty"` // the nominal time that waits for the end of the last batch
	Next      Upcoming       `msgpack:"next,omitempty"`    // zero: there is none
	Pause     *SchedulePause `msgpack:"pause,omitempty"`   // nil: it is not paused
	LastBatch string         `msgpack:"last,omitempty"`    // the id of its last run
	Failures  int            `msgpack:"failures,omitempty"`
	Err       error          `msgpack:"failure,omitempty"` // why it can fire no more: its time zone is gone

	Ends []DependencyEnd `msgpack:"ends,omitempty"` // of one that comes after several: the runs that have ended, while it waits for those of the others
}

// DependencyEnd is that a run of a schedule has ended which another one comes after.
type DependencyEnd struct {
	Schedule string     `json:"schedule" msgpack:"schedule"`
	Batch    string     `json:"batch" msgpack:"batch"`
	State    BatchState `json:"state,omitempty" msgpack:"state,omitempty"` // "": nobody knows how it ended
	At       time.Time  `json:"at,omitzero" msgpack:"at"`                  // when
}

// Upcoming is a time of a schedule.
type Upcoming struct {
	Time    time.Time `json:"time" msgpack:"time"`                     // when it fires: Nominal and the jitter; UTC
	Nominal time.Time `json:"nominal" msgpack:"nominal"`               // when it is to fire; by this time it is known; UTC
	Wall    string    `json:"wall" msgpack:"wall"`                     // Nominal as a clock in the schedule's zone shows it
	Note    string    `json:"note,omitempty" msgpack:"note,omitempty"` // what a change of the clock did to it, or that it is skipped

	// What windows and pauses make of it, as far as they are known: a day ahead.
	Hosts     int       `json:"hosts,omitempty" msgpack:"hosts,omitempty"`         // that the target selects now; 0: it was not looked at
	Held      int       `json:"held,omitempty" msgpack:"held,omitempty"`           // of these, on which it could not start then
	HeldBy    string    `json:"held_by,omitempty" msgpack:"heldby,omitempty"`      // the first window in the way; empty: pauses are
	HeldUntil time.Time `json:"held_until,omitzero" msgpack:"helduntil,omitempty"` // when the last of them is free, UTC; zero: not known
}

// ScheduleChange is what an operator does to a schedule.
type ScheduleChange struct {
	Kind   ScheduleChangeKind `msgpack:"kind"`
	Reason string             `msgpack:"reason,omitempty"` // of a pause, for people
	Until  time.Time          `msgpack:"until,omitempty"`  // of a pause: when it ends by itself; zero: never
	At     time.Time          `msgpack:"at,omitempty"`     // of a skip: which nominal time; zero: the next one
}

// ScheduleChangeKind says which change it is.
type ScheduleChangeKind string

// The changes.
const (
	PauseOfSchedule   ScheduleChangeKind = "pause"
	UnpauseOfSchedule ScheduleChangeKind = "unpause"
	SkipOfSchedule    ScheduleChangeKind = "skip"
)

// Check returns ErrInvalid, naming the field, for a change that cannot be.
func (c ScheduleChange) Check() error {
	switch c.Kind {
	case PauseOfSchedule, UnpauseOfSchedule, SkipOfSchedule:
	default:
		return &FieldError{Field: "kind", Message: fmt.Sprintf("must be %q, %q or %q", PauseOfSchedule, UnpauseOfSchedule, SkipOfSchedule)}
	}
	if err := checkText("reason", c.Reason, MaxWhy); err != nil {
		return err
	}
	if err := checkTime("until", c.Until); err != nil {
		return err
	}
	return checkTime("at", c.At)
}

// Trigger says when a schedule that is to run now runs all the same.
type Trigger struct {
	EvenIfRunning bool `msgpack:"running,omitempty"` // its last batch is not over
	EvenIfPaused  bool `msgpack:"paused,omitempty"`
}

// checkText is checkName of a text that may be empty.
func checkText(field, text string, most int) error {
	switch {
	case len(text) > most:
		return tooLong(field, len(text), most)
	case !utf8.ValidString(text):
		return &FieldError{Field: field, Message: "must be UTF-8"}
	}
	return nil
}
