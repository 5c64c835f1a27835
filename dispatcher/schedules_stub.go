package dispatcher

import (
	"context"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
)

// What follows stands in for the schedules of the engine, whose methods take its place.

var errNoSchedules = failures.New("unavailable", "there are no schedules here yet").Err()

func (s *service) PutSchedule(context.Context, string, harp.Schedule) error { return errNoSchedules }

func (s *service) DeleteSchedule(context.Context, string, string) error { return errNoSchedules }

func (s *service) ListSchedules(context.Context, string, string) (harp.Page[harp.ScheduleStatus], error) {
	return harp.Page[harp.ScheduleStatus]{}, errNoSchedules
}

func (s *service) ChangeSchedule(context.Context, string, string, harp.ScheduleChange) error {
	return errNoSchedules
}

func (s *service) TriggerSchedule(context.Context, string, string, harp.Trigger) (harp.Submitted, error) {
	return harp.Submitted{}, errNoSchedules
}

func (s *service) BackfillSchedule(context.Context, string, string, time.Time, time.Time) (int, error) {
	return 0, errNoSchedules
}

func (s *service) NextTimes(context.Context, string, time.Time, int) ([]harp.Upcoming, error) {
	return nil, errNoSchedules
}

func (s *service) ScheduleLedger(context.Context, harp.LedgerFilter, string) (harp.Page[harp.LedgerEntry], error) {
	return harp.Page[harp.LedgerEntry]{}, errNoSchedules
}
