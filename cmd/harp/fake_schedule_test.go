package main

import (
	"context"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
)

// scheduleFake is what a fake answers about schedules, and what it was told.
type scheduleFake struct {
	all    []harp.ScheduleStatus
	next   []harp.Upcoming
	ledger []harp.LedgerEntry
	err    error

	put       []harp.Schedule
	deleted   []string
	changes   []harp.ScheduleChange
	triggered []harp.Trigger
	from, to  time.Time
	filter    harp.LedgerFilter
}

func (f *fake) PutSchedule(_ context.Context, _ string, s harp.Schedule) error {
	f.schedules.put = append(f.schedules.put, s)
	return f.schedules.err
}

func (f *fake) DeleteSchedule(_ context.Context, _, name string) error {
	f.schedules.deleted = append(f.schedules.deleted, name)
	return f.schedules.err
}

func (f *fake) ListSchedules(_ context.Context, name, _ string) (harp.Page[harp.ScheduleStatus], error) {
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
	if !slices.ContainsFunc(f.schedules.all, func(s harp.ScheduleStatus) bool { return s.Name == name }) {
		return nil, failures.NotFound("schedule", name)
	}
	f.schedules.from = from
	return f.schedules.next[:min(n, len(f.schedules.next))], nil
}

func (f *fake) ScheduleLedger(_ context.Context, filter harp.LedgerFilter, _ string) (harp.Page[harp.LedgerEntry], error) {
	f.schedules.filter = filter
	return harp.Page[harp.LedgerEntry]{Items: f.schedules.ledger}, nil
}
