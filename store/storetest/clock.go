package storetest

import (
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// setClock sets the clock by something.
func (w *world) setClock(by time.Duration) {
	w.now = w.now.Add(by)
	w.st.ClockSet(by)
}

var clocks = []rule{
	{"clock/spans", "what lasts a time has as much left as before when the clock is set, and what names a time does not move", func(w *world) {
		for _, by := range []time.Duration{48 * time.Hour, -48 * time.Hour} {
			w.gate("h")
			lost := w.submit()
			w.apply(lost, store.Started)
			paused := w.running(retries(harp.StateFailed))
			waiting := w.submit(on("away"), offlineWait(2*time.Minute))
			w.fails(paused)
			c := w.event(w.job(lost.ID), store.Silent)
			c.Wake = w.now.Add(3 * time.Minute)
			w.must(w.try(lost, c).Err)
			w.setClock(by)
			w.due(w.now.Add(time.Minute))
			w.pass(time.Minute)
			w.ids(w.advance().Claimed, paused)
			w.due(w.now.Add(time.Minute))
			w.pass(time.Minute)
			w.ids(w.advance().Ended, waiting)
			w.due(w.now.Add(time.Minute))
			w.pass(time.Minute)
			w.ids(w.advance().Ended, lost)
			early := w.submit(notBefore(w.now.Add(time.Hour)))
			at := w.now.Add(time.Hour)
			w.setClock(by)
			w.due(at)
			if w.now.Before(at) {
				w.now = at
			}
			w.ids(w.advance().Claimed, early)
		}
	}},
	{"clock/keys", "how long idempotency keys and tombstones last is not measured by a clock that is set", func(w *world) {
		keyed := func() store.Submission {
			s := w.submission()
			s.Key, s.KeyUntil = "k", w.now.Add(time.Hour)
			s.Digest = [32]byte{1}
			return s
		}
		call := func() store.Submitted {
			out, err := w.st.Submit(w.ctx(), []store.Submission{keyed()}, w.now)
			w.must(err)
			return out[0]
		}
		first := call()
		gone := w.ended(1)
		w.prune(store.Retention{EndedBefore: w.now.Add(time.Second)})
		w.setClock(40 * 24 * time.Hour)
		w.prune(store.Retention{})
		w.gone(gone)
		if again := call(); again.New || again.Job.ID != first.Job.ID {
			w.Fatalf("under the same key there is another job: %+v", again)
		}
		w.setClock(-80 * 24 * time.Hour)
		w.pass(time.Hour)
		if again := call(); !again.New {
			w.Fatal("the key lasts longer than it was to")
		}
		w.pass(store.TombstoneTime)
		w.prune(store.Retention{})
		_, err := w.st.Job(w.ctx(), gone.ID)
		w.wants(err, harp.ErrNotFound)
	}},
}

// reopeningClock is the rule about a clock that was set before a restart.
var reopeningClock = []rule{
	{"reopen/clock", "how long an idempotency key lasts is not measured by a clock that was set before a restart, though nothing was written since", func(w *world) {
		for _, by := range []time.Duration{48 * time.Hour, -48 * time.Hour} {
			keyed := w.submission()
			keyed.Key, keyed.KeyUntil = "k"+by.String(), w.now.Add(time.Hour)
			first, err := w.st.Submit(w.ctx(), []store.Submission{keyed}, w.now)
			w.must(err)
			w.setClock(by)
			w.reopen()
			again := w.submission()
			again.Key, again.KeyUntil, again.Digest = keyed.Key, w.now.Add(time.Hour), keyed.Digest
			out, err := w.st.Submit(w.ctx(), []store.Submission{again}, w.now)
			w.must(err)
			if out[0].New || out[0].Job.ID != first[0].Job.ID {
				w.Fatalf("set by %v, under the same key there is another job: %+v", by, out[0])
			}
			w.pass(time.Hour)
			again = w.submission()
			again.Key, again.KeyUntil, again.Digest = keyed.Key, w.now.Add(time.Hour), keyed.Digest
			out, err = w.st.Submit(w.ctx(), []store.Submission{again}, w.now)
			w.must(err)
			if !out[0].New {
				w.Fatalf("set by %v, the key lasts longer than it was to", by)
			}
		}
	}},
}
