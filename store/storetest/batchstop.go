package storetest

import (
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/window"
)

// isLost has an advance a minute from now find the host of a job away for too long.
func (w *world) isLost(jobs ...*store.Job) {
	w.Helper()
	for _, j := range jobs {
		w.leaves(j.Host)
		_, err := w.st.Silence(w.ctx(), j.Host, w.now, w.now.Add(time.Minute))
		w.must(err)
	}
}

// stops checks that an advance stops a batch by the failures of members on such hosts, and starts nothing of it.
func (w *world) stops(b *store.Batch, failed ...string) {
	w.Helper()
	did := w.advance()
	w.onHosts(did.Ended, failed...)
	w.onHosts(did.Claimed)
	w.onHosts(w.advance().Claimed)
	w.is(b, harp.BatchPaused, harp.BatchReasonFailures, b.Hosts)
	w.checkBatch(b)
}

// queued has members wait in a queue.
func queued(q harp.Value, concurrency int) shape {
	return member(func(j *store.Job) { j.Queue, j.Concurrency = q, concurrency })
}

// pauseMinute pauses a queue for a minute.
func (w *world) pauseMinute(q harp.Value) {
	w.Helper()
	w.must(w.st.ChangeQueue(w.ctx(), q, harp.QueueChange{Paused: new(true), Until: w.now.Add(time.Minute)}, store.Operation{ID: w.id(), By: caller, Time: w.now}))
}

// waitsOut has the second of two hosts be reached while its queue is paused, and the first be lost as that pause ends.
func (w *world) waitsOut(q harp.Value) *store.Batch {
	w.Helper()
	w.gate("h000")
	w.leaves("h001")
	b := w.batch(hostsOf(2), stopAfter(1), queued(q, 2))
	first := w.advance().Claimed
	w.onHosts(first, "h000")
	w.pauseMinute(q)
	w.gate("h001")
	w.isLost(first[0])
	w.advance()
	return b
}

// failures that come together with what else lets members start that were reached before.
var batchStops = []rule{
	{"batch/stop/unpause", "failures stop a batch before a member starts whose queue goes on in the same operation", func(w *world) {
		b := w.waitsOut(queue("q"))
		w.pass(time.Minute)
		w.stops(b, "h000")
	}},
	{"batch/stop/window", "failures stop a batch before a member starts whose window ends in the same operation", func(w *world) {
		w.setHolds("h001", w.windowOf(0, time.Minute))
		b, first := w.begun(hostsOf(2), stopAfter(1))
		w.onHosts(first, "h000")
		w.isLost(first[0])
		w.pass(time.Minute)
		w.stops(b, "h000")
	}},
	{"batch/stop/busy", "failures stop a batch before a member is sent again to an agent that was busy, in the same operation", func(w *world) {
		b, first := w.begun(hostsOf(2), stopAfter(1))
		e := w.event(first[1], store.NotNow)
		e.Wake = w.now.Add(time.Minute)
		w.must(w.try(first[1], e).Err)
		w.isLost(first[0])
		w.pass(time.Minute)
		w.stops(b, "h000")
	}},
	{"batch/stop/lost", "failures of one operation are all counted before a member starts by the slot that one of them has left", func(w *world) {
		b, first := w.begun(hostsOf(3), stopAfter(2), queued(queue("q"), 2))
		w.onHosts(first, "h000", "h001")
		w.isLost(first...)
		w.pass(time.Minute)
		w.stops(b, "h000", "h001")
	}},
	{"batch/stop/cancelled", "a host that failed before its chain was cancelled with its queue stops a batch before a member starts in the same operation", func(w *world) {
		q := queue("q")
		b, first := w.begun(hostsOf(2), stopAfter(1), then(harp.OnFailed), queued(q, 1), func(b *store.BatchSubmission) { b.Batch.QueuePerHost = true })
		of := func(n int) harp.Value { return w.members(b)[n*b.StepCount()].Queue }
		w.onHosts(first, "h000", "h001")
		w.must(w.st.ChangeQueue(w.ctx(), of(0), harp.QueueChange{Paused: new(true)}, store.Operation{ID: w.id(), By: caller, Time: w.now}))
		w.failure(first[0])
		e := w.event(first[1], store.NotNow)
		e.Wake = w.now.Add(time.Minute)
		w.must(w.try(first[1], e).Err)
		w.pass(time.Minute)
		w.cancelQueue(of(0))
		w.stops(b, "h000")
	}},
	{"batch/stop/joined", "ends of one operation are all counted before a member starts by the slot that one of them has left", func(w *world) {
		for _, cancels := range []bool{false, true} {
			q := queue("q" + map[bool]string{true: "cancel"}[cancels])
			b, first := w.begun(hostsOf(4), stopAfter(1), plan(func(p *store.BatchPlan) { p.StopCancel = cancels }), queued(q, 2))
			w.onHosts(first, "h000", "h001")
			fails := w.event(first[1], store.Lose)
			fails.Reason = harp.LostForced
			out, err := w.st.Apply(w.ctx(),
				store.Transition{ID: first[0].ID, Event: w.event(first[0], store.End)},
				store.Transition{ID: first[1].ID, Event: fails})
			w.must(err)
			for _, c := range out {
				w.must(c.Err)
				w.onHosts(c.Claimed)
			}
			w.onHosts(w.advance().Claimed)
			w.checkBatch(b)
		}
	}},
	{"batch/stop/taken", "a failure is counted before a member is sent to an agent that has taken another call in the same operation", func(w *world) {
		w.gate("h001")
		other := w.submit(on("h001"))
		w.must(w.try(other, w.busy(other)).Err)
		b, first := w.begun(hostsOf(2), stopAfter(1))
		w.onHosts(first, "h000")
		w.pass(time.Second)
		probe := w.advance().Claimed
		w.ids(probe, other)
		fails := w.event(first[0], store.Lose)
		fails.Reason = harp.LostForced
		out, err := w.st.Apply(w.ctx(),
			store.Transition{ID: other.ID, Event: w.event(probe[0], store.Started)},
			store.Transition{ID: first[0].ID, Event: fails})
		w.must(err)
		for _, c := range out {
			w.must(c.Err)
			w.onHosts(c.Claimed)
		}
		w.is(b, harp.BatchPaused, harp.BatchReasonFailures, 2)
		w.checkBatch(b)
	}},
}

var reopeningStops = []rule{
	{"batch/reopen/stop/unpause", "failures that were due as nobody looked stop a batch before a member starts whose queue has gone on since", func(w *world) {
		b := w.waitsOut(queue("q"))
		left := w.now
		w.reopen()
		w.pass(time.Minute)
		w.st.SetGate("h000", store.Gate{Reason: harp.ReasonOffline, LastHeard: left})
		w.gate("h001")
		w.stops(b, "h000")
	}},
	{"batch/reopen/stop/window", "failures that were due as nobody looked stop a batch before a member starts whose window has ended since", func(w *world) {
		is := w.windowOf(0, time.Minute)
		w.setHolds("h001", is)
		b, first := w.begun(hostsOf(2), stopAfter(1))
		w.onHosts(first, "h000")
		w.isLost(first[0])
		left := w.now
		w.reopen()
		w.pass(time.Minute)
		w.st.SetHolds("h001", new(w.gateOf([]window.Window{is})))
		w.st.SetGate("h000", store.Gate{Reason: harp.ReasonOffline, LastHeard: left})
		w.gate("h001")
		w.stops(b, "h000")
	}},
}
