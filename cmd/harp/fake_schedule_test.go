package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/schedule"
)

// scheduleFake is what a fake answers about schedules, and what it was told.
type scheduleFake struct {
	all    []harp.ScheduleStatus
	ledger []harp.LedgerEntry
	err    error
	now    time.Time
	held   harp.Upcoming // what maintenance makes of the times to come

	put       []harp.Schedule
	deleted   []string
	changes   []harp.ScheduleChange
	triggered []harp.Trigger
	from, to  time.Time
	filter    harp.LedgerFilter

	managedBy string
	documents []harp.Document
	apply     harp.ApplyOptions
	applied   harp.Applied
}

// PutSchedule keeps a schedule if package schedule knows its times, in UTC where it names no zone.
func (f *fake) PutSchedule(_ context.Context, _ string, s harp.Schedule) error {
	f.schedules.put = append(f.schedules.put, s)
	if f.schedules.err != nil {
		return f.schedules.err
	}
	if s.TZ == "" {
		s.TZ = "UTC"
	}
	spec, err := specOf(s)
	if err == nil {
		err = spec.Check(f.schedules.now)
	}
	var wrong *schedule.FieldError
	if errors.As(err, &wrong) {
		return &harp.FieldError{Field: wrong.Field, Message: wrong.Message}
	}
	f.schedules.all = slices.DeleteFunc(f.schedules.all, func(old harp.ScheduleStatus) bool { return old.Name == s.Name })
	f.schedules.all = append(f.schedules.all, harp.ScheduleStatus{
		Schedule: s, Version: 1, By: harp.Principal{Kind: "caller", Name: "ops"}, Changed: f.schedules.now, Next: upcoming(spec, f.schedules.now, 1)[0],
	})
	return nil
}

func specOf(s harp.Schedule) (*schedule.Spec, error) {
	return schedule.Parse(s.Cron, s.TZ, schedule.Rules{
		Name: s.Name, From: s.From, Until: s.Until, Jitter: s.Jitter, Gap: schedule.Gap(s.Gap), Repeat: schedule.Repeat(s.Repeat),
	})
}

func upcoming(spec *schedule.Spec, from time.Time, n int) (times []harp.Upcoming) {
	for m, ok := spec.Next(from); ok && len(times) < n; m, ok = spec.Next(m.Nominal) {
		times = append(times, harp.Upcoming{Time: m.Time, Nominal: m.Nominal, Wall: m.Wall, Note: m.Note})
	}
	return times
}

func (f *fake) DeleteSchedule(_ context.Context, _, name string) error {
	f.schedules.deleted = append(f.schedules.deleted, name)
	return f.schedules.err
}

func (f *fake) ListSchedules(_ context.Context, name, _ string) (harp.Page[harp.ScheduleStatus], error) {
	f.listed()
	found := slices.Clone(f.schedules.all)
	if name != "" {
		found = slices.DeleteFunc(found, func(s harp.ScheduleStatus) bool { return s.Name != name })
	}
	return harp.Page[harp.ScheduleStatus]{Items: found}, nil
}

func (f *fake) ChangeSchedule(_ context.Context, _, _ string, c harp.ScheduleChange) error {
	f.schedules.changes = append(f.schedules.changes, c)
	return f.schedules.err
}

func (f *fake) TriggerSchedule(_ context.Context, batch, _ string, t harp.Trigger) (harp.Submitted, error) {
	f.schedules.triggered = append(f.schedules.triggered, t)
	return harp.Submitted{ID: batch}, f.schedules.err
}

func (f *fake) BackfillSchedule(_ context.Context, _, _ string, from, to time.Time) (int, error) {
	f.schedules.from, f.schedules.to = from, to
	return 3, f.schedules.err
}

func (f *fake) NextTimes(_ context.Context, name string, from time.Time, n int) ([]harp.Upcoming, error) {
	i := slices.IndexFunc(f.schedules.all, func(s harp.ScheduleStatus) bool { return s.Name == name })
	if i < 0 {
		return nil, failures.NotFound("schedule", name)
	}
	if from.IsZero() {
		from = f.schedules.now
	}
	spec, err := specOf(f.schedules.all[i].Schedule)
	if err != nil {
		return nil, err
	}
	times := upcoming(spec, from, n)
	held := f.schedules.held
	for i := range times {
		times[i].Hosts, times[i].Held, times[i].HeldBy, times[i].HeldUntil = held.Hosts, held.Held, held.HeldBy, held.HeldUntil
	}
	return times, nil
}

func (f *fake) ScheduleLedger(_ context.Context, filter harp.LedgerFilter, _ string) (harp.Page[harp.LedgerEntry], error) {
	f.schedules.filter = filter
	return harp.Page[harp.LedgerEntry]{Items: f.schedules.ledger}, nil
}

func (f *fake) ApplyDocuments(_ context.Context, _, managedBy string, documents []harp.Document, o harp.ApplyOptions) (harp.Applied, error) {
	f.schedules.managedBy, f.schedules.documents, f.schedules.apply = managedBy, documents, o
	return f.schedules.applied, f.schedules.err
}
