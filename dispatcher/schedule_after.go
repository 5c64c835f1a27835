package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
)

// dependencies are which schedules each schedule comes after. Of one that cannot be read nobody knows.
type dependencies map[string][]string

func dependencyNames(s *harp.Schedule) (names []string) {
	for _, d := range s.After {
		names = append(names, d.Schedule)
	}
	return names
}

// dependencies returns those of all schedules.
func (ss *schedules) dependencies() dependencies {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	all := make(dependencies, len(ss.byName))
	for name, s := range ss.byName {
		all[name] = dependencyNames(&s.Schedule)
	}
	return all
}

// dependents are the schedules that come after one, by name.
func (ss *schedules) dependents(name string) []string {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	return slices.Sorted(maps.Keys(ss.followers[name]))
}

// counts are how many schedules come after each.
func (d dependencies) counts() map[string]int {
	counts := map[string]int{}
	for _, after := range d {
		for _, of := range after {
			counts[of]++
		}
	}
	return counts
}

// check refuses what a schedule cannot come after. Errors: *harp.FieldError; harp.ErrRefused where too many come after one.
func (d dependencies) check(name string, counts map[string]int) error {
	seen := map[string]bool{}
	for i, of := range d[name] {
		field := fmt.Sprintf("after[%d].schedule", i)
		if _, isThere := d[of]; !isThere {
			return &harp.FieldError{Field: field, Message: fmt.Sprintf("there is no schedule %q", of)}
		}
		if path := d.path(of, name, seen); path != nil {
			return &harp.FieldError{Field: field, Message: "would come after itself: " + strings.Join(append([]string{name}, path...), " after ")}
		}
		if n := counts[of]; n > maxDependents {
			return failures.New("refused", fmt.Sprintf("%d schedules would come after schedule %s, at most %d", n, of, maxDependents)).Err()
		}
	}
	return nil
}

// path leads from a schedule to one that it comes after, maybe by way of others; nil: there is none. What was seen is not looked at again.
func (d dependencies) path(from, to string, seen map[string]bool) []string {
	if from == to {
		return []string{to}
	}
	seen[from] = true
	for _, of := range d[from] {
		if seen[of] {
			continue
		}
		if path := d.path(of, to, seen); path != nil {
			return append([]string{from}, path...)
		}
	}
	return nil
}

// dependents are the schedules that come after one, by name.
func (d dependencies) dependents(name string) (names []string) {
	for other, after := range d {
		if slices.Contains(after, name) {
			names = append(names, other)
		}
	}
	slices.Sort(names)
	return names
}

// checkDeleted refuses that a schedule is gone that others come after. Errors: harp.ErrConflict.
func (d dependencies) checkDeleted(name string) error {
	if users := d.dependents(name); len(users) > 0 {
		return conflictOf("schedule", fmt.Sprintf("schedule %s cannot be deleted: it is needed by %s", name, strings.Join(users, ", ")))
	}
	return nil
}

// takeTurns is takeTurn for schedules by whoever has the turn of another one. Where it is somebody else's turn of one of them
// false is returned at once, and the loop looks at that other schedule when it is over: to wait for it might be for ever.
func (ss *schedules) takeTurns(names []string, other string) bool {
	for i, name := range names {
		if ss.takeTurn(name) == nil {
			continue
		}
		ss.endTurns(names[:i])
		ss.mu.Lock()
		if turn := ss.turns[name]; turn != nil {
			turn.then = append(turn.then, other)
		} else {
			ss.noted[other] = struct{}{} // it is over already; the end of the other's turn wakes the loop
		}
		ss.mu.Unlock()
		return false
	}
	return true
}

// errTaken is that somebody else makes steps of a schedule that comes after another.
var errTaken = errors.New("a schedule that comes after it is being changed")

// commitEnd commits a step of a schedule that notes how a run of it ended, with steps of all schedules that come after it. So each end
// comes to each of them once. Errors: errTaken, the store's.
func (d *Dispatcher) commitEnd(ctx context.Context, s *scheduled, step store.ScheduleStep, end store.ScheduleEnd, now time.Time) (*scheduled, error) {
	names := d.schedules.dependents(s.name)
	if len(names) == 0 {
		return d.commitStep(ctx, s, step, now)
	}
	if !d.schedules.takeTurns(names, s.name) {
		return nil, errTaken
	}
	defer d.schedules.endTurns(names)
	steps := []store.ScheduleStep{step}
	var dependents []*scheduled
	for _, name := range names {
		dependent, err := d.schedules.find(name)
		if err != nil {
			continue // deleted
		}
		if dependent.err != nil {
			d.log.Error("a schedule that cannot fire is not told of a run that it comes after", "schedule", name, "batch", end.Batch)
			continue
		}
		dependents = append(dependents, dependent)
		steps = append(steps, d.notingEnd(dependent, end, now))
	}
	if _, err := d.store.ChangeDocuments(ctx, store.DocumentChanges{Steps: steps, Op: store.Operation{Time: now}}); err != nil {
		if errors.Is(err, harp.ErrConflict) {
			for _, dependent := range dependents {
				_, also := d.rereadSchedule(ctx, dependent.name)
				err = errors.Join(err, also)
				d.schedules.note(dependent.name) // it may have the end already
			}
		}
		return nil, err
	}
	for i, dependent := range dependents {
		d.schedules.set(dependent.stepped(&steps[i+1], dependent.revision+1))
		d.schedules.note(dependent.name)
	}
	next := s.stepped(&step, s.revision+1)
	d.schedules.set(next)
	return next, nil
}

// notingEnd is the step that notes the end of a run with a schedule that comes after it.
func (d *Dispatcher) notingEnd(s *scheduled, end store.ScheduleEnd, now time.Time) store.ScheduleStep {
	return d.settling(s, s.state.NoteEnd(end, now), nil, now)
}

// endOfRun is the end of a batch of a schedule as those are told that come after it. One that ended by a restore may have ended otherwise,
// after the backup was made.
func endOfRun(s *scheduled, run store.ScheduleRun, b *store.Batch) store.ScheduleEnd {
	end := store.ScheduleEnd{Schedule: s.name, Batch: b.ID, State: b.State, At: b.EndTime, Restored: run.Restored}
	if b.Reason == harp.BatchReasonRestored || b.EndTime.Equal(s.state.Restored) {
		end.State = ""
	}
	return end
}

// endsText is the detail of an entry of the ledger, and behind it the ends that the entry is about.
func endsText(detail string, ends []store.ScheduleEnd) string {
	if len(ends) == 0 {
		return detail
	}
	var words []string
	for _, end := range ends {
		words = append(words, end.String())
	}
	return strings.TrimPrefix(cutDetail(detail)+"; "+strings.Join(words, ", "), "; ")
}

// cutDetail leaves as much of a detail as there is room for beside others.
func cutDetail(detail string) string {
	if len(detail) > longDetail {
		return strings.ToValidUTF8(detail[:longDetail], "")
	}
	return detail
}

// batchOf is the batch by which an entry about ends is known: the last that ended.
func batchOf(ends []store.ScheduleEnd) string {
	if len(ends) == 0 {
		return ""
	}
	return ends[len(ends)-1].Batch
}
