package storetest

import (
	"errors"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
)

// connect opens a session of a host, and returns its epoch.
func (w *world) connect(host string) uint64 {
	w.Helper()
	epoch, err := w.st.OpenSession(w.ctx(), store.Session{Host: host, At: w.now, Journal: "j", Labels: map[string]string{"k": "v"}})
	w.must(err)
	return epoch
}

// removeHost removes host "h", which is away.
func (w *world) removeHost(op store.Operation) store.HostRemoved {
	const host = "h"
	w.Helper()
	w.st.SetGate(host, store.Gate{Reason: harp.ReasonOffline, LastHeard: w.now})
	op.By, op.Time = somebody, w.now
	done, err := w.st.RemoveHost(w.ctx(), host, op)
	w.must(err)
	return done
}

// isRemoved checks that nobody is shown host "h".
func (w *world) isRemoved() {
	const host = "h"
	w.Helper()
	_, err := w.st.Host(w.ctx(), host)
	w.wants(err, harp.ErrNotFound)
	page, _, err := w.st.ListHosts(w.ctx(), "", 100)
	w.must(err)
	for _, h := range page {
		if h.Name == host {
			w.Fatalf("%s is listed", host)
		}
	}
	w.wants(w.st.PutHost(w.ctx(), store.Host{Name: host}), harp.ErrNotFound)
}

var removing = []rule{
	{"remove/ends", "what waits for a host that is removed is cancelled, its attempts are lost, their slots start what waits elsewhere; nothing else is touched", func(w *world) {
		w.connect("h")
		w.connect("other")
		w.gate("h", "other")
		q := queue("q")
		sent := w.submit(in(q), slots(4))
		running := w.apply(w.submit(in(q)), store.Started).Job
		stops := w.apply(w.apply(w.submit(in(q)), store.Started).Job, store.CancelReq).Job
		silent := w.apply(w.apply(w.submit(in(q)), store.Started).Job, store.Silent).Job
		waits, next := w.submit(in(q)), w.submit(in(q), on("other"))
		later := w.submit(notBefore(w.now.Add(time.Hour)))
		elsewhere := w.apply(w.submit(on("other")), store.Started).Job
		w.pass(time.Second)
		done := w.removeHost(store.Operation{})
		w.ids(done.Ended, sent, running, stops, silent, waits, later)
		w.ids(done.Claimed, next)
		if done.Count != 6 {
			w.Fatalf("it ended %d", done.Count)
		}
		for _, j := range []*store.Job{sent, running, stops, silent} {
			if got := w.state(j, harp.StateLost); got.Reason != harp.LostHostRemoved || got.Started != harp.MayHaveRun || !got.EndTime.Equal(w.now) {
				w.Fatalf("it is %+v", got.Life)
			}
		}
		for _, j := range []*store.Job{waits, later} {
			if got := w.state(j, harp.StateCancelled); got.Reason != harp.LostHostRemoved || got.Started != harp.DidNotRun {
				w.Fatalf("it is %+v", got.Life)
			}
		}
		w.state(next, harp.StateSent)
		w.state(elsewhere, harp.StateRunning)
		w.isRemoved()
		_, err := w.st.Host(w.ctx(), "other")
		w.must(err)
		w.due(time.Time{})
		page, err := w.st.Events(w.ctx(), harp.EventFilter{After: harp.EventsFromStart, Host: "h", Types: []string{string(harp.EventHostRemoved)}}, 1<<20)
		w.must(err)
		if len(page.Events) != 1 || page.Events[0].By != somebody || !page.Events[0].Time.Equal(w.now) {
			w.Fatalf("events are %+v", page.Events)
		}
	}},
	{"remove/retry", "no attempt follows one that is lost with its host, and what waits for another attempt is cancelled", func(w *world) {
		w.connect("h")
		again := func(s *store.Submission) {
			s.Job.Retry = harp.RetryPolicy{Attempts: 3, Backoff: time.Minute, MaxBackoff: time.Minute, On: []harp.State{harp.StateLost, harp.StateFailed}}
		}
		runs, pauses := w.running(again), w.running(again)
		failed := w.event(pauses, store.End)
		failed.Failure, failed.Jitter = failures.New("failed", "no"), 1 // so that it pauses
		if c := w.try(pauses, failed); c.Err != nil || c.Job.State != harp.StateQueued {
			w.Fatalf("after it failed it is %+v, %v", c.Job, c.Err)
		}
		w.removeHost(store.Operation{})
		w.state(runs, harp.StateLost)
		if got := w.state(pauses, harp.StateCancelled); got.Started != harp.DidRun {
			w.Fatalf("it is %+v", got.Life)
		}
		w.due(time.Time{})
	}},
	{"remove/many", "however many jobs a host has, all have ended when it is removed", func(w *world) {
		w.connect("h")
		const all = 1200
		for range all {
			w.submit()
		}
		if done := w.removeHost(store.Operation{ID: w.id()}); done.Count != all || len(done.Ended) != all {
			w.Fatalf("it ended %d and returned %d", done.Count, len(done.Ended))
		}
		page, err := w.st.List(w.ctx(), store.Filter{States: []harp.State{harp.StateQueued}}, "")
		w.must(err)
		w.ids(page.Jobs)
		w.isRemoved()
	}},
	{"remove/again", "a removal that is asked again under its id touches nothing that came since, and answers the same", func(w *world) {
		w.connect("h")
		w.submit()
		op := store.Operation{ID: w.id()}
		if done := w.removeHost(op); done.Count != 1 {
			w.Fatalf("it ended %d", done.Count)
		}
		w.connect("h")
		j := w.submit()
		if done := w.removeHost(op); done.Count != 1 || len(done.Ended) != 0 {
			w.Fatalf("asked again it ended %d and returned %d", done.Count, len(done.Ended))
		}
		w.state(j, harp.StateQueued)
		_, err := w.st.Host(w.ctx(), "h")
		w.must(err)
		op.Refused = errors.New("not now")
		if done := w.removeHost(op); done.Count != 1 {
			w.Fatalf("asked again by who may not do it now it ended %d", done.Count)
		}
		_, err = w.st.RemoveHost(w.ctx(), "h", store.Operation{ID: w.id(), By: somebody, Time: w.now, Refused: op.Refused})
		w.wants(err, op.Refused)
		w.state(j, harp.StateQueued)
		other := store.Operation{ID: op.ID, By: somebody, Time: w.now}
		_, err = w.st.RemoveHost(w.ctx(), "other", other)
		w.wants(err, harp.ErrConflict)
		other.ID = "nonsense"
		_, err = w.st.RemoveHost(w.ctx(), "h", other)
		w.wants(err, harp.ErrInvalid)
	}},
	{"remove/refused", "a removal that was refused as the host is as it is stays refused, also when it is asked again and the host is not", func(w *world) {
		w.connect("h")
		j := w.submit()
		id := w.id()
		for _, refused := range []error{errors.New("not now"), failures.New("conflict", "its agent is connected").Err(), nil} {
			_, err := w.st.RemoveHost(w.ctx(), "h", store.Operation{ID: id, By: somebody, Time: w.now, Refused: refused})
			if refused == nil {
				refused = harp.ErrConflict
			}
			w.wants(err, refused)
		}
		w.state(j, harp.StateQueued)
		_, err := w.st.Host(w.ctx(), "h")
		w.must(err)
		if done := w.removeHost(store.Operation{ID: w.id()}); done.Count != 1 {
			w.Fatalf("another removal ended %d", done.Count)
		}
	}},
	{"remove/cancelled", "what a cancel of its queue has ended is not ended again", func(w *world) {
		w.connect("h")
		q := queue("q")
		j := w.submit(in(q))
		w.cancelQueue(q)
		if done := w.removeHost(store.Operation{}); done.Count != 0 {
			w.Fatalf("it ended %d", done.Count)
		}
		w.ids(w.advance().Ended, j)
		if got := w.state(j, harp.StateCancelled); got.Reason != "" {
			w.Fatalf("it is %+v", got.Life)
		}
	}},
	{"remove/late", "what an agent of a removed host still says of an attempt is kept as late", func(w *world) {
		w.connect("h")
		j := w.running()
		w.removeHost(store.Operation{})
		c := w.apply(j, store.End)
		if c.Job.State != harp.StateLost || c.Job.Late == nil || c.Job.Late.State != harp.StateSucceeded {
			w.Fatalf("it is %+v", c.Job.Life)
		}
	}},
	{"remove/unknown", "a host that is not there cannot be removed", func(w *world) {
		op := store.Operation{By: somebody, Time: w.now}
		_, err := w.st.RemoveHost(w.ctx(), "h", op)
		w.wants(err, harp.ErrNotFound)
		w.connect("h")
		w.removeHost(op)
		_, err = w.st.RemoveHost(w.ctx(), "h", op)
		w.wants(err, harp.ErrNotFound)
	}},
	{"remove/back", "a removed host that connects is a new one, but that its epoch goes on", func(w *world) {
		w.connect("h")
		w.must(w.st.PutHost(w.ctx(), fullHost(10, w.now)))
		first := w.connect("h")
		w.removeHost(store.Operation{})
		w.isRemoved()
		if epoch := w.connect("h"); epoch != first+1 {
			w.Fatalf("its epoch is %d, was %d", epoch, first)
		}
		got, err := w.st.Host(w.ctx(), "h")
		w.must(err)
		if got.Removed || len(got.Procedures) > 0 || got.Facts != nil || got.Connected || got.Labels["k"] != "v" {
			w.Fatalf("it is %+v", got)
		}
	}},
}

var reopeningRemovals = []rule{
	{"reopen/removed", "a removed host stays removed, and so do the ends of its jobs", func(w *world) {
		first := w.connect("h")
		j := w.running()
		op := store.Operation{ID: w.id()}
		w.removeHost(op)
		w.reopen()
		w.isRemoved()
		w.state(j, harp.StateLost)
		if done := w.removeHost(op); done.Count != 1 {
			w.Fatalf("asked again it ended %d", done.Count)
		}
		if _, err := w.st.RemoveHost(w.ctx(), "h", store.Operation{ID: w.id(), By: somebody, Time: w.now}); !errors.Is(err, harp.ErrNotFound) {
			w.Fatalf("it is removed once more: %v", err)
		}
		if epoch := w.connect("h"); epoch != first+1 {
			w.Fatalf("its epoch is %d, was %d", epoch, first)
		}
	}},
	{"reopen/removed/known", "which batches were submitted before a host was removed, and which after it was known again, is told apart", func(w *world) {
		w.connect("h")
		w.gate("other")
		before := w.batch([]string{"other", "h"}, parallel(1))
		first := w.advance().Claimed
		w.removeHost(store.Operation{ID: w.id()})
		after := w.batch([]string{"h"})
		w.reopen()
		w.gate("other")
		w.leaves("h")
		w.apply(first[0], store.End)
		w.advance()
		if j := w.state(w.members(before)[1], harp.StateCancelled); j.Reason != harp.LostHostRemoved {
			w.Fatalf("the member that was submitted before is %+v", j.Life)
		}
		w.waits(w.members(after)[0], harp.ReasonOffline)
	}},
}
