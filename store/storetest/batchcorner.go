package storetest

import (
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// busy is the word of a member's agent that it takes no call now.
func (w *world) busy(j *store.Job) store.Event {
	e := w.event(j, store.NotNow)
	e.Wake = w.now.Add(time.Second)
	return e
}

// stopsAs checks that an advance stops a batch of which one host was reached, as its member there expires.
func (w *world) stopsAs(b *store.Batch, host string) {
	w.Helper()
	did := w.advance()
	w.onHosts(did.Ended, host)
	w.onHosts(did.Claimed)
	w.onHosts(w.advance().Claimed)
	w.is(b, harp.BatchPaused, harp.BatchReasonFailures, 1)
	w.checkBatch(b)
}

var batchCorners = []rule{
	{"batch/stop/queue", "the failure that stops a batch starts none of its members that wait in their queue", func(w *world) {
		for _, cancels := range []bool{false, true} {
			q := queue("q" + map[bool]string{true: "cancel"}[cancels])
			b, first := w.begun(hostsOf(4), parallel(3), stopAfter(1), plan(func(p *store.BatchPlan) { p.StopCancel = cancels }),
				member(func(j *store.Job) { j.Queue, j.Concurrency = q, 1 }))
			w.onHosts(first, "h000")
			w.onHosts(w.failure(first[0]).Claimed)
			w.onHosts(w.advance().Claimed)
			w.onHosts(w.claim(10, hostsOf(4)...))
			w.checkBatch(b)
		}
	}},
	{"batch/stop/due", "failures that are due together with the next host of their batch stop that first", func(w *world) {
		hosts := hostsOf(3)
		w.gate(hosts[1:]...)
		w.leaves(hosts[0])
		b := w.batch(hosts, stopAfter(1), plan(func(p *store.BatchPlan) { p.Rate, p.RatePer = 1, time.Minute }),
			member(func(j *store.Job) { j.OfflineWait = time.Minute }))
		w.onHosts(w.advance().Claimed)
		w.pass(time.Minute)
		w.stopsAs(b, hosts[0])
	}},
	{"batch/claimed", "what is started by the end of a member is told, also where another event of the same operation cannot be", func(w *world) {
		_, first := w.begun(hostsOf(3), parallel(1))
		stale := w.event(first[0], store.End)
		stale.Fence--
		out, err := w.st.Apply(w.ctx(),
			store.Transition{ID: first[0].ID, Event: w.event(first[0], store.End)},
			store.Transition{ID: first[0].ID, Event: stale})
		w.must(err)
		w.wants(out[1].Err, store.ErrFenced)
		w.onHosts(out[0].Claimed, "h001")
		w.onHosts(out[1].Claimed)
	}},
	{"batch/host/removed", "a batch whose last member ends as its host is removed has ended, and a host that is removed before its turn is not waited for", func(w *world) {
		w.connect("h")
		b := w.batch([]string{"h"})
		w.advance()
		w.removeHost(store.Operation{ID: w.id()})
		w.advance()
		w.is(b, harp.BatchFailed, "", 1)
		w.checkBatch(b)

		w.connect("h")
		w.gate("other")
		b = w.batch([]string{"other", "h"}, parallel(1))
		first := w.advance().Claimed
		w.removeHost(store.Operation{ID: w.id()})
		w.apply(first[0], store.End)
		w.is(b, harp.BatchFailed, "", 2)
		if j := w.state(w.members(b)[1], harp.StateCancelled); j.Reason != harp.LostHostRemoved || j.Started != harp.DidNotRun {
			w.Fatalf("the member on the host that was removed is %+v", j.Life)
		}
		w.checkBatch(b)
	}},
	{"batch/host/known", "a batch that is submitted after a host was removed, which is known again, waits for it as for any other", func(w *world) {
		w.connect("h")
		w.removeHost(store.Operation{ID: w.id()})
		b := w.batch([]string{"h"})
		skips := w.batch([]string{"h"}, func(b *store.BatchSubmission) { b.Batch.SkipAway = true })
		w.onHosts(w.advance().Claimed)
		w.waits(w.members(b)[0], harp.ReasonOffline)
		w.is(skips, harp.BatchFailed, harp.BatchReasonNoHost, 1)
		w.checkBatch(b)
		w.connect("h")
		w.gate("h")
		w.onHosts(w.claim(10, "h"), "h")
	}},
	{"batch/host/again", "a host that was known again, and is removed once more before it came back, is not waited for either", func(w *world) {
		w.connect("h")
		w.removeHost(store.Operation{ID: w.id()})
		w.gate("other")
		waits, b := w.batch([]string{"h"}), w.batch([]string{"other", "h"}, parallel(1))
		first := w.advance().Claimed
		w.onHosts(first, "other")
		w.removeHost(store.Operation{ID: w.id()})
		w.apply(first[0], store.End)
		w.advance()
		for _, j := range []*store.Job{w.members(waits)[0], w.members(b)[1]} {
			if j = w.state(j, harp.StateCancelled); j.Reason != harp.LostHostRemoved || j.Started != harp.DidNotRun {
				w.Fatalf("the member on the host that was removed is %+v", j.Life)
			}
		}
	}},
	{"batch/later/clock", "StartAfter is a time by the clock, however that is set", func(w *world) {
		hosts := hostsOf(1)
		w.gate(hosts...)
		at := w.now.Add(48 * time.Hour)
		w.batch(hosts, plan(func(p *store.BatchPlan) { p.StartAfter = at }))
		w.onHosts(w.advance().Claimed)
		w.setClock(24 * time.Hour)
		w.due(at)
		w.setClock(-48 * time.Hour)
		w.now = at.Add(-time.Second)
		w.onHosts(w.advance().Claimed)
		w.due(at)
		w.now = at
		w.onHosts(w.advance().Claimed, "h000")
	}},
	{"batch/forgotten", "the id of a batch that was pruned is never taken for a new one, also where it was forgotten and the clock was set back", func(w *world) {
		w.gate("h000")
		in := w.batchOf(hostsOf(1))
		submit := func() (store.BatchSubmitted, error) { return w.st.SubmitBatch(w.ctx(), in, w.now) }
		_, err := submit()
		w.must(err)
		w.apply(w.advance().Claimed[0], store.End)
		w.prune(store.Retention{EndedBefore: w.now.Add(time.Second)})
		_, err = submit()
		w.wants(err, harp.ErrPruned)
		w.pass(store.TombstoneTime + time.Hour)
		w.prune(store.Retention{})
		_, err = w.st.Batch(w.ctx(), in.Batch.ID)
		w.wants(err, harp.ErrNotFound)
		w.setClock(-store.TombstoneTime)
		_, err = submit()
		w.wants(err, harp.ErrPruned)
		w.onHosts(w.advance().Claimed)
	}},
	{"batch/turn/clock", "a member waits for its absent host from the turn of that on, also where the clock was set back since its batch was submitted", func(w *world) {
		w.gate("h000")
		w.leaves("h001")
		b := w.batch(hostsOf(2), parallel(1), member(func(j *store.Job) { j.OfflineWait = time.Minute }))
		first := w.advance().Claimed
		w.setClock(-24 * time.Hour)
		w.apply(first[0], store.End)
		w.due(w.now.Add(time.Minute))
		w.pass(time.Minute)
		w.onHosts(w.advance().Ended, "h001")
		w.checkBatch(b)
	}},
	{"batch/later/passed", "a batch begins at once when the clock is set behind its StartAfter", func(w *world) {
		w.gate("h000")
		w.batch(hostsOf(1), plan(func(p *store.BatchPlan) { p.StartAfter = w.now.Add(24 * time.Hour) }))
		w.onHosts(w.advance().Claimed)
		w.setClock(48 * time.Hour)
		w.onHosts(w.advance().Claimed, "h000")
	}},
	{"batch/left", "a member that is left out at the turn of its host is told of by whatever that turn came by", func(w *world) {
		w.connect("h")
		w.gate("h000", "h")
		b := w.batch([]string{"unfit1", "h000", "unfit2", "h", "unfit3"}, parallel(1), func(b *store.BatchSubmission) {
			for _, n := range []int{0, 2, 4} {
				b.Hosts[n].Unfit = harp.ReasonUnfit
			}
		})
		did := w.advance()
		w.ids(did.Ended, w.members(b)[0])
		c := w.apply(did.Claimed[0], store.End)
		w.ids(c.Left, w.members(b)[2])
		w.onHosts(c.Claimed, "h")
		removed := w.removeHost(store.Operation{})
		w.ids(removed.Left, w.members(b)[4])
		if w.ids(removed.Ended, w.members(b)[3]); removed.Count != 1 {
			w.Fatalf("%d jobs ended with the host that was removed", removed.Count)
		}
		w.checkBatch(b)
	}},
	{"batch/slot/returning", "a member that has left its slot to another, as its host was away, waits for one when what was lost of it has ended after all", func(w *world) {
		b, first := w.begun(hostsOf(2), parallel(1), func(b *store.BatchSubmission) {
			b.Batch.Classes[0].Retry = harp.RetryPolicy{On: []harp.State{harp.StateLost, harp.StateFailed}, Attempts: 3, Backoff: time.Second, MaxBackoff: time.Second}
			b.Batch.Member.OfflineWait = harp.NoLimit
		})
		w.st.SetGate("h000", store.Gate{Reason: harp.ReasonOffline, LastHeard: w.now})
		w.silence("h000")
		lost := w.event(first[0], store.Lose)
		lost.Reason, lost.Jitter = harp.LostTooLong, 1
		w.must(w.try(first[0], lost).Err)
		w.pass(time.Minute)
		second := w.advance().Claimed
		w.onHosts(second, "h001")
		w.apply(w.job(first[0].ID), store.Alive)
		w.gate("h000")
		w.failure(w.job(first[0].ID))
		w.pass(time.Minute)
		w.onHosts(w.advance().Claimed)
		w.onHosts(w.apply(second[0], store.End).Claimed, "h000")
		w.checkBatch(b)
	}},
	{"batch/busy/slot", "a member whose agent takes no call of its procedure holds no slot, also where others were told so", func(w *world) {
		w.gate("h000", "h001")
		before := w.submit(on("h000"))
		w.must(w.try(before, w.busy(before)).Err)
		b := w.batch(hostsOf(2), parallel(1))
		w.onHosts(w.advance().Claimed, "h001")
		w.waits(w.members(b)[0], harp.ReasonAgentBusy)
		w.checkBatch(b)
	}},
	{"batch/full/slot", "a member whose host has as many attempts as it may holds no slot: the next host is reached", func(w *world) {
		w.st.SetGate("h000", store.Gate{Open: true, Most: 1})
		w.gate("h001")
		before := w.submit(on("h000"))
		b := w.batch(hostsOf(2), parallel(1))
		second := w.advance().Claimed
		w.onHosts(second, "h001")
		w.waits(w.members(b)[0], harp.ReasonAgentBusy)
		w.onHosts(w.apply(before, store.End).Claimed)
		w.onHosts(w.apply(second[0], store.End).Claimed, "h000")
		w.checkBatch(b)
	}},
	{"batch/full/queue", "a member that waited in its queue, and whose host is full when its turn comes there, holds no slot: the next host is reached", func(w *world) {
		q := queue("q")
		w.st.SetGate("h000", store.Gate{Open: true, Most: 1})
		w.gate("h001", "h009")
		before := w.submit(on("h009"), func(s *store.Submission) { s.Job.Queue, s.Job.Concurrency = q, 1 })
		b := w.batch(hostsOf(2), parallel(1), queued(q, 1))
		w.advance()
		w.submit(on("h000")) // it is full now
		claimed := w.apply(before, store.End).Claimed
		claimed = append(claimed, w.advance().Claimed...)
		w.onHosts(claimed, "h001")
		w.checkBatch(b)
	}},
	{"batch/full/resumed", "a member whose host is full as its batch is resumed holds no slot, also where others wait there before it", func(w *world) {
		w.st.SetGate("h000", store.Gate{Open: true, Most: 1})
		w.gate("h001", "h002")
		w.submit(on("h000"))
		w.submit(on("h000"))
		b := w.batch(hostsOf(3), parallel(1))
		second := w.advance().Claimed
		w.onHosts(second, "h001")
		w.change(b, store.BatchPaused)
		w.onHosts(w.apply(second[0], store.End).Claimed)
		w.change(b, store.BatchResumed)
		w.onHosts(w.advance().Claimed, "h002")
		w.checkBatch(b)
	}},
	{"batch/full/back", "of the members that waited for a host that has come back those hold a slot for which it has room", func(w *world) {
		w.gate("h001")
		slow := plan(func(p *store.BatchPlan) { p.Rate, p.RatePer = 1, time.Minute })
		first, second := w.batch(hostsOf(2), parallel(1), slow), w.batch(hostsOf(2), parallel(1), slow)
		w.onHosts(w.advance().Claimed)
		w.st.SetGate("h000", store.Gate{Open: true, Most: 1})
		w.ids(w.claim(10, "h000"), w.members(first)[0])
		w.pass(time.Minute)
		w.ids(w.advance().Claimed, w.members(second)[1])
		w.checkBatch(first)
		w.checkBatch(second)
	}},
	{"batch/busy/behind", "a member that was parked does not keep others of its procedure waiting for their agent", func(w *world) {
		w.gate("h000")
		before := w.submit(on("h000"))
		w.must(w.try(before, w.busy(before)).Err)
		b := w.batch([]string{"h000"}, member(func(j *store.Job) { j.Priority = 1 }))
		w.advance()
		w.change(b, store.BatchPaused)
		w.pass(2 * time.Second)
		w.ids(w.advance().Claimed, before)
	}},
	{"batch/notbefore", "a member that may not start yet holds no slot", func(w *world) {
		q := queue("q")
		b, first := w.begun(hostsOf(3), parallel(2), member(func(j *store.Job) { j.NotBefore, j.Queue, j.Concurrency = w.now.Add(time.Hour), q, 9 }))
		w.onHosts(first)
		w.is(b, harp.BatchRunning, "", 3)
		w.pass(time.Hour)
		w.onHosts(w.advance().Claimed, "h000", "h001")
		w.checkBatch(b)
	}},
	{"batch/cancel/retry", "from the cancel of a batch on no member of it goes back to wait: none is tried again, and what its agent did not take is cancelled", func(w *world) {
		b, first := w.begun(hostsOf(4), parallel(3), func(b *store.BatchSubmission) {
			b.Batch.Classes[0].Retry = harp.RetryPolicy{On: []harp.State{harp.StateFailed}, Attempts: 3, Backoff: time.Second, MaxBackoff: time.Second}
		})
		w.change(b, store.BatchCancel)
		failed := w.failure(first[0])
		if failed.Job.State != harp.StateFailed || !failed.Effect.Ends {
			w.Fatalf("a member that fails is %s(%s)", failed.Job.State, failed.Job.Reason)
		}
		busy := w.try(first[1], w.busy(first[1]))
		w.must(busy.Err)
		if busy.Job.State != harp.StateCancelled || busy.Job.Started != harp.DidNotRun {
			w.Fatalf("a member that was not taken is %s(%s)", busy.Job.State, busy.Job.Reason)
		}
		w.checkBatch(b)
		w.onHosts(w.advanceAll().Asked, "h002")
		w.apply(w.state(first[2], harp.StateCancelling), store.End)
		w.checkBatch(b)
	}},
	{"batch/cancel/shown", "from the cancel of a batch on its members are shown as it makes them, and counted so", func(w *world) {
		hosts := hostsOf(3)
		w.gate("h000")
		b := w.batch(hosts)
		first := w.advance().Claimed
		w.change(b, store.BatchCancel)
		w.state(first[0], harp.StateCancelling)
		for _, j := range w.members(b)[1:] {
			if j = w.state(j, harp.StateCancelled); j.Reason != harp.ReasonBatch || j.Started != harp.DidNotRun {
				w.Fatalf("a member that waited is %+v", j.Life)
			}
		}
		got := w.readBatch(b)
		if want := (store.MemberCounts{Cancelling: 1, Cancelled: 2}); got.Counts != want {
			w.Fatalf("counted are %+v, want %+v", got.Counts, want)
		}
		w.onHosts(w.advanceAll().Asked, "h000")
		w.checkBatch(b)
	}},
	{"batch/cancel/silent", "a cancel of a batch comes to members whose hosts are silent, and to those whose time runs out meanwhile", func(w *world) {
		b, first := w.begun(hostsOf(3), parallel(3), member(func(j *store.Job) { j.Expires = w.now.Add(time.Minute) }))
		w.silence("h000")
		w.must(w.try(first[1], w.busy(first[1])).Err)
		w.change(b, store.BatchCancel)
		w.pass(2 * time.Minute)
		w.onHosts(w.advanceAll().Asked, "h002")
		w.state(first[1], harp.StateCancelled)
		if j := w.state(first[0], harp.StateUnknown); j.Cancel == nil {
			w.Fatal("the cancel did not come to a member whose host is silent")
		}
		w.must(w.try(w.job(first[0].ID), w.event(first[0], store.Lose)).Err)
		w.apply(w.job(first[2].ID), store.End)
		w.is(b, harp.BatchCancelled, harp.BatchReasonRequested, 3)
		w.checkBatch(b)
	}},
	{"batch/member/cancel/early", "a member whose host is not reached can be cancelled, and its host is passed over", func(w *world) {
		hosts := hostsOf(4)
		b, first := w.begun(hosts, parallel(1))
		third := w.members(b)[2]
		c := w.try(third, w.event(third, store.CancelReq))
		w.must(c.Err)
		if !c.Effect.Ends || c.Job.State != harp.StateCancelled || c.Job.Started != harp.DidNotRun {
			w.Fatalf("it is %s, ran %s", c.Job.State, c.Job.Started)
		}
		w.state(third, harp.StateCancelled)
		w.wants(w.try(third, w.event(third, store.CancelReq)).Err, store.ErrIllegal)
		second := w.apply(first[0], store.End).Claimed
		w.onHosts(second, "h001")
		w.onHosts(w.apply(second[0], store.End).Claimed, "h003")
		w.is(b, harp.BatchRunning, "", 4)
		w.checkBatch(b)
		w.apply(w.members(b)[3], store.End)
		w.is(b, harp.BatchFailed, "", 4)
		w.checkBatch(b)
		unknown := harp.MemberID(b.ID, "none of it", 1)
		w.wants(w.try(&store.Job{ID: unknown}, store.Event{Kind: store.CancelReq, At: w.now}).Err, harp.ErrNotFound)
	}},
	{"batch/member/cancel/over", "a member that was cancelled before its turn ends once, also where its turn never comes", func(w *world) {
		b, first := w.begun(hostsOf(3), parallel(1))
		w.apply(w.members(b)[2], store.CancelReq)
		w.change(b, store.BatchCancel)
		w.advanceAll()
		w.apply(w.job(first[0].ID), store.End)
		w.is(b, harp.BatchCancelled, harp.BatchReasonRequested, 1)
		w.checkBatch(b)
		w.wants(w.try(w.members(b)[1], store.Event{Kind: store.CancelReq, At: w.now}).Err, store.ErrIllegal)
	}},
	{"batch/member/cancel/cancelling", "a member whose host is not reached any more, as its batch is being cancelled, has ended: a cancel of it is an error of that request alone", func(w *world) {
		b, _ := w.begun(hostsOf(3), parallel(1))
		w.change(b, store.BatchCancel)
		w.wants(w.try(w.members(b)[2], store.Event{Kind: store.CancelReq, At: w.now}).Err, store.ErrIllegal)
		w.checkBatch(b)
		w.submit()
	}},
	{"batch/request", "the request of a member is that of its batch, also before its host is reached", func(w *world) {
		b := w.batch(hostsOf(2))
		in, err := w.st.Request(w.ctx(), w.members(b)[1].ID)
		w.must(err)
		if string(in.Request) != "request of all" {
			w.Fatalf("a member's request is %q", in.Request)
		}
		_, err = w.st.Request(w.ctx(), harp.MemberID(b.ID, "none of it", 1))
		w.wants(err, harp.ErrNotFound)
	}},
	{"batch/bounds", "a batch has at most 100,000 hosts, and what it says beside them is bounded as they are", func(w *world) {
		many := make([]string, 100_001)
		for n := range many {
			many[n] = string(rune('a'+n%26)) + string(rune('a'+n/26%26)) + string(rune('a'+n/676%26)) + string(rune('a'+n/17576%26))
		}
		everyOne := make([]int, 100_000)
		for n := range everyOne {
			everyOne[n] = n + 1
		}
		reasons := func(b *store.BatchSubmission) {
			for n := range b.Hosts {
				b.Hosts[n].Unfit = "not this one: " + b.Hosts[n].Name
			}
		}
		for name, in := range map[string]store.BatchSubmission{
			"too many hosts":        w.batchOf(many),
			"a member with labels":  w.batchOf(hostsOf(1), member(func(j *store.Job) { j.Labels = map[string]string{"k": string(make([]byte, 1<<20))} })),
			"waves and long names":  w.batchOf(many[:100_000], waves(everyOne...), func(b *store.BatchSubmission) { b.Request.Request = make([]byte, 1900<<10) }),
			"a reason for each one": w.batchOf(hostsOf(100), reasons),
		} {
			_, err := w.st.SubmitBatch(w.ctx(), in, w.now)
			w.wants(err, harp.ErrInvalid)
			_, err = w.st.Batch(w.ctx(), in.Batch.ID)
			if err == nil {
				w.Fatalf("%s is stored", name)
			}
		}
		b := w.batch(hostsOf(1))
		_, err := w.st.ChangeBatch(w.ctx(), b.ID, store.BatchEvent{Kind: store.BatchPaused, Reason: string(make([]byte, 1<<20))}, store.Operation{By: caller, Time: w.now})
		w.wants(err, harp.ErrInvalid)
	}},
	{"batch/quota", "a batch is refused by which more jobs of its principal would wait, or it would have more queues, than may", func(w *world) {
		submit := func(hosts int, most store.Quota, shapes ...shape) error {
			in := w.batchOf(hostsOf(hosts), shapes...)
			in.Most = most
			_, err := w.st.SubmitBatch(w.ctx(), in, w.now)
			return err
		}
		q := member(func(j *store.Job) { j.Queue, j.Concurrency = queue("q"), 1 })
		perHost := func(b *store.BatchSubmission) { q(b); b.Batch.QueuePerHost = true }
		w.wants(submit(3, store.Quota{Waiting: 2}), harp.ErrRefused)
		w.must(submit(3, store.Quota{Waiting: 3}))
		w.wants(submit(1, store.Quota{Waiting: 3}), harp.ErrRefused) // though no host of the first is reached
		w.wants(submit(3, store.Quota{Queues: 2}, perHost), harp.ErrRefused)
		w.must(submit(3, store.Quota{Queues: 1}, q))
		w.must(submit(3, store.Quota{Queues: 3}, perHost))
	}},
	{"batch/prune/bytes", "of jobs and batches those go first that ended first, where more is stored than may be", func(w *world) {
		w.gate("h000", "h")
		end := func(j *store.Job) {
			e := w.event(j, store.End)
			e.Value = make(harp.Value, 10_000)
			w.must(w.try(j, e).Err)
			w.pass(time.Minute)
		}
		old := w.submit()
		end(old)
		b := w.batch([]string{"h000"})
		end(w.advance().Claimed[0])
		young := w.submit()
		end(young)
		_, err := w.st.Prune(w.ctx(), store.Retention{MaxBytes: 15_000}, w.now)
		w.must(err)
		w.prune(store.Retention{MaxBytes: 15_000})
		_, err = w.st.Job(w.ctx(), old.ID)
		w.wants(err, harp.ErrPruned)
		_, err = w.st.Batch(w.ctx(), b.ID)
		w.wants(err, harp.ErrPruned)
		w.state(young, harp.StateSucceeded)
	}},
	{"batch/pause/clock", "a pause ends when it says, also when the clock is set", func(w *world) {
		b := w.batch(hostsOf(1))
		w.change(b, store.BatchPaused)
		w.advance()
		w.setClock(time.Hour)
		w.due(w.now.Add(24 * time.Hour))
		if until := w.readBatch(b).Pause.Until; !until.Equal(w.now.Add(24 * time.Hour)) {
			w.Fatalf("it ends at %v, and says %v", w.now.Add(24*time.Hour), until)
		}
	}},
	{"batch/steps", "one operation reaches at most 500 hosts of a batch, or lets so many go on", func(w *world) {
		b := w.batch(hostsOf(1600), parallel(1600))
		for want := 500; want <= 1500; want += 500 {
			did, err := w.st.Advance(w.ctx(), w.now)
			w.must(err)
			if !did.More {
				w.Fatal("nothing more is due")
			}
			w.is(b, harp.BatchRunning, "", want)
		}
		w.advance()
		w.is(b, harp.BatchRunning, "", 1600)
		w.change(b, store.BatchPaused)
		w.gate(hostsOf(1600)...)
		w.advance()
		w.change(b, store.BatchResumed)
		did, err := w.st.Advance(w.ctx(), w.now)
		w.must(err)
		if len(did.Claimed) > 500 || !did.More {
			w.Fatalf("%d are started at once, more are due: %v", len(did.Claimed), did.More)
		}
		did = w.advance()
		if got := w.readBatch(b).Counts.Sent; got != 1600 {
			w.Fatalf("started are %d, %d of them last", got, len(did.Claimed))
		}
		skipping := w.batch(hostsOf(1600), parallel(1), waves(600, 1600), func(b *store.BatchSubmission) {
			for n := range b.Hosts {
				b.Hosts[n].Unfit = harp.ReasonUnfit
			}
		})
		w.advance()
		w.is(skipping, harp.BatchFailed, harp.BatchReasonNoHost, 1600)
	}},
}
