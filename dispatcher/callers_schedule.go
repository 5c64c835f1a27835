package dispatcher

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
)

func handleSchedules(ctx context.Context, s harp.Service, w wire.SchedulesQuery) (any, error) {
	rows, cursor, err := listing[harp.ScheduleStatus]{
		fetch: func(cursor string) (harp.Page[harp.ScheduleStatus], error) {
			return s.ListSchedules(ctx, w.Name, cursor)
		},
		mark:   func(s harp.ScheduleStatus) mark { return mark{Key: s.Name} },
		before: byKey,
	}.page(w.Page)
	return wire.Schedules{Schedules: rows, Cursor: cursor}, err
}

func handlePutSchedule(ctx context.Context, s harp.Service, w wire.PutSchedule) (any, error) {
	if err := harp.CheckID(w.Request); err != nil {
		return nil, err
	}
	if err := w.Schedule.Check(); err != nil {
		return nil, err
	}
	return wire.Done{}, s.PutSchedule(ctx, w.Request, w.Schedule)
}

func handleDeleteSchedule(ctx context.Context, s harp.Service, w wire.DeleteSchedule) (any, error) {
	if err := harp.CheckID(w.Request); err != nil {
		return nil, err
	}
	return wire.Done{}, s.DeleteSchedule(ctx, w.Request, w.Name)
}

func handleChangeSchedule(ctx context.Context, s harp.Service, w wire.ChangeSchedule) (any, error) {
	if err := harp.CheckID(w.Request); err != nil {
		return nil, err
	}
	if err := w.Check(); err != nil {
		return nil, err
	}
	return wire.Done{}, s.ChangeSchedule(ctx, w.Request, w.Name, w.ScheduleChange)
}

func handleTrigger(ctx context.Context, s harp.Service, w wire.Trigger) (any, error) {
	if err := harp.CheckID(w.Batch); err != nil {
		return nil, err
	}
	done, err := s.TriggerSchedule(ctx, w.Batch, w.Name, w.Trigger)
	if err == nil {
		err = done.Err
	}
	return wire.NewSubmitted([]harp.Submitted{done}), err
}

func handleBackfill(ctx context.Context, s harp.Service, w wire.Backfill) (any, error) {
	if err := harp.CheckID(w.Request); err != nil {
		return nil, err
	}
	if err := harp.CheckBackfill(w.Name, w.From, w.To); err != nil {
		return nil, err
	}
	n, err := s.BackfillSchedule(ctx, w.Request, w.Name, w.From, w.To)
	return wire.Done{Count: n}, err
}

func handleNextTimes(ctx context.Context, s harp.Service, w wire.NextTimes) (any, error) {
	if err := harp.CheckNextTimes(w.Name, w.From, w.Most); err != nil {
		return nil, err
	}
	times, err := s.NextTimes(ctx, w.Name, w.From, w.Most)
	return wire.Upcoming{Times: wire.NewRows(times, harp.MaxNextTimes)}, err
}

func handleLedger(ctx context.Context, s harp.Service, w wire.LedgerQuery) (any, error) {
	if err := w.Check(); err != nil {
		return nil, err
	}
	f := w.LedgerFilter
	if markIn(w.Cursor).Key == "" { // else the page is read again from its beginning
		f.Limit = w.Page.Limit
	}
	rows, cursor, err := listing[harp.LedgerEntry]{
		fetch:  func(cursor string) (harp.Page[harp.LedgerEntry], error) { return s.ScheduleLedger(ctx, f, cursor) },
		mark:   markOfEntry,
		before: func(a, b mark) bool { return a.Time.After(b.Time) }, // newest first
	}.page(w.Page)
	return wire.Ledger{Entries: rows, Cursor: cursor}, err
}

// markOfEntry names an entry by what tells it from all others.
func markOfEntry(e harp.LedgerEntry) mark {
	key := strings.Join([]string{e.From.Format(time.RFC3339Nano), string(e.Kind), e.Batch, e.After, e.Schedule}, " ")
	return mark{Key: key, Time: e.From}
}

func handleApply(ctx context.Context, s harp.Service, w wire.Apply) (any, error) {
	if !w.DryRun {
		if err := harp.CheckID(w.Request); err != nil {
			return nil, err
		}
	}
	if len(w.Documents) > harp.MaxDocuments {
		return nil, &harp.FieldError{Field: "documents", Message: fmt.Sprintf("%d, at most %d", len(w.Documents), harp.MaxDocuments)}
	}
	documents := make([]harp.Document, len(w.Documents))
	for i, row := range w.Documents {
		if err := decodeRequest(row, &documents[i]); err != nil {
			return nil, harp.InDocument(i, err)
		}
	}
	if err := harp.CheckDocuments(w.ManagedBy, documents); err != nil {
		return nil, err
	}
	done, err := s.ApplyDocuments(ctx, w.Request, w.ManagedBy, documents, w.ApplyOptions)
	return wire.NewApplied(done), err
}
