package storetest

import (
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
)

// retried lets members that fail, or are lost, be tried again after a second.
func retried(b *store.BatchSubmission) {
	b.Batch.Classes[0].Retry = harp.RetryPolicy{
		On: []harp.State{harp.StateFailed, harp.StateLost}, Attempts: 3, Backoff: time.Second, MaxBackoff: time.Second,
	}
}

// leaves has a host be away, heard just now.
func (w *world) leaves(host string) {
	w.st.SetGate(host, store.Gate{Reason: harp.ReasonOffline, LastHeard: w.now})
}

// cancelBatch cancels a batch and returns how many of its members had not ended.
func (w *world) cancelBatch(b *store.Batch, op store.Operation) int {
	w.Helper()
	done, err := w.st.ChangeBatch(w.ctx(), b.ID, store.BatchEvent{Kind: store.BatchCancel}, op)
	w.must(err)
	return done.Count
}

// pausing and cancelling batches, and what comes together with it.
var batchHalts = []rule{
	{"batch/unknown/change", "a change of a batch that nobody knows, or that was pruned, is an error of that request alone", func(w *world) {
		b, first := w.begun(hostsOf(1))
		w.apply(first[0], store.End)
		w.pass(time.Hour)
		w.prune(store.Retention{EndedBefore: w.now})
		for _, kind := range []store.BatchEventKind{store.BatchPaused, store.BatchResumed, store.BatchCancel} {
			for id, want := range map[string]error{w.id(): harp.ErrNotFound, b.ID: harp.ErrPruned} {
				_, err := w.st.ChangeBatch(w.ctx(), id, store.BatchEvent{Kind: kind}, store.Operation{ID: w.id(), By: caller, Time: w.now})
				w.wants(err, want)
				w.submit()
			}
		}
	}},
	{"batch/cancel/both", "members of a batch and a queue that are both cancelled end once", func(w *world) {
		for n, first := range []string{"queue", "batch"} {
			q := queue("q" + first)
			b, _ := w.begun(hostsOf(5), parallel(3), member(func(j *store.Job) { j.Queue, j.Concurrency = q, 1 }))
			if n == 0 {
				w.cancelQueue(q)
			}
			w.change(b, store.BatchCancel)
			if n == 1 {
				w.cancelQueue(q)
			}
			w.checkBatch(b)
			w.onHosts(w.advanceAll().Ended, "h001", "h002")
			w.checkBatch(b)
			w.apply(w.members(b)[0], store.End)
			w.is(b, harp.BatchCancelled, harp.BatchReasonRequested, 3)
			w.checkBatch(b)
		}
	}},
	{"batch/pause/away", "while a batch is paused no member expires for its host, whatever it came back to wait from, and all go on in their order", func(w *world) {
		hosts := hostsOf(6)
		b, first := w.begun(hosts, parallel(4), retried, member(func(j *store.Job) { j.OfflineWait = time.Minute }))
		w.failure(first[0])                           // waits for its next attempt,
		w.must(w.try(first[1], w.busy(first[1])).Err) // for its agent,
		w.silence(first[2].Host)
		lost := w.event(w.job(first[2].ID), store.Lose) // and for another attempt after it was given up;
		lost.Reason, lost.Jitter = harp.LostTooLong, 1
		w.must(w.try(first[2], lost).Err)
		w.change(b, store.BatchPaused)
		w.advance()
		w.failure(first[3]) // or for its next attempt since the batch was paused
		for _, h := range hosts {
			w.leaves(h)
		}
		for range 10 {
			w.pass(time.Minute)
			did := w.advance()
			w.onHosts(did.Ended)
			w.onHosts(did.Claimed)
		}
		w.gate(hosts...)
		w.onHosts(w.claim(10, hosts...))
		w.checkBatch(b)
		w.change(b, store.BatchResumed)
		w.onHosts(w.advance().Claimed, "h000", "h002", "h003") // which hold their slots
		w.onHosts(w.apply(w.members(b)[0], store.End).Claimed, "h001")
		w.checkBatch(b)
	}},
	{"batch/pause/slots", "a member that waits in its queue holds its slot after a pause, and when its host is back", func(w *world) {
		hosts := hostsOf(9)
		q := queue("q")
		b, first := w.begun(hosts, parallel(3), member(func(j *store.Job) { j.Queue, j.Concurrency = q, 1 }))
		w.onHosts(first, "h000")
		for range 2 {
			w.change(b, store.BatchPaused)
			w.advance()
			w.change(b, store.BatchResumed)
			w.onHosts(w.advance().Claimed)
			w.is(b, harp.BatchRunning, "", 3)
		}
		w.onHosts(w.apply(first[0], store.End).Claimed, "h001")
		w.is(b, harp.BatchRunning, "", 4)
		w.leaves("h003")
		w.advance()
		w.is(b, harp.BatchRunning, "", 5)
		w.onHosts(w.apply(w.members(b)[1], store.End).Claimed, "h002")
		w.is(b, harp.BatchRunning, "", 6)
		w.checkBatch(b)
	}},
	{"batch/cancel/count", "the cancel of a batch says how many members had not ended, however they waited, and says it again", func(w *world) {
		w.gate("h001")
		b := w.batch(hostsOf(5), parallel(2))
		w.apply(w.advance().Claimed[0], store.End)
		op := store.Operation{ID: w.id(), By: caller, Time: w.now}
		for range 2 {
			if n := w.cancelBatch(b, op); n != 4 {
				w.Fatalf("%d members had not ended, want 4", n)
			}
			w.advanceAll()
		}
		waiting := w.batch(hostsOf(3))
		if n := w.cancelBatch(waiting, store.Operation{Time: w.now}); n != 3 {
			w.Fatalf("of a batch that has not begun %d members had not ended, want 3", n)
		}
		w.checkBatch(waiting)
	}},
	{"batch/cancel/unreached", "a member whose host is not reached ends once: nothing that becomes of its batch later changes how", func(w *world) {
		for _, byFailure := range []bool{false, true} {
			b, first := w.begun(hostsOf(5), parallel(2), stopAfter(1), plan(func(p *store.BatchPlan) { p.StopCancel = true }))
			if byFailure {
				w.failure(first[1])
			} else {
				w.change(b, store.BatchCancel)
			}
			was := w.members(b)[4]
			same := func(when string) {
				if is := w.members(b)[4]; is.State != was.State || !is.EndTime.Equal(was.EndTime) || is.Cancel.By != was.Cancel.By || !is.Cancel.Time.Equal(was.Cancel.Time) {
					w.Fatalf("%s it is %+v, and was %+v", when, is.Life, was.Life)
				}
			}
			w.pass(time.Minute)
			w.cancelBatch(b, store.Operation{ID: w.id(), By: harp.Principal{Kind: "caller", Name: "another"}, Time: w.now})
			same("cancelled again")
			w.advanceAll()
			w.pass(time.Minute)
			for _, j := range w.members(b) {
				if store.HoldsSlot(j.State) {
					w.apply(j, store.End)
				}
			}
			if got := w.readBatch(b); !got.State.Ended() {
				w.Fatalf("the batch is %s", got.State)
			}
			same("at the end of its batch")
			w.checkBatch(b)
		}
	}},
	{"batch/count/early", "a member that is cancelled before its turn counts as that at once", func(w *world) {
		b, first := w.begun(hostsOf(4), parallel(1))
		third := w.members(b)[2]
		out, err := w.st.Apply(w.ctx(), store.Transition{ID: third.ID, Event: w.event(third, store.CancelReq)}, store.Transition{ID: third.ID, Event: w.event(third, store.CancelReq)})
		w.must(err)
		w.must(out[0].Err)
		w.wants(out[1].Err, store.ErrIllegal)
		if got := w.readBatch(b); got.Counts.Cancelled != 1 || got.Reached != 1 || got.Unreached() != 2 {
			w.Fatalf("it has reached %d and counts %+v", got.Reached, got.Counts)
		}
		w.checkBatch(b)
		w.apply(w.apply(first[0], store.End).Claimed[0], store.End)
		w.is(b, harp.BatchRunning, "", 4)
		w.checkBatch(b)
	}},
	{"batch/count/queue", "from the cancel of its queue on a member counts as that makes it", func(w *world) {
		q := queue("q")
		b, first := w.begun(hostsOf(6), parallel(4), member(func(j *store.Job) { j.Queue, j.Concurrency = q, 2 }))
		w.apply(first[0], store.Started)
		w.cancelQueue(q)
		if got := w.readBatch(b).Counts; got != (store.MemberCounts{Cancelling: 2, Cancelled: 2}) {
			w.Fatalf("it counts %+v", got)
		}
		w.checkBatch(b)
		w.cancelQueue(q)
		w.checkBatch(b)
		w.apply(w.job(first[0].ID), store.Started)
		w.checkBatch(b)
		w.apply(w.job(first[1].ID), store.End)
		w.checkBatch(b)
		w.advanceAll()
		w.is(b, harp.BatchRunning, "", 6)
		w.checkBatch(b)
	}},
	{"batch/count/queues", "of members in queues of their own only those count as cancelled whose queue is", func(w *world) {
		b, first := w.begun(hostsOf(3), parallel(3), func(b *store.BatchSubmission) {
			b.Batch.QueuePerHost, b.Batch.Member.Queue, b.Batch.Member.Concurrency = true, queue("q"), 1
		})
		for _, j := range first {
			w.apply(j, store.Started)
		}
		w.cancelQueue(first[0].Queue)
		w.checkBatch(b)
		w.apply(w.job(first[0].ID), store.CancelReq)
		w.checkBatch(b)
		w.apply(w.job(first[0].ID), store.End)
		w.checkBatch(b)
	}},
	{"batch/waves/pause", "a batch that is paused between two waves waits for the rest of the time between them when it goes on", func(w *world) {
		b, first := w.begun(hostsOf(2), waves(1, 2), plan(func(p *store.BatchPlan) { p.WavePause = time.Hour }))
		w.apply(first[0], store.End)
		w.pass(10 * time.Minute)
		w.change(b, store.BatchPaused)
		w.advance()
		w.pass(10 * time.Minute)
		w.change(b, store.BatchResumed)
		w.onHosts(w.advance().Claimed)
		w.due(w.now.Add(40 * time.Minute))
		w.pass(40 * time.Minute)
		w.onHosts(w.advance().Claimed, "h001")
	}},
}

var reopeningHalts = []rule{
	{"batch/reopen/away", "of a batch that is paused no member expires for its host when the store is opened again", func(w *world) {
		b := w.batch(hostsOf(2), member(func(j *store.Job) { j.OfflineWait = time.Minute }))
		w.advance()
		w.change(b, store.BatchPaused)
		w.reopen()
		for _, h := range hostsOf(2) {
			w.leaves(h)
		}
		w.pass(time.Hour)
		w.onHosts(w.advance().Ended)
		w.checkBatch(b)
	}},
	{"batch/reopen/turn", "a member waits for its absent host from the turn of that on, also where the store was opened again meanwhile", func(w *world) {
		hosts, left := hostsOf(2), w.now
		w.leaves(hosts[1])
		w.gate(hosts[0])
		b := w.batch(hosts, parallel(1), member(func(j *store.Job) { j.OfflineWait = time.Hour }))
		first := w.advance().Claimed
		w.onHosts(first, hosts[0])
		w.pass(2 * time.Hour)
		w.apply(first[0], store.End)
		turn := w.now
		w.pass(time.Minute)
		w.reopen()
		w.st.SetGate(hosts[1], store.Gate{Reason: harp.ReasonOffline, LastHeard: left})
		w.onHosts(w.advance().Ended)
		w.due(turn.Add(time.Hour))
		w.now = turn.Add(time.Hour)
		w.onHosts(w.advance().Ended, hosts[1])
		w.checkBatch(b)
	}},
	{"batch/reopen/resumed", "members wait for their absent hosts from when their batch went on, also where the store was opened again meanwhile", func(w *world) {
		hosts, left := hostsOf(1), w.now
		w.leaves(hosts[0])
		b := w.batch(hosts, member(func(j *store.Job) { j.OfflineWait = time.Hour }))
		w.advance()
		w.change(b, store.BatchPaused)
		w.pass(2 * time.Hour)
		w.change(b, store.BatchResumed)
		w.advance()
		resumed := w.now
		w.pass(time.Minute)
		w.reopen()
		w.st.SetGate(hosts[0], store.Gate{Reason: harp.ReasonOffline, LastHeard: left})
		w.onHosts(w.advance().Ended)
		w.due(resumed.Add(time.Hour))
		w.now = resumed.Add(time.Hour)
		w.onHosts(w.advance().Ended, hosts[0])
		w.checkBatch(b)
	}},
	{"batch/reopen/slots", "members that wait in their queue hold their slots when their hosts are back", func(w *world) {
		hosts, q := hostsOf(6), queue("q")
		b, _ := w.begun(hosts, parallel(3), member(func(j *store.Job) { j.Queue, j.Concurrency = q, 1 }))
		w.reopen()
		w.gate(hosts...)
		w.onHosts(w.advance().Claimed)
		w.is(b, harp.BatchRunning, "", 3)
		w.checkBatch(b)
	}},
	{"batch/reopen/stop", "failures that were due before the next host of their batch, as nobody looked, stop that when the store is opened again", func(w *world) {
		hosts := hostsOf(3)
		w.gate(hosts[1:]...)
		w.leaves(hosts[0])
		b := w.batch(hosts, stopAfter(1), plan(func(p *store.BatchPlan) { p.Rate, p.RatePer = 1, time.Minute }),
			member(func(j *store.Job) { j.OfflineWait = 30 * time.Second }))
		left := w.now
		w.onHosts(w.advance().Claimed)
		w.reopen()
		w.pass(time.Minute)
		w.st.SetGate(hosts[0], store.Gate{Reason: harp.ReasonOffline, LastHeard: left})
		w.gate(hosts[1:]...)
		w.stopsAs(b, hosts[0])
	}},
	{"batch/reopen/queue", "what is cancelled with its queue counts as that when the store is opened again", func(w *world) {
		q := queue("q")
		b, first := w.begun(hostsOf(6), parallel(4), member(func(j *store.Job) { j.Queue, j.Concurrency = q, 2 }))
		w.apply(first[0], store.Started)
		w.apply(w.members(b)[5], store.CancelReq)
		w.cancelQueue(q)
		w.checkBatch(b)
		w.reopen()
		w.checkBatch(b)
		w.advanceAll()
		w.checkBatch(b)
		w.reopen()
		w.gate(hostsOf(6)...)
		for _, j := range slices.Clone(first) {
			e := w.event(w.job(j.ID), store.End)
			e.Failure = failures.New("remote", "no")
			w.must(w.try(j, e).Err)
			w.checkBatch(b)
		}
	}},
}
