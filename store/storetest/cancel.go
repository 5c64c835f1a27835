package storetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

var cancelling = []rule{
	{"cancel/queue", "cancelling a queue shows each of its waiting jobs as cancelled from then on, asks for each other one, and touches nothing else", func(w *world) {
		w.gate("h")
		q := queue("q")
		running := w.submit(in(q), slots(2))
		unknown := w.apply(w.submit(in(q)), store.Silent).Job
		waiting, early := w.submit(in(q)), w.submit(in(q), notBefore(w.now.Add(time.Hour)))
		other := w.submit(in(queue("r")), on("away"))
		w.pass(time.Second)
		done := w.cancelQueue(q)
		if done.Count != 4 {
			w.Fatalf("%d had not ended, want 4", done.Count)
		}
		w.ids(done.Active, running, unknown)
		for _, j := range done.Active {
			if j.Cancel == nil || j.Cancel.By != somebody {
				w.Fatalf("active job is returned as %+v", j.Life)
			}
		}
		for _, j := range []*store.Job{waiting, early} {
			got := w.state(j, harp.StateCancelled)
			if got.Started != harp.DidNotRun || !got.EndTime.Equal(w.now) || got.Cancel == nil || got.Cancel.By != somebody {
				w.Fatalf("it is %+v", got.Life)
			}
			w.wants(w.try(j, store.Event{Kind: store.CancelReq, At: w.now}).Err, store.ErrIllegal)
		}
		w.state(running, harp.StateCancelling)
		if got := w.state(unknown, harp.StateUnknown); got.Cancel == nil {
			w.Fatalf("it is %+v", got.Life)
		}
		w.state(other, harp.StateQueued)
		if s := w.status(q); s.Waiting != 0 || s.Running != 2 {
			w.Fatalf("queue is %+v", s)
		}
	}},
	{"cancel/later", "what arrives after the cancel is not touched, and starts when a slot is free", func(w *world) {
		w.gate("h")
		q := queue("q")
		holder := w.submit(in(q))
		gone := w.submit(in(q))
		w.cancelQueue(q)
		later := w.waits(w.submit(in(q)), harp.ReasonQueue)
		if later.QueuePos != 1 {
			w.Fatalf("its place is %d, want 1", later.QueuePos)
		}
		w.ids(w.apply(holder, store.End).Claimed, later)
		w.ids(w.advance().Ended, gone)
		w.state(later, harp.StateSent)
	}},
	{"cancel/rows", "the rows are written by Advance, a bounded number at a time, and those jobs reported as ended", func(w *world) {
		q := queue("q")
		const all = 1200
		for range 3 {
			var batch []store.Submission
			for range all / 3 {
				batch = append(batch, w.submission(in(q)))
			}
			_, err := w.st.Submit(w.ctx(), batch, w.now)
			w.must(err)
		}
		if n := w.cancelQueue(q).Count; n != all {
			w.Fatalf("%d had not ended, want %d", n, all)
		}
		if due := w.st.NextDue(); due.IsZero() || due.After(w.now) {
			w.Fatalf("next due is %v, want now", due)
		}
		ended := map[string]bool{}
		for range 10 {
			did, err := w.st.Advance(w.ctx(), w.now)
			w.must(err)
			for _, j := range did.Ended {
				if j.State != harp.StateCancelled || ended[j.ID] {
					w.Fatalf("number %d is reported as %s", j.No, j.State)
				}
				ended[j.ID] = true
			}
			if !did.More {
				break
			}
		}
		if len(ended) != all {
			w.Fatalf("%d ended, want %d", len(ended), all)
		}
		w.due(time.Time{})
	}},
	{"cancel/gone", "a queue whose last job was cancelled is gone; the next one makes it anew", func(w *world) {
		w.gate("h")
		q := queue("q")
		w.submit(in(q), on("away"), slots(1))
		w.cancelQueue(q)
		_, err := w.st.Queue(w.ctx(), q)
		w.wants(err, harp.ErrNotFound)
		_, err = w.st.CancelQueue(w.ctx(), q, store.Operation{Time: w.now})
		w.wants(err, harp.ErrNotFound)
		w.submit(in(q), slots(2))
		w.advance()
		w.state(w.submit(in(q)), harp.StateSent)
		if s := w.status(q); s.Concurrency != 2 || s.Running != 2 {
			w.Fatalf("queue is %+v", s)
		}
	}},
	{"cancel/back", "a job that the cancel found started never waits again", func(w *world) {
		w.gate("h")
		q := queue("q")
		for _, kind := range []store.Kind{store.NotNow, store.Withdrawn} {
			j := w.submit(in(q))
			w.cancelQueue(q)
			got := w.apply(j, kind).Job
			if got.State != harp.StateCancelled || got.Started != harp.DidNotRun {
				w.Fatalf("after %s it is %+v", kind, got.Life)
			}
		}
	}},
	{"cancel/now", "a cancel that may not wait is told after one that may, once, and is kept with the first", func(w *world) {
		w.gate("h")
		j := w.running()
		e := w.event(j, store.CancelReq)
		e.By = somebody
		first := w.try(j, e)
		if first.Err != nil || !first.Effect.Tell || first.Job.Cancel.Now {
			w.Fatalf("%v, effect %+v, cancel %+v", first.Err, first.Effect, first.Job.Cancel)
		}
		e.Now, e.By = true, harp.Principal{Kind: "user", Name: "other"}
		for again, tell := range []bool{true, false} {
			c := w.try(j, e)
			if c.Err != nil || c.Effect.Tell != tell || !c.Job.Cancel.Now || c.Job.Cancel.By != somebody || !c.Job.Cancel.Time.Equal(first.Job.Cancel.Time) {
				w.Fatalf("time %d: %v, effect %+v, cancel %+v", again, c.Err, c.Effect, c.Job.Cancel)
			}
		}
		if got := w.job(j.ID); got.Cancel == nil || !got.Cancel.Now {
			w.Fatalf("it is kept as %+v", got.Cancel)
		}
		w.apply(j, store.Silent)
		if c := w.apply(j, store.Alive); !c.Effect.Tell || !c.Job.Cancel.Now {
			w.Fatalf("after silence: effect %+v, cancel %+v", c.Effect, c.Job.Cancel)
		}
	}},
	{"cancel/again/forgotten", "what came of a request is remembered for TombstoneTime; then it is refused", func(w *world) {
		q := queue("q")
		op := store.Operation{ID: w.id(), By: somebody, Time: w.now}
		w.submit(in(q))
		_, err := w.st.CancelQueue(w.ctx(), q, op)
		w.must(err)
		for _, c := range []struct {
			pass  time.Duration
			count int
			err   error
		}{{store.TombstoneTime - time.Hour, 1, nil}, {2 * time.Hour, 0, harp.ErrPruned}} {
			w.pass(c.pass)
			_, err := w.st.Prune(w.ctx(), store.Retention{}, w.now)
			w.must(err)
			done, err := w.st.CancelQueue(w.ctx(), q, op)
			if done.Count != c.count || !errors.Is(err, c.err) {
				w.Fatalf("asked again it answers %d, %v, want %d, %v", done.Count, err, c.count, c.err)
			}
		}
	}},
	{"pause/again", "a change that is asked again under its id changes nothing", func(w *world) {
		q := queue("q")
		op := store.Operation{ID: harp.NewID(), By: somebody, Time: w.now}
		is := true
		w.must(w.st.ChangeQueue(w.ctx(), q, harp.QueueChange{Paused: &is}, op))
		w.submit(in(q))
		w.pause(q, false)
		w.must(w.st.ChangeQueue(w.ctx(), q, harp.QueueChange{Paused: &is}, op))
		if w.status(q).Paused {
			w.Fatal("it is paused again")
		}
	}},
	{"cancel/tell", "asking an active job of a cancelled queue to stop says once that its agent is to be told", func(w *world) {
		w.gate("h")
		q := queue("q")
		j := w.submit(in(q))
		active := w.cancelQueue(q).Active
		w.ids(active, j)
		c := w.apply(active[0], store.CancelReq)
		if !c.Effect.Tell || c.Job.Cancel.By != somebody {
			w.Fatalf("effect %+v, cancel %+v", c.Effect, c.Job.Cancel)
		}
		if c := w.apply(c.Job, store.CancelReq); c.Effect.Tell {
			w.Fatal("the agent is to be told twice")
		}
	}},
	{"cancel/list", "listings show what the cancel made of jobs before their rows say so", func(w *world) {
		w.gate("h")
		q := queue("q")
		running := w.running(in(q))
		waiting := w.submit(in(q))
		w.cancelQueue(q)
		for range 2 {
			for state, want := range map[harp.State][]*store.Job{
				harp.StateQueued: nil, harp.StateRunning: nil,
				harp.StateCancelled: {waiting}, harp.StateCancelling: {running},
			} {
				page, err := w.st.List(w.ctx(), store.Filter{States: []harp.State{state}}, "")
				w.must(err)
				w.ids(page.Jobs, want...)
			}
			w.advance()
		}
	}},
	{"cancel/unknown", "a queue that is not there cannot be cancelled", func(w *world) {
		_, err := w.st.CancelQueue(w.ctx(), queue("q"), store.Operation{Time: w.now})
		w.wants(err, harp.ErrNotFound)
	}},
	{"queue/list", "queues are listed in the order of their names, page by page, and a cursor of nobody is ErrInvalid", func(w *world) {
		var names []string
		for i := range 25 {
			q := queue(fmt.Sprintf("%02d", i*7%25))
			w.submit(in(q))
			names = append(names, string(queue(fmt.Sprintf("%02d", i))))
		}
		var got []string
		cursor := ""
		for range 10 {
			page, next, err := w.st.ListQueues(w.ctx(), cursor, 10)
			w.must(err)
			for _, s := range page {
				if s.Waiting != 1 || s.Running != 0 || s.Concurrency != 1 {
					w.Fatalf("queue is %+v", s)
				}
				got = append(got, string(s.Name))
			}
			if cursor = next; cursor == "" {
				break
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(names) {
			w.Fatalf("queues are %q", got)
		}
		_, _, err := w.st.ListQueues(w.ctx(), "no cursor", 10)
		w.wants(err, harp.ErrInvalid)
	}},
}
