package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
)

// put makes a schedule, or replaces it.
func (w *world) put(name string, through time.Time) *store.Schedule {
	w.Helper()
	step := store.ScheduleStep{
		Name: name, Document: []byte("document of " + name), State: store.ScheduleState{Version: 1, ScheduleLife: store.ScheduleLife{Through: through}},
		Events: []harp.Event{{Type: harp.EventScheduleChanged, Schedule: name, By: caller, Time: w.now}},
	}
	if had, err := w.st.Schedule(w.ctx(), name); err == nil {
		step.Revision, step.State.Version = had.Revision, had.Version+1
	}
	w.step(step)
	return w.schedule(name)
}

func (w *world) schedule(name string) *store.Schedule {
	w.Helper()
	s, err := w.st.Schedule(w.ctx(), name)
	w.must(err)
	return s
}

func (w *world) tryStep(s store.ScheduleStep) (store.ScheduleStepped, error) {
	return w.st.StepSchedule(w.ctx(), s, w.now)
}

func (w *world) step(s store.ScheduleStep) store.ScheduleStepped {
	w.Helper()
	done, err := w.tryStep(s)
	w.must(err)
	return done
}

// firing is the step by which a time of a schedule fires on some hosts.
func (w *world) firing(s *store.Schedule, at time.Time, hosts ...string) store.ScheduleStep {
	batch := w.batchOf(hosts, member(func(j *store.Job) { j.Schedule, j.FireTime = s.Name, at }))
	step := store.ScheduleStep{
		Name: s.Name, Revision: s.Revision, State: s.Clone(), Batch: &batch,
		Entry:  &harp.LedgerEntry{Kind: harp.LedgerTime, Outcome: harp.TimeFired, From: at, To: at, Count: 1, At: w.now, Late: time.Second, Batch: batch.Batch.ID},
		Events: []harp.Event{{Type: harp.EventScheduleFired, Schedule: s.Name, Batch: batch.Batch.ID, Time: w.now}},
	}
	step.State.Through, step.State.LastBatch = at, batch.Batch.ID
	step.State.Runs = append(step.State.Runs, store.ScheduleRun{Batch: batch.Batch.ID, Since: w.now})
	return step
}

// settling is the step by which times of a schedule do not fire.
func (w *world) settling(s *store.Schedule, reason string, from, to time.Time, count int) store.ScheduleStep {
	step := store.ScheduleStep{
		Name: s.Name, Revision: s.Revision, State: s.Clone(),
		Entry: &harp.LedgerEntry{Kind: harp.LedgerTime, Outcome: harp.TimeSkipped, Reason: reason, Detail: "why", From: from, To: to, Count: count, At: w.now},
	}
	step.State.Through = to
	return step
}

// ledger is what is in the ledger, page by page, each entry as "outcome reason From-To count" in minutes after the world's beginning.
func (w *world) ledger(f harp.LedgerFilter) (all []string) {
	w.Helper()
	for _, e := range w.told(f) {
		all = append(all, fmt.Sprintf("%s %s%s %d-%d %d", e.Schedule, e.Outcome, e.Reason, minuteOf(e.From), minuteOf(e.To), e.Count))
	}
	return all
}

func (w *world) told(f harp.LedgerFilter) (all []harp.LedgerEntry) {
	w.Helper()
	for cursor := ""; ; {
		page, err := w.st.ScheduleLedger(w.ctx(), f, cursor)
		w.must(err)
		all = append(all, page.Items...)
		if cursor = page.Cursor; cursor == "" {
			return all
		}
	}
}

var beginning = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func minute(n int) time.Time { return beginning.Add(time.Duration(n) * time.Minute) }

func minuteOf(t time.Time) int { return int(t.Sub(beginning) / time.Minute) }

func (w *world) wantLedger(f harp.LedgerFilter, want ...string) {
	w.Helper()
	if got := w.ledger(f); !slices.Equal(got, want) {
		w.Fatalf("the ledger is\n%q, want\n%q", got, want)
	}
}

// wantThrough checks that schedule s is where it is to be, and how many entries and batches there are.
func (w *world) wantThrough(through time.Time, entries, batches int) {
	w.Helper()
	page, err := w.st.ListBatches(w.ctx(), store.BatchFilter{}, "")
	w.must(err)
	s, all := w.schedule("s"), w.ledger(harp.LedgerFilter{Schedule: "s"})
	if !s.Through.Equal(through) || len(all) != entries || len(page.Batches) != batches {
		w.Fatalf("it is settled through %v, there are %q and %d batches; want %v, %d and %d", s.Through, all, len(page.Batches), through, entries, batches)
	}
}

var scheduling = []rule{
	{"schedule/put", "a schedule is put, read back as it is, replaced and deleted; its events are written with it", func(w *world) {
		_, err := w.st.Schedule(w.ctx(), "nightly")
		w.wants(err, harp.ErrNotFound)
		s := w.put("nightly", minute(0))
		if s.Name != "nightly" || string(s.Document) != "document of nightly" || s.Revision != 1 || s.Version != 1 || !s.Through.Equal(minute(0)) || !s.KeptFrom.IsZero() {
			w.Fatalf("it is %+v", s)
		}
		if s = w.put("nightly", minute(3)); s.Revision != 2 || s.Version != 2 || !s.Through.Equal(minute(3)) {
			w.Fatalf("when it was replaced it is %+v", s)
		}
		w.step(store.ScheduleStep{Name: s.Name, Revision: s.Revision, Delete: true, Events: []harp.Event{{Type: harp.EventScheduleDeleted, Schedule: s.Name}}})
		_, err = w.st.Schedule(w.ctx(), "nightly")
		w.wants(err, harp.ErrNotFound)
		got := w.events(harp.EventFilter{After: harp.EventsFromStart})
		if len(got) != 3 || got[0].Schedule != "nightly" || got[0].By != caller || got[2].Type != harp.EventScheduleDeleted {
			w.Fatalf("the events are %+v", got)
		}
	}},
	{"schedule/state", "all of where a schedule is in its times is read back as it was written, and shares no memory with what was", func(w *world) {
		s := w.put("s", minute(0))
		state := store.ScheduleState{
			Version: 7, LastBatch: w.id(), BackfillBy: caller, Runs: []store.ScheduleRun{{Batch: w.id(), Since: minute(1), Fires: store.FireBackfill, Late: true}},
			ScheduleLife: store.ScheduleLife{
				Through: minute(9), Waiting: minute(8), Skips: []time.Time{minute(10)}, Backfill: []time.Time{minute(1), minute(2)}, Restored: minute(4), Lost: []time.Time{minute(3)}, Failures: 2,
				Pauses:    []store.SchedulePause{{By: caller, Reason: "disks", Since: minute(5), Until: minute(6), Over: true}},
				Run:       store.LedgerRun{Outcome: harp.TimeSkipped, Reason: "overlap", Detail: "d", From: minute(1), To: minute(3), Count: 3, AtLeast: true},
				WaitedRun: store.LedgerRun{Outcome: harp.TimeMissed, Reason: "catch_up", From: minute(2), To: minute(2), Count: 1},
			},
		}
		given := state.Clone()
		w.step(store.ScheduleStep{Name: "s", Revision: s.Revision, State: given})
		given.Runs[0].Batch, given.Skips[0], given.Pauses[0].Reason = "", minute(99), ""
		if got := w.schedule("s"); fmt.Sprintf("%+v", got.ScheduleState) != fmt.Sprintf("%+v", state) {
			w.Fatalf("it is\n%+v, want\n%+v", got.ScheduleState, state)
		}
	}},
	{"schedule/list", "schedules, and no other documents, are listed in the order of their names, page by page; a cursor of nobody is ErrInvalid", func(w *world) {
		w.must(w.st.PutDocument(w.ctx(), "group", "a", []byte("x")))
		for i := range 25 {
			w.put(fmt.Sprintf("s%02d", i*7%25), minute(i))
		}
		var names []string
		for cursor := ""; ; {
			page, next, err := w.st.ListSchedules(w.ctx(), cursor, 4)
			w.must(err)
			for _, s := range page {
				names = append(names, s.Name)
				if string(s.Document) != "document of "+s.Name || s.Revision != 1 {
					w.Fatalf("it is %+v", s)
				}
			}
			if cursor = next; cursor == "" {
				break
			}
		}
		if len(names) != 25 || !slices.IsSorted(names) {
			w.Fatalf("they are %q", names)
		}
		_, _, err := w.st.ListSchedules(w.ctx(), "no cursor", 10)
		w.wants(err, harp.ErrInvalid)
		_, err = w.st.ScheduleLedger(w.ctx(), harp.LedgerFilter{}, "no cursor")
		w.wants(err, harp.ErrInvalid)
	}},
	{"schedule/fire", "a time fires in one commit: where the schedule is, the entry of the ledger, the batch, which is as any other, and the events", func(w *world) {
		step := w.firing(w.put("s", minute(0)), minute(1), "h1", "h2")
		if done := w.step(step); done.Revision != 2 {
			w.Fatalf("it came to %+v", done)
		}
		w.wantThrough(minute(1), 1, 1)
		e := w.told(harp.LedgerFilter{Schedule: "s"})[0]
		if e.Batch != step.Batch.Batch.ID || e.Late != time.Second || !e.At.Equal(w.now) || e.Kind != harp.LedgerTime || e.By != (harp.Principal{}) || e.Err != nil {
			w.Fatalf("the entry is %+v", e)
		}
		b, err := w.st.Batch(w.ctx(), e.Batch)
		w.must(err)
		if b.Member.Schedule != "s" || !b.Member.FireTime.Equal(minute(1)) || b.Hosts != 2 {
			w.Fatalf("the batch is %+v", b)
		}
		w.gate("h1", "h2")
		if got := w.advance().Claimed; len(got) != 2 || got[0].Schedule != "s" || !got[0].FireTime.Equal(minute(1)) {
			w.Fatalf("started are %+v", got)
		}
		got := w.events(harp.EventFilter{After: harp.EventsFromStart, Types: []string{"schedule.fired", "batch.submitted"}})
		if len(got) != 2 || got[1].Batch != e.Batch || got[1].Schedule != "s" {
			w.Fatalf("the events are %+v", got)
		}
	}},
	{"schedule/fire/twice", "a time that is asked for twice fires once: the second is ErrConflict, and nothing of it is written", func(w *world) {
		s := w.put("s", minute(0))
		w.step(w.firing(s, minute(1), "h"))
		for _, again := range []store.ScheduleStep{w.firing(s, minute(1), "h"), w.firing(s, minute(2), "h"), w.settling(s, "overlap", minute(1), minute(1), 1), {Name: "s", Delete: true}} {
			_, err := w.tryStep(again)
			w.wants(err, harp.ErrConflict)
		}
		w.wantThrough(minute(1), 1, 1)
	}},
	{"schedule/runs", "runs that are not over are known by the name of their schedule, also when that was deleted, in their order", func(w *world) {
		w.step(w.firing(w.put("other", minute(0)), minute(1), "h"))
		w.put("s", minute(0))
		var all []string
		for n := range 3 {
			step := w.firing(w.schedule("s"), minute(n+1), "h")
			w.step(step)
			all = append(all, step.Batch.Batch.ID)
			w.pass(time.Second)
		}
		w.step(store.ScheduleStep{Name: "s", Revision: w.schedule("s").Revision, Delete: true})
		for n := range all {
			var runs []string
			for _, run := range w.st.ScheduleRuns("s") {
				if b, err := w.st.Batch(w.ctx(), run.Batch); err != nil || !b.Member.SubmitTime.Equal(run.Since) {
					w.Fatalf("a run is %+v, its batch %+v, %v", run, b, err)
				}
				runs = append(runs, run.Batch)
			}
			if !slices.Equal(runs, all[n:]) {
				w.Fatalf("they are %q, want %q", runs, all[n:])
			}
			if _, err := w.st.ChangeBatch(w.ctx(), all[n], store.BatchEvent{Kind: store.BatchCancel}, store.Operation{By: caller, Time: w.now}); err != nil {
				w.Fatal(err)
			}
			w.advanceAll() // its member has not begun
		}
		if runs := w.st.ScheduleRuns("s"); len(runs) > 0 {
			w.Fatalf("when all are over these are not: %+v", runs)
		}
	}},
	{"schedule/fire/race", "of steps at the same time from one revision one is made", func(w *world) {
		s := w.put("s", minute(0))
		steps, errs := make([]store.ScheduleStep, 16), make([]error, 16)
		for i := range steps {
			steps[i] = w.firing(s, minute(1), "h")
		}
		var all sync.WaitGroup
		for i := range steps {
			all.Go(func() { _, errs[i] = w.tryStep(steps[i]) })
		}
		all.Wait()
		made := 0
		for _, err := range errs {
			if err == nil {
				made++
				continue
			}
			w.wants(err, harp.ErrConflict)
		}
		if made != 1 {
			w.Fatalf("%d were made", made)
		}
		w.wantThrough(minute(1), 1, 1)
	}},
	{"schedule/fire/refused", "when the batch of a step is refused nothing of the step is written", func(w *world) {
		s := w.put("s", minute(0))
		known := w.batch([]string{"h"})
		for _, c := range []struct {
			change shape
			want   error
		}{
			{func(b *store.BatchSubmission) { b.Hosts = append(b.Hosts, b.Hosts[0]) }, harp.ErrInvalid},
			{func(b *store.BatchSubmission) { b.Batch.ID = known.ID }, harp.ErrConflict},
			{func(b *store.BatchSubmission) {
				b.Batch.ID = known.ID
				copy(b.Digest[:], known.ID)
			}, harp.ErrConflict},
			{func(b *store.BatchSubmission) { b.Most.Waiting = 1 }, harp.ErrRefused},
		} {
			step := w.firing(s, minute(1), "h1")
			c.change(step.Batch)
			_, err := w.tryStep(step)
			w.wants(err, c.want)
		}
		w.wantThrough(minute(0), 0, 1)
		w.step(w.firing(s, minute(1), "h1"))
	}},
	{"schedule/wait", "a time waits and then fires, as its state says, each in one commit", func(w *world) {
		s := w.put("s", minute(0))
		w.step(w.firing(s, minute(1), "h"))
		s = w.schedule("s")
		state := s.Clone()
		state.Through, state.Waiting = minute(2), minute(2)
		w.step(store.ScheduleStep{Name: "s", Revision: s.Revision, State: state})
		if s = w.schedule("s"); !s.Waiting.Equal(minute(2)) {
			w.Fatalf("it waits: %v", s.Waiting)
		}
		step := w.firing(s, minute(2), "h")
		step.State.Waiting = time.Time{}
		w.step(step)
		_, err := w.tryStep(step)
		w.wants(err, harp.ErrConflict)
		w.wantThrough(minute(2), 2, 2)
	}},
	{"schedule/skip", "an entry of a time to come is written ahead, and read where its time is", func(w *world) {
		s := w.put("s", minute(0))
		skip := w.settling(s, harp.TimeByHand, minute(5), minute(5), 1)
		skip.State.Through, skip.State.Skips, skip.Entry.By = minute(0), []time.Time{minute(5)}, caller
		w.step(skip)
		w.step(w.firing(w.schedule("s"), minute(1), "h"))
		w.wantLedger(harp.LedgerFilter{Schedule: "s"}, "s skippedby_hand 5-5 1", "s fired 1-1 1")
		if e := w.told(harp.LedgerFilter{Outcomes: []harp.TimeOutcome{harp.TimeSkipped}}); len(e) != 1 || e[0].By != caller || e[0].Detail != "why" {
			w.Fatalf("the entry is %+v", e)
		}
	}},
	{"schedule/ledger/run", "an entry takes the place of the one of its kind and first time, so that a run of skips is one; a fired one stands beside it", func(w *world) {
		w.put("s", minute(0))
		for n := 1; n <= 3; n++ {
			w.step(w.settling(w.schedule("s"), "overlap", minute(1), minute(n), n))
		}
		w.step(w.firing(w.schedule("s"), minute(4), "h"))
		w.step(w.settling(w.schedule("s"), "paused", minute(5), minute(5), 1))
		w.wantLedger(harp.LedgerFilter{Schedule: "s"}, "s skippedpaused 5-5 1", "s fired 4-4 1", "s skippedoverlap 1-3 3")
	}},
	{"schedule/ledger/list", "the ledger is listed newest first, page by page, of a schedule or of all, by outcome and by time: a run that reaches into the time is in it; a deleted schedule has one", func(w *world) {
		for _, name := range []string{"a", "ab"} {
			w.put(name, minute(0))
			w.step(w.firing(w.schedule(name), minute(1), "h"))
			w.step(w.settling(w.schedule(name), "overlap", minute(2), minute(6), 5))
			w.step(w.firing(w.schedule(name), minute(7), "h"))
		}
		a := w.schedule("a")
		w.step(store.ScheduleStep{Name: "a", Revision: a.Revision, Delete: true})
		a1, a2, a7 := "a fired 1-1 1", "a skippedoverlap 2-6 5", "a fired 7-7 1"
		for limit := range 4 {
			w.wantLedger(harp.LedgerFilter{Schedule: "a", Limit: limit}, a7, a2, a1)
			w.wantLedger(harp.LedgerFilter{Limit: limit}, "ab fired 7-7 1", a7, "ab skippedoverlap 2-6 5", a2, "ab fired 1-1 1", a1)
			w.wantLedger(harp.LedgerFilter{Schedule: "a", Limit: limit, From: minute(4), To: minute(7)}, a2)
			w.wantLedger(harp.LedgerFilter{Schedule: "a", Limit: limit, From: minute(7)}, a7)
			w.wantLedger(harp.LedgerFilter{Schedule: "a", Limit: limit, To: minute(2)}, a1)
			w.wantLedger(harp.LedgerFilter{Limit: limit, From: minute(4), To: minute(7), Outcomes: []harp.TimeOutcome{harp.TimeSkipped, harp.TimeMissed}}, "ab skippedoverlap 2-6 5", a2)
		}
		w.wantLedger(harp.LedgerFilter{Schedule: "none"})
		page, err := w.st.ScheduleLedger(w.ctx(), harp.LedgerFilter{Schedule: "a", Limit: 1}, "")
		w.must(err)
		_, err = w.st.ScheduleLedger(w.ctx(), harp.LedgerFilter{Schedule: "ab"}, page.Cursor)
		w.wants(err, harp.ErrInvalid)
	}},
	{"schedule/ledger/kinds", "of a time there is an entry of the schedule's and one of a backfill, and as many as were asked for by hand; why a submission was refused is kept", func(w *world) {
		w.put("s", minute(0))
		refused := w.settling(w.schedule("s"), "", minute(1), minute(1), 1)
		refused.Entry.Outcome, refused.Entry.Err = harp.TimeFailed, failures.New("refused", "too many").Err()
		w.step(refused)
		for _, kind := range []harp.LedgerKind{harp.LedgerBackfill, harp.LedgerManual, harp.LedgerManual} {
			step := w.firing(w.schedule("s"), minute(1), "h")
			step.Entry.Kind, step.Entry.By = kind, caller
			w.step(step)
		}
		kinds := map[harp.LedgerKind]int{}
		for _, e := range w.told(harp.LedgerFilter{Schedule: "s"}) {
			kinds[e.Kind]++
			if e.Outcome == harp.TimeFailed && (!errors.Is(e.Err, harp.ErrRefused) || !strings.Contains(e.Err.Error(), "too many")) {
				w.Fatalf("it was refused as %v", e.Err)
			}
		}
		if len(kinds) != 3 || kinds[harp.LedgerManual] != 2 {
			w.Fatalf("the entries are %v", kinds)
		}
	}},
	{"schedule/ledger/after", "entries about ends at one time are told apart by the batch that ended last, and one about the same takes its place", func(w *world) {
		w.put("s", minute(0))
		one, other := w.id(), w.id()
		for i, after := range []string{one, other, one} {
			step := w.settling(w.schedule("s"), fmt.Sprint(i), minute(1), minute(1), 1)
			step.Entry.Kind, step.Entry.After = harp.LedgerAfter, after
			w.step(step)
		}
		w.step(w.settling(w.schedule("s"), "time", minute(1), minute(1), 1))
		got := map[string]string{}
		for _, e := range w.told(harp.LedgerFilter{Schedule: "s"}) {
			got[string(e.Kind)+e.After] = e.Reason
		}
		if want := map[string]string{"after" + one: "2", "after" + other: "1", "time": "time"}; !maps.Equal(got, want) {
			w.Fatalf("the entries are %v, want %v", got, want)
		}
	}},
	{"schedule/ledger/backfill", "an entry of several times of a backfill stays as it is when the first of them is backfilled again", func(w *world) {
		w.put("s", minute(0))
		unfired := func(count int) {
			step := w.settling(w.schedule("s"), "by_hand", minute(1), minute(count), count)
			step.State.Through, step.Entry.Kind = minute(9), harp.LedgerBackfill
			w.step(step)
			w.pass(time.Second)
		}
		unfired(3)
		unfired(2)
		unfired(1)
		step := w.firing(w.schedule("s"), minute(1), "h")
		step.State.Through, step.Entry.Kind = minute(9), harp.LedgerBackfill
		w.step(step)
		got := map[string]int{}
		for _, e := range w.told(harp.LedgerFilter{Schedule: "s"}) {
			got[fmt.Sprintf("%s %s %d", e.Kind, e.Outcome, e.Count)]++
		}
		if want := map[string]int{"backfill skipped 3": 1, "backfill skipped 2": 1, "backfill fired 1": 1}; !maps.Equal(got, want) {
			w.Fatalf("the entries are %v, want %v", got, want)
		}
	}},
	{"schedule/ends", "that a run has ended, and that of all that come after it, are one commit: the ends are in their states, or nothing is changed", func(w *world) {
		first, a, b := w.put("first", minute(0)), w.put("a", minute(0)), w.put("b", minute(0))
		end := store.ScheduleEnd{Schedule: "first", Batch: w.id(), State: harp.BatchFailed, At: minute(3)}
		noted := func(s *store.Schedule) store.ScheduleStep {
			step := store.ScheduleStep{Name: s.Name, Revision: s.Revision, State: s.Clone()}
			step.State.Ends = append(step.State.Ends, end)
			return step
		}
		over := store.ScheduleStep{Name: "first", Revision: first.Revision, State: first.Clone()}
		over.State.Failures = 1
		stale := noted(b)
		stale.Revision++
		_, err := w.st.ChangeDocuments(w.ctx(), store.DocumentChanges{Steps: []store.ScheduleStep{over, noted(a), stale}})
		w.wants(err, harp.ErrConflict)
		if got := w.schedule("a"); len(got.Ends) != 0 || w.schedule("first").Failures != 0 {
			w.Fatalf("after what was refused it is %+v", got)
		}
		full := noted(b)
		full.Entry = &harp.LedgerEntry{Schedule: "b", Kind: harp.LedgerAfter, Outcome: harp.TimeMissed, From: end.At, To: end.At, Count: 1, At: w.now, After: end.Batch}
		_, err = w.st.ChangeDocuments(w.ctx(), store.DocumentChanges{Steps: []store.ScheduleStep{over, noted(a), full}})
		w.must(err)
		got := w.schedule("a")
		if len(got.Ends) != 1 || got.Ends[0] != end || got.Revision != a.Revision+1 || w.schedule("first").Failures != 1 {
			w.Fatalf("it is %+v", got)
		}
		if got := w.told(harp.LedgerFilter{Schedule: "b"}); len(got) != 1 || got[0].After != end.Batch {
			w.Fatalf("the entries are %+v", got)
		}
		waits := store.ScheduleStep{Name: "a", Revision: got.Revision, State: got.Clone()}
		waits.State.Waiting, waits.State.Waits, waits.State.Ends = end.At, waits.State.Ends, nil
		w.step(waits)
		if got := w.schedule("a"); len(got.Ends) != 0 || len(got.Waits) != 1 || got.Waits[0] != end {
			w.Fatalf("it is %+v", got)
		}
	}},
	{"schedule/backfill", "a backfill of a time that has fired, as a time or as a backfill, is ErrConflict; of one that did not it fires", func(w *world) {
		w.put("s", minute(0))
		w.step(w.firing(w.schedule("s"), minute(1), "h"))
		w.step(w.settling(w.schedule("s"), "overlap", minute(2), minute(3), 2))
		backfill := func(n int) error {
			step := w.firing(w.schedule("s"), minute(n), "h")
			step.State.Through, step.Entry.Kind = minute(3), harp.LedgerBackfill
			_, err := w.tryStep(step)
			return err
		}
		w.wants(backfill(1), harp.ErrConflict)
		w.must(backfill(2))
		w.must(backfill(3))
		w.wants(backfill(2), harp.ErrConflict)
		w.wantThrough(minute(3), 4, 3)
	}},
	{"schedule/once", "a step that is asked for again under its id changes nothing, and says what came of the first; the id of another operation is ErrConflict", func(w *world) {
		s := w.put("s", minute(0))
		step := w.firing(s, minute(1), "h")
		step.Op, step.Count = store.Operation{ID: step.Batch.Batch.ID, By: caller, Time: w.now, Asked: []byte("trigger")}, 3
		w.step(step)
		step.Count = 9
		if done := w.step(step); done.Revision != 0 || done.Count != 3 {
			w.Fatalf("again it came to %+v", done)
		}
		if n, done, err := w.st.DocumentsChanged(w.ctx(), step.Op); err != nil || !done || n != 3 {
			w.Fatalf("it was done: %v, %d, %v", done, n, err)
		}
		step.Op.Asked = []byte("another")
		_, err := w.tryStep(step)
		w.wants(err, harp.ErrConflict)
		w.wantThrough(minute(1), 1, 1)
	}},
	{"schedule/bounds", "a document of more than 1 MiB, a state of more than 256 KiB and a detail of more than 4 KiB are ErrInvalid, and nothing is written", func(w *world) {
		s := w.put("s", minute(0))
		long := w.settling(s, "overlap", minute(1), minute(1), 1)
		long.Entry.Detail = strings.Repeat("x", 4<<10+1)
		wide := store.ScheduleStep{Name: "s", Revision: s.Revision, State: s.Clone()}
		wide.State.Backfill = make([]time.Time, 60_000)
		for i := range wide.State.Backfill {
			wide.State.Backfill[i] = minute(i)
		}
		for _, step := range []store.ScheduleStep{{Name: "s", Revision: s.Revision, Document: bytes.Repeat([]byte("x"), 1<<20+1)}, long, wide} {
			_, err := w.tryStep(step)
			w.wants(err, harp.ErrInvalid)
		}
		w.wantThrough(minute(0), 0, 0)
		long.Entry.Detail = long.Entry.Detail[1:]
		w.step(long)
		w.step(store.ScheduleStep{Name: "s", Revision: 2, State: s.Clone(), Document: bytes.Repeat([]byte("x"), 1<<20)})
	}},
	{"schedule/together", "schedules are put and deleted with documents in one commit, once for an id: all of it, or nothing where one is not of its revision", func(w *world) {
		a, gone := w.put("a", minute(1)), w.put("gone", minute(2))
		state := a.Clone()
		state.Through = minute(9)
		c := store.DocumentChanges{
			Changes: []store.DocumentChange{change("doc", "-", "1")},
			Steps: []store.ScheduleStep{
				{Name: "a", Revision: a.Revision, Document: []byte("another"), State: state, Events: []harp.Event{{Type: harp.EventScheduleChanged, Schedule: "a", Time: w.now}}},
				{Name: "gone", Revision: gone.Revision, Delete: true},
				{Name: "new", Document: []byte("new"), State: store.ScheduleState{Version: 1}},
			},
			Op: store.Operation{ID: w.id(), Time: w.now}, Count: 4,
			Events: []harp.Event{{Type: harp.EventGroupChanged, Reason: "doc", Time: w.now}},
		}
		for i, wrong := range []store.ScheduleStep{{Name: "a"}, {Name: "gone", Revision: 7, Delete: true}, {Name: "new", Revision: 1}} {
			refused := c
			refused.Steps = slices.Clone(c.Steps)
			refused.Steps[i] = wrong
			_, err := w.st.ChangeDocuments(w.ctx(), refused)
			w.wants(err, harp.ErrConflict)
		}
		for _, wrong := range [][]store.ScheduleStep{
			{c.Steps[0], c.Steps[0]}, {{Name: "b", Batch: &store.BatchSubmission{}}}, {{Name: "b", Document: []byte(strings.Repeat("x", 1<<20+1))}},
		} {
			_, err := w.st.ChangeDocuments(w.ctx(), store.DocumentChanges{Steps: wrong})
			w.wants(err, harp.ErrInvalid)
		}
		_, err := w.st.ChangeDocuments(w.ctx(), store.DocumentChanges{Changes: []store.DocumentChange{{Kind: store.ScheduleKind, Name: "a", New: []byte("x")}}, Steps: c.Steps[:1]})
		w.wants(err, harp.ErrInvalid)
		w.wantContents()
		if got := w.schedule("a"); got.Revision != a.Revision || string(got.Document) != string(a.Document) {
			w.Fatalf("after what was refused it is %+v", got)
		}
		for range 2 {
			n, err := w.st.ChangeDocuments(w.ctx(), c)
			if w.must(err); n != 4 {
				w.Fatalf("%d were changed", n)
			}
		}
		w.wantContents("doc=1")
		if got := w.schedule("a"); got.Revision != a.Revision+1 || string(got.Document) != "another" || !got.Through.Equal(minute(9)) {
			w.Fatalf("it is %+v", got)
		}
		if got := w.schedule("new"); got.Revision != 1 || string(got.Document) != "new" || got.Version != 1 {
			w.Fatalf("what is new is %+v", got)
		}
		_, err = w.st.Schedule(w.ctx(), "gone")
		w.wants(err, harp.ErrNotFound)
		if got := w.events(harp.EventFilter{After: harp.EventsFromStart}); len(got) != 4 || got[2].Schedule != "a" && got[3].Schedule != "a" {
			w.Fatalf("the events are %+v", got)
		}
	}},
	{"schedule/prune", "entries of the ledger are kept as events are, and the last 100 of each schedule always; KeptFrom says since when it is whole; of a deleted schedule all go by their age", func(w *world) {
		for _, name := range []string{"old", "few", "gone"} {
			w.put(name, minute(0))
		}
		write := func(name string, n int) {
			for range n {
				s := w.schedule(name)
				at := minute(minuteOf(s.Through) + 1)
				w.step(w.settling(s, fmt.Sprint(at), at, at, 1))
			}
		}
		write("old", 120)
		write("few", 99)
		write("gone", 3)
		w.step(store.ScheduleStep{Name: "gone", Revision: w.schedule("gone").Revision, Delete: true})
		count := func(name string) int { return len(w.ledger(harp.LedgerFilter{Schedule: name})) }
		w.prune(store.Retention{EventsBefore: w.now})
		if count("old") != 120 || count("gone") != 3 {
			w.Fatal("what is not old was deleted")
		}
		w.pass(time.Hour)
		write("old", 5)
		w.prune(store.Retention{})
		w.prune(store.Retention{EventsBefore: w.now})
		if o, f, g := count("old"), count("few"), count("gone"); o != 100 || f != 99 || g != 0 {
			w.Fatalf("%d, %d and %d are left", o, f, g)
		}
		if all := w.ledger(harp.LedgerFilter{}); len(all) != 199 {
			w.Fatalf("of all there are %d", len(all))
		}
		s := w.schedule("old")
		if !s.KeptFrom.After(minute(25)) || s.KeptFrom.After(minute(26)) || !w.schedule("few").KeptFrom.IsZero() {
			w.Fatalf("they are whole since %v and %v", s.KeptFrom, w.schedule("few").KeptFrom)
		}
		w.step(w.firing(s, minute(126), "h")) // the revision is as it was
		if !w.schedule("old").KeptFrom.Equal(s.KeptFrom) {
			w.Fatal("a step forgets since when the ledger is whole")
		}
		write("old", 60)
		w.pass(time.Hour)
		w.prune(store.Retention{EventsBefore: w.now.Add(-time.Minute)})
		if n := count("old"); n != 100 {
			w.Fatalf("%d are left", n)
		}
	}},
	{"schedule/kept", "since when a ledger is whole is known of a schedule that is deleted and put anew, whether entries went before or after that", func(w *world) {
		write := func(name string, n int) {
			for range n {
				s := w.schedule(name)
				at := minute(minuteOf(s.Through) + 1)
				w.step(w.settling(s, fmt.Sprint(at), at, at, 1))
			}
		}
		remove := func(name string) {
			w.step(store.ScheduleStep{Name: name, Revision: w.schedule(name).Revision, Delete: true})
		}
		keptFrom := func(name string, at time.Time) {
			if got := w.schedule(name).KeptFrom; got.Before(at) || got.After(at.Add(time.Second)) && !at.IsZero() || at.IsZero() && !got.IsZero() {
				w.Fatalf("the ledger of %s is whole since %v, want %v", name, got, at)
			}
		}
		for _, name := range []string{"before", "after", "never"} {
			w.put(name, minute(0))
		}
		write("before", 120)
		write("after", 3)
		write("never", 3)
		remove("after")
		w.pass(time.Hour)
		w.prune(store.Retention{EventsBefore: w.now})
		for _, name := range []string{"before", "never"} { // of which entries are left
			remove(name)
		}
		for _, name := range []string{"before", "after", "never", "new"} {
			w.put(name, minute(0))
		}
		keptFrom("before", minute(20))
		keptFrom("after", minute(3))
		keptFrom("never", time.Time{})
		keptFrom("new", time.Time{})
		change := store.ScheduleStep{Name: "before", Revision: w.schedule("before").Revision, Delete: true}
		if _, err := w.st.ChangeDocuments(w.ctx(), store.DocumentChanges{Steps: []store.ScheduleStep{change}, Op: store.Operation{Time: w.now}}); err != nil {
			w.Fatal(err)
		}
		w.put("before", minute(0))
		keptFrom("before", minute(20))
	}},
}

var reopeningSchedules = []rule{
	{"reopen/schedule", "a schedule, where it is in its times, its ledger and its batches outlive the process, and a step of before that is asked for again is ErrConflict", func(w *world) {
		s := w.put("s", minute(0))
		step := w.firing(s, minute(1), "h")
		w.step(step)
		w.reopen()
		_, err := w.tryStep(step)
		w.wants(err, harp.ErrConflict)
		w.wantThrough(minute(1), 1, 1)
		w.step(w.settling(w.schedule("s"), "overlap", minute(2), minute(2), 1))
		w.reopen()
		w.wantLedger(harp.LedgerFilter{}, "s skippedoverlap 2-2 1", "s fired 1-1 1")
		if got := w.schedule("s"); got.Revision != 3 || string(got.Document) != "document of s" || len(got.Runs) != 1 {
			w.Fatalf("it is %+v", got)
		}
		if runs := w.st.ScheduleRuns("s"); len(runs) != 1 || runs[0].Batch != step.Batch.Batch.ID {
			w.Fatalf("its runs are %+v", runs)
		}
	}},
}
