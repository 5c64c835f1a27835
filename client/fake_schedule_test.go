package client

import (
	"context"
	"time"

	"github.com/harpcaller/harp"
)

var _ harp.ScheduleService = (*fake)(nil)

// fakeSchedules are the schedules of a fake. None of them fires.
type fakeSchedules struct {
	all     []harp.ScheduleStatus
	changes []harp.ScheduleChange
	trigger harp.Trigger
	ledger  []harp.LedgerEntry

	managedBy string
	documents []harp.Document
	apply     harp.ApplyOptions
	applied   harp.Applied
}

func (f *fake) PutSchedule(ctx context.Context, _ string, s harp.Schedule) error {
	if err := f.enter(ctx, "PutSchedule"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.schedules.all = append(f.schedules.all, harp.ScheduleStatus{Schedule: s, Version: 1})
	return nil
}

func (f *fake) DeleteSchedule(ctx context.Context, _, _ string) error {
	return f.enter(ctx, "DeleteSchedule")
}

func (f *fake) ListSchedules(ctx context.Context, name, cursor string) (harp.Page[harp.ScheduleStatus], error) {
	if err := f.enter(ctx, "ListSchedules"); err != nil {
		return harp.Page[harp.ScheduleStatus]{}, err
	}
	var found []harp.ScheduleStatus
	for _, s := range f.schedules.all {
		if name == "" || s.Name == name {
			found = append(found, s)
		}
	}
	return pageOf(found, cursor, f.pageSize, func(s harp.ScheduleStatus) string { return s.Name })
}

func (f *fake) ChangeSchedule(ctx context.Context, _, _ string, c harp.ScheduleChange) error {
	f.mu.Lock()
	f.schedules.changes = append(f.schedules.changes, c)
	f.mu.Unlock()
	return f.enter(ctx, "ChangeSchedule")
}

func (f *fake) TriggerSchedule(ctx context.Context, batch, _ string, t harp.Trigger) (harp.Submitted, error) {
	if err := f.enter(ctx, "TriggerSchedule"); err != nil {
		return harp.Submitted{}, err
	}
	f.schedules.trigger = t
	return harp.Submitted{ID: batch}, nil
}

func (f *fake) BackfillSchedule(ctx context.Context, _, _ string, from, to time.Time) (int, error) {
	return int(to.Sub(from) / time.Hour), f.enter(ctx, "BackfillSchedule")
}

func (f *fake) NextTimes(ctx context.Context, _ string, from time.Time, n int) ([]harp.Upcoming, error) {
	if err := f.enter(ctx, "NextTimes"); err != nil {
		return nil, err
	}
	var times []harp.Upcoming
	for i := range n {
		at := from.Add(time.Duration(i) * time.Hour)
		times = append(times, harp.Upcoming{Time: at.Add(time.Second), Nominal: at, Wall: "Sun", Note: "moved"})
	}
	return times, nil
}

func (f *fake) ScheduleLedger(ctx context.Context, filter harp.LedgerFilter, cursor string) (harp.Page[harp.LedgerEntry], error) {
	if err := f.enter(ctx, "ScheduleLedger"); err != nil {
		return harp.Page[harp.LedgerEntry]{}, err
	}
	size := filter.Limit
	if size == 0 {
		size = f.pageSize
	}
	return pageOf(f.schedules.ledger, cursor, size, func(e harp.LedgerEntry) string { return e.From.String() })
}

func (f *fake) ApplyDocuments(ctx context.Context, _, managedBy string, documents []harp.Document, o harp.ApplyOptions) (harp.Applied, error) {
	f.mu.Lock()
	f.schedules.managedBy, f.schedules.documents, f.schedules.apply = managedBy, documents, o
	f.mu.Unlock()
	return f.schedules.applied, f.enter(ctx, "ApplyDocuments")
}
