package storetest

import (
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// batchChanges are about what is asked of a batch after it was stored.
var batchChanges = []rule{
	{"batch/pause", "of a batch that is paused nothing is started, retries included, and what runs goes on", func(w *world) {
		hosts := hostsOf(4)
		w.gate(hosts[:3]...)
		b := w.batch(hosts, parallel(3), func(b *store.BatchSubmission) {
			b.Batch.Classes[0].Retry = harp.RetryPolicy{On: []harp.State{harp.StateFailed}, Attempts: 3, Backoff: time.Second, MaxBackoff: time.Second}
		})
		first := w.advance().Claimed
		w.change(b, store.BatchPaused)
		w.advance()
		got := w.is(b, harp.BatchPaused, harp.BatchReasonOperator, 3)
		if p := got.Pause; p == nil || p.By != caller || p.Reason != "words" || !p.Until.Equal(w.now.Add(24*time.Hour)) {
			w.Fatalf("the pause is %+v", p)
		}
		w.failure(first[0])
		w.onHosts(w.apply(first[1], store.End).Claimed)
		w.pass(time.Hour)
		w.onHosts(w.advance().Claimed)
		w.gate("h003")
		w.onHosts(w.claim(10, hosts...))
		w.checkBatch(b)
		w.change(b, store.BatchPaused) // it is already
		w.change(b, store.BatchResumed)
		w.onHosts(w.advance().Claimed, "h000", "h003")
		w.checkBatch(b)
	}},
	{"batch/retry", "a member keeps its slot between its attempts", func(w *world) {
		b, first := w.begun(hostsOf(2), parallel(1), func(b *store.BatchSubmission) {
			b.Batch.Classes[0].Retry = harp.RetryPolicy{On: []harp.State{harp.StateFailed}, Attempts: 2, Backoff: time.Second, MaxBackoff: time.Second}
		})
		w.onHosts(w.failure(first[0]).Claimed)
		w.pass(time.Minute)
		again := w.advance().Claimed
		w.onHosts(again, "h000")
		w.onHosts(w.failure(again[0]).Claimed, "h001")
		w.checkBatch(b)
	}},
	{"batch/cancel", "from the cancel of a batch on nothing is started; what waits ends as cancelled(batch), and what runs is asked to stop", func(w *world) {
		hosts := hostsOf(5)
		w.gate(hosts[:2]...)
		b := w.batch(hosts, parallel(2))
		first := w.advance().Claimed
		w.gate("h002")
		w.apply(first[1], store.End)
		w.change(b, store.BatchCancel)
		w.onHosts(w.claim(10, hosts...))
		w.checkBatch(b)
		did := w.advanceAll()
		w.onHosts(did.Claimed)
		w.onHosts(did.Asked, "h000", "h002")
		w.is(b, harp.BatchCancelling, harp.BatchReasonRequested, 3)
		w.checkBatch(b)
		for _, j := range w.members(b)[3:] {
			if j = w.state(j, harp.StateCancelled); j.Reason != harp.ReasonBatch || j.Started != harp.DidNotRun || j.Cancel.By != caller {
				w.Fatalf("a member that waited is %+v", j.Life)
			}
		}
		for _, n := range []int{0, 2} {
			w.apply(w.members(b)[n], store.End)
		}
		got := w.is(b, harp.BatchCancelled, harp.BatchReasonRequested, 3)
		if got.Cancel == nil || got.Cancel.By != caller {
			w.Fatalf("the cancel is %+v", got.Cancel)
		}
		w.checkBatch(b)
		w.due(time.Time{})
		_, err := w.st.ChangeBatch(w.ctx(), b.ID, store.BatchEvent{Kind: store.BatchCancel}, store.Operation{ID: w.id(), By: caller, Time: w.now})
		w.wants(err, store.ErrIllegal)
	}},
	{"batch/cancel/busy", "a member of a cancelled batch never goes back to wait", func(w *world) {
		b, first := w.begun(hostsOf(2), parallel(2))
		w.change(b, store.BatchCancel)
		e := w.event(first[0], store.NotNow)
		e.Wake = w.now.Add(time.Second)
		w.must(w.try(first[0], e).Err)
		w.onHosts(w.advance().Claimed)
		w.state(first[0], harp.StateCancelled)
		w.checkBatch(b)
	}},
	{"batch/cancel/again", "a change of a batch that is asked for again under its id is made once", func(w *world) {
		b, _ := w.begun(hostsOf(2), parallel(1))
		op := store.Operation{ID: w.id(), By: caller, Time: w.now}
		pause := store.BatchEvent{Kind: store.BatchPaused}
		_, err := w.st.ChangeBatch(w.ctx(), b.ID, pause, op)
		w.must(err)
		w.change(b, store.BatchResumed)
		got, err := w.st.ChangeBatch(w.ctx(), b.ID, pause, op)
		w.must(err)
		if got.Batch.State != harp.BatchRunning {
			w.Fatalf("a pause that was asked for again makes it %s", got.Batch.State)
		}
		_, err = w.st.ChangeBatch(w.ctx(), b.ID, store.BatchEvent{Kind: store.BatchCancel}, op)
		w.wants(err, harp.ErrConflict)
		_, err = w.st.ChangeBatch(w.ctx(), w.id(), pause, store.Operation{ID: w.id(), By: caller, Time: w.now})
		w.wants(err, harp.ErrNotFound)
	}},
	{"batch/ended/change", "a batch that has ended is not changed any more, and the store goes on", func(w *world) {
		b, first := w.begun(hostsOf(1))
		w.apply(first[0], store.End)
		for _, kind := range []store.BatchEventKind{store.BatchPaused, store.BatchResumed, store.BatchCancel} {
			op := store.Operation{ID: w.id(), By: caller, Time: w.now}
			for range 2 {
				_, err := w.st.ChangeBatch(w.ctx(), b.ID, store.BatchEvent{Kind: kind}, op)
				w.wants(err, store.ErrIllegal)
			}
		}
		if got := w.readBatch(b); got.State != harp.BatchSucceeded {
			w.Fatalf("the batch is %s", got.State)
		}
		w.submit()
	}},
	{"batch/member/cancel", "a member can be cancelled by itself, and its slot goes to the next", func(w *world) {
		hosts := hostsOf(3)
		w.gate(hosts[1:]...)
		b := w.batch(hosts, parallel(1))
		w.onHosts(w.advance().Claimed, "h001")
		w.apply(w.members(b)[0], store.CancelReq)
		w.state(w.members(b)[0], harp.StateCancelled)
		w.apply(w.members(b)[1], store.CancelReq)
		w.onHosts(w.apply(w.state(w.members(b)[1], harp.StateCancelling), store.End).Claimed, "h002")
		w.checkBatch(b)
	}},
	{"batch/queue", "a member that waits in its queue holds its slot, and a cancel of the queue is about those that are in it", func(w *world) {
		q := queue("q")
		b, first := w.begun(hostsOf(5), parallel(3), member(func(j *store.Job) { j.Queue, j.Concurrency = q, 1 }))
		w.onHosts(first, "h000")
		w.is(b, harp.BatchRunning, "", 3)
		w.cancelQueue(q)
		did := w.advanceAll()
		w.onHosts(did.Ended, "h001", "h002")
		w.is(b, harp.BatchRunning, "", 5)
		w.apply(w.state(first[0], harp.StateCancelling), store.CancelReq)
		w.onHosts(w.apply(w.job(first[0].ID), store.End).Claimed, "h003")
		w.checkBatch(b)
	}},
	{"batch/queue/host", "with a queue per host each has the host in its name", func(w *world) {
		_, first := w.begun(hostsOf(2), func(b *store.BatchSubmission) {
			b.Batch.QueuePerHost = true
			b.Batch.Member.Queue, b.Batch.Member.Concurrency = queue("q"), 1
		})
		w.onHosts(first, "h000", "h001")
		if string(first[0].Queue) == string(first[1].Queue) {
			w.Fatalf("both are in queue %s", first[0].Queue)
		}
	}},
}
