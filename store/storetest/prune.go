package storetest

import (
	"bytes"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

var pruning = []rule{
	{"prune/age", "jobs that ended before a time are deleted with all that they had, and answer harp.ErrPruned; others stay", func(w *world) {
		old := w.ended(3000)
		w.pass(time.Hour)
		young, running := w.ended(1), w.running()
		did := w.prune(store.Retention{EndedBefore: young.EndTime})
		if did.Jobs != 1 {
			w.Fatalf("%d jobs were deleted, want 1", did.Jobs)
		}
		w.gone(old)
		w.state(young, harp.StateSucceeded)
		w.state(running, harp.StateRunning)
		page, err := w.st.List(w.ctx(), store.Filter{}, "")
		w.must(err)
		w.ids(page.Jobs, running, young)
		w.hasRecords(young, 1)
	}},
	{"prune/active", "a job that has not ended is never deleted, whatever its age", func(w *world) {
		w.gate("h")
		silent := w.submit()
		w.apply(silent, store.Silent)
		cancelling := w.running()
		w.apply(cancelling, store.CancelReq)
		jobs := []*store.Job{silent, cancelling, w.running(), w.submit(on("away")), w.submit(on("away"), in(queue("q")))}
		w.pass(10 * 365 * 24 * time.Hour)
		if did := w.prune(store.Retention{EndedBefore: w.now, EventsBefore: w.now, MaxBytes: 1}); did.Jobs != 0 {
			w.Fatalf("%d jobs were deleted", did.Jobs)
		}
		for _, j := range jobs {
			w.job(j.ID)
		}
		w.status(queue("q"))
	}},
	{"prune/zero", "a retention without limits deletes no job and no event", func(w *world) {
		j := w.ended(1)
		w.pass(10 * 365 * 24 * time.Hour)
		if did := w.prune(store.Retention{}); did != (store.Pruned{}) {
			w.Fatalf("it deleted %+v", did)
		}
		w.state(j, harp.StateSucceeded)
		if len(w.events(harp.EventFilter{After: harp.EventsFromStart})) != 4 {
			w.Fatal("events are missing")
		}
	}},
	{"prune/size", "when jobs store more than they may, those that ended first are deleted, and no more than needed", func(w *world) {
		const size = 100_000
		var jobs []*store.Job
		for range 5 {
			jobs = append(jobs, w.ended(1, emits(size)))
			w.pass(time.Second)
		}
		if did := w.prune(store.Retention{MaxBytes: 5*size + 50_000}); did.Jobs != 0 {
			w.Fatalf("%d jobs were deleted of what is below the limit", did.Jobs)
		}
		if did := w.prune(store.Retention{MaxBytes: 3*size + 50_000}); did.Jobs != 2 {
			w.Fatalf("%d jobs were deleted, want 2", did.Jobs)
		}
		w.gone(jobs[0])
		w.gone(jobs[1])
		for _, j := range jobs[2:] {
			w.state(j, harp.StateSucceeded)
		}
		if did := w.prune(store.Retention{MaxBytes: 1}); did.Jobs != 3 {
			w.Fatalf("%d jobs were deleted of three that are all too much", did.Jobs)
		}
	}},
	{"prune/tombstone", "a deleted job's id is refused for TombstoneTime; then it is one that never was", func(w *world) {
		j := w.ended(1)
		w.prune(store.Retention{EndedBefore: w.now.Add(1)})
		s := w.submission()
		s.Job.ID = j.ID
		out, err := w.st.Submit(w.ctx(), []store.Submission{s}, w.now)
		w.must(err)
		w.wants(out[0].Err, harp.ErrPruned)
		w.pass(store.TombstoneTime - 1)
		w.prune(store.Retention{})
		w.gone(j)
		w.pass(1)
		w.prune(store.Retention{})
		_, err = w.st.Job(w.ctx(), j.ID)
		w.wants(err, harp.ErrNotFound)
	}},
	{"prune/key", "a key outlives its job: until its time is over it answers the id, and nothing else, of what was deleted", func(w *world) {
		s := w.submission(under("k", w.now.Add(time.Hour)))
		out, err := w.st.Submit(w.ctx(), []store.Submission{s}, w.now)
		w.must(err)
		w.apply(out[0].Job, store.CancelReq)
		w.prune(store.Retention{EndedBefore: w.now.Add(1)})
		w.gone(out[0].Job)
		if got := w.sameAs(out[0].Job); got.Err != nil || got.New || got.Job.ID != s.Job.ID || got.Job.No != 0 {
			w.Fatalf("the key answers %+v", got)
		}
		w.pass(time.Hour)
		w.prune(store.Retention{})
		if got := w.sameAs(out[0].Job); got.Err != nil || !got.New {
			w.Fatalf("after its time the key answers %+v", got)
		}
	}},
	{"prune/key/kept", "a key that came to stand for another job is not deleted with its old time", func(w *world) {
		first := w.submit(under("k", w.now.Add(time.Hour)))
		w.pass(time.Hour)
		second := w.sameAs(first)
		w.pass(time.Minute)
		w.prune(store.Retention{})
		if got := w.sameAs(first); got.New || got.Job.ID != second.Job.ID {
			w.Fatalf("the key answers %+v", got)
		}
	}},
	{"prune/events", "events before a time are deleted; a cursor from which some are missing is ErrPruned, and numbers go on", func(w *world) {
		from := w.cursor()
		w.submit()
		middle := w.cursor()
		w.pass(time.Hour)
		w.submit()
		did := w.prune(store.Retention{EventsBefore: w.now})
		if did.Events != 1 {
			w.Fatalf("%d events were deleted, want 1", did.Events)
		}
		_, err := w.st.Events(w.ctx(), harp.EventFilter{After: from}, 1)
		w.wants(err, harp.ErrPruned)
		w.types(w.events(harp.EventFilter{After: middle}), "job.submitted")
		w.types(w.events(harp.EventFilter{After: harp.EventsFromStart}), "job.submitted")
		w.prune(store.Retention{EventsBefore: w.now.Add(1)})
		last := w.cursor()
		w.types(w.events(harp.EventFilter{After: last}))
		w.submit()
		w.types(w.events(harp.EventFilter{After: last}), "job.submitted")
		_, err = w.st.Events(w.ctx(), harp.EventFilter{After: middle}, 1)
		w.wants(err, harp.ErrPruned)
	}},
	{"prune/tells", "how many jobs were deleted is in the feed", func(w *world) {
		w.ended(1)
		w.ended(1)
		from := w.cursor()
		w.prune(store.Retention{EndedBefore: w.now.Add(1)})
		got := w.events(harp.EventFilter{After: from})
		w.types(got, "jobs.pruned")
		if got[0].Reason != "2" {
			w.Fatalf("it says %q", got[0].Reason)
		}
	}},
	{"prune/many", "a Prune does a bounded part and says that there is more", func(w *world) {
		const jobs = 1200
		for range jobs / 100 {
			batch := make([]store.Submission, 100)
			for n := range batch {
				batch[n] = w.submission()
			}
			out, err := w.st.Submit(w.ctx(), batch, w.now)
			w.must(err)
			var ts []store.Transition
			for _, o := range out {
				ts = append(ts, store.Transition{ID: o.Job.ID, Event: w.event(o.Job, store.CancelReq)})
			}
			_, err = w.st.Apply(w.ctx(), ts...)
			w.must(err)
		}
		w.pass(1)
		first, err := w.st.Prune(w.ctx(), store.Retention{EndedBefore: w.now}, w.now)
		w.must(err)
		if !first.More || first.Jobs == 0 || first.Jobs == jobs {
			w.Fatalf("the first call did %+v", first)
		}
		if rest := w.prune(store.Retention{EndedBefore: w.now}); first.Jobs+rest.Jobs != jobs {
			w.Fatalf("%d and %d jobs were deleted, want %d", first.Jobs, rest.Jobs, jobs)
		}
	}},
	{"upkeep", "a store says how much disk it takes and how much room there is, and goes on through Compact", func(w *world) {
		j := w.ended(1)
		w.must(w.st.Compact(w.ctx()))
		w.state(j, harp.StateSucceeded)
		if size, err := w.st.Size(); err != nil || size <= 0 {
			w.Fatalf("size is %d, %v", size, err)
		}
		if got := w.st.Space(); got != store.SpacePlenty {
			w.Fatalf("space is %d", got)
		}
	}},
}

// emits makes the records of an ended job so long.
func emits(size int) func(*harp.Record) {
	return func(r *harp.Record) { r.Value = append(harp.Value{0xc6, 0, 0, 0, 0}, bytes.Repeat([]byte{7}, size)...) }
}

// ended is a job that has run, with so many records and a value, and succeeded.
func (w *world) ended(records int, with ...func(*harp.Record)) *store.Job {
	w.Helper()
	j := w.running(in(queue("q")), label("k", "v"), slots(1000))
	const atOnce = 500
	for first := 0; first < records; first += atOnce {
		a := store.Append{ID: j.ID, Attempt: 1, Fence: j.Fence, First: uint64(first), Arrived: w.now}
		for range min(atOnce, records-first) {
			r := harp.Record{Time: w.now, Value: bytes.Repeat([]byte{1}, 1000)}
			for _, f := range with {
				f(&r)
			}
			a.Records = append(a.Records, r)
		}
		_, err := w.st.Append(w.ctx(), a)
		w.must(err)
	}
	e := w.event(j, store.End)
	e.Value = harp.Value("value")
	c := w.try(j, e)
	w.must(c.Err)
	return c.Job
}

// prune prunes until there is no more.
func (w *world) prune(r store.Retention) store.Pruned {
	w.Helper()
	var all store.Pruned
	for {
		did, err := w.st.Prune(w.ctx(), r, w.now)
		w.must(err)
		all.Jobs, all.Events = all.Jobs+did.Jobs, all.Events+did.Events
		if !did.More {
			return all
		}
	}
}

// gone checks that nothing is answered of a job but that it was deleted.
func (w *world) gone(j *store.Job) {
	w.Helper()
	_, err := w.st.Job(w.ctx(), j.ID)
	w.wants(err, harp.ErrPruned)
	_, err = w.st.Request(w.ctx(), j.ID)
	w.wants(err, harp.ErrPruned)
	_, err = w.st.Value(w.ctx(), j.ID)
	w.wants(err, harp.ErrPruned)
	_, err = w.st.Read(w.ctx(), j.ID, 0, store.ReadLimit{Bytes: 1 << 20})
	w.wants(err, harp.ErrPruned)
	w.wants(w.try(j, w.event(j, store.CancelReq)).Err, harp.ErrPruned)
	page, err := w.st.List(w.ctx(), store.Filter{Host: j.Host, Labels: j.Labels}, "")
	w.must(err)
	for _, other := range page.Jobs {
		if other.ID == j.ID {
			w.Fatal("a deleted job is listed")
		}
	}
}

// hasRecords checks how many records a job has.
func (w *world) hasRecords(j *store.Job, want int) {
	w.Helper()
	got, err := w.st.Read(w.ctx(), j.ID, 0, store.ReadLimit{Bytes: 1 << 20})
	w.must(err)
	if len(got) != want {
		w.Fatalf("job has %d records, want %d", len(got), want)
	}
}
