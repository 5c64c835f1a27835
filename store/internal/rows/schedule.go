package rows

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
)

// A schedule has a document, which is what was put, a row of where it is in its times, and the entries of its
// ledger, which outlive it.

// maxDetail is how many bytes an entry of a ledger has to say at most.
const maxDetail = 4 << 10

func scheduleKey(name string) []byte { return nameKey(prefixSchedule, name) }

// stepping is a step on its way.
type stepping struct {
	store.ScheduleStep
	key     []byte
	entries []*ledgerRow
	names   [][]byte // of the batch's hosts
	events  []eventRow
	size    int // bytes that it writes, about
}

// prepareStep makes a step the store's own. Errors: harp.ErrInvalid.
func prepareStep(in store.ScheduleStep) (*stepping, error) {
	p := &stepping{ScheduleStep: in, key: scheduleKey(in.Name)}
	p.State = in.State.Clone()
	if err := checkDocument(store.ScheduleKind, in.Document); err != nil {
		return nil, err
	}
	size := len(in.Document)
	state := len(encode(store.Schedule{ScheduleState: p.State}))
	if state > maxStep {
		return nil, tooMuch("schedule", state, maxStep)
	}
	entries := in.Entries
	if in.Entry != nil {
		entries = append([]*harp.LedgerEntry{in.Entry}, entries...)
	}
	for _, e := range entries {
		if len(e.Detail) > maxDetail {
			return nil, tooMuch("detail", len(e.Detail), maxDetail)
		}
		row := newLedgerRow(e)
		p.entries = append(p.entries, row)
		size += 2 * len(encode(row))
	}
	if in.Batch != nil {
		batch := *in.Batch
		names, n, err := prepareBatch(&batch)
		if err != nil {
			return nil, err
		}
		p.Batch, p.names, size = &batch, names, size+n
	}
	events, n := noteRows(in.Events)
	p.events = events
	if size += n; size > maxOp-2*maxStep {
		return nil, tooMuch("schedule", size, maxOp-2*maxStep)
	}
	p.size = size + state
	return p, nil
}

// needs is how much room there has to be for a step. A batch asks for itself.
func (p *stepping) needs() Space {
	switch {
	case p.Batch != nil:
		return SpaceFull
	case p.Delete || p.Document == nil && len(p.entries) == 0:
		return SpaceCritical
	default:
		return SpaceLow
	}
}

// StepSchedule implements store.Schedules.
func (s *Store) StepSchedule(ctx context.Context, in store.ScheduleStep, now time.Time) (store.ScheduleStepped, error) {
	p, err := prepareStep(in)
	if err != nil {
		return store.ScheduleStepped{}, err
	}
	var out store.ScheduleStepped
	asked := s.asked()
	err = s.do(ctx, p.needs(), func(t *tx) error {
		at := s.sched.NoteTime(s.sched.Since(asked, now))
		op := p.Op
		op.Time = s.sched.Since(asked, op.Time)
		done, err := s.doOnce(t, op, documentsRow{By: op.By, Asked: op.Asked}, func() (doneRow, error) {
			var err error
			out.Revision, err = s.step(t, p, asked, at)
			return doneRow{Count: p.Count}, err
		})
		out.Count = done.Count
		return err
	})
	if err != nil {
		return store.ScheduleStepped{}, err
	}
	return out, nil
}

// step makes a step, and returns the revision of the schedule after it.
func (s *Store) step(t *tx, p *stepping, asked, now int64) (uint64, error) {
	row, err := s.checkStep(t, p, now)
	if err != nil {
		return 0, err
	}
	if p.Batch != nil { // the last that may refuse
		got, err := s.submitBatch(t, p.Batch, p.names, asked, now)
		if err == nil && !got.New {
			err = failures.New("conflict", "batch "+got.Batch.ID+" is stored already").Err()
		}
		if err != nil {
			return 0, err
		}
	}
	return s.writeStep(t, p, row, now), nil
}

// checkStep reads what a step takes the place of, and returns the schedule's row. Errors: harp.ErrConflict, the engine's.
func (s *Store) checkStep(t *tx, p *stepping, now int64) (row store.Schedule, err error) {
	if row, err = s.scheduleRow(t, p, now); err != nil {
		return row, err
	}
	for _, e := range p.entries {
		if err := t.checkEntry(p.Name, e); err != nil {
			return row, err
		}
	}
	if p.Document != nil || p.Delete {
		err = t.readOld(documentKey(store.ScheduleKind, p.Name))
	}
	return row, err
}

// writeStep makes a step that checkStep does not refuse, but for its batch, and returns the revision of the schedule after it.
func (s *Store) writeStep(t *tx, p *stepping, row store.Schedule, now int64) uint64 {
	document := documentKey(store.ScheduleKind, p.Name)
	for _, e := range p.entries {
		t.putEntry(p.Name, e)
	}
	if p.Document != nil && !p.Delete {
		t.put(document, p.Document)
	}
	s.emitRows(t, p.events)
	if p.Delete {
		t.remove(document)
		t.remove(p.key)
		t.keepKeptFrom(p.Name, row.KeptFrom, now)
		return 0
	}
	row.ScheduleState = p.State
	row.Revision++
	t.put(p.key, encode(row))
	return row.Revision
}

// scheduleRow reads the row that a step is about. Where it is lost nobody knows what has fired until now. Errors:
// harp.ErrConflict for another revision.
func (s *Store) scheduleRow(t *tx, p *stepping, now int64) (row store.Schedule, err error) {
	found, err := read(t, p.key, &row)
	if errors.Is(err, ErrDamaged) {
		row, found, err = store.Schedule{}, false, t.readOld(p.key)
	}
	if err != nil {
		return row, err
	}
	if p.Revision == 0 {
		content, err := t.get(documentKey(store.ScheduleKind, p.Name))
		switch {
		case err != nil && !errors.Is(err, ErrDamaged):
			return row, err
		case content == nil && err == nil:
			return store.Schedule{KeptFrom: t.keptFrom(p.Name, now)}, nil
		case !found:
			s.log.Error("where a schedule was in its times is lost", "schedule", p.Name)
			return store.Schedule{KeptFrom: fromNanos(now)}, nil
		}
	}
	if row.Revision != p.Revision {
		return row, failures.New("conflict", fmt.Sprintf("schedule %s is of revision %d, not %d", p.Name, row.Revision, p.Revision)).Err()
	}
	return row, nil
}

// Schedule implements store.Schedules.
func (r *Reader) Schedule(_ context.Context, name string) (found *store.Schedule, err error) {
	err = r.view(func(snap Snapshot) error {
		key := documentKey(store.ScheduleKind, name)
		value, err := snap.Get(key)
		if err == nil && value == nil {
			err = failures.NotFound("schedule", name)
		}
		if err == nil {
			found, err = r.readSchedule(snap, Item{key, value}, name)
		}
		return err
	})
	return found, err
}

// readSchedule reads the schedule that a document is of. What of it cannot be read is left out.
func (r *Reader) readSchedule(snap Snapshot, item Item, name string) (*store.Schedule, error) {
	var out store.Schedule
	if _, err := read(snap, scheduleKey(name), &out); err != nil {
		if !errors.Is(err, ErrDamaged) {
			return nil, err
		}
		r.log.Error("where a schedule is in its times cannot be read", "schedule", name, "err", err)
		out = store.Schedule{}
	}
	out.Name = name
	content, err := joinItem(snap, item)
	switch {
	case errors.Is(err, ErrDamaged):
		r.log.Error("schedule cannot be read", "schedule", name, "err", err)
	case err != nil:
		return nil, err
	default:
		out.Document = append([]byte{}, content...)
	}
	return &out, nil
}

// ListSchedules implements store.Schedules.
func (r *Reader) ListSchedules(_ context.Context, cursor string, limit int) (page []*store.Schedule, next string, err error) {
	next, err = r.pageDocuments(store.ScheduleKind, prefixSchedule, cursor, limit, func(snap Snapshot, item Item, name string) (int, error) {
		one, err := r.readSchedule(snap, item, name)
		if err != nil {
			return 0, err
		}
		page = append(page, one)
		return len(one.Document), nil
	})
	return page, next, err
}

// ScheduleRuns implements store.Schedules.
func (s *Store) ScheduleRuns(name string) (runs []store.ScheduleRun) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.DeleteFunc(slices.Collect(maps.Values(s.batches)), func(b *batch) bool { return b.row.Member.Schedule != name })
	slices.SortFunc(all, func(a, b *batch) int { return cmp.Compare(a.row.No, b.row.No) })
	for _, b := range all {
		runs = append(runs, store.ScheduleRun{Batch: b.row.ID, Since: b.row.Member.SubmitTime})
	}
	return runs
}

// restoreSchedules notes of all schedules that they were restored from a backup.
func (s *Store) restoreSchedules(ctx context.Context, at time.Time) error {
	for after := []byte(nil); ; {
		more := false
		err := s.doScan(ctx, SpaceCritical, func(t *tx) error {
			for item, err := range t.snap.Scan([]byte{prefixSchedule}, after, false) {
				if err != nil {
					return err
				}
				if slices.Equal(item.Key, after) {
					continue
				}
				if !t.hasRoom(2 * maxStep) {
					more = true
					return nil
				}
				after = slices.Clone(item.Key)
				var row store.Schedule
				found, err := read(t, after, &row)
				switch {
				case errors.Is(err, ErrDamaged):
					continue // it is listed as one that cannot be read
				case err != nil || !found:
					return err
				}
				row.ScheduleState = row.Restore(fromNanos(nanos(at)))
				row.Revision++
				t.put(after, encode(row))
			}
			return nil
		})
		if err != nil || !more {
			return err
		}
	}
}
