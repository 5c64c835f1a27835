package dispatcher

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// What a schedule does is decided by store.ScheduleLife of what is in memory, and is true once its commit is on disk: then
// memory follows. After a commit that was refused the schedule is read anew.

const (
	stepsAtOnce   = 100                            // of one schedule before the others have their turn
	betweenLooks  = 20 * time.Millisecond          // a batch of thousands changes as often a second
	scheduleRetry = 5 * time.Second                // after a step that could not be made
	longDetail    = 512                            // bytes of why a submission was refused, in a ledger
	cancelsOld    = "the next run of the schedule" // why a batch is cancelled
)

// scheduleLoop fires schedules at their times, and settles what was due before. None waits for another one.
func (d *Dispatcher) scheduleLoop() {
	timer := time.NewTimer(longestNap)
	defer timer.Stop()
	var running sync.WaitGroup
	defer running.Wait()
	room := make(chan struct{}, stepsTogether)
	for {
		for _, name := range d.schedules.takeDue(d.now()) {
			select {
			case room <- struct{}{}:
			case <-d.ctx.Done():
				return
			}
			if d.schedules.takeTurn(name) != nil {
				<-room
				continue
			}
			running.Go(func() {
				defer func() { <-room }()
				defer d.schedules.endTurn(name)
				d.runSchedule(d.ctx, name)
			})
		}
		select {
		case <-d.ctx.Done():
			return
		case <-time.After(betweenLooks):
		}
		now := d.now()
		switch at := d.schedules.nextWake(); {
		case at.IsZero():
			timer.Stop()
		case at.After(now):
			timer.Reset(min(at.Sub(now), longestNap))
		default:
			continue
		}
		select {
		case <-d.ctx.Done():
			return
		case <-d.schedules.kick:
		case <-timer.C:
		}
	}
}

// runSchedule does all that is due for a schedule, whose turn it is.
func (d *Dispatcher) runSchedule(ctx context.Context, name string) {
	s, err := d.schedules.find(name)
	if err != nil {
		return // deleted
	}
	if err := d.settleSchedule(ctx, s); err != nil && ctx.Err() == nil {
		d.repeated.Warn("schedule "+name, "schedule cannot go on", "schedule", name, "err", err)
	}
}

// settleSchedule does all that is due for a schedule, while nobody else makes a step, and notes when there is more to do. After an error it is
// tried again. Errors: the store's.
func (d *Dispatcher) settleSchedule(ctx context.Context, s *scheduled) error {
	if s.err != nil {
		return nil
	}
	for range stepsAtOnce {
		now := d.now()
		next, at, err := d.stepSchedule(ctx, s, now)
		switch {
		case errors.Is(err, harp.ErrConflict):
			is, also := d.rereadSchedule(ctx, s.name)
			switch {
			case also != nil:
				d.schedules.set(s.wakeAt(now.Add(scheduleRetry)))
				return also
			case is == nil:
				return nil
			}
			if is.revision == s.revision {
				d.schedules.set(is.wakeAt(now.Add(scheduleRetry)))
				return err
			}
			next = is
		case err != nil:
			if errors.Is(err, harp.ErrNoSpace) {
				d.schedules.noteFull(now)
			}
			s = s.wakeAt(now.Add(scheduleRetry))
			d.schedules.set(s)
			return err
		case next == nil:
			d.schedules.set(s.wakeAt(at))
			return nil
		}
		s = next
	}
	d.schedules.set(s.wakeAt(d.now()))
	return nil
}

func (s *scheduled) wakeAt(at time.Time) *scheduled {
	c := *s
	c.wake = at
	return &c
}

// rereadSchedule reads a schedule anew that is not what it was taken for; nil if it is gone.
func (d *Dispatcher) rereadSchedule(ctx context.Context, name string) (*scheduled, error) {
	row, err := d.store.Schedule(ctx, name)
	if errors.Is(err, harp.ErrNotFound) {
		d.schedules.remove(name)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := openSchedule(row)
	d.schedules.set(s)
	return s, nil
}

// stepSchedule makes the next step of a schedule, and returns it as it is then; nil if there is nothing to do before a time, zero: before something
// happens.
func (d *Dispatcher) stepSchedule(ctx context.Context, s *scheduled, now time.Time) (next *scheduled, at time.Time, err error) {
	pause, paused := s.state.PauseEnd()
	if paused && !now.Before(pause.Until) {
		next, err = d.commitStep(ctx, s, s.endingPause(pause, now), now)
		return next, at, err
	}
	next, over, at, err := d.noteRuns(ctx, s, now)
	if next != nil || err != nil {
		return next, at, err
	}
	if paused {
		at = earlier(at, pause.Until)
	}
	dec := s.state.Next(s.rules(), s, d.schedules.see(now, s.running(over...)))
	if dec.Kind == store.DecideWait {
		at = earlier(at, dec.Wake)
		dec = s.state.NextBackfill(d.schedules.see(now, s.backfilling(over...)))
	}
	switch dec.Kind {
	case store.DecideWait:
		return nil, earlier(at, dec.Wake), nil
	case store.DecideFire:
		next, err = d.fireSchedule(ctx, s, dec, now)
		if dec.Fires == store.FireBackfill && errors.Is(err, harp.ErrNoSpace) {
			return nil, earlier(at, now.Add(scheduleRetry)), nil
		}
	case store.DecideQueue:
		next, err = d.queueTime(ctx, s, dec, now)
	default:
		next, err = d.commitStep(ctx, s, d.settling(s, dec, nil, now), now)
	}
	return next, at, err
}

// endingPause is the step that notes that the schedule's pause has ended by itself.
func (s *scheduled) endingPause(p store.SchedulePause, now time.Time) store.ScheduleStep {
	step := s.step()
	step.State.ScheduleLife = step.State.EndPause()
	e := s.event(harp.EventScheduleUnpaused, now)
	e.Reason = p.Reason
	step.Events = []harp.Event{e}
	return step
}

// earlier is the earlier of two times, where there is one.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// commitStep commits a step, and returns the schedule after it.
func (d *Dispatcher) commitStep(ctx context.Context, s *scheduled, step store.ScheduleStep, now time.Time) (*scheduled, error) {
	done, err := d.store.StepSchedule(ctx, step, now)
	if err != nil {
		return nil, err
	}
	next := s.stepped(&step, done.Revision)
	d.schedules.set(next)
	return next, nil
}

// stepped is the schedule after a step.
func (s *scheduled) stepped(step *store.ScheduleStep, revision uint64) *scheduled {
	next := *s
	next.revision, next.state = revision, step.State
	return &next
}

// step is a step that changes nothing yet.
func (s *scheduled) step() store.ScheduleStep {
	return store.ScheduleStep{Name: s.name, Revision: s.revision, State: s.state.Clone()}
}

func (s *scheduled) event(what harp.EventType, now time.Time) harp.Event {
	return harp.Event{Type: what, Schedule: s.name, Procedure: s.Schedule.Request.Procedure, Labels: s.Schedule.Labels, Time: now}
}

// noteRuns notes the first run of which there is something to note: that it has ended, is not waited for any more, or takes longer than was expected. Otherwise
// it returns when the next one will, and which are over all the same: that is noted once nobody changes those that come after it.
func (d *Dispatcher) noteRuns(ctx context.Context, s *scheduled, now time.Time) (next *scheduled, over []string, at time.Time, err error) {
	for i, run := range s.state.Runs {
		b, err := d.store.Batch(ctx, run.Batch)
		step := s.step()
		end := store.ScheduleEnd{Schedule: s.name, Batch: run.Batch, At: now, Restored: run.Restored}
		switch {
		case errors.Is(err, harp.ErrNotFound), errors.Is(err, harp.ErrPruned), errors.Is(err, store.ErrDamaged):
			d.log.Warn("how a run of a schedule ended nobody knows", "schedule", s.name, "batch", run.Batch, "err", err)
			step.State.Runs = slices.Delete(step.State.Runs, i, i+1)
		case err != nil:
			return nil, over, at, err
		case b.State.Ended():
			end = endOfRun(s, run, b)
			step.State.Runs = slices.Delete(step.State.Runs, i, i+1)
			if end.State != "" { // else it may have succeeded
				s.noteEnd(&step, b, now)
			}
		case i < len(s.state.Runs)-maxRuns:
			d.log.Warn("a run of a schedule is not waited for any more, there are too many", "schedule", s.name, "batch", run.Batch)
			step.State.Runs = slices.Delete(step.State.Runs, i, i+1)
		case s.Schedule.Expect > 0 && !run.Late:
			if left := time.Until(d.schedules.beginOf(run, now).Add(s.Schedule.Expect)); left > 0 {
				at = earlier(at, now.Add(left))
				continue
			}
			step.State.Runs[i].Late = true
			e := s.event(harp.EventScheduleLate, now)
			e.Batch, e.Reason = run.Batch, "expected "+s.Schedule.Expect.String()
			step.Events = append(step.Events, e)
			next, err = d.commitStep(ctx, s, step, now)
			return next, over, at, err
		default:
			continue
		}
		next, err = d.commitEnd(ctx, s, step, end, now)
		if errors.Is(err, errTaken) {
			over = append(over, run.Batch)
			continue
		}
		return next, over, at, err
	}
	return nil, over, at, nil
}

// noteEnd notes how a run ended, by which the schedule may pause itself.
func (s *scheduled) noteEnd(step *store.ScheduleStep, b *store.Batch, now time.Time) {
	reason := fmt.Sprintf("%d runs in a row did not succeed", s.Schedule.PauseOnFailure)
	life, paused := step.State.Ended(s.rules(), s, b.State == harp.BatchSucceeded, reason, now)
	step.State.ScheduleLife = life
	if !paused {
		return
	}
	e := s.event(harp.EventSchedulePaused, now)
	e.Reason, e.Batch = reason, b.ID
	step.Events = append(step.Events, e)
}

// settling is the step that settles times that do not fire. Refused is why their submission was.
func (d *Dispatcher) settling(s *scheduled, dec store.ScheduleDecision, refused error, now time.Time) store.ScheduleStep {
	step := s.step()
	step.State.ScheduleLife = dec.Life
	run := dec.Entry
	if run.Outcome == "" { // it is in the ledger
		return step
	}
	entry := &harp.LedgerEntry{
		Schedule: s.name, Kind: ledgerKinds[dec.Fires], Outcome: run.Outcome, Reason: run.Reason, Detail: endsText(run.Detail, dec.Ends),
		From: run.From, To: run.To, Count: run.Count, AtLeast: run.AtLeast, At: now, After: batchOf(dec.Ends), Err: refused,
	}
	if run.Reason == harp.TimeOverlap {
		entry.Detail = endsText(run.Detail+d.unendedText(d.ctx, run.Detail), dec.Ends)
	}
	e := s.event(harp.EventType("schedule."+string(run.Outcome)), now)
	e.Reason = strings.TrimPrefix(run.Reason+": "+entry.Detail, ": ")
	e.Reason = strings.TrimSuffix(e.Reason, ": ")
	if refused != nil {
		entry.Detail = endsText("", dec.Ends)
	}
	if dec.Fires == store.FireBackfill {
		entry.By = step.State.BackfillBy
	}
	step.Entry, step.Events = entry, []harp.Event{e}
	for _, run := range dec.More {
		more := *entry
		more.From, more.To, more.Count = run.From, run.To, run.Count
		step.Entries = append(step.Entries, &more)
	}
	return step
}

// maxUnendedLooks is how many members of a batch are looked at for one that is not over.
const maxUnendedLooks = 5000

// unendedText says of a batch which job is not over, and on which host: the first of which nobody knows whether it runs, else the first of all;
// "" where that is not found. What waits for the batch would not know what keeps it otherwise.
func (d *Dispatcher) unendedText(ctx context.Context, batch string) string {
	b, err := d.store.Batch(ctx, batch)
	if err != nil {
		return ""
	}
	isMeant := func(s harp.State) bool { return !s.Ended() }
	if b.Counts.Unknown > 0 {
		isMeant = func(s harp.State) bool { return s == harp.StateUnknown }
	}
	for from := 0; from < maxUnendedLooks; from += membersAtOnce {
		members, err := d.store.BatchMembers(ctx, batch, from, membersAtOnce)
		if err != nil || len(members) == 0 {
			return ""
		}
		for _, j := range members {
			if isMeant(j.State) {
				return fmt.Sprintf(", job %s on %s is %s", j.ID, j.Host, j.State)
			}
		}
	}
	return ""
}

// ledgerKinds are the kinds of entries of what runs are made for.
var ledgerKinds = map[store.FireKind]harp.LedgerKind{
	store.FireTime: harp.LedgerTime, store.FireWaiting: harp.LedgerTime, store.FireManual: harp.LedgerManual, store.FireBackfill: harp.LedgerBackfill,
	store.FireAfter: harp.LedgerAfter,
}

// queueTime lets a time wait for the end of the last batch, which is cancelled first if it is to be.
func (d *Dispatcher) queueTime(ctx context.Context, s *scheduled, dec store.ScheduleDecision, now time.Time) (*scheduled, error) {
	if dec.Cancel != "" {
		err := d.cancelBatch(ctx, dec.Cancel, cancelsOld, store.Operation{By: s.By, Time: now})
		if err != nil && !errors.Is(err, store.ErrIllegal) && !errors.Is(err, harp.ErrNotFound) && !errors.Is(err, harp.ErrPruned) {
			return nil, err
		}
	}
	step := s.step()
	step.State.ScheduleLife = dec.Life
	return d.commitStep(ctx, s, step, now)
}

// cancelBatch cancels a batch for its schedule.
func (d *Dispatcher) cancelBatch(ctx context.Context, id, why string, op store.Operation) error {
	if _, err := d.store.ChangeBatch(ctx, id, store.BatchEvent{Kind: store.BatchCancel, Reason: why}, op); err != nil {
		return err
	}
	d.watchers.notifyChanged(id)
	d.wakeClock()
	d.wakeUnreached([]string{id})
	return nil
}

// fireSchedule fires a time; where its batch is refused the time is settled by that.
func (d *Dispatcher) fireSchedule(ctx context.Context, s *scheduled, dec store.ScheduleDecision, now time.Time) (*scheduled, error) {
	step, counted, err := d.firing(ctx, s, dec, newIDAt(now), now)
	if err == nil {
		var next *scheduled
		if next, err = d.commitFire(ctx, s, step, counted, now); err == nil || !isRefusal(err) {
			return next, err
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	f := harp.FailureOf(err)
	var byWindow *refusedByWindowError
	switch {
	case errors.As(err, &byWindow):
		dec = dec.Instead(harp.TimeSkipped, harp.TimeWindow, byWindow.window)
		err = nil
	case errors.Is(err, harp.ErrNoSpace) && dec.Fires == store.FireBackfill:
		return nil, err // it has time
	case errors.Is(err, harp.ErrNoSpace):
		dec = dec.Instead(harp.TimeMissed, harp.TimeNoSpace, "")
		err = nil
	case errors.Is(err, harp.ErrNotFound) && f.Type == "target":
		dec = dec.Instead(harp.TimeSkipped, harp.TimeNoHosts, s.Schedule.Request.Target)
		err = nil
	default:
		dec = dec.Instead(harp.TimeFailed, "", cutDetail(f.Message))
	}
	return d.commitStep(ctx, s, d.settling(s, dec, err, now), now)
}

// newIDAt is a new id that was made at a time.
func newIDAt(now time.Time) string {
	id := uuid.MustParse(harp.NewID())
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(now.UnixMilli())<<16) //nolint:gosec // after 1970
	copy(id[:6], ms[:])
	return id.String()
}

// isRefusal reports whether a commit was refused for the sake of its batch.
func isRefusal(err error) bool {
	for _, of := range []error{harp.ErrNoSpace, harp.ErrRefused, harp.ErrInvalid, harp.ErrPruned, store.ErrDamaged} {
		if errors.Is(err, of) {
			return true
		}
	}
	return false
}

// firing is the step that fires a time by a batch of this id, and how many bytes that counts as. Errors: why the batch is not
// good.
func (d *Dispatcher) firing(ctx context.Context, s *scheduled, dec store.ScheduleDecision, id string, now time.Time) (step store.ScheduleStep, counted int, err error) {
	req := s.Schedule.Request
	if req.ID = id; req.Batch.OnStop == "" {
		req.Batch.OnStop = harp.CancelBatch
	}
	batch, counted, err := d.prepareBatch(ctx, harp.Submission{Request: req.Encode()}, req, s.By, nil, now)
	if err != nil {
		return step, 0, err
	}
	var kept held
	if dec.Fires != store.FireManual {
		kept = d.startsOf(&batch).heldAt(now)
	}
	if kept.refused > 0 && kept.refused == kept.fit {
		d.principals.countBytes(s.By, -counted)
		return step, 0, &refusedByWindowError{kept.refusedBy}
	}
	if batch.Batch.Member.Schedule = s.name; dec.Fires != store.FireManual {
		batch.Batch.Member.FireTime = dec.Nominal
	}
	step = s.step()
	step.Batch = &batch
	step.State.ScheduleLife, step.State.LastBatch = dec.Life, id
	step.State.Runs = append(step.State.Runs, store.ScheduleRun{Batch: id, Since: now, Fires: dec.Fires})
	if n := len(step.State.Runs); n > 2*maxRuns { // noteRuns could not note them
		d.log.Error("those that come after a schedule are not told of a run", "schedule", s.name, "batch", step.State.Runs[0].Batch)
		step.State.Runs = slices.Delete(step.State.Runs, 0, n-2*maxRuns)
	}
	step.Entry = &harp.LedgerEntry{
		Schedule: s.name, Kind: ledgerKinds[dec.Fires], Outcome: harp.TimeFired, From: dec.Nominal, To: dec.Nominal, Count: 1, At: now, Late: dec.Late, Batch: id,
		Detail: endsText(kept.String(), dec.Ends), After: batchOf(dec.Ends),
	}
	if dec.Fires == store.FireBackfill {
		step.Entry.By = s.state.BackfillBy
	}
	e := s.event(harp.EventScheduleFired, now)
	e.Batch, e.By = id, step.Entry.By
	step.Events = []harp.Event{e}
	return step, counted, nil
}

// commitFire commits a step that fires.
func (d *Dispatcher) commitFire(ctx context.Context, s *scheduled, step store.ScheduleStep, counted int, now time.Time) (*scheduled, error) {
	next, err := d.commitStep(ctx, s, step, now)
	if err != nil {
		d.principals.countBytes(s.By, -counted)
		return nil, err
	}
	d.wakeClock()
	return next, nil
}
