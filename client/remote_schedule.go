package client

import (
	"context"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
)

// PutSchedule implements harp.ScheduleService.
func (r *remote) PutSchedule(ctx context.Context, id string, s harp.Schedule) error {
	_, err := requestReply[wire.Done](ctx, r, wire.TypePutSchedule, wire.PutSchedule{Request: id, Schedule: s}, false)
	return err
}

// DeleteSchedule implements harp.ScheduleService.
func (r *remote) DeleteSchedule(ctx context.Context, id, name string) error {
	_, err := requestReply[wire.Done](ctx, r, wire.TypeDeleteSchedule, wire.DeleteSchedule{Request: id, Name: name}, false)
	return err
}

// ListSchedules implements harp.ScheduleService.
func (r *remote) ListSchedules(ctx context.Context, name, cursor string) (harp.Page[harp.ScheduleStatus], error) {
	q := wire.SchedulesQuery{Name: name, Page: wire.Page{Cursor: cursor}}
	m, err := requestReply[wire.Schedules](ctx, r, wire.TypeSchedules, q, false)
	return pageAfter[harp.ScheduleStatus](cursor, m.Schedules, m.Cursor, err)
}

// ChangeSchedule implements harp.ScheduleService.
func (r *remote) ChangeSchedule(ctx context.Context, id, name string, c harp.ScheduleChange) error {
	_, err := requestReply[wire.Done](ctx, r, wire.TypeChangeSchedule, wire.ChangeSchedule{Request: id, Name: name, ScheduleChange: c}, false)
	return err
}

// TriggerSchedule implements harp.ScheduleService.
func (r *remote) TriggerSchedule(ctx context.Context, batch, name string, t harp.Trigger) (harp.Submitted, error) {
	body := wire.Encode(wire.Trigger{Batch: batch, Name: name, Trigger: t})
	done, err := r.submitJobs(ctx, request{kind: wire.TypeTrigger, body: body}, 1, func(int) string { return batch })
	if err != nil {
		return harp.Submitted{}, err
	}
	return done[0], nil
}

// BackfillSchedule implements harp.ScheduleService.
func (r *remote) BackfillSchedule(ctx context.Context, id, name string, from, to time.Time) (int, error) {
	m, err := requestReply[wire.Done](ctx, r, wire.TypeBackfill, wire.Backfill{Request: id, Name: name, From: from, To: to}, false)
	return m.Count, err
}

// NextTimes implements harp.ScheduleService.
func (r *remote) NextTimes(ctx context.Context, name string, from time.Time, n int) ([]harp.Upcoming, error) {
	m, err := requestReply[wire.Upcoming](ctx, r, wire.TypeNextTimes, wire.NextTimes{Name: name, From: from, Most: n}, false)
	p, err := page[harp.Upcoming](m.Times, "", err)
	return p.Items, err
}

// ScheduleLedger implements harp.ScheduleService.
func (r *remote) ScheduleLedger(ctx context.Context, f harp.LedgerFilter, cursor string) (harp.Page[harp.LedgerEntry], error) {
	q := wire.LedgerQuery{Page: wire.Page{Cursor: cursor, Limit: max(f.Limit, 0)}, LedgerFilter: f}
	m, err := requestReply[wire.Ledger](ctx, r, wire.TypeLedger, q, false)
	return pageAfter[harp.LedgerEntry](cursor, m.Entries, m.Cursor, err)
}
