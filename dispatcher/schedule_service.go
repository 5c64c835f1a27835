package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/when"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/schedule"
	"github.com/harpcaller/harp/store"
)

// changeSchedule makes a change of a schedule once for an operation, by turns, which are the schedule's and maybe others': when what was due is settled, change decides the step of it, nil for none.
// s is nil if there is no such schedule. All says whether all has to be settled first, since the times are to be others. It returns the Count of
// the step.
func (d *Dispatcher) changeSchedule(ctx context.Context, op store.Operation, name string, turns []string, all bool, change func(s *scheduled, now time.Time) (*store.ScheduleStep, error)) (count int, again bool, err error) {
	slices.Sort(turns)
	if err := d.schedules.awaitTurns(ctx, turns); err != nil {
		return 0, false, err
	}
	defer d.schedules.endTurns(turns)
	if count, done, err := d.changedBefore(ctx, op, "schedule", name); done || err != nil {
		return count, true, err
	}
	s, now, unsettled := d.settleForChange(ctx, name, all)
	if ctx.Err() != nil {
		return 0, false, context.Cause(ctx)
	}
	step, err := change(s, now)
	if unsettled != nil && errors.Is(err, harp.ErrNoSpace) {
		err = unsettled
	}
	if err == nil && step == nil { // that is remembered, too: asked again it must not change what others have done since
		_, err = d.store.ChangeDocuments(ctx, store.DocumentChanges{Op: op})
	}
	if err != nil {
		err = d.rememberRefusal(ctx, op, err)
	}
	if err != nil || step == nil {
		return 0, false, err
	}
	step.Op = op
	done, err := d.store.StepSchedule(ctx, *step, now)
	if err != nil {
		if s != nil && errors.Is(err, harp.ErrConflict) {
			err = errors.Join(err, d.rereadForLoop(name))
		}
		return 0, false, err
	}
	d.noteStep(s, step, done.Revision)
	return done.Count, false, nil
}

// rereadForLoop reads a schedule anew of which a change was refused, and has the loop look at it: when its next time is has to be found anew.
func (d *Dispatcher) rereadForLoop(name string) error {
	_, err := d.rereadSchedule(d.ctx, name)
	d.schedules.note(name)
	return err
}

// noteStep notes a step of a schedule that was made, and has the loop look at it. s is as it was, nil if there was none.
func (d *Dispatcher) noteStep(s *scheduled, step *store.ScheduleStep, revision uint64) {
	if step.Delete {
		d.schedules.remove(step.Name)
		return
	}
	row := &store.Schedule{Name: step.Name, Document: step.Document, Revision: revision, ScheduleState: step.State}
	if row.Document == nil {
		row.Document = s.document
	}
	d.schedules.set(openSchedule(row))
	d.schedules.note(step.Name)
}

// settleForChange settles what is due of a schedule, whose turn it is: all until now, or so much of it as the loop does at a time. s is nil if
// there is no such schedule. The error is why something could not be settled, which is no reason not to pause or delete it.
func (d *Dispatcher) settleForChange(ctx context.Context, name string, all bool) (s *scheduled, now time.Time, unsettled error) {
	for {
		s, err := d.schedules.find(name)
		if err == nil {
			unsettled = d.settleSchedule(d.ctx, s)
			s, err = d.schedules.find(name)
		}
		now = d.now()
		switch {
		case err != nil:
			return nil, now, nil
		case !all || unsettled != nil || ctx.Err() != nil || s.wake.IsZero() || s.wake.After(now):
			return s, now, unsettled
		}
	}
}

// hasNoTimes is why nothing can be done about a time of a schedule.
func hasNoTimes(field, name string) error {
	return &harp.FieldError{Field: field, Message: "schedule " + name + " comes after others, and has no times"}
}

func noSchedule(name string) error { return failures.NotFound("schedule", name) }

// illegalStep is an error of a schedule's life as callers know it.
func illegalStep(err error) error {
	if errors.Is(err, store.ErrIllegal) {
		return conflictOf("schedule", strings.TrimPrefix(err.Error(), store.ErrIllegal.Error()+": "))
	}
	return err
}

// PutSchedule implements harp.ScheduleService.
func (s *service) PutSchedule(ctx context.Context, id string, sch harp.Schedule) error {
	_, err := requestChange(s, ctx, func(ctx context.Context) (none struct{}, err error) {
		if err := sch.Check(); err != nil {
			return none, err
		}
		op, err := s.puttingOperation(id, wire.TypePutSchedule, wire.PutSchedule{Schedule: sch})
		if err != nil {
			return none, err
		}
		if sch.TZ == "" && len(sch.After) == 0 {
			sch.TZ = s.d.cfg.TimeZone
		}
		locked := false
		defer func() {
			if locked {
				s.d.schedules.changing.Unlock()
			}
		}()
		turns := append(dependencyNames(&sch), sch.Name) // so that no run of what it comes after ends meanwhile
		_, _, err = s.d.changeSchedule(ctx, op, sch.Name, turns, true, func(old *scheduled, now time.Time) (*store.ScheduleStep, error) {
			if old != nil && old.ManagedBy != "" {
				return nil, errManaged(harp.ScheduleDocument, sch.Name, old.ManagedBy)
			}
			put := putSchedule{Schedule: sch, By: s.who, Changed: now.UTC(), SecretArgs: s.d.secretsOf(&sch, old)}
			if err := checkGivenSecrets(&sch.Request, put.SecretArgs); err != nil {
				return nil, err
			}
			spec, err := s.d.readPut(&put, s.d.checkTarget, now)
			if err != nil {
				return nil, err
			}
			if len(sch.After) > 0 {
				s.d.schedules.changing.Lock()
				locked = true
				all := s.d.schedules.dependencies()
				all[sch.Name] = dependencyNames(&sch)
				if err := all.check(sch.Name, all.counts()); err != nil {
					return nil, err
				}
			}
			return s.d.puttingSchedule(old, put, spec, documentRoom{}, now)
		})
		return none, err
	})
	return err
}

// readPut reads when a schedule that is to be put fires, and refuses what cannot be. check refuses targets that cannot be
// used. Errors: harp.ErrInvalid.
func (d *Dispatcher) readPut(put *putSchedule, check func(target string) error, now time.Time) (*schedule.Spec, error) {
	sch := &put.Schedule
	spec, err := parseSchedule(sch)
	if err == nil && spec != nil {
		err = when.FieldError(spec.Check(now))
	}
	if err == nil {
		err = check(sch.Request.Target)
	}
	if err == nil {
		err = checkSize(harp.Submission{Request: sch.Request.Encode()})
	}
	return spec, err
}

// checkTarget refuses a target that cannot be used. Errors: harp.ErrInvalid (target).
func (d *Dispatcher) checkTarget(text string) error {
	_, err := d.fleet.compileTarget(text)
	return err
}

// puttingSchedule is the step that puts a schedule, which was read, in the place of an old one, nil if there is none. Beside it other schedules
// take room in the same commit. No edit fires the past. Errors:
// harp.ErrConflict, harp.ErrRefused.
func (d *Dispatcher) puttingSchedule(old *scheduled, put putSchedule, spec *schedule.Spec, beside documentRoom, now time.Time) (*store.ScheduleStep, error) {
	sch := &put.Schedule
	document := wire.Encode(put)
	if err := d.schedules.takeRoom(sch.Name, put.By, len(document), beside); err != nil {
		return nil, err
	}
	step := store.ScheduleStep{Name: sch.Name}
	if old != nil {
		step = old.step()
	}
	next := &scheduled{putSchedule: put, name: sch.Name, spec: spec}
	switch {
	case old == nil || old.revision == 0:
		step.State = store.ScheduleState{ScheduleLife: store.ScheduleLife{Through: now, Fresh: old == nil && d.hasNoLedger(sch.Name)}}
		if runs := d.store.ScheduleRuns(sch.Name); len(runs) > 0 { // of one that was deleted, or lost
			step.State.Runs = runs[max(0, len(runs)-maxRuns):]
			step.State.LastBatch = runs[len(runs)-1].Batch
		}
	case old.err != nil:
		step = d.settling(old, old.state.SettleUnknown(now), old.err, now)
	default:
		dec, err := old.state.Change(old.rules(), next.rules(), old, next, d.schedules.see(now, old.running()))
		if err != nil {
			return nil, noSpaceFor(err)
		}
		if step = d.settling(old, dec, nil, now); step.Entry != nil {
			step.Entry.By = put.By
		}
	}
	step.Document = document
	step.State.Version++
	e := next.event(harp.EventScheduleChanged, now)
	e.By = put.By
	step.Events = append(step.Events, e)
	return &step, nil
}

// hasNoLedger reports whether there never was a schedule of this name of which a time was settled.
func (d *Dispatcher) hasNoLedger(name string) bool {
	page, err := d.store.ScheduleLedger(d.ctx, harp.LedgerFilter{Schedule: name, Limit: 1}, "")
	return err == nil && len(page.Items) == 0 && page.Cursor == ""
}

// noSpaceFor is the error of a change for which times that are due are to be settled first, which there was no space for.
func noSpaceFor(err error) error {
	if errors.Is(err, store.ErrIllegal) {
		return fmt.Errorf("%w: times of the schedule cannot be settled", harp.ErrNoSpace)
	}
	return err
}

// DeleteSchedule implements harp.ScheduleService.
func (s *service) DeleteSchedule(ctx context.Context, id, name string) error {
	_, err := requestChange(s, ctx, func(ctx context.Context) (none struct{}, err error) {
		op, err := s.documentsOperation(id, wire.TypeDeleteSchedule, wire.DeleteSchedule{Name: name})
		if err != nil {
			return none, err
		}
		locked := false
		defer func() {
			if locked {
				s.d.schedules.changing.Unlock()
			}
		}()
		_, _, err = s.d.changeSchedule(ctx, op, name, []string{name}, true, func(is *scheduled, now time.Time) (*store.ScheduleStep, error) {
			if is == nil {
				return nil, noSchedule(name)
			}
			if is.ManagedBy != "" {
				return nil, errManaged(harp.ScheduleDocument, name, is.ManagedBy)
			}
			s.d.schedules.changing.Lock()
			locked = true
			if err := s.d.schedules.dependencies().checkDeleted(name); err != nil {
				return nil, err
			}
			return s.d.deleting(is, s.who, now), nil
		})
		return none, err
	})
	return err
}

// deleting is the step that deletes a schedule. Its ledger, which stays, tells of what was still to be decided.
func (d *Dispatcher) deleting(s *scheduled, who harp.Principal, now time.Time) *store.ScheduleStep {
	step := &store.ScheduleStep{Name: s.name, Revision: s.revision, Delete: true}
	note := func(dec store.ScheduleDecision, why error) {
		one := d.settling(s, dec, why, now)
		if one.Entry == nil {
			return
		}
		one.Events[0].By = who
		for _, entry := range append(one.Entries, one.Entry) {
			entry.By = who
			step.Entries = append(step.Entries, entry)
		}
		step.Events = append(step.Events, one.Events...)
	}
	life := s.state.ScheduleLife
	if s.err != nil && s.revision > 0 {
		dec := life.SettleUnknown(now)
		note(dec, s.err)
		life = dec.Life
	}
	for dec := life.Abandon(s, now); dec.Kind != store.DecideWait; dec = life.Abandon(s, now) {
		note(dec, nil)
		life = dec.Life
	}
	e := s.event(harp.EventScheduleDeleted, now)
	e.By = who
	step.Events = append(step.Events, e)
	return step
}

// ListSchedules implements harp.ScheduleService.
func (s *service) ListSchedules(ctx context.Context, name, cursor string) (harp.Page[harp.ScheduleStatus], error) {
	type page = harp.Page[harp.ScheduleStatus]
	return request(s, ctx, func(context.Context) (page, error) {
		items, next := s.d.schedules.page(name, cursor, pageSize)
		out, now := page{Cursor: next}, s.d.now()
		for _, one := range items {
			status, err := s.d.shownSchedule(one, now)
			if err != nil {
				return page{}, err
			}
			out.Items = append(out.Items, status)
		}
		return out, nil
	})
}

// ChangeSchedule implements harp.ScheduleService.
func (s *service) ChangeSchedule(ctx context.Context, id, name string, c harp.ScheduleChange) error {
	_, err := requestChange(s, ctx, func(ctx context.Context) (none struct{}, err error) {
		if err := c.Check(); err != nil {
			return none, err
		}
		op, err := s.documentsOperation(id, wire.TypeChangeSchedule, wire.ChangeSchedule{Name: name, ScheduleChange: c})
		if err != nil {
			return none, err
		}
		_, _, err = s.d.changeSchedule(ctx, op, name, []string{name}, false, func(is *scheduled, now time.Time) (*store.ScheduleStep, error) {
			if is == nil {
				return nil, noSchedule(name)
			}
			switch c.Kind {
			case harp.PauseOfSchedule:
				return is.pausing(c, s.who, now)
			case harp.UnpauseOfSchedule:
				return is.unpausing(s.who, now), nil
			default:
				return s.d.skipping(is, c.At, s.who, now)
			}
		})
		return none, err
	})
	return err
}

// pausing is the step that pauses a schedule. Errors: harp.ErrInvalid (until).
func (s *scheduled) pausing(c harp.ScheduleChange, who harp.Principal, now time.Time) (*store.ScheduleStep, error) {
	if !c.Until.IsZero() && !c.Until.After(now) {
		return nil, &harp.FieldError{Field: "until", Message: "has passed"}
	}
	step := s.step()
	step.State.ScheduleLife = step.State.Pause(store.SchedulePause{By: who, Reason: c.Reason, Since: now, Until: c.Until}, s)
	e := s.event(harp.EventSchedulePaused, now)
	e.By, e.Reason = who, c.Reason
	step.Events = []harp.Event{e}
	return &step, nil
}

// unpausing is the step that ends a pause; nil if there is none.
func (s *scheduled) unpausing(who harp.Principal, now time.Time) *store.ScheduleStep {
	if _, paused := s.state.Paused(now); !paused {
		return nil
	}
	step := s.step()
	step.State.ScheduleLife = step.State.Unpause(now, s)
	e := s.event(harp.EventScheduleUnpaused, now)
	e.By = who
	step.Events = []harp.Event{e}
	return &step
}

// skipping is the step that leaves out a time to come; the zero time is the next one. Errors: harp.ErrInvalid (at), harp.ErrConflict.
func (d *Dispatcher) skipping(s *scheduled, at time.Time, who harp.Principal, now time.Time) (*store.ScheduleStep, error) {
	if len(s.Schedule.After) > 0 {
		return nil, hasNoTimes("at", s.name)
	}
	if at.IsZero() {
		next, found := s.Next(s.firesAfter())
		for found && slices.ContainsFunc(s.state.Skips, next.Nominal.Equal) {
			next, found = s.Next(next.Nominal)
		}
		if !found {
			return nil, conflictOf("schedule", "schedule "+s.name+" has no time to come")
		}
		at = next.Nominal
	}
	if t, found := s.Prev(at.Add(1)); !found || !t.Nominal.Equal(at) {
		return nil, &harp.FieldError{Field: "at", Message: "is no time of the schedule"}
	}
	dec, err := s.state.Skip(at.UTC(), s)
	if err != nil {
		return nil, illegalStep(err)
	}
	step := d.settling(s, dec, nil, now)
	step.Entry.By, step.Events[0].By = who, who
	return &step, nil
}

// TriggerSchedule implements harp.ScheduleService.
func (s *service) TriggerSchedule(ctx context.Context, batch, name string, t harp.Trigger) (harp.Submitted, error) {
	return requestChange(s, ctx, func(ctx context.Context) (harp.Submitted, error) {
		op, err := s.documentsOperation(batch, wire.TypeTrigger, wire.Trigger{Name: name, Trigger: t})
		if err != nil {
			return harp.Submitted{}, err
		}
		notStored := func() {}
		_, again, err := s.d.changeSchedule(ctx, op, name, []string{name}, false, func(is *scheduled, now time.Time) (*store.ScheduleStep, error) {
			if is == nil {
				return nil, noSchedule(name)
			}
			if is.err != nil {
				return nil, is.err
			}
			dec, err := is.state.Trigger(t.EvenIfRunning, t.EvenIfPaused, s.d.schedules.see(now, is.running()))
			if err != nil {
				return nil, illegalStep(err)
			}
			if n := len(is.state.Runs); n >= maxRuns && is.Schedule.Overlap != harp.OverlapAllow { // a time might fire beside one that is forgotten
				return nil, conflictOf("schedule", fmt.Sprintf("%d runs of schedule %s are not over", n, name))
			}
			step, counted, err := s.d.firing(ctx, is, dec, batch, now)
			if err != nil {
				return nil, err
			}
			payer := is.By
			if s.who != payer { // what others have it run is theirs to pay for
				s.d.principals.countBytes(payer, -counted)
				if err := s.d.principals.admitBytes(s.who, counted); err != nil {
					return nil, err
				}
				payer = s.who
			}
			notStored = func() { s.d.principals.countBytes(payer, -counted) }
			step.Entry.By, step.Events[0].By = s.who, s.who
			return &step, nil
		})
		if err != nil {
			notStored()
			return harp.Submitted{}, err
		}
		s.d.wakeClock()
		return harp.Submitted{ID: batch, Existed: again}, nil
	})
}

// BackfillSchedule implements harp.ScheduleService.
func (s *service) BackfillSchedule(ctx context.Context, id, name string, from, to time.Time) (int, error) {
	return requestChange(s, ctx, func(ctx context.Context) (int, error) {
		if err := harp.CheckBackfill(name, from, to); err != nil {
			return 0, err
		}
		op, err := s.puttingOperation(id, wire.TypeBackfill, wire.Backfill{Name: name, From: from, To: to})
		if err != nil {
			return 0, err
		}
		n, _, err := s.d.changeSchedule(ctx, op, name, []string{name}, false, func(is *scheduled, now time.Time) (*store.ScheduleStep, error) {
			if is == nil {
				return nil, noSchedule(name)
			}
			if is.err != nil {
				return nil, is.err
			}
			if to.After(now) {
				return nil, &harp.FieldError{Field: "to", Message: "is to come"}
			}
			if len(is.Schedule.After) > 0 {
				return nil, hasNoTimes("from", name)
			}
			times, err := s.d.findUnfired(ctx, is, from, to)
			if err != nil {
				return nil, err
			}
			step := is.step()
			if step.State.ScheduleLife, err = step.State.AskBackfill(times); err != nil {
				return nil, illegalStep(err)
			}
			step.State.BackfillBy, step.Count = s.who, len(times)
			return &step, nil
		})
		return n, err
	})
}

// findUnfired returns the nominal times of a schedule in [from, to) that are settled and did not fire. Errors: harp.ErrInvalid for too many,
// harp.ErrPruned where that is not known any more.
func (d *Dispatcher) findUnfired(ctx context.Context, s *scheduled, from, to time.Time) (times []time.Time, err error) {
	row, err := d.store.Schedule(ctx, s.name)
	if err != nil {
		return nil, err
	}
	if from.Before(row.KeptFrom) {
		return nil, failures.New("pruned", fmt.Sprintf("what became of times of schedule %s before %s is not known any more", s.name, row.KeptFrom.Format(time.RFC3339))).Err()
	}
	fired := map[int64]bool{}
	f := harp.LedgerFilter{Schedule: s.name, Outcomes: []harp.TimeOutcome{harp.TimeFired}, From: from, To: to}
	for cursor := ""; ; {
		page, err := d.store.ScheduleLedger(ctx, f, cursor)
		if err != nil {
			return nil, err
		}
		for _, e := range page.Items {
			if e.Kind != harp.LedgerManual {
				fired[e.From.UnixNano()] = true
			}
		}
		if cursor = page.Cursor; cursor == "" {
			break
		}
		if len(fired) > maxBackfillWalk {
			return nil, tooManyTimes(maxBackfillWalk)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	walked := 0
	for m := range s.spec.Between(from, to) {
		if walked++; walked > maxBackfillWalk {
			return nil, tooManyTimes(maxBackfillWalk)
		}
		if m.Nominal.After(s.state.Through) {
			break
		}
		if fired[m.Nominal.UnixNano()] || m.Nominal.Equal(s.state.Waiting) {
			continue
		}
		if times = append(times, m.Nominal); len(times) > harp.MaxBackfill {
			return nil, tooManyTimes(harp.MaxBackfill)
		}
	}
	return times, nil
}

func tooManyTimes(most int) error {
	return &harp.FieldError{Field: "to", Message: fmt.Sprintf("there are more than %d times between from and to", most)}
}

// NextTimes implements harp.ScheduleService.
func (s *service) NextTimes(ctx context.Context, name string, from time.Time, n int) ([]harp.Upcoming, error) {
	return request(s, ctx, func(ctx context.Context) (times []harp.Upcoming, err error) {
		if err := harp.CheckNextTimes(name, from, n); err != nil {
			return nil, err
		}
		is, err := s.d.schedules.find(name)
		now := s.d.now()
		switch {
		case err != nil:
			return nil, err
		case is.spec == nil:
			return nil, is.err
		case from.IsZero():
			from = is.toCome(now)
		}
		for len(times) < n {
			m, found := is.spec.Next(from)
			if !found {
				break
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			up := is.upcoming(m)
			if p, paused := is.state.Paused(now); paused && m.Time.After(now) && (p.Until.IsZero() || m.Time.Before(p.Until)) {
				addNote(&up, "skipped: paused")
			}
			times, from = append(times, up), m.Nominal
		}
		weight := weightOfBytes(len(is.Schedule.Request.Target)) + n/100 // each is judged for all hosts
		if err := s.d.turns.awaitTurn(ctx, s.who, weight); err != nil {
			return nil, err
		}
		defer s.d.turns.leaveTurn(s.who, weight)
		return times, s.d.foretellHolds(ctx, is, times)
	})
}

// ScheduleLedger implements harp.ScheduleService.
func (s *service) ScheduleLedger(ctx context.Context, f harp.LedgerFilter, cursor string) (harp.Page[harp.LedgerEntry], error) {
	return request(s, ctx, func(ctx context.Context) (page harp.Page[harp.LedgerEntry], err error) {
		if err := f.Check(); err != nil {
			return page, err
		}
		f.Limit = pageLimitOf(f.Limit)
		return s.d.store.ScheduleLedger(ctx, f, cursor)
	})
}
