package storetest

import (
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// reopeningWaits are the rules of reopening about jobs that wait for another
// attempt, hosts that are silent and queues that are paused.
var reopeningWaits = []rule{
	{"cancel/again", "a cancel that is asked again under its id touches nothing that came since, answers the same and says who is left to be told, also after a restart; another one under its id is ErrConflict", func(w *world) {
		w.gate("h")
		q := queue("q")
		op := store.Operation{ID: harp.NewID(), By: somebody, Time: w.now}
		none := store.Operation{ID: harp.NewID(), By: somebody, Time: w.now}
		_, err := w.st.CancelQueue(w.ctx(), q, none)
		w.wants(err, harp.ErrNotFound)
		active := w.submit(in(q))
		w.submit(in(q))
		first, err := w.st.CancelQueue(w.ctx(), q, op)
		w.must(err)
		since := w.submit(in(q))
		for range 2 {
			again, err := w.st.CancelQueue(w.ctx(), q, op)
			w.must(err)
			if again.Count != 2 || first.Count != 2 || len(again.Active) != 1 || again.Active[0].ID != active.ID {
				w.Fatalf("first it cancelled %d, again %d, of which are active %v", first.Count, again.Count, again.Active)
			}
			_, err = w.st.CancelQueue(w.ctx(), q, none)
			w.wants(err, harp.ErrNotFound)
			w.state(since, harp.StateQueued)
			w.reopen()
			w.gate("h")
		}
		_, err = w.st.CancelQueue(w.ctx(), queue("other"), op)
		w.wants(err, harp.ErrConflict)
		is := true
		w.wants(w.st.ChangeQueue(w.ctx(), q, harp.QueueChange{Paused: &is}, op), harp.ErrConflict)
		by := op
		by.By.Name = "somebody else"
		_, err = w.st.CancelQueue(w.ctx(), q, by)
		w.wants(err, harp.ErrConflict)
		w.wants(w.st.ChangeQueue(w.ctx(), q, harp.QueueChange{Paused: &is}, store.Operation{ID: "x"}), harp.ErrInvalid)
	}},
	{"retry", "a job that waits for another attempt does so with all that it was granted and has been through", func(w *world) {
		j := w.running(retries(harp.StateFailed))
		w.fails(j, 7)
		before := w.job(j.ID)
		w.reopen()
		w.same(before, j.ID)
		w.due(w.now.Add(time.Minute))
		w.gate("h")
		w.ids(w.claim(10, "h"))
		w.pass(time.Minute)
		w.ids(w.advance().Claimed, j)
		w.reopen()
		if got := w.job(j.ID); got.Retry.Attempts != 3 || got.Outcome == nil || got.Outcome.Failure.Code != "remote" {
			w.Fatalf("it is %+v", got.Life)
		}
		w.fails(w.job(j.ID))
		w.waits(j, harp.ReasonBackoff)
	}},
	{"retry/survivor", "a job whose lost attempt lives goes on waiting for its end", func(w *world) {
		j := w.lost(w.running(retries(harp.StateLost)))
		w.apply(j, store.Alive)
		w.pass(time.Hour)
		w.reopen()
		w.gate("h")
		w.due(time.Time{})
		w.ids(w.claim(10, "h"))
		w.returning(j)
		w.gaveWay(w.job(j.ID))
		w.ids(w.advance().Claimed, j)
	}},
	{"silence", "who is silent may still be silent too long", func(w *world) {
		j := w.running()
		w.silence("h")
		before := w.job(j.ID)
		w.reopen()
		w.same(before, j.ID)
		w.due(w.now.Add(time.Hour))
		w.pass(time.Hour)
		w.ids(w.advance().Ended, j)
	}},
	{"pause", "paused queues are paused, with jobs and without, and operators' concurrencies hold", func(w *world) {
		q, r, s := queue("q"), queue("r"), queue("s")
		w.gate("h")
		running := w.running(in(q), slots(3))
		waits := w.submit(in(q), slots(3))
		w.pause(q, true)
		w.apply(w.job(waits.ID), store.NotNow)
		w.pause(r, true)
		w.resize(r, 2)
		for range 3 {
			w.submit(in(s), slots(3))
		}
		w.resize(s, 1)
		w.reopen()
		w.gate("h")
		w.ids(w.claim(10, "h"))
		w.waits(waits, harp.ReasonPaused)
		w.submit(in(r), slots(9))
		if a, b, c := w.status(q), w.status(r), w.status(s); !a.Paused || a.Concurrency != 3 || a.Running != 1 || !b.Paused || b.Concurrency != 2 ||
			c.Paused || c.Concurrency != 1 || c.Running != 3 {
			w.Fatalf("queues are %+v, %+v, %+v", a, b, c)
		}
		w.apply(running, store.End)
		w.pause(q, false)
		w.ids(w.claim(10, "h"), waits)
		last := w.submit(in(s))
		for i, j := range w.activeIn(s) {
			claimed := w.apply(j, store.End).Claimed
			if i < 2 {
				w.ids(claimed)
			} else {
				w.ids(claimed, last)
			}
		}
	}},
}

// activeIn is the jobs of a queue that hold a slot.
func (w *world) activeIn(q harp.Value) []*store.Job {
	w.Helper()
	all, err := w.st.Active(w.ctx(), "")
	w.must(err)
	var out []*store.Job
	for _, j := range all {
		if string(j.Queue) == string(q) {
			out = append(out, j)
		}
	}
	return out
}
