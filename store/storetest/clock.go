package storetest

import (
	"errors"
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
		w.gone(gone) // by the clock as it is its id is young
		w.pass(40 * 24 * time.Hour)
		w.prune(store.Retention{})
		_, err := w.st.Job(w.ctx(), gone.ID)
		w.wants(err, harp.ErrNotFound)
	}},
	{"clock/back", "an id that was pruned, or an operator's, is never taken for a new one: neither where the clock was set back before it would be forgotten, nor after, nor is one refused that is new", func(w *world) {
		const month, week = store.TombstoneTime, 7 * 24 * time.Hour
		q := queue("q")
		for name, passes := range map[string]func(){
			"before": func() { w.setClock(-2 * week); w.pass(month + week) },
			"after":  func() { w.pass(month + week); w.prune(store.Retention{}); w.setClock(-2 * week) },
		} {
			s, op := w.submission(), store.Operation{ID: w.id(), By: somebody, Time: w.now}
			w.submit(in(q))
			first, err := w.st.CancelQueue(w.ctx(), q, op)
			w.must(err)
			out, err := w.st.Submit(w.ctx(), []store.Submission{s}, w.now)
			w.must(err)
			w.apply(out[0].Job, store.CancelReq)
			w.prune(store.Retention{EndedBefore: w.now.Add(1)})
			passes()
			w.prune(store.Retention{})
			out, err = w.st.Submit(w.ctx(), []store.Submission{s}, w.now)
			w.must(err)
			if !errors.Is(out[0].Err, harp.ErrPruned) {
				w.Fatalf("%s: the id of a pruned job is taken: %+v", name, out[0])
			}
			kept := w.submit(in(q))
			if done, err := w.st.CancelQueue(w.ctx(), q, op); err == nil && done.Count != first.Count || err != nil && !errors.Is(err, harp.ErrPruned) {
				w.Fatalf("%s: an operator's request gives %+v, %v", name, done, err)
			}
			w.state(kept, harp.StateQueued)
		}
	}},
	{"clock/wild", "ids that were made while the clock was far ahead for a while are refused, and no others", func(w *world) {
		w.setClock(1000 * 24 * time.Hour)
		gone := w.ended(1)
		w.prune(store.Retention{EndedBefore: w.now.Add(1)})
		w.setClock(-1000 * 24 * time.Hour)
		for range 2 {
			w.pass(store.TombstoneTime + time.Hour)
			w.prune(store.Retention{})
			w.submit()
			w.gone(gone)
		}
	}},
	{"clock/late", "what was found too late for its StartBefore while the clock was wrong starts when the clock has been set back before that", func(w *world) {
		until := w.now.Add(time.Minute)
		waited := w.submit(expires(until))
		w.setClock(time.Hour)
		w.gate("h")
		w.ids(w.claim(1, "h"))
		late := w.submit(expires(until))
		w.setClock(-time.Hour)
		w.ids(w.advance().Claimed, waited, late)
		w.due(time.Time{})
	}},
	{"clock/survivor", "a job whose lost attempt lives waits for its end, wherever the clock is set to", func(w *world) {
		j := w.lost(w.running(retries(harp.StateLost), expires(w.now.Add(24*time.Hour))))
		w.apply(j, store.Alive)
		for _, by := range []time.Duration{time.Hour, -time.Hour} {
			w.setClock(by)
			w.due(j.Expires)
			w.ids(w.advance().Claimed)
			w.ids(w.claim(10, "h"))
		}
		w.waits(j, harp.ReasonBackoff)
	}},
	{"clock/busy", "what its agent is too busy for waits for its StartAfter again where the clock was set back behind it, and keeps nothing else of its procedure waiting for that", func(w *world) {
		w.st.SetGate("h", store.Gate{Open: true, Most: 1})
		at := w.now.Add(time.Minute)
		j := w.submit(notBefore(at))
		w.pass(time.Minute)
		w.ids(w.advance().Claimed, j)
		other := w.submit()
		w.setClock(-time.Hour)
		busy := func(j *store.Job) []*store.Job {
			e := w.event(w.job(j.ID), store.NotNow)
			e.Wake = w.now.Add(time.Second)
			c := w.try(j, e)
			w.must(c.Err)
			return c.Claimed
		}
		w.ids(busy(j), other)
		w.waits(j, harp.ReasonStartAfter)
		w.ids(busy(other))
		w.must(w.st.Wake(w.ctx(), "h", w.now))
		w.ids(w.claim(10, "h"), other)
		w.apply(w.job(other.ID), store.End)
		w.waits(j, harp.ReasonStartAfter)
		w.due(at)
		w.now = at
		w.ids(w.advance().Claimed, j)
	}},
}

// reopeningClock are the rules about a clock that was set before a restart.
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
	{"reopen/busy", "what its agent was too busy for waits for its StartAfter again where the clock was set back behind it before a restart", func(w *world) {
		w.gate("h")
		at := w.now.Add(time.Minute)
		j := w.submit(notBefore(at))
		w.pass(time.Minute)
		w.ids(w.advance().Claimed, j)
		w.setClock(-time.Hour)
		w.apply(w.job(j.ID), store.NotNow)
		w.reopen()
		w.gate("h")
		w.must(w.st.Wake(w.ctx(), "h", w.now))
		w.ids(w.claim(10, "h"))
		w.waits(j, harp.ReasonStartAfter)
		w.due(at)
		w.now = at
		w.ids(w.advance().Claimed, j)
	}},
	{"reopen/ahead", "what was submitted by a clock that was ahead, and is right by a restart, waits for its absent host as long as it was to", func(w *world) {
		left := w.now
		w.leaves("h000")
		j := w.submit(on("h000"), offlineWait(time.Minute))
		b := w.batch(hostsOf(1), member(func(j *store.Job) { j.OfflineWait = time.Minute }))
		w.advance()
		w.setClock(-48 * time.Hour)
		w.reopen()
		w.st.SetGate("h000", store.Gate{Reason: harp.ReasonOffline, LastHeard: left.Add(-48 * time.Hour)})
		w.onHosts(w.advance().Ended)
		w.due(w.now.Add(time.Minute))
		w.pass(time.Minute)
		w.ids(w.advance().Ended, j, w.members(b)[0])
	}},
	{"reopen/pauses", "a pause between attempts that began by a clock that was ahead, and is right by a restart, lasts as long as it was to", func(w *world) {
		w.gate("h")
		paused := w.running(retries(harp.StateFailed))
		w.fails(paused)
		w.setClock(-48 * time.Hour)
		w.reopen()
		w.gate("h")
		w.onHosts(w.advance().Claimed)
		w.due(w.now.Add(time.Minute))
		w.pass(time.Minute)
		w.ids(w.advance().Claimed, paused)
	}},
	{"reopen/silence", "who is silent again since a clock that was ahead is right is lost no sooner for a restart", func(w *world) {
		for _, ahead := range []time.Duration{48 * time.Hour, time.Hour / 2} { // more than it may be silent, and less
			j := w.running()
			w.silence("h")
			w.setClock(-ahead)
			w.pass(time.Minute)
			w.ids(w.silence("h"))
			w.reopen()
			w.onHosts(w.advance().Ended)
			w.due(w.now.Add(time.Hour))
			w.pass(time.Hour)
			w.ids(w.advance().Ended, j)
		}
	}},
	{"reopen/forgotten", "an id that was pruned and forgotten is refused after a restart, wherever the clock was set to", func(w *world) {
		s := w.submission()
		out, err := w.st.Submit(w.ctx(), []store.Submission{s}, w.now)
		w.must(err)
		w.apply(out[0].Job, store.CancelReq)
		w.prune(store.Retention{EndedBefore: w.now.Add(1)})
		w.pass(store.TombstoneTime)
		w.prune(store.Retention{})
		w.setClock(-store.TombstoneTime)
		w.reopen()
		out, err = w.st.Submit(w.ctx(), []store.Submission{s}, w.now)
		w.must(err)
		w.wants(out[0].Err, harp.ErrPruned)
	}},
}
