package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/wake"
	"github.com/harpcaller/harp/internal/when"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/schedule"
	"github.com/harpcaller/harp/store"
)

// Schedules are all in memory.
const (
	defaultCatchUp = 10 * time.Minute

	// stepsTogether is how many schedules the loop has make steps at a time: many fire at the same second, and the
	// store commits together what is asked of it together. What others ask for meanwhile waits for that many.
	stepsTogether = 16
)

// schedules are those there are.
type schedules struct {
	kick chan struct{} // wakes the loop

	changing sync.Mutex // who changes which schedules come after which holds it until that is in memory; their turns come first

	mu        sync.RWMutex     // guards what follows
	turns     map[string]*turn // of schedules that somebody makes steps of
	byName    map[string]*scheduled
	by        map[harp.Principal]documentRoom // what they take, by who has put them
	followers map[string]map[string]struct{}  // which schedules come after each
	size      int                             // bytes of what was put
	runs      map[string]openRun              // those whose ends were not seen, by batch
	noted     map[string]struct{}             // those that are to be looked at
	waited    map[string]struct{}             // those that have waited for the turns of those that come after them
	sight     store.ScheduleSight             // of all of them: Awake, Jumps, Full
}

// openRun is a run whose end was not seen.
type openRun struct {
	schedule string
	begun    time.Time // on the clock that is never set; zero: nobody has asked for it
}

func newSchedules() *schedules {
	return &schedules{
		kick: make(chan struct{}, 1), turns: map[string]*turn{},
		byName: map[string]*scheduled{}, by: map[harp.Principal]documentRoom{}, followers: map[string]map[string]struct{}{}, runs: map[string]openRun{}, noted: map[string]struct{}{}, waited: map[string]struct{}{},
	}
}

// scheduled is a schedule as it is at one revision. It never changes.
type scheduled struct {
	putSchedule
	name     string
	document []byte
	revision uint64
	state    store.ScheduleState
	spec     *schedule.Spec
	err      error     // why it cannot fire: there is no spec, though it is to have times, or no state
	wake     time.Time // when it is to be looked at; zero: when something happens
}

// putSchedule is what was put, as it is stored.
type putSchedule struct {
	Schedule harp.Schedule  `msgpack:"schedule"`
	By       harp.Principal `msgpack:"by"`
	Changed  time.Time      `msgpack:"changed"`

	ManagedBy  string   `msgpack:"managed,omitempty"` // who applies its document; "": it was put by hand
	SecretArgs []string `msgpack:"secret,omitempty"`  // those not to be shown, as schema.HideArgs takes them
}

// parseSchedule reads when a schedule fires; nil: when others have run. Errors: *harp.FieldError.
func parseSchedule(s *harp.Schedule) (*schedule.Spec, error) {
	if len(s.After) > 0 {
		return nil, nil
	}
	spec, err := schedule.Parse(s.Cron, s.TZ, schedule.Rules{
		Name: s.Name, From: s.From, Until: s.Until, Jitter: s.Jitter, Gap: schedule.Gap(s.Gap), Repeat: schedule.Repeat(s.Repeat),
	})
	return spec, when.FieldError(err)
}

// openSchedule makes of a row what the loop works on.
func openSchedule(row *store.Schedule) *scheduled {
	s := &scheduled{name: row.Name, document: row.Document, revision: row.Revision, state: row.ScheduleState}
	err := store.ErrDamaged
	if row.Document != nil {
		err = wire.Decode(row.Document, &s.putSchedule)
	}
	if err == nil {
		s.spec, err = parseSchedule(&s.Schedule)
	}
	if err == nil && row.Revision == 0 {
		err = fmt.Errorf("where the schedule is in its times is lost: put it anew: %w", store.ErrDamaged)
	}
	s.err = err
	return s
}

// Next implements store.ScheduleTimes.
func (s *scheduled) Next(after time.Time) (store.ScheduleTime, bool) {
	if s.spec == nil {
		return store.ScheduleTime{}, false
	}
	m, found := s.spec.Next(after)
	return store.ScheduleTime{Nominal: m.Nominal, Time: m.Time}, found
}

// Prev implements store.ScheduleTimes.
func (s *scheduled) Prev(before time.Time) (store.ScheduleTime, bool) {
	if s.spec == nil {
		return store.ScheduleTime{}, false
	}
	m, found := s.spec.Prev(before)
	return store.ScheduleTime{Nominal: m.Nominal, Time: m.Time}, found
}

// rules are what it says of times that cannot fire as they come.
func (s *scheduled) rules() store.ScheduleRules {
	r := store.ScheduleRules{
		Overlap: s.Schedule.Overlap, CatchUp: s.Schedule.CatchUp, CatchUpMost: s.Schedule.CatchUpMost, PauseOnFailure: s.Schedule.PauseOnFailure,
		After: s.Schedule.After,
	}
	if s.state.Version > 1 {
		r.Put = s.Changed
	}
	if r.CatchUp == 0 {
		r.CatchUp = defaultCatchUp
	}
	return r
}

// running is the last batch that is not over; "": there is none. Those that are over though that is not noted do not count.
func (s *scheduled) running(over ...string) string {
	for _, run := range slices.Backward(s.state.Runs) {
		if !slices.Contains(over, run.Batch) {
			return run.Batch
		}
	}
	return ""
}

// backfilling is the batch for whose end the next time of the past waits. Where batches may overlap that is the one of the
// time before it.
func (s *scheduled) backfilling(over ...string) string {
	if s.Schedule.Overlap != harp.OverlapAllow {
		return s.running(over...)
	}
	for _, run := range slices.Backward(s.state.Runs) {
		if run.Fires == store.FireBackfill && !slices.Contains(over, run.Batch) {
			return run.Batch
		}
	}
	return ""
}

// status is the schedule as callers see it. It shares no memory with it.
func (s *scheduled) status(now time.Time) harp.ScheduleStatus {
	put := putSchedule{Schedule: harp.Schedule{Name: s.name}}
	if err := wire.Decode(s.document, &put); err != nil {
		put = putSchedule{Schedule: harp.Schedule{Name: s.name}} // Err says that it cannot be read
	}
	out := harp.ScheduleStatus{
		Schedule: put.Schedule, ManagedBy: put.ManagedBy, Version: s.state.Version, By: put.By, Changed: put.Changed,
		Through: s.state.Through, Waiting: s.state.Waiting, LastBatch: s.state.LastBatch, Failures: s.state.Failures, Err: s.err,
	}
	if p, paused := s.state.Paused(now); paused {
		out.Pause = &harp.SchedulePause{By: p.By, Reason: p.Reason, Since: p.Since, Until: p.Until}
	}
	for _, end := range s.state.EndsOf(put.Schedule.After) {
		out.Ends = append(out.Ends, harp.DependencyEnd{Schedule: end.Schedule, Batch: end.Batch, State: end.State, At: end.At})
	}
	if s.spec != nil {
		if m, found := s.spec.Next(s.firesAfter()); found {
			out.Next = s.upcoming(m)
		}
	}
	return out
}

func (s *scheduled) upcoming(m schedule.Moment) harp.Upcoming {
	up := harp.Upcoming{Time: m.Time, Nominal: m.Nominal, Wall: m.Wall, Note: m.Note}
	if slices.ContainsFunc(s.state.Skips, m.Nominal.Equal) {
		addNote(&up, "skipped by hand")
	}
	return up
}

func addNote(up *harp.Upcoming, text string) {
	if up.Note != "" {
		up.Note += "; "
	}
	up.Note += text
}

// find returns a schedule. Errors: harp.ErrNotFound.
func (ss *schedules) find(name string) (*scheduled, error) {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	s := ss.byName[name]
	if s == nil {
		return nil, failures.NotFound("schedule", name)
	}
	return s, nil
}

// page returns up to n schedules by name, from the one after the cursor, about 1 MiB of them; of a name only that one.
func (ss *schedules) page(name, cursor string, n int) (page []*scheduled, next string) {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	if name != "" {
		if s := ss.byName[name]; s != nil {
			page = append(page, s)
		}
		return page, ""
	}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(ss.byName)) {
		switch {
		case name <= cursor:
			continue
		case len(page) == n || size > pageBytes:
			return page, page[len(page)-1].name
		}
		page = append(page, ss.byName[name])
		size += len(ss.byName[name].document)
	}
	return page, ""
}

// set puts a schedule in the place of the one of its name.
func (ss *schedules) set(s *scheduled) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	runs := make(map[string]openRun, len(s.state.Runs))
	for _, run := range s.state.Runs {
		runs[run.Batch] = openRun{s.name, ss.runs[run.Batch].begun}
	}
	ss.removeLocked(s.name)
	ss.byName[s.name], ss.size = s, ss.size+len(s.document)
	ss.countLocked(s, 1)
	maps.Copy(ss.runs, runs)
	for _, of := range dependencyNames(&s.Schedule) {
		if ss.followers[of] == nil {
			ss.followers[of] = map[string]struct{}{}
		}
		ss.followers[of][s.name] = struct{}{}
	}
}

func (ss *schedules) remove(name string) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.removeLocked(name)
}

func (ss *schedules) removeLocked(name string) {
	s := ss.byName[name]
	if s == nil {
		return
	}
	for _, run := range s.state.Runs {
		delete(ss.runs, run.Batch)
	}
	for _, of := range dependencyNames(&s.Schedule) {
		if delete(ss.followers[of], name); len(ss.followers[of]) == 0 {
			delete(ss.followers, of)
		}
	}
	delete(ss.byName, name)
	ss.size -= len(s.document)
	ss.countLocked(s, -1)
}

// countLocked counts a schedule, or one less, among those of whoever has put it.
func (ss *schedules) countLocked(s *scheduled, n int) {
	has := ss.by[s.By]
	if has.add(documentRoom{n, n * len(s.document)}); has.count == 0 {
		delete(ss.by, s.By)
		return
	}
	ss.by[s.By] = has
}

// documentRoom is what some documents take; what they give back is below zero.
type documentRoom struct{ count, bytes int }

func (r *documentRoom) add(other documentRoom) {
	r.count, r.bytes = r.count+other.count, r.bytes+other.bytes
}

// room is what all take.
func (ss *schedules) room() documentRoom {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	return documentRoom{len(ss.byName), ss.size}
}

// takeRoom takes room for a schedule of so many bytes, that who puts, until the turn of it is over. Beside it other schedules of theirs take
// room in the same commit. Errors: harp.ErrRefused, where that is beyond what there may be.
func (ss *schedules) takeRoom(name string, who harp.Principal, size int, beside documentRoom) error {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	takes, err := ss.checkRoomLocked(name, who, size, beside)
	if turn := ss.turns[name]; err == nil && turn != nil {
		turn.takes, turn.by = takes, who
	}
	return err
}

// checkRoom returns what room a schedule takes, and takes none. Errors: as takeRoom.
func (ss *schedules) checkRoom(name string, who harp.Principal, size int, beside documentRoom) (documentRoom, error) {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	return ss.checkRoomLocked(name, who, size, beside)
}

func (ss *schedules) checkRoomLocked(name string, who harp.Principal, size int, beside documentRoom) (takes documentRoom, err error) {
	takes = documentRoom{1, size}
	if old := ss.byName[name]; old != nil {
		takes = documentRoom{0, max(size-len(old.document), 0)}
	}
	all := documentRoom{len(ss.byName), ss.size}
	all.add(takes)
	all.add(beside)
	for of, other := range ss.turns {
		if of != name {
			all.add(other.takes)
		}
	}
	switch {
	case takes.count > 0 && all.count > maxSchedules:
		err = failures.New("refused", fmt.Sprintf("there are %d schedules, at most %d", all.count-1, maxSchedules)).Err()
	case all.bytes > maxScheduleBytes:
		err = failures.New("refused", fmt.Sprintf("schedules may have at most %d bytes in total", maxScheduleBytes)).Err()
	}
	if err != nil {
		return takes, err
	}
	more := takes
	has := documentRoom{1, size}
	has.add(beside)
	has.add(ss.by[who])
	for of, other := range ss.turns {
		if of != name && other.by == who {
			has.add(other.takes)
		}
	}
	if old := ss.byName[name]; old != nil && old.By == who {
		has.add(documentRoom{-1, -len(old.document)})
	} else {
		more.count = 1
	}
	return takes, checkHalf(who, "schedules", has, more, documentRoom{maxSchedules, maxScheduleBytes})
}

// note has the loop look at a schedule.
func (ss *schedules) note(name string) {
	ss.mu.Lock()
	ss.noted[name] = struct{}{}
	ss.mu.Unlock()
	wake.Signal(ss.kick)
}

// noteBatch has the loop look at the schedule of a batch that has changed, if it is of one.
func (ss *schedules) noteBatch(batch string) {
	ss.mu.RLock()
	name := ss.runs[batch].schedule
	ss.mu.RUnlock()
	if name != "" {
		ss.note(name)
	}
}

// beginOf is when a run began, on the clock that is never set. Of one from before the dispatcher was opened the wall clock tells.
func (ss *schedules) beginOf(run store.ScheduleRun, now time.Time) time.Time {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	open, isOpen := ss.runs[run.Batch]
	if open.begun.IsZero() {
		open.begun = time.Now().Add(-max(now.Sub(run.Since), 0))
	}
	if isOpen {
		ss.runs[run.Batch] = open
	}
	return open.begun
}

// maxJumps is how many times that the clock was set forward are remembered, the last ones: until then a schedule has looked.
const maxJumps = 16

// noteClock notes that the clock was set to a time, by so much. Where it was set back, what it shows once more was not left out.
func (ss *schedules) noteClock(now time.Time, by time.Duration) {
	ss.mu.Lock()
	jumps := slices.Clone(ss.sight.Jumps)
	if by > 0 {
		jumps = append(jumps, store.ClockJump{From: now.Add(-by), To: now})
	} else {
		ss.sight.Awake = ss.sight.Awake.Add(by)
		for i := range jumps {
			jumps[i].To = earlier(jumps[i].To, now)
		}
		jumps = slices.DeleteFunc(jumps, func(j store.ClockJump) bool { return !j.From.Before(j.To) })
	}
	ss.sight.Jumps = jumps[max(len(jumps)-maxJumps, 0):]
	for name := range ss.byName {
		ss.noted[name] = struct{}{} // its next look is by the clock as it was
	}
	ss.mu.Unlock()
	wake.Signal(ss.kick)
}

// noteFull notes that there was no room for what was to be written.
func (ss *schedules) noteFull(now time.Time) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.sight.Full = now
}

// see is what is seen of a schedule.
func (ss *schedules) see(now time.Time, running string) store.ScheduleSight {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	sight := ss.sight
	sight.Now, sight.Running = now, running
	return sight
}

// takeDue returns the schedules that are to be looked at now and of which nobody makes steps, by name.
func (ss *schedules) takeDue(now time.Time) (names []string) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for name, s := range ss.byName {
		_, noted := ss.noted[name]
		if (noted || !s.wake.IsZero() && !s.wake.After(now)) && ss.mayTakeLocked(s) {
			names = append(names, name)
			delete(ss.noted, name)
		}
	}
	for name := range ss.noted {
		if ss.byName[name] == nil {
			delete(ss.noted, name)
		}
	}
	slices.Sort(names)
	return names
}

// mayTakeLocked reports whether the loop may take the turn of a schedule: nobody has it, and none that it comes after has waited for it. Else
// the loop, which looks at both, might for ever take it first.
func (ss *schedules) mayTakeLocked(s *scheduled) bool {
	return ss.turns[s.name] == nil && !slices.ContainsFunc(s.Schedule.After, func(of harp.Dependency) bool {
		_, waited := ss.waited[of.Schedule]
		return waited && ss.byName[of.Schedule] != nil
	})
}

// nextWake is when the first of which nobody makes steps is to be looked at; zero: when something happens.
func (ss *schedules) nextWake() (at time.Time) {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	for _, s := range ss.byName {
		if !s.wake.IsZero() && (at.IsZero() || s.wake.Before(at)) && ss.mayTakeLocked(s) {
			at = s.wake
		}
	}
	return at
}

// clockSlack is how far ahead of the clock a schedule may be settled without a word: clocks are set by little all the time.
const clockSlack = time.Minute

// firesAfter is the time until which nothing fires of a schedule: what was settled, or may have fired before the store was restored.
func (s *scheduled) firesAfter() time.Time {
	if until := s.state.RestoredUntil(nil); until.After(s.state.Through) {
		return until
	}
	return s.state.Through
}

// toCome is the moment behind which the nominal times to come are: now, but that of a time that waits for its jitter is before, and nothing
// fires that is settled, as by a clock that was ahead.
func (s *scheduled) toCome(now time.Time) time.Time {
	settled := s.firesAfter()
	if settled.After(now) {
		return settled
	}
	if t, found := s.Prev(now.Add(1)); found && t.Nominal.After(settled) && t.Time.After(now) {
		return t.Nominal.Add(-1)
	}
	return now
}

// problem is why schedules do not fire: nil if all do.
func (ss *schedules) problem(now time.Time) error {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	var broken, ahead *scheduled // the first of each, by name
	var brokenCount, aheadCount int
	for _, s := range ss.byName {
		switch {
		case s.err != nil:
			if brokenCount++; broken == nil || s.name < broken.name {
				broken = s
			}
		case len(s.Schedule.After) == 0 && s.firesAfter().After(now.Add(clockSlack)):
			if aheadCount++; ahead == nil || s.name < ahead.name {
				ahead = s
			}
		}
	}
	var all []error
	if broken != nil {
		all = append(all, fmt.Errorf("%d schedules cannot fire, the first is %s: %w", brokenCount, broken.name, broken.err))
	}
	if ahead != nil {
		all = append(all, fmt.Errorf("%d schedules are settled through times to come, as the clock was ahead once, and fire nothing until then: the first is %s, through %s; one that is deleted and put anew fires again",
			aheadCount, ahead.name, ahead.firesAfter().Format(time.RFC3339)))
	}
	return errors.Join(all...)
}

// loadSchedules reads the schedules that are stored. What is due of them the loop settles.
func (d *Dispatcher) loadSchedules(ctx context.Context) error {
	d.schedules.sight.Awake = d.now()
	for cursor := ""; ; {
		page, next, err := d.store.ListSchedules(ctx, cursor, 100)
		if err != nil {
			return fmt.Errorf("stored schedules: %w", err)
		}
		for _, row := range page {
			s := openSchedule(row)
			if s.err != nil {
				d.log.Error("schedule cannot fire", "schedule", s.name, "err", s.err)
			}
			d.schedules.set(s)
			d.schedules.note(s.name)
		}
		if cursor = next; cursor == "" {
			return nil
		}
	}
}

// managedBy are the schedules that somebody manages, by name.
func (ss *schedules) managedBy(name string) (names []string) {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	for _, s := range ss.byName {
		if s.ManagedBy == name {
			names = append(names, s.name)
		}
	}
	slices.Sort(names)
	return names
}
