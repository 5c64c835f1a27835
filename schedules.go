package harp

import (
	"context"
	"fmt"
	"iter"
	"time"
)

// Schedules looks at schedules and changes them, and has them run. It is safe for concurrent use.
type Schedules struct{ service Service }

// Schedules returns the handle for looking at schedules and changing them.
func (c *Caller) Schedules() *Schedules { return &Schedules{service: c.service} }

// List yields all schedules, by name. Errors: ErrUnavailable, ErrClosed.
func (s *Schedules) List(ctx context.Context) iter.Seq2[ScheduleStatus, error] {
	return pages(func(cursor string) (Page[ScheduleStatus], error) { return s.service.ListSchedules(ctx, "", cursor) })
}

// Get returns one schedule, as it was put; of arguments that are secret "***" is returned, which Put
// refuses. Errors: ErrInvalid (no name), ErrNotFound, ErrUnavailable, ErrClosed.
func (s *Schedules) Get(ctx context.Context, name string) (ScheduleStatus, error) {
	if err := checkName("name", name, MaxScheduleName); err != nil {
		return ScheduleStatus{}, err
	}
	page, err := s.service.ListSchedules(ctx, name, "")
	switch {
	case err != nil:
		return ScheduleStatus{}, err
	case len(page.Items) == 0:
		return ScheduleStatus{}, notFoundError("schedule", name)
	}
	return page.Items[0], nil
}

// Put makes a schedule, or replaces the one of its name. Only times to come fire: none that passed
// before it was put. The id of its Request is left out, since each run gets its own. It runs as the caller
// who put it last.
//
// Errors: ErrInvalid, naming the field: cron (it cannot be read, or never fires), tz (no such zone),
// until, jitter (it reaches the next time), after (there is no such schedule, or it comes after itself by way of others), target,
// args (one stands for a secret), and what [Schedule.Check] says; ErrRefused (there are too many, or too many come after one), ErrConflict (its document is applied by whoever is named), ErrDenied, ErrUnavailable, ErrClosed.
func (s *Schedules) Put(ctx context.Context, schedule Schedule) error {
	schedule.Request.ID = ""
	if err := schedule.Check(); err != nil {
		return err
	}
	return s.service.PutSchedule(ctx, NewID(), schedule)
}

// Delete deletes a schedule. What it has started goes on. Errors: ErrInvalid (no name), ErrNotFound,
// ErrConflict (its document is applied by whoever is named, or those that are named come after it), ErrDenied, ErrUnavailable,
// ErrClosed.
func (s *Schedules) Delete(ctx context.Context, name string) error {
	if err := checkName("name", name, MaxScheduleName); err != nil {
		return err
	}
	return s.service.DeleteSchedule(ctx, NewID(), name)
}

// Pause keeps a schedule from firing, until a time or, if that is zero, until Unpause. Times that pass
// meanwhile are skipped, and never caught up. reason is for people. It takes the place of a pause
// before it. Errors: ErrInvalid (no name; reason, longer than MaxWhy; until, which has passed),
// ErrNotFound, ErrDenied, ErrUnavailable, ErrClosed.
func (s *Schedules) Pause(ctx context.Context, name, reason string, until time.Time) error {
	return s.change(ctx, name, ScheduleChange{Kind: PauseOfSchedule, Reason: reason, Until: until})
}

// Unpause lets a schedule fire again, from its next time on. Of one that is not paused it changes
// nothing. Errors: ErrInvalid (no name), ErrNotFound, ErrDenied, ErrUnavailable, ErrClosed.
func (s *Schedules) Unpause(ctx context.Context, name string) error {
	return s.change(ctx, name, ScheduleChange{Kind: UnpauseOfSchedule})
}

// Skip leaves out one time to come, by its nominal time; the zero time is the next one. Errors: ErrInvalid (no
// name; at, which is no time of the schedule, as none is of one that comes after others), ErrNotFound, ErrConflict (the time is settled, or skipped
// already), ErrDenied, ErrUnavailable, ErrClosed.
func (s *Schedules) Skip(ctx context.Context, name string, at time.Time) error {
	return s.change(ctx, name, ScheduleChange{Kind: SkipOfSchedule, At: at})
}

func (s *Schedules) change(ctx context.Context, name string, c ScheduleChange) error {
	if err := checkName("name", name, MaxScheduleName); err != nil {
		return err
	}
	if err := c.Check(); err != nil {
		return err
	}
	return s.service.ChangeSchedule(ctx, NewID(), name, c)
}

// TriggerOption changes when [Schedules.Trigger] is refused.
type TriggerOption func(*Trigger)

// EvenIfRunning triggers a schedule also while its last batch is not over.
func EvenIfRunning() TriggerOption { return func(t *Trigger) { t.EvenIfRunning = true } }

// EvenIfPaused triggers a schedule also while it is paused.
func EvenIfPaused() TriggerOption { return func(t *Trigger) { t.EvenIfPaused = true } }

// Trigger runs a schedule now, beside its times. Errors: ErrInvalid (no name), ErrNotFound (it; a
// host of its target, or it selects none), ErrConflict (its last batch is not over, or 100 of them, or it is paused),
// ErrDenied, ErrUnavailable, ErrClosed, what [Target.Call] returns for a batch that is refused, and a
// *CallError, which is ErrUnavailable too, when it may have been triggered.
func (s *Schedules) Trigger(ctx context.Context, name string, opts ...TriggerOption) (*Batch, error) {
	if err := checkName("name", name, MaxScheduleName); err != nil {
		return nil, err
	}
	var t Trigger
	for _, opt := range opts {
		opt(&t)
	}
	done, err := s.service.TriggerSchedule(ctx, NewID(), name, t)
	switch {
	case err != nil:
		return nil, err
	case done.Err != nil:
		return nil, done.Err
	}
	return &Batch{service: s.service, id: done.ID, existed: done.Existed}, nil
}

// Next returns the times to come of a schedule, n at most, from the one on that waits for its jitter, if one does: none of one that comes
// after others. Errors: ErrInvalid (no name; n, which is less than 1 or more than MaxNextTimes), ErrNotFound, ErrUnavailable, ErrClosed.
func (s *Schedules) Next(ctx context.Context, name string, n int) ([]Upcoming, error) {
	return s.NextFrom(ctx, name, time.Time{}, n)
}

// NextFrom is Next for the times after one that may be far from now. Errors: as Next; ErrInvalid
// (from).
func (s *Schedules) NextFrom(ctx context.Context, name string, from time.Time, n int) ([]Upcoming, error) {
	if err := CheckNextTimes(name, from, n); err != nil {
		return nil, err
	}
	return s.service.NextTimes(ctx, name, from, n)
}

// CheckNextTimes returns ErrInvalid, naming the field, unless [Schedules.NextFrom] may be asked so.
func CheckNextTimes(name string, from time.Time, n int) error {
	if err := checkName("name", name, MaxScheduleName); err != nil {
		return err
	}
	if n < 1 || n > MaxNextTimes {
		return &FieldError{Field: "n", Message: fmt.Sprintf("must be from 1 to %d", MaxNextTimes)}
	}
	return checkTime("from", from)
}

// Backfill runs a schedule for its nominal times in [from, to) that have not fired, MaxBackfill at
// most, the oldest first, one after another, and returns how many. It returns when that is on the dispatcher's
// disk. Errors: ErrInvalid (no name; from, to: there are too many times, or to is to come; of a schedule that comes after others),
// ErrNotFound, ErrPruned (what became of times so long ago is not known any more), ErrConflict (a
// backfill is under way), ErrDenied, ErrUnavailable, ErrClosed.
func (s *Schedules) Backfill(ctx context.Context, name string, from, to time.Time) (int, error) {
	if err := CheckBackfill(name, from, to); err != nil {
		return 0, err
	}
	return s.service.BackfillSchedule(ctx, NewID(), name, from, to)
}

// CheckBackfill returns ErrInvalid, naming the field, unless [Schedules.Backfill] may be asked so.
func CheckBackfill(name string, from, to time.Time) error {
	if err := checkName("name", name, MaxScheduleName); err != nil {
		return err
	}
	return checkBounds(from, to)
}

// checkBounds refuses what is no span from one time to a later one.
func checkBounds(from, to time.Time) error {
	for _, bound := range []struct {
		field string
		at    time.Time
	}{{"from", from}, {"to", to}} {
		if bound.at.IsZero() {
			return &FieldError{Field: bound.field, Message: "must be a time"}
		}
		if err := checkTime(bound.field, bound.at); err != nil {
			return err
		}
	}
	if !to.After(from) {
		return &FieldError{Field: "to", Message: "must be later than from"}
	}
	return nil
}

// Ledger yields what became of times, newest first. Pages are fetched as the loop goes; an error is the
// last thing it yields. Errors: ErrInvalid for a filter that cannot be, ErrNotFound (the schedule),
// ErrUnavailable, ErrClosed.
func (s *Schedules) Ledger(ctx context.Context, f LedgerFilter) iter.Seq2[LedgerEntry, error] {
	return pages(func(cursor string) (Page[LedgerEntry], error) {
		if err := f.Check(); err != nil {
			return Page[LedgerEntry]{}, err
		}
		return s.service.ScheduleLedger(ctx, f, cursor)
	})
}
