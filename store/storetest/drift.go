package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
)

// checking makes the members of a batch checks of a name.
func checking(name string) shape {
	return member(func(j *store.Job) { j.Drift, j.DryRun = name, true })
}

// result is what a dry run returns.
func (w *world) result(changed bool) harp.Value {
	w.Helper()
	v, err := harp.NewValue(map[string]any{"changed": changed})
	w.must(err)
	return v
}

// check begins a check of a host, whose gate is open.
func (w *world) check(name, host string, shapes ...shape) *store.Job {
	w.Helper()
	w.gate(host)
	w.batch([]string{host}, append(shapes, checking(name))...)
	claimed := w.advance().Claimed
	w.onHosts(claimed, host)
	return claimed[0]
}

// finds ends a check.
func (w *world) finds(j *store.Job, v harp.Value) {
	w.Helper()
	e := w.event(j, store.End)
	e.Value = v
	c := w.try(j, e)
	w.must(c.Err)
}

// mark checks what a host is marked with under the name base; "": with nothing.
func (w *world) mark(host string, want harp.DriftMark) harp.DriftStatus {
	w.Helper()
	got, err := w.st.Drift(w.ctx(), host, "base")
	if want == "" {
		w.wants(err, harp.ErrNotFound)
		return got
	}
	w.must(err)
	if got.Host != host || got.Name != "base" || got.Mark != want {
		w.Fatalf("the mark is %+v, want %s", got, want)
	}
	return got
}

// marks reads all marks in small pages, as words.
func (w *world) marks() (all []string) {
	w.Helper()
	for cursor := ""; ; {
		page, next, err := w.st.ListDrift(w.ctx(), cursor, 2)
		w.must(err)
		if len(page) > 2 || len(page) == 0 && next != "" {
			w.Fatalf("a page has %d marks and is followed by %q", len(page), next)
		}
		for _, s := range page {
			all = append(all, s.Name+" "+s.Host+" "+string(s.Mark))
		}
		if cursor = next; cursor == "" {
			slices.Sort(all)
			return all
		}
	}
}

func (w *world) wantMarks(want ...string) {
	w.Helper()
	if got := w.marks(); !slices.Equal(got, want) {
		w.Fatalf("the marks are %q, want %q", got, want)
	}
}

// driftEvents checks which changes of marks were told, as words.
func (w *world) driftEvents(want ...string) []harp.Event {
	w.Helper()
	all := w.events(harp.EventFilter{After: harp.EventsFromStart, Types: []string{string(harp.EventHostDrift)}})
	var got []string
	for _, e := range all {
		got = append(got, e.Host+" "+e.Reason)
	}
	if !slices.Equal(got, want) {
		w.Fatalf("told is %q, want %q", got, want)
	}
	return all
}

// forget forgets a name.
func (w *world) forget(name string, op store.Operation) (int, error) {
	op.By, op.Time = somebody, w.now
	return w.st.ForgetDrift(w.ctx(), name, op)
}

var drifting = []rule{
	{"drift/result", "the end of a check marks its host by what it returned", func(w *world) {
		changes, err := harp.NewValue(map[string]any{"changes": []string{"x"}})
		w.must(err)
		for n, c := range []struct {
			v    harp.Value
			want harp.DriftMark
		}{{w.result(false), harp.DriftClean}, {w.result(true), harp.DriftDirty}, {changes, harp.DriftDirty}, {nil, harp.DriftUnknown}} {
			host := fmt.Sprintf("h%d", n)
			j := w.check("base", host)
			w.mark(host, "")
			w.pass(time.Second)
			w.finds(j, c.v)
			got := w.mark(host, c.want)
			if got.Job != j.ID || !got.Checked.Equal(w.now) || !got.Since.Equal(w.now) {
				w.Fatalf("it is %+v at %s of job %s", got, w.now, j.ID)
			}
		}
		w.wantMarks("base h0 clean", "base h1 dirty", "base h2 dirty", "base h3 unknown")
	}},
	{"drift/told", "an event tells of a mark that changes, and of no other; an unknown one is as one that is not there", func(w *world) {
		w.finds(w.check("base", "h"), nil)
		w.driftEvents()
		w.pass(time.Minute)
		since := w.now
		var job *store.Job
		for range 2 {
			job = w.check("base", "h")
			w.finds(job, w.result(true))
			w.pass(time.Minute)
		}
		told := w.driftEvents("h base: dirty")[0]
		if told.Job == "" || told.Job == job.ID || told.Batch == "" || told.Procedure != "p" || !told.Time.Equal(since) {
			w.Fatalf("it is %+v", told)
		}
		if got := w.mark("h", harp.DriftDirty); !got.Since.Equal(since) || !got.Checked.Equal(since.Add(time.Minute)) || got.Job != job.ID {
			w.Fatalf("it is %+v", got)
		}
		w.finds(w.check("base", "h"), w.result(false))
		w.driftEvents("h base: dirty", "h base: clean")
	}},
	{"drift/fails", "a check that ran, or may have, and did not succeed makes the mark unknown", func(w *world) {
		for name, end := range map[string]func(j *store.Job){
			"failed": func(j *store.Job) {
				e := w.event(j, store.End)
				e.Failure, e.Value = failures.New("remote", "no"), w.result(true)
				w.must(w.try(j, e).Err)
			},
			"timed out": func(j *store.Job) {
				e := w.event(j, store.End)
				e.Failure, e.Stopping = failures.New("remote", "no"), &store.Stopping{Cause: "silence", Since: w.now}
				w.must(w.try(j, e).Err)
			},
			"lost": func(j *store.Job) {
				w.apply(j, store.Started)
				w.apply(j, store.Lose)
			},
			"cancelled as it ran": func(j *store.Job) {
				w.apply(j, store.Started)
				w.apply(j, store.CancelReq)
				e := w.event(j, store.End)
				e.Failure, e.Stopping = failures.New("remote", "no"), &store.Stopping{Cause: "cancel", Since: w.now}
				w.must(w.try(j, e).Err)
			},
		} {
			w.finds(w.check("base", name), w.result(true))
			w.pass(time.Second)
			since := w.now
			end(w.check("base", name))
			if got := w.mark(name, harp.DriftUnknown); !got.Since.Equal(since) {
				w.Fatalf("%s: it is %+v", name, got)
			}
		}
	}},
	{"drift/not run", "a check that did not run leaves the mark as it is, whatever it ended as", func(w *world) {
		for name, end := range map[string]func(j *store.Job){
			"refused": func(j *store.Job) {
				e := w.event(j, store.Refused)
				e.Failure = failures.New("remote", "no")
				w.must(w.try(j, e).Err)
			},
			"cancelled before it ran": func(j *store.Job) {
				w.must(w.try(j, w.busy(j)).Err)
				w.apply(j, store.CancelReq)
			},
			"never started": func(j *store.Job) {
				w.apply(j, store.CancelReq)
				w.must(w.try(j, w.busy(j)).Err)
			},
		} {
			w.finds(w.check("base", name), w.result(false))
			before := w.mark(name, harp.DriftClean)
			w.pass(time.Second)
			j := w.check("base", name)
			end(j)
			if got := w.job(j.ID); !got.State.Ended() || got.Started != harp.DidNotRun {
				w.Fatalf("%s: it is %+v", name, got.Life)
			}
			if got := w.mark(name, harp.DriftClean); got != before {
				w.Fatalf("%s: it is %+v, was %+v", name, got, before)
			}
		}
		w.leaves("away")
		w.batch([]string{"away"}, checking("base"), member(func(j *store.Job) { j.Expires = w.now.Add(time.Minute) }))
		w.advance()
		w.pass(time.Hour)
		if ended := w.advance().Ended; len(ended) != 1 || ended[0].State != harp.StateExpired {
			w.Fatalf("ended are %v", ended)
		}
		w.mark("away", "")
	}},
	{"drift/queue", "a check that its queue's cancel has ended after an attempt makes the mark unknown", func(w *world) {
		q := queue("q")
		j := w.check("base", "h", member(func(j *store.Job) { j.Queue = q }), func(b *store.BatchSubmission) {
			b.Batch.Classes[0].Retry = harp.RetryPolicy{On: []harp.State{harp.StateFailed}, Attempts: 3, Backoff: time.Hour, MaxBackoff: time.Hour}
		})
		w.mark("h", "")
		w.apply(j, store.Started)
		if c := w.fails(j, w.result(true)...); c.Job.State != harp.StateQueued {
			w.Fatalf("it is %+v", c.Job)
		}
		w.mark("h", "")
		w.cancelQueue(q)
		w.advance()
		w.mark("h", harp.DriftUnknown)
	}},
	{"drift/older", "a check that was sent before the one of the mark leaves it as it is, whichever ends first; where the clock was set back it does not", func(w *world) {
		older := w.check("base", "h")
		w.pass(time.Second)
		newer := w.check("base", "h")
		w.pass(time.Second)
		w.finds(newer, w.result(true))
		before := w.mark("h", harp.DriftDirty)
		w.pass(time.Second)
		w.finds(older, w.result(false))
		if got := w.mark("h", harp.DriftDirty); got != before {
			w.Fatalf("it is %+v, was %+v", got, before)
		}
		w.driftEvents("h base: dirty")

		w.setClock(-time.Hour)
		w.pass(-time.Hour)
		w.finds(w.check("base", "h"), w.result(false))
		w.mark("h", harp.DriftClean)
	}},
	{"drift/late", "what is heard of a check after it was lost marks its host, unless another one was sent since, or it did not run", func(w *world) {
		j := w.check("base", "h")
		w.apply(j, store.Started)
		w.apply(j, store.Lose)
		w.mark("h", harp.DriftUnknown)
		w.pass(time.Second)
		w.finds(j, w.result(true))
		if got := w.mark("h", harp.DriftDirty); !got.Checked.Equal(w.now) {
			w.Fatalf("it is %+v", got)
		}
		w.driftEvents("h base: dirty")

		j = w.check("base", "h")
		w.apply(j, store.Started)
		w.apply(j, store.Lose)
		w.pass(time.Second)
		w.finds(w.check("base", "h"), w.result(false))
		w.finds(j, w.result(true))
		w.mark("h", harp.DriftClean)

		w.pass(time.Second)
		j = w.check("base", "h")
		w.apply(j, store.Lose)
		before := w.mark("h", harp.DriftUnknown)
		w.pass(time.Second)
		e := w.event(j, store.Refused)
		e.Failure = failures.New("remote", "no")
		w.must(w.try(j, e).Err)
		if got := w.mark("h", harp.DriftUnknown); got != before {
			w.Fatalf("it is %+v, was %+v", got, before)
		}
	}},
	{"drift/names", "each name has a mark of its own, and a job without one leaves none", func(w *world) {
		w.finds(w.check("base", "h"), w.result(true))
		w.finds(w.check("other", "h"), w.result(false))
		w.finds(w.check("base", "g"), w.result(false))
		w.finds(w.check("ab", "h"), w.result(false))
		w.finds(w.check("a", "bh"), w.result(true))
		_, first := w.begun([]string{"x"})
		w.finds(first[0], w.result(true))
		w.wantMarks("a bh dirty", "ab h clean", "base g clean", "base h dirty", "other h clean")
		if _, _, err := w.st.ListDrift(w.ctx(), "none", 2); err == nil {
			w.Fatal("a cursor that is none is taken")
		}
	}},
	{"drift/most", "there are at most harp.MaxDrifts names, and one that is forgotten makes room for another", func(w *world) {
		w.gate("h")
		for n := range harp.MaxDrifts {
			w.batch([]string{"h"}, checking(fmt.Sprint(n)))
		}
		in := w.batchOf([]string{"h"}, checking("more"))
		_, err := w.st.SubmitBatch(w.ctx(), in, w.now)
		w.wants(err, harp.ErrRefused)
		w.batch([]string{"h"}, checking("7"))
		if n, err := w.forget("8", store.Operation{}); n != 0 || err != nil {
			w.Fatalf("%d marks, %v", n, err)
		}
		if out, err := w.st.SubmitBatch(w.ctx(), in, w.now); err != nil || !out.New {
			w.Fatalf("%+v, %v", out, err)
		}
	}},
	{"drift/forget", "a name is forgotten with its marks, once for an id, and checks under way leave none", func(w *world) {
		const hosts = 1200
		w.gate(hostsOf(hosts)...)
		w.batch(hostsOf(hosts), parallel(hosts), checking("base"))
		for _, j := range w.advance().Claimed {
			w.finds(j, w.result(true))
		}
		w.finds(w.check("bas", "h"), w.result(true))
		j, old := w.check("base", "h"), w.check("base", "slow")
		op := store.Operation{ID: w.id()}
		for range 2 {
			if n, err := w.forget("base", op); n != hosts || err != nil {
				w.Fatalf("%d marks, %v", n, err)
			}
		}
		w.wantMarks("bas h dirty")
		w.finds(j, w.result(true))
		w.wantMarks("bas h dirty")
		_, err := w.forget("base", store.Operation{ID: w.id()})
		w.wants(err, harp.ErrNotFound)
		_, err = w.forget("bas", op)
		w.wants(err, harp.ErrConflict)
		w.finds(w.check("base", "h"), w.result(false))
		w.finds(old, w.result(true)) // though the name is in use again
		w.wantMarks("bas h dirty", "base h clean")
		if n, err := w.forget("base", op); n != hosts || err != nil {
			w.Fatalf("%d marks, %v", n, err)
		}
		w.wantMarks("bas h dirty", "base h clean")
	}},
	{"drift/removed", "the marks of a host go with it, and what is heard late of its checks leaves none", func(w *world) {
		w.connect("h")
		w.finds(w.check("base", "h"), w.result(true))
		w.finds(w.check("other", "h"), w.result(true))
		w.finds(w.check("base", "stays"), w.result(true))
		j := w.check("base", "h")
		w.removeHost(store.Operation{})
		w.wantMarks("base stays dirty")
		w.apply(j, store.End)
		w.wantMarks("base stays dirty")
	}},
	{"drift/pruned", "a mark outlives its job", func(w *world) {
		j := w.check("base", "h")
		w.finds(j, w.result(true))
		w.pass(time.Hour)
		w.prune(store.Retention{EndedBefore: w.now, EventsBefore: w.now})
		_, err := w.st.Job(w.ctx(), j.ID)
		w.wants(err, harp.ErrPruned)
		if got := w.mark("h", harp.DriftDirty); got.Job != j.ID {
			w.Fatalf("it is %+v", got)
		}
	}},
}

var reopeningDrifts = []rule{
	{"reopen/drift/forgotten", "a check of a name that was forgotten, and is in use again, leaves no mark in a store that was opened anew either", func(w *world) {
		old := w.check("base", "slow")
		_, err := w.forget("base", store.Operation{ID: w.id()})
		w.must(err)
		j := w.check("base", "h")
		w.reopen()
		w.finds(old, w.result(true))
		w.wantMarks()
		w.finds(j, w.result(true))
		w.wantMarks("base h dirty")
	}},
	{"reopen/drift", "marks, the names under which they are, and what is under way outlive the process", func(w *world) {
		w.finds(w.check("a", "h"), w.result(true))
		older := w.check("other", "h")
		for n := range harp.MaxDrifts - 2 {
			w.batch([]string{"away"}, checking(fmt.Sprint("name", n)))
		}
		w.pass(time.Second)
		newer := w.check("other", "h")
		w.reopen()
		w.gate("h")
		w.wantMarks("a h dirty")
		_, err := w.st.SubmitBatch(w.ctx(), w.batchOf([]string{"h"}, checking("more")), w.now)
		w.wants(err, harp.ErrRefused)
		w.finds(newer, w.result(false))
		w.reopen()
		w.finds(older, w.result(true))
		w.wantMarks("a h dirty", "other h clean")
		op := store.Operation{ID: w.id()}
		if n, err := w.forget("other", op); n != 1 || err != nil {
			w.Fatalf("%d marks, %v", n, err)
		}
		w.reopen()
		if n, err := w.forget("other", op); n != 1 || err != nil {
			w.Fatalf("%d marks, %v", n, err)
		}
		w.wantMarks("a h dirty")
		w.batch([]string{"h"}, checking("more"))
	}},
}
