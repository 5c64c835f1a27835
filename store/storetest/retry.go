package storetest

import (
	"bytes"
	"reflect"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
)

// retries lets a job be tried again after these outcomes, a minute later at most.
func retries(on ...harp.State) setting {
	return func(s *store.Submission) {
		s.Job.Retry = harp.RetryPolicy{On: on, Attempts: 3, Backoff: time.Minute, MaxBackoff: time.Hour}
	}
}

// fails is the end of an attempt that failed, with a value; the pause after it is
// the longest allowed.
func (w *world) fails(j *store.Job, v ...byte) store.Change {
	w.Helper()
	e := w.event(j, store.End)
	e.Failure, e.Value, e.Jitter = failures.New("remote", "no"), v, 1
	c := w.try(j, e)
	w.must(c.Err)
	return c
}

// lost is the end of an attempt of which nothing is known.
func (w *world) lost(j *store.Job) *store.Job {
	w.Helper()
	e := w.event(j, store.Lose)
	e.Jitter = 1
	c := w.try(j, e)
	w.must(c.Err)
	return c.Job
}

// gaveWay is the end of an attempt that was lost and made way for the next.
func (w *world) gaveWay(j *store.Job) store.Change {
	w.Helper()
	e := w.event(j, store.End)
	e.Stopping = &store.Stopping{Cause: "cancel", Since: w.now}
	c := w.try(j, e)
	w.must(c.Err)
	return c
}

func (w *world) returning(want ...*store.Job) {
	w.Helper()
	got, err := w.st.Returning(w.ctx(), "h")
	w.must(err)
	w.ids(got, want...)
}

func (w *world) value(j *store.Job, want ...byte) {
	w.Helper()
	v, err := w.st.Value(w.ctx(), j.ID)
	w.must(err)
	if !bytes.Equal(v, want) {
		w.Fatalf("its value is %v, want %v", v, want)
	}
}

var retrying = []rule{
	{"retry/place", "a job that is tried again gives its slot back, waits for its pause and then stands at its old place", func(w *world) {
		q := queue("q")
		a := w.running(in(q), retries(harp.StateFailed))
		b, c := w.submit(in(q)), w.submit(in(q))
		done := w.fails(a)
		w.ids(done.Claimed, b)
		if !done.Effect.Gives || done.Effect.Ends || done.Job.Outcome == nil || done.Job.Outcome.State != harp.StateFailed {
			w.Fatalf("effect %+v of %+v", done.Effect, done.Job.Life)
		}
		if got := w.waits(a, harp.ReasonBackoff); got.QueuePos != 1 || !got.WakeAt.Equal(w.now.Add(time.Minute)) {
			w.Fatalf("its place is %d, and it waits until %v", got.QueuePos, got.WakeAt)
		}
		w.due(w.now.Add(time.Minute))
		w.pass(time.Minute)
		w.ids(w.advance().Claimed)
		w.waits(a, harp.ReasonQueue)
		next := w.apply(w.job(b.ID), store.End).Claimed
		w.ids(next, a)
		if j := next[0]; j.Attempt != 2 || len(j.Attempts) != 2 || j.Attempts[0].Outcome != "failed" || j.Fence <= a.Fence {
			w.Fatalf("it is %+v", j.Life)
		}
		w.waits(c, harp.ReasonQueue)
	}},
	{"retry/alone", "a job whose pause is over starts, if nothing else is in its way", func(w *world) {
		a := w.running(retries(harp.StateFailed))
		w.fails(a)
		w.pass(time.Minute - 1)
		w.ids(w.claim(10, "h"))
		w.pass(1)
		w.ids(w.advance().Claimed, a)
	}},
	{"retry/last", "the last attempt's outcome is the job's; how many there are is the policy's", func(w *world) {
		j := w.running(retries(harp.StateFailed))
		for range 2 {
			w.fails(j, 1)
			w.pass(time.Hour)
			w.ids(w.advance().Claimed, j)
			j = w.apply(w.job(j.ID), store.Started).Job
		}
		if c := w.fails(j, 2); !c.Effect.Ends {
			w.Fatalf("effect %+v", c.Effect)
		}
		if got := w.state(j, harp.StateFailed); got.Attempt != 3 || got.Outcome != nil || !got.HasValue {
			w.Fatalf("it is %+v", got.Life)
		}
		w.value(j, 2)
	}},
	{"retry/value", "what an attempt returned is there until another ends, and not beyond", func(w *world) {
		for _, last := range []store.Kind{store.End, store.Refused, store.Lose} {
			j := w.running(retries(harp.StateFailed))
			w.fails(j, bytes.Repeat([]byte{7}, 100_000)...)
			w.value(j, bytes.Repeat([]byte{7}, 100_000)...)
			w.pass(time.Hour)
			w.ids(w.advance().Claimed, j)
			w.apply(w.job(j.ID), last)
			if got := w.job(j.ID); !got.State.Ended() || got.HasValue {
				w.Fatalf("it is %+v", got.Life)
			}
			w.value(j)
		}
	}},
	{"retry/expires", "a job whose next attempt does not start in time ends as the last one did", func(w *world) {
		j := w.running(retries(harp.StateFailed), expires(w.now.Add(30*time.Second)))
		w.fails(j, 7)
		w.due(w.now.Add(30 * time.Second))
		w.pass(30 * time.Second)
		w.ids(w.advance().Ended, j)
		got := w.state(j, harp.StateFailed)
		if got.Started != harp.DidRun || got.Failure.Code != "remote" || !got.HasValue || !got.EndTime.Equal(w.now) {
			w.Fatalf("it is %+v", got.Life)
		}
		w.value(j, 7)
		w.due(time.Time{})
	}},
	{"retry/offline", "a pause does not count as waiting for the host; what follows does", func(w *world) {
		j := w.running(retries(harp.StateLost), offlineWait(10*time.Second))
		w.lost(j)
		w.away()
		w.due(w.now.Add(time.Minute))
		w.pass(time.Minute)
		w.ids(w.advance().Ended)
		w.waits(j, harp.ReasonOffline)
		w.due(w.now.Add(10 * time.Second))
		w.pass(10 * time.Second)
		w.ids(w.advance().Ended, j)
		if got := w.state(j, harp.StateLost); got.Started != harp.MayHaveRun || got.Reason != harp.LostAgentRestarted {
			w.Fatalf("it is %+v", got.Life)
		}
	}},
	{"retry/cancelled", "a job at or below the mark of a cancelled queue gets no other attempt, and one that waits for it says whether it ran", func(w *world) {
		q := queue("q")
		running := w.running(in(q), slots(2), retries(harp.StateFailed, harp.StateLost))
		waits := w.submit(in(q), retries(harp.StateFailed))
		w.fails(w.apply(waits, store.Started).Job)
		w.cancelQueue(q)
		for range 2 {
			if got := w.state(waits, harp.StateCancelled); got.Started != harp.DidRun || got.Attempt != 1 {
				w.Fatalf("it is %+v", got.Life)
			}
			w.advance()
		}
		w.fails(running)
		w.state(running, harp.StateFailed)
		_, err := w.st.Queue(w.ctx(), q)
		w.wants(err, harp.ErrNotFound)
	}},
	{"retry/records", "an attempt's records are numbered on from all that the job has, those of a lost one too that came later", func(w *world) {
		j := w.running(retries(harp.StateLost))
		w.append(j, 0, values(0, 3)...)
		j = w.lost(j)
		w.append(j, 3, values(3, 5)...)
		w.apply(j, store.Gone)
		w.pass(time.Hour)
		w.ids(w.advance().Claimed, j)
		again := w.job(j.ID)
		w.append(again, 0, values(5, 9)...)
		_, err := w.st.Append(w.ctx(), w.appending(j, 5, values(5, 6)...))
		w.wants(err, store.ErrFenced)
		got, err := w.st.Read(w.ctx(), j.ID, 0, store.ReadLimit{Bytes: 1 << 20})
		w.must(err)
		if len(got) != 9 || got[4].Attempt != 1 || got[5].Attempt != 2 || got[8].Seq != 8 {
			w.Fatalf("records are %+v", got)
		}
		if a := w.job(j.ID).Attempts; a[0].Next != 5 || a[1].Base != 5 || a[1].Next != 4 {
			w.Fatalf("attempts are %+v", a)
		}
	}},
	{"retry/survivor", "a lost attempt that is found alive must end before the next is sent: its job is passed over, and its host's absence does not count", func(w *world) {
		q := queue("q")
		j := w.lost(w.running(in(q), retries(harp.StateLost), offlineWait(time.Minute)))
		w.returning(j)
		w.ids(w.claim(10, "h"))
		c := w.apply(j, store.Alive)
		if !c.Effect.Resume || !c.Effect.Tell || !c.Job.Survivor {
			w.Fatalf("effect %+v of %+v", c.Effect, c.Job.Life)
		}
		w.pass(time.Hour)
		w.due(time.Time{})
		behind := w.submit(in(q))
		w.state(behind, harp.StateSent)
		w.apply(behind, store.End)
		w.away()
		w.pass(time.Hour)
		w.ids(w.advance().Ended)
		w.gate("h")
		w.ids(w.claim(10, "h"))
		w.waits(j, harp.ReasonBackoff)
		w.returning(j)
		w.ids(w.gaveWay(j).Claimed)
		if due := w.st.NextDue(); due.IsZero() || due.After(w.now) {
			w.Fatalf("next due is %v, want now", due)
		}
		w.ids(w.advance().Claimed, j)
		w.returning()
		if got := w.job(j.ID); got.Attempt != 2 || got.Survivor || got.Attempts[0].Outcome != "lost" {
			w.Fatalf("it is %+v", got.Life)
		}
	}},
	{"retry/late", "the own end of a lost attempt is its outcome while the next was not sent", func(w *world) {
		q := queue("q")
		j := w.lost(w.running(in(q), retries(harp.StateLost)))
		e := w.event(j, store.End)
		e.Value = harp.Value{9}
		c := w.try(j, e)
		w.must(c.Err)
		if !c.Effect.Ends || c.Effect.Gives || len(c.Claimed) > 0 {
			w.Fatalf("effect %+v", c.Effect)
		}
		w.state(j, harp.StateSucceeded)
		w.value(j, 9)
		w.due(time.Time{})
		w.returning()
		_, err := w.st.Queue(w.ctx(), q)
		w.wants(err, harp.ErrNotFound)
	}},
	{"retry/decided", "where it allows another attempt, that one's pause begins anew", func(w *world) {
		j := w.lost(w.running(retries(harp.StateLost, harp.StateFailed)))
		w.pass(30 * time.Second)
		w.fails(j)
		w.due(w.now.Add(time.Minute))
		w.returning()
		w.pass(time.Minute)
		w.ids(w.advance().Claimed, j)
	}},
	{"retry/over", "of a lost attempt whose job ended while it waited, the rest is kept as late", func(w *world) {
		j := w.lost(w.running(retries(harp.StateLost)))
		w.apply(j, store.CancelReq)
		if got := w.state(j, harp.StateCancelled); got.Started != harp.MayHaveRun {
			w.Fatalf("it is %+v", got.Life)
		}
		w.append(j, 0, values(0, 2)...)
		e := w.event(j, store.End)
		e.Value = harp.Value{9}
		c := w.try(j, e)
		w.must(c.Err)
		if got := w.state(j, harp.StateCancelled); !c.Effect.Late || got.Late == nil || got.Late.State != harp.StateSucceeded || got.Records != 2 {
			w.Fatalf("it is %+v, effect %+v", got.Life, c.Effect)
		}
		w.value(j, 9)
		w.returning()
	}},
	{"retry/failure", "a failure of any size is kept while its job waits, however often its row is written", func(w *world) {
		j := w.running(retries(harp.StateFailed))
		e := w.event(j, store.End)
		e.Failure = harp.Failure{Code: "remote", Data: bytes.Repeat([]byte{0xc0}, 1<<20)}
		e.Jitter = 1
		w.must(w.try(j, e).Err)
		w.pass(time.Hour)
		w.ids(w.advance().Claimed, j)
		if got := w.job(j.ID); !reflect.DeepEqual(got.Outcome.Failure, e.Failure) {
			w.Fatalf("failure came back with %d bytes of data", len(got.Outcome.Failure.Data))
		}
		w.away()
		w.apply(w.job(j.ID), store.NotNow)
		w.apply(j, store.CancelReq)
		if got := w.state(j, harp.StateCancelled); got.Outcome != nil || got.Started != harp.DidRun {
			w.Fatalf("it is %+v", got.Life)
		}
	}},
}
