package storetest

import (
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// silence is that of a host, which may last an hour.
func (w *world) silence(host string) []*store.Job {
	w.Helper()
	jobs, err := w.st.Silence(w.ctx(), host, w.now, w.now.Add(time.Hour))
	w.must(err)
	return jobs
}

var silencing = []rule{
	{"silence/all", "a silent host's attempts are unknown from one moment on, keep their slots and remember what they were; nothing else is touched", func(w *world) {
		w.gate("h", "other")
		q := queue("q")
		sent := w.submit(in(q), slots(3))
		running := w.apply(w.submit(in(q)), store.Started).Job
		stops := w.apply(w.submit(in(q)), store.CancelReq).Job
		waits, elsewhere := w.submit(in(q)), w.apply(w.submit(on("other")), store.Started).Job
		w.pass(time.Second)
		w.ids(w.silence("h"), sent, running, stops)
		for _, j := range []*store.Job{sent, running, stops} {
			got := w.state(j, harp.StateUnknown)
			if got.UnknownOf != j.State || got.Held != j.Reason || !got.Since.Equal(w.now) || !got.WakeAt.Equal(w.now.Add(time.Hour)) {
				w.Fatalf("it is %+v", got.Life)
			}
		}
		w.waits(waits, harp.ReasonQueue)
		w.state(elsewhere, harp.StateRunning)
		if s := w.status(q); s.Running != 3 || s.Waiting != 1 {
			w.Fatalf("queue is %+v", s)
		}
		w.pass(time.Second)
		w.ids(w.silence("h"))
		w.ids(w.silence("nobody"))
	}},
	{"silence/long", "who has been silent too long has lost his attempts, by time alone; their slots start what waits", func(w *world) {
		w.gate("h", "other")
		q := queue("q")
		j := w.submit(in(q))
		next := w.submit(in(q), on("other"))
		w.silence("h")
		w.due(w.now.Add(time.Hour))
		w.pass(time.Hour - 1)
		w.ids(w.advance().Ended)
		w.pass(1)
		did := w.advance()
		w.ids(did.Ended, j)
		w.ids(did.Claimed, next)
		if got := w.state(j, harp.StateLost); got.Reason != harp.LostTooLong || got.Started != harp.MayHaveRun || !got.EndTime.Equal(w.now) {
			w.Fatalf("it is %+v", got.Life)
		}
		w.due(time.Time{})
	}},
	{"silence/awaited", "who is awaited loses nothing until then", func(w *world) {
		j := w.running()
		w.silence("h")
		w.st.SetGate("h", store.Gate{Reason: harp.ReasonOffline, LastHeard: w.now, Awaited: w.now.Add(2 * time.Hour)})
		w.pass(2*time.Hour - 1)
		w.ids(w.advance().Ended)
		w.state(j, harp.StateUnknown)
		w.due(w.now.Add(1))
		w.pass(1)
		w.ids(w.advance().Ended, j)
	}},
	{"silence/again", "who is heard meanwhile, and silent again, has as long again", func(w *world) {
		j := w.running()
		w.silence("h")
		since := w.now
		w.pass(time.Hour / 2)
		w.ids(w.silence("h"))
		w.due(w.now.Add(time.Hour))
		w.pass(time.Hour - 1)
		w.ids(w.advance().Ended)
		if got := w.state(j, harp.StateUnknown); !got.Since.Equal(since) {
			w.Fatalf("it is %+v", got.Life)
		}
		w.pass(1)
		w.ids(w.advance().Ended, j)
	}},
	{"silence/back", "who is heard again in time has lost nothing", func(w *world) {
		a, b := w.running(), w.running()
		w.silence("h")
		w.apply(a, store.Alive)
		w.apply(b, store.End)
		w.due(time.Time{})
		w.pass(2 * time.Hour)
		w.ids(w.advance().Ended)
		w.state(a, harp.StateRunning)
	}},
	{"silence/retry", "an attempt lost by silence is followed by another, where that was allowed", func(w *world) {
		q := queue("q")
		j := w.running(in(q), retries(harp.StateLost))
		w.silence("h")
		w.away()
		w.pass(time.Hour)
		w.ids(w.advance().Ended)
		got := w.state(j, harp.StateQueued)
		if got.Outcome == nil || got.Outcome.Reason != harp.LostTooLong || got.WakeAt.Before(w.now) || got.WakeAt.After(w.now.Add(time.Minute)) {
			w.Fatalf("it is %+v", got.Life)
		}
		w.returning(j)
		if s := w.status(q); s.Running != 0 || s.Waiting != 1 {
			w.Fatalf("queue is %+v", s)
		}
		w.pass(time.Minute)
		w.advance()
		w.gate("h")
		w.ids(w.claim(10, "h"), j)
	}},
	{"silence/cancelled", "of a cancelled queue's jobs the silence remembers that they are to be cancelled", func(w *world) {
		q := queue("q")
		j := w.running(in(q))
		w.cancelQueue(q)
		w.ids(w.silence("h"), j)
		if got := w.state(j, harp.StateUnknown); got.UnknownOf != harp.StateCancelling || got.Cancel == nil || got.Cancel.By != somebody {
			w.Fatalf("it is %+v", got.Life)
		}
		if c := w.apply(j, store.Alive); !c.Effect.Tell || c.Job.State != harp.StateCancelling {
			w.Fatalf("effect %+v of %+v", c.Effect, c.Job.Life)
		}
	}},
	{"silence/survivor", "of a lost attempt that was alive it is no longer known once its host is silent", func(w *world) {
		j := w.lost(w.running(retries(harp.StateLost), offlineWait(time.Minute)))
		w.apply(j, store.Alive)
		w.away()
		w.pass(time.Hour)
		w.ids(w.silence("h"))
		if w.job(j.ID).Survivor {
			w.Fatal("it still says that its attempt lives")
		}
		w.ids(w.advance().Ended)
		w.waits(j, harp.ReasonOffline)
		w.returning(j)
		w.due(w.now.Add(time.Minute))
	}},
	{"silence/forced", "an operator may give up a job that holds a slot, whether its host is silent or not, and no other", func(w *world) {
		for _, silent := range []bool{false, true} {
			j := w.running(retries(harp.StateLost), in(queue("q")), slots(1))
			waits := w.submit(in(queue("q")), slots(1))
			e := store.Event{Kind: store.Lose, At: w.now, Reason: harp.LostForced, Text: "burned"}
			w.wants(w.try(waits, e).Err, store.ErrIllegal)
			if silent {
				w.silence("h")
			}
			w.must(w.try(j, e).Err)
			if got := w.state(j, harp.StateLost); got.Reason != harp.LostForced || got.Failure.Message != "burned" {
				w.Fatalf("it is %+v", got.Life)
			}
			w.wants(w.try(j, e).Err, store.ErrIllegal)
			w.wants(w.try(w.state(waits, harp.StateSent), e).Err, nil) // it has the slot
		}
		w.due(time.Time{})
	}},
	{"silence/overdue", "what is given up beside its agent must be over before another attempt", func(w *world) {
		j := w.running(retries(harp.StateLost))
		e := w.event(j, store.Lose)
		e.Reason = harp.LostTooLong
		w.must(w.try(j, e).Err)
		if got := w.waits(j, harp.ReasonBackoff); !got.Survivor {
			w.Fatalf("it is %+v", got.Life)
		}
		w.pass(time.Hour)
		w.ids(w.advance().Claimed)
		w.returning(j)
		e.Reason = harp.LostAgentRestarted
		c := w.try(j, e)
		w.must(c.Err)
		w.ids(append(c.Claimed, w.advance().Claimed...), j)
	}},
	{"silence/many", "a host may have many attempts", func(w *world) {
		w.st.SetGate("h", store.Gate{Open: true, Most: 5000})
		var all []*store.Job
		for range 5 {
			var batch []store.Submission
			for range 500 {
				batch = append(batch, w.submission())
			}
			out, err := w.st.Submit(w.ctx(), batch, w.now)
			w.must(err)
			for _, o := range out {
				all = append(all, o.Job)
			}
		}
		w.ids(w.silence("h"), all...)
		w.pass(time.Hour)
		if n := len(w.advance().Ended); n != len(all) {
			w.Fatalf("%d ended, want %d", n, len(all))
		}
	}},
}
