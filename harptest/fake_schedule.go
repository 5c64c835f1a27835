package harptest

import (
	"context"
	"time"

	"github.com/harpcaller/harp"
)

// PutSchedule implements harp.ScheduleService.
func (f fakeService) PutSchedule(context.Context, string, harp.Schedule) error { return errFake }

// DeleteSchedule implements harp.ScheduleService.
func (f fakeService) DeleteSchedule(context.Context, string, string) error { return errFake }

// ListSchedules implements harp.ScheduleService.
func (f fakeService) ListSchedules(context.Context, string, string) (harp.Page[harp.ScheduleStatus], error) {
	return harp.Page[harp.ScheduleStatus]{}, errFake
}

// ChangeSchedule implements harp.ScheduleService.
func (f fakeService) ChangeSchedule(context.Context, string, string, harp.ScheduleChange) error {
	return errFake
}

// TriggerSchedule implements harp.ScheduleService.
func (f fakeService) TriggerSchedule(context.Context, string, string, harp.Trigger) (harp.Submitted, error) {
	return harp.Submitted{}, errFake
}

// BackfillSchedule implements harp.ScheduleService.
func (f fakeService) BackfillSchedule(context.Context, string, string, time.Time, time.Time) (int, error) {
	return 0, errFake
}

// NextTimes implements harp.ScheduleService.
func (f fakeService) NextTimes(context.Context, string, time.Time, int) ([]harp.Upcoming, error) {
	return nil, errFake
}

// ScheduleLedger implements harp.ScheduleService.
func (f fakeService) ScheduleLedger(context.Context, harp.LedgerFilter, string) (harp.Page[harp.LedgerEntry], error) {
	return harp.Page[harp.LedgerEntry]{}, errFake
}

// ApplyDocuments implements harp.ScheduleService.
func (f fakeService) ApplyDocuments(context.Context, string, string, []harp.Document, harp.ApplyOptions) (harp.Applied, error) {
	return harp.Applied{}, errFake
}
