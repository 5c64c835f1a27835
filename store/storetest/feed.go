package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

var feeding = []rule{
	{"feed/life", "each change of a job's state is one event, in the commit that made it, and what does not change it is none", func(w *world) {
		w.gate("h")
		j := w.submit(in(queue("q")), label("k", "v"))
		w.apply(j, store.Started)
		_, err := w.st.Append(w.ctx(), store.Append{ID: j.ID, Attempt: 1, Fence: j.Fence, Records: []harp.Record{{}}, Arrived: w.now})
		w.must(err)
		w.pass(time.Minute)
		w.apply(j, store.End)
		got := w.events(harp.EventFilter{After: harp.EventsFromStart})
		w.types(got, "job.submitted", "job.sent", "job.running", "job.succeeded")
		last := got[3]
		want := harp.Event{
			Time: w.now, Type: harp.EventJobSucceeded, Job: j.ID, Host: "h", Procedure: "p", Queue: queue("q"),
			State: harp.StateSucceeded, Attempt: 1, Labels: map[string]string{"k": "v"},
		}
		if last.Cursor = ""; fmt.Sprint(last) != fmt.Sprint(want) {
			w.Fatalf("the last event is\n%+v, want\n%+v", last, want)
		}
	}},
	{"feed/away", "a host that is away is told of with when it was last heard, or when that was found, however long ago the store was told another time", func(w *world) {
		_, err := w.st.OpenSession(w.ctx(), store.Session{Host: "h", At: w.now})
		w.must(err)
		for _, isFound := range []bool{false, true} { // later than it was heard
			w.must(w.st.PutHost(w.ctx(), store.Host{Name: "h", LastHeard: w.now, Connected: true}))
			w.submit()
			w.pass(time.Hour)
			from := w.cursor()
			is := store.Host{Name: "h", LastHeard: w.now}
			if isFound {
				w.pass(time.Hour)
				is.At = w.now
			}
			w.must(w.st.PutHost(w.ctx(), is))
			got := w.events(harp.EventFilter{After: from, Types: []string{"host.away"}})
			if len(got) != 1 || !got[0].Time.Equal(w.now) {
				w.Fatalf("it is told %+v, want at %v", got, w.now)
			}
		}
	}},
	{"feed/submitted", "a job that waits has come in one event, with the state that it came in; one that is refused or submitted again in none", func(w *world) {
		s := w.submission()
		for range 2 {
			_, err := w.st.Submit(w.ctx(), []store.Submission{s}, w.now)
			w.must(err)
		}
		s.Digest[0]++
		_, err := w.st.Submit(w.ctx(), []store.Submission{s}, w.now)
		w.must(err)
		got := w.events(harp.EventFilter{After: harp.EventsFromStart})
		w.types(got, "job.submitted")
		if got[0].State != harp.StateQueued || got[0].Reason != harp.ReasonOffline {
			w.Fatalf("submitted as %s(%s)", got[0].State, got[0].Reason)
		}
	}},
	{"feed/cancel", "who asked for a cancel is told once: with the state it leads to, or by itself where the state stays", func(w *world) {
		w.gate("h")
		queued, running, silent := w.submit(on("away")), w.submit(), w.submit()
		w.apply(silent, store.Silent)
		from := w.cursor()
		for range 2 {
			for _, j := range []*store.Job{queued, running, silent} {
				e := w.event(j, store.CancelReq)
				e.By = somebody
				w.try(j, e)
			}
		}
		got := w.events(harp.EventFilter{After: from})
		w.types(got, "job.cancelled", "job.cancelling", "job.cancel_requested")
		for _, e := range got {
			if e.By != somebody {
				w.Errorf("%s by %+v", e.Type, e.By)
			}
		}
	}},
	{"feed/late", "what an agent says of a lost job is an event", func(w *world) {
		j := w.running()
		e := w.event(j, store.Lose)
		e.Reason = harp.LostForced
		w.apply(j, store.Silent)
		w.must(w.try(j, e).Err)
		from := w.cursor()
		w.apply(j, store.End)
		w.types(w.events(harp.EventFilter{After: from}), "job.late")
	}},
	{"feed/host", "a host's coming, once its session has begun, and going are events, and what else is noted of it is none", func(w *world) {
		for _, connected := range []bool{false, true, true, false, false} {
			_, err := w.st.OpenSession(w.ctx(), store.Session{Host: "h", At: w.now})
			w.must(err)
			h, err := w.st.Host(w.ctx(), "h")
			w.must(err)
			h.Connected = connected
			w.must(w.st.PutHost(w.ctx(), h))
		}
		w.types(w.events(harp.EventFilter{After: harp.EventsFromStart}), "host.online", "host.away")
	}},
	{"feed/queue", "cancelling a queue is one event that says by whom; its jobs follow as their rows are written", func(w *world) {
		q := queue("q")
		w.submit(in(q))
		w.submit(in(q))
		from := w.cursor()
		w.cancelQueue(q)
		got := w.events(harp.EventFilter{After: from})
		w.types(got, "queue.cancelled")
		if got[0].By != somebody || string(got[0].Queue) != string(q) {
			w.Fatalf("event is %+v", got[0])
		}
		w.advance()
		w.types(w.events(harp.EventFilter{After: got[0].Cursor}), "job.cancelled", "job.cancelled")
	}},
	{"feed/note", "an event of which nothing else is stored comes back as it was noted", func(w *world) {
		j := w.submit()
		from := w.cursor()
		want := harp.Event{
			Time: w.now, Type: harp.EventHostForgot, Job: j.ID, Host: "h", Procedure: "p", Queue: queue("q"), State: harp.StateLost,
			Reason: "why", Attempt: 3, By: somebody, Labels: map[string]string{"k": "v"}, Window: "w", Until: w.now.Add(time.Hour),
		}
		w.must(w.st.AppendEvents(w.ctx(), want, harp.Event{Type: harp.EventHostDuplicate, Host: "h"}))
		got := w.events(harp.EventFilter{After: from})
		w.types(got, "host.forgot", "host.duplicate")
		if got[0].Cursor = ""; fmt.Sprint(got[0]) != fmt.Sprint(want) {
			w.Errorf("noted\n%+v, got\n%+v", want, got[0])
		}
		if got[1].Time.IsZero() {
			w.Error("an event without a time has got none")
		}
	}},
	{"feed/since", "what happened before a time is left out, and what is left out is gone over", func(w *world) {
		note := func(host string, at time.Time) {
			w.must(w.st.AppendEvents(w.ctx(), harp.Event{Time: at, Type: harp.EventHostDuplicate, Host: host}))
		}
		note("before", w.now.Add(-time.Nanosecond))
		note("at", w.now)
		note("after", w.now.Add(time.Hour))
		f := harp.EventFilter{After: harp.EventsFromStart, Since: w.now}
		got := w.events(f)
		if len(got) != 2 || got[0].Host != "at" || got[1].Host != "after" {
			w.Errorf("got %+v", got)
		}
		f.Since = w.now.Add(2 * time.Hour)
		page, err := w.st.Events(w.ctx(), f, 1<<20)
		w.must(err)
		if f.After = page.Cursor; len(page.Events) > 0 {
			w.Errorf("of later ones: got %+v", page)
		}
		note("since then", w.now.Add(3*time.Hour))
		if got := w.events(f); len(got) != 1 || got[0].Host != "since then" {
			w.Errorf("behind the cursor: got %+v", got)
		}
	}},
	{"feed/cursor", "a page goes on where the last one stopped, with nothing missed or repeated, whatever its size", func(w *world) {
		w.gate("h")
		for range 10 {
			w.apply(w.submit(), store.Started)
		}
		all := w.events(harp.EventFilter{After: harp.EventsFromStart})
		if len(all) != 30 {
			w.Fatalf("%d events, want 30", len(all))
		}
		f := harp.EventFilter{After: harp.EventsFromStart}
		for n := range all {
			page, err := w.st.Events(w.ctx(), f, 1)
			w.must(err)
			if len(page.Events) != 1 || page.Events[0].Cursor != all[n].Cursor || page.Cursor != all[n].Cursor {
				w.Fatalf("page %d is %+v, want %+v", n, page, all[n])
			}
			f.After = page.Cursor
		}
		page, err := w.st.Events(w.ctx(), f, 1)
		w.must(err)
		if len(page.Events) != 0 || page.Cursor != f.After {
			w.Fatalf("the page after the last is %+v", page)
		}
	}},
	{"feed/bad", "a cursor that no feed gave and a type that can be none are ErrInvalid", func(w *world) {
		for _, f := range []harp.EventFilter{
			{After: "no cursor"}, {Types: []string{""}}, {Types: []string{"job.*.x"}}, {Types: []string{"*job"}},
		} {
			_, err := w.st.Events(w.ctx(), f, 1)
			w.wants(err, harp.ErrInvalid)
		}
	}},
	{"feed/filter", "a filter selects by type or its beginning, job and host, and its cursor moves past what it leaves out", func(w *world) {
		w.gate("a", "b")
		a, b := w.submit(on("a")), w.submit(on("b"))
		_, err := w.st.OpenSession(w.ctx(), store.Session{Host: "a", At: w.now})
		w.must(err)
		w.must(w.st.PutHost(w.ctx(), store.Host{Name: "a", Connected: true}))
		for _, c := range []struct {
			f    harp.EventFilter
			want string
		}{
			{harp.EventFilter{Types: []string{"job.*"}}, "job.submitted job.sent job.submitted job.sent"},
			{harp.EventFilter{Types: []string{"job.sent", "host.*"}}, "job.sent job.sent host.online"},
			{harp.EventFilter{Types: []string{"*"}, Host: "a"}, "job.submitted job.sent host.online"},
			{harp.EventFilter{Job: b.ID}, "job.submitted job.sent"},
			{harp.EventFilter{Job: a.ID, Host: "b"}, ""},
			{harp.EventFilter{Job: "no id"}, ""},
		} {
			c.f.After = harp.EventsFromStart
			w.types(w.events(c.f), strings.Fields(c.want)...)
			page, err := w.st.Events(w.ctx(), c.f, 1<<20)
			w.must(err)
			w.types(w.events(harp.EventFilter{After: page.Cursor, Types: c.f.Types, Job: c.f.Job, Host: c.f.Host}))
		}
	}},
	{"feed/bound", "a page examines at most MaxExamined events and comes back empty with a cursor that has moved", func(w *world) {
		events := make([]harp.Event, store.MaxExamined)
		for i := range events {
			events[i] = harp.Event{Type: harp.EventHostForgot, Host: "h", Time: w.now}
		}
		w.must(w.st.AppendEvents(w.ctx(), events...))
		w.must(w.st.AppendEvents(w.ctx(), harp.Event{Type: harp.EventHostForgot, Host: "other", Time: w.now}))
		f := harp.EventFilter{After: harp.EventsFromStart, Host: "other"}
		page, err := w.st.Events(w.ctx(), f, 1)
		w.must(err)
		if len(page.Events) != 0 || page.Cursor == "" {
			w.Fatalf("the first page has %d events, cursor %q", len(page.Events), page.Cursor)
		}
		f.After = page.Cursor
		if page, err = w.st.Events(w.ctx(), f, 1); err != nil || len(page.Events) != 1 {
			w.Fatalf("the second page has %d events, %v", len(page.Events), err)
		}
	}},
	{"feed/changed", "who gets what Changed returns and then reads misses no event", func(w *world) {
		from := w.cursor()
		const events = 200
		done := make(chan error, 1)
		go func() {
			for range events {
				if err := w.st.AppendEvents(context.Background(), harp.Event{Type: harp.EventHostForgot, Time: w.now}); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		seen := 0
		for seen < events {
			changed := w.st.Changed()
			page, err := w.st.Events(w.ctx(), harp.EventFilter{After: from}, 1<<20)
			w.must(err)
			if from = page.Cursor; len(page.Events) > 0 {
				seen += len(page.Events)
				continue
			}
			select {
			case <-changed:
			case <-time.After(20 * time.Second):
				w.Fatalf("nothing is said to have changed after %d of %d events", seen, events)
			}
		}
		w.must(<-done)
	}},
}

var reopeningFeed = []rule{
	{"feed", "cursors hold through opening anew, and numbers go on, also when no event is kept", func(w *world) {
		first := w.cursor()
		w.submit()
		second := w.cursor()
		w.reopen()
		w.types(w.events(harp.EventFilter{After: first}), "job.submitted")
		w.types(w.events(harp.EventFilter{After: second}))
		w.prune(store.Retention{EventsBefore: w.now.Add(1)})
		w.reopen()
		if w.cursor() != second {
			w.Fatal("without events the numbers do not go on")
		}
		w.submit()
		w.types(w.events(harp.EventFilter{After: second}), "job.submitted")
		_, err := w.st.Events(w.ctx(), harp.EventFilter{After: first}, 1)
		w.wants(err, harp.ErrPruned)
	}},
	{"once", "idempotency keys and the ids of deleted jobs are known after opening anew", func(w *world) {
		j := w.submit(on("away"), under("k", w.now.Add(time.Hour)))
		w.reopen()
		if got := w.sameAs(j); got.New || got.Job.ID != j.ID {
			w.Fatalf("the key answers %+v", got)
		}
		w.apply(j, store.CancelReq)
		w.prune(store.Retention{EndedBefore: w.now.Add(1)})
		w.reopen()
		w.gone(j)
		if got := w.sameAs(j); got.New || got.Job.ID != j.ID {
			w.Fatalf("the key of a deleted job answers %+v", got)
		}
	}},
}

// cursor is where the feed stands now.
func (w *world) cursor() string {
	w.Helper()
	page, err := w.st.Events(w.ctx(), harp.EventFilter{After: harp.EventsFromNow}, 1<<20)
	w.must(err)
	if len(page.Events) != 0 {
		w.Fatalf("from now on there are %d events already", len(page.Events))
	}
	return page.Cursor
}

// events reads all that a filter selects.
func (w *world) events(f harp.EventFilter) []harp.Event {
	w.Helper()
	var all []harp.Event
	for {
		page, err := w.st.Events(w.ctx(), f, 1000)
		w.must(err)
		all = append(all, page.Events...)
		if page.Cursor == f.After || len(page.Events) == 0 {
			return all
		}
		f.After = page.Cursor
	}
}

// types checks of which types events are, in their order.
func (w *world) types(got []harp.Event, want ...string) {
	w.Helper()
	var types []string
	for _, e := range got {
		types = append(types, string(e.Type))
	}
	if !slices.Equal(types, want) {
		w.Fatalf("events are %q, want %q", types, want)
	}
}
