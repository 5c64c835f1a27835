package storetest

import (
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
)

var batching = []rule{
	{"batch/submit", "a batch is stored whole, and its members are jobs that wait for their turn until an advance reaches their hosts", func(w *world) {
		b := w.batch(hostsOf(3), member(func(j *store.Job) { j.Labels = map[string]string{"k": "v"} }))
		w.due(w.now)
		w.checkBatch(b)
		for _, j := range w.members(b) {
			w.waits(j, harp.ReasonBatch)
			if j.Procedure != "p" || j.SilenceTimeout != time.Minute || j.Principal != caller || j.Labels["k"] != "v" {
				w.Fatalf("a member is %+v", j)
			}
		}
		w.gate("h001")
		w.onHosts(w.advance().Claimed, "h001")
		w.checkBatch(b)
		j := w.members(b)[1]
		in, err := w.st.Request(w.ctx(), j.ID)
		w.must(err)
		if string(in.Request) != "request of all" {
			w.Fatalf("a member's request is %q", in.Request)
		}
		page, err := w.st.List(w.ctx(), store.Filter{Host: "h001"}, "")
		w.must(err)
		w.ids(page.Jobs, j)
	}},
	{"batch/again", "a batch that is submitted again is the one that is there; another under its id or key is a conflict", func(w *world) {
		in := w.batchOf(hostsOf(3))
		in.Key, in.KeyUntil = "key", w.now.Add(time.Hour)
		first, err := w.st.SubmitBatch(w.ctx(), in, w.now)
		w.must(err)
		w.gate("h000")
		w.advance()
		again, err := w.st.SubmitBatch(w.ctx(), in, w.now)
		w.must(err)
		if !first.New || again.New || again.Batch.ID != in.Batch.ID || again.Batch.Reached != 3 {
			w.Fatalf("it is %+v and then %+v", first, again)
		}
		byKey := w.batchOf(hostsOf(3))
		byKey.Key, byKey.KeyUntil, byKey.Digest = in.Key, in.KeyUntil, in.Digest
		again, err = w.st.SubmitBatch(w.ctx(), byKey, w.now)
		w.must(err)
		if again.New || again.Batch.ID != in.Batch.ID {
			w.Fatalf("by its key it is %+v", again)
		}
		other := in
		other.Digest[0]++
		_, err = w.st.SubmitBatch(w.ctx(), other, w.now)
		w.wants(err, harp.ErrConflict)
		byKey.Digest[0]++
		_, err = w.st.SubmitBatch(w.ctx(), byKey, w.now)
		w.wants(err, harp.ErrConflict)
		w.ofKey(err, "batch "+in.Batch.ID)
		job := w.submission()
		job.Job.ID = in.Batch.ID
		_, err = w.st.SubmitBatch(w.ctx(), w.batchOf(hostsOf(1), func(b *store.BatchSubmission) { b.Batch.ID = w.submit().ID }), w.now)
		w.wants(err, harp.ErrConflict)
		out, err := w.st.Submit(w.ctx(), []store.Submission{job}, w.now)
		w.must(err)
		w.wants(out[0].Err, harp.ErrConflict)
		job.Job.ID = harp.MemberID(in.Batch.ID, "h000", 1)
		out, err = w.st.Submit(w.ctx(), []store.Submission{job}, w.now)
		w.must(err)
		w.wants(out[0].Err, harp.ErrInvalid)
	}},
	{"batch/bad", "a batch whose hosts or plan cannot be is refused", func(w *world) {
		for name, in := range map[string]store.BatchSubmission{
			"a host twice":  w.batchOf([]string{"a", "b", "a"}),
			"falling waves": w.batchOf(hostsOf(3), waves(2, 1, 3)),
			"equal waves":   w.batchOf(hostsOf(3), waves(2, 2, 3)),
			"a short wave":  w.batchOf(hostsOf(3), waves(2)),
			"an empty wave": w.batchOf(hostsOf(3), waves(0, 3)),
			"no waves":      w.batchOf(hostsOf(3), waves()),
			"no slot":       w.batchOf(hostsOf(3), parallel(0)),
			"no class":      w.batchOf(hostsOf(3), func(b *store.BatchSubmission) { b.Batch.Classes = nil }),
			"too long":      w.batchOf(hostsOf(3), func(b *store.BatchSubmission) { b.Request.Request = make([]byte, 3<<20) }),
		} {
			if _, err := w.st.SubmitBatch(w.ctx(), in, w.now); err == nil {
				w.Fatalf("%s is taken", name)
			}
			_, err := w.st.Batch(w.ctx(), in.Batch.ID)
			w.wants(err, harp.ErrNotFound)
		}
	}},
	{"batch/parallel", "no more members than may hold a slot, and the next host is reached in the operation in which one ends", func(w *world) {
		b, first := w.begun(hostsOf(5), parallel(2))
		w.onHosts(first, "h000", "h001")
		w.is(b, harp.BatchRunning, "", 2)
		w.apply(first[1], store.Started)
		second := w.apply(first[1], store.End).Claimed
		w.onHosts(second, "h002")
		w.checkBatch(b)
		out, err := w.st.Apply(w.ctx(),
			store.Transition{ID: first[0].ID, Event: w.event(first[0], store.End)},
			store.Transition{ID: second[0].ID, Event: w.event(second[0], store.End)})
		w.must(err)
		last := slices.Concat(out[0].Claimed, out[1].Claimed)
		w.onHosts(last, "h003", "h004")
		for _, j := range last {
			w.apply(j, store.End)
		}
		w.is(b, harp.BatchSucceeded, "", 5)
		w.checkBatch(b)
		w.due(time.Time{})
	}},
	{"batch/away", "a host that is away holds no slot, and its member starts when it is back and a slot is free", func(w *world) {
		hosts := hostsOf(4)
		w.gate(hosts[1:]...)
		b := w.batch(hosts, parallel(2))
		first := w.advance().Claimed
		w.onHosts(first, "h001", "h002")
		w.waits(w.members(b)[0], harp.ReasonOffline)
		w.gate("h000")
		w.onHosts(w.claim(10, "h000"))
		w.waits(w.members(b)[0], harp.ReasonBatch)
		w.onHosts(w.apply(first[0], store.End).Claimed, "h000")
		w.is(b, harp.BatchRunning, "", 3)
		w.checkBatch(b)
	}},
	{"batch/away/busy", "an agent that takes no call gives the slot back to another host", func(w *world) {
		b, first := w.begun(hostsOf(2), parallel(1))
		e := w.event(first[0], store.NotNow)
		e.Wake = w.now.Add(time.Second)
		c := w.try(first[0], e)
		w.must(c.Err)
		w.onHosts(c.Claimed, "h001")
		w.pass(time.Minute)
		w.onHosts(w.advance().Claimed)
		w.checkBatch(b)
		w.onHosts(w.apply(c.Claimed[0], store.End).Claimed, "h000")
	}},
	{"batch/away/wait", "a member waits for its host no longer than it may, counted from its turn on, and not while the batch is paused", func(w *world) {
		b := w.batch(hostsOf(2), member(func(j *store.Job) { j.OfflineWait = time.Minute }))
		w.pass(time.Hour)
		w.advance()
		w.pass(30 * time.Second)
		w.change(b, store.BatchPaused)
		w.advance()
		w.pass(time.Hour)
		w.ids(w.advance().Ended)
		w.change(b, store.BatchResumed)
		w.advance()
		w.pass(59 * time.Second)
		w.ids(w.advance().Ended)
		w.pass(time.Second)
		w.onHosts(w.advance().Ended, "h000", "h001")
		w.is(b, harp.BatchFailed, "", 2)
		w.checkBatch(b)
	}},
	{"batch/skip", "hosts that are unfit, or away where that is to be skipped, are left out at their turn and counted apart", func(w *world) {
		hosts := hostsOf(4)
		w.gate(hosts[2:]...)
		soon := w.now.Add(time.Minute)
		w.st.SetGate("h000", store.Gate{Reason: harp.ReasonOffline, LastHeard: w.now, Awaited: soon})
		w.st.SetGate("h001", store.Gate{Reason: harp.ReasonOffline, LastHeard: soon, Awaited: soon})
		b := w.batch(hosts, func(b *store.BatchSubmission) {
			b.Batch.SkipAway = true
			b.Hosts[2].Unfit = harp.ReasonUnfit
		})
		first := w.advance().Claimed
		w.onHosts(first, "h003")
		members := w.members(b)
		if j := w.state(members[0], harp.StateExpired); j.Reason != harp.ReasonOffline || j.Started != harp.DidNotRun {
			w.Fatalf("a host that is away is %s(%s), ran %s", j.State, j.Reason, j.Started)
		}
		w.waits(members[1], harp.ReasonOffline) // it is about to return
		if j := w.state(members[2], harp.StateRejected); j.Reason != harp.ReasonUnfit || j.Started != harp.DidNotRun {
			w.Fatalf("a host that is unfit is %s(%s), ran %s", j.State, j.Reason, j.Started)
		}
		w.apply(first[0], store.End)
		w.gate("h001")
		w.apply(w.claim(1, "h001")[0], store.End)
		got := w.is(b, harp.BatchSucceeded, "", 4)
		if got.Skipped[harp.ReasonOffline] != 1 || got.Skipped[harp.ReasonUnfit] != 1 || got.Failures != 0 {
			w.Fatalf("skipped are %v, failures %d", got.Skipped, got.Failures)
		}
		var skipped []int
		for _, e := range w.entries(b, 0) {
			if e.Kind == store.BatchMemberSkipped {
				skipped = append(skipped, e.Index)
			}
		}
		if !slices.Equal(skipped, []int{0, 2}) {
			w.Fatalf("the log says that %v were skipped", skipped)
		}
		w.checkBatch(b)
	}},
	{"batch/skip/all", "a batch all hosts of which are left out has failed", func(w *world) {
		b := w.batch(hostsOf(3), func(b *store.BatchSubmission) { b.Batch.SkipAway = true })
		w.advance()
		w.is(b, harp.BatchFailed, harp.BatchReasonNoHost, 3)
		w.checkBatch(b)
	}},
	{"batch/waves", "a wave is over when all its members have ended, and the next begins after a pause", func(w *world) {
		b, first := w.begun(hostsOf(4), waves(1, 3, 4), plan(func(p *store.BatchPlan) { p.WavePause = time.Minute }))
		w.onHosts(first, "h000")
		w.onHosts(w.apply(first[0], store.End).Claimed)
		w.due(w.now.Add(time.Minute))
		w.pass(time.Minute)
		second := w.advance().Claimed
		w.onHosts(second, "h001", "h002")
		w.onHosts(w.apply(second[1], store.End).Claimed)
		w.pass(time.Hour)
		w.onHosts(w.advance().Claimed)
		w.checkBatch(b)
		w.onHosts(w.failure(second[0]).Claimed)
		w.pass(time.Minute)
		last := w.advance().Claimed
		w.onHosts(last, "h003")
		w.apply(last[0], store.End)
		w.is(b, harp.BatchFailed, "", 4)
	}},
	{"batch/approve", "a batch waits for a word after each wave but the last, and is cancelled when none comes", func(w *world) {
		b, first := w.begun(hostsOf(3), waves(1, 2, 3), plan(func(p *store.BatchPlan) { p.Approve = true }))
		w.onHosts(w.apply(first[0], store.End).Claimed)
		w.is(b, harp.BatchPaused, harp.BatchReasonWave, 1)
		w.change(b, store.BatchResumed)
		second := w.advance().Claimed
		w.onHosts(second, "h001")
		w.apply(second[0], store.End)
		w.due(w.now.Add(24 * time.Hour))
		w.pass(24 * time.Hour)
		w.advance()
		w.is(b, harp.BatchFailed, harp.BatchReasonStopped, 2)
		w.checkBatch(b)
	}},
	{"batch/approve/one", "an approval is of one wave: it approves no other, and ends no other pause", func(w *world) {
		b, first := w.begun(hostsOf(4), waves(1, 2, 3, 4), plan(func(p *store.BatchPlan) { p.Approve, p.StopAfter = true, 1 }))
		approve := func(wave int, op store.Operation) error {
			_, err := w.st.ChangeBatch(w.ctx(), b.ID, store.BatchEvent{Kind: store.BatchResumed, Wave: wave}, op)
			return err
		}
		anew := func() store.Operation { return store.Operation{ID: w.id(), By: caller, Time: w.now} }
		early := anew()
		w.wants(approve(2, early), store.ErrIllegal) // it is not over yet
		w.apply(first[0], store.End)
		w.wants(approve(2, early), store.ErrIllegal) // nor was it then
		w.wants(approve(3, anew()), store.ErrIllegal)
		w.is(b, harp.BatchPaused, harp.BatchReasonWave, 1)
		second := anew()
		w.must(approve(2, second))
		w.must(approve(2, anew())) // somebody else has the same opinion
		w.apply(w.advance().Claimed[0], store.End)
		w.is(b, harp.BatchPaused, harp.BatchReasonWave, 2)
		w.wants(approve(2, anew()), store.ErrIllegal)
		w.must(approve(2, second)) // its answer was lost
		w.wants(approve(3, second), harp.ErrConflict)
		w.is(b, harp.BatchPaused, harp.BatchReasonWave, 2)
		w.must(approve(3, anew()))
		w.failure(w.advance().Claimed[0])
		w.wants(approve(3, anew()), store.ErrIllegal)
		w.is(b, harp.BatchPaused, harp.BatchReasonFailures, 3)
		w.change(b, store.BatchResumed)
		w.advance()
		w.checkBatch(b)
	}},
	{"batch/approve/paused", "an approval ends no pause that somebody asked for while the batch waited for it", func(w *world) {
		b, first := w.begun(hostsOf(3), waves(1, 2, 3), plan(func(p *store.BatchPlan) { p.Approve, p.StopAfter = true, 1 }))
		w.apply(first[0], store.End)
		unapproved := w.batch(hostsOf(1), plan(func(p *store.BatchPlan) { p.ApproveFirst = true }))
		w.advance()
		w.pass(time.Hour)
		for _, c := range []struct {
			b             *store.Batch
			reason        string
			wave, reached int
		}{{b, harp.BatchReasonWave, 2, 1}, {unapproved, harp.BatchReasonApproval, 1, 0}} {
			w.change(c.b, store.BatchPaused)
			w.pass(time.Hour)
			w.change(c.b, store.BatchPaused) // it is already
			_, err := w.st.ChangeBatch(w.ctx(), c.b.ID, store.BatchEvent{Kind: store.BatchResumed, Wave: c.wave}, store.Operation{ID: w.id(), By: caller, Time: w.now})
			w.wants(err, store.ErrIllegal)
			w.onHosts(w.advance().Claimed)
			got := w.is(c.b, harp.BatchPaused, c.reason, c.reached)
			if p := got.Pause; p == nil || p.By != caller || p.Reason != "words" || !p.Until.Equal(w.now.Add(23*time.Hour)) {
				w.Fatalf("the pause is %+v", p)
			}
		}
		w.due(w.now.Add(22 * time.Hour))
		w.change(b, store.BatchResumed)
		w.failure(w.advance().Claimed[0])
		w.is(b, harp.BatchPaused, harp.BatchReasonFailures, 2)
		w.change(b, store.BatchPaused)
		if got := w.is(b, harp.BatchPaused, harp.BatchReasonFailures, 2); got.Pause.By != caller {
			w.Fatalf("the pause is %+v", got.Pause)
		}
		w.change(unapproved, store.BatchCancel)
		w.advance()
		w.is(unapproved, harp.BatchCancelled, harp.BatchReasonNotApproved, 0)
		w.checkBatch(b)
	}},
	{"batch/approve/first", "no host of a batch is reached before somebody has approved it, also after a restart; cancelled instead, or when nobody does in time, it ends and says so", func(w *world) {
		hosts := hostsOf(3)
		w.gate(hosts...)
		first := plan(func(p *store.BatchPlan) { p.ApproveFirst = true })
		for _, c := range []struct {
			reason string
			events []string
			end    func(b *store.Batch)
		}{
			{harp.BatchReasonNotApproved, []string{"batch.submitted", "batch.paused", "batch.cancel_requested", "batch.cancelled"}, func(b *store.Batch) { w.change(b, store.BatchCancel) }},
			{harp.BatchReasonApproval, []string{"batch.submitted", "batch.paused", "batch.cancelled"}, func(*store.Batch) { w.due(w.now.Add(24 * time.Hour)); w.pass(24 * time.Hour) }},
		} {
			from := len(w.events(harp.EventFilter{After: harp.EventsFromStart}))
			b := w.batch(hosts, first)
			w.onHosts(w.advance().Claimed)
			w.is(b, harp.BatchPaused, harp.BatchReasonApproval, 0)
			c.end(b)
			w.onHosts(w.advance().Claimed)
			w.is(b, harp.BatchCancelled, c.reason, 0)
			w.checkBatch(b)
			w.types(w.events(harp.EventFilter{After: harp.EventsFromStart})[from:], c.events...)
			for _, j := range w.members(b) {
				if j.State != harp.StateCancelled || j.Reason != harp.ReasonBatch || j.Started != harp.DidNotRun {
					w.Fatalf("a member is %s(%s), started %s", j.State, j.Reason, j.Started)
				}
			}
		}
		b := w.batch(hosts, first)
		w.change(b, store.BatchPaused) // changes nothing
		if w.open != nil {
			w.reopen()
			w.gate(hosts...)
		}
		w.onHosts(w.advance().Claimed)
		w.is(b, harp.BatchPaused, harp.BatchReasonApproval, 0)
		w.change(b, store.BatchResumed)
		for _, j := range w.advance().Claimed {
			w.apply(j, store.End)
		}
		w.is(b, harp.BatchSucceeded, "", 3)
		w.checkBatch(b)
	}},
	{"batch/rate", "no more hosts are reached within a span than the rate allows", func(w *world) {
		b, first := w.begun(hostsOf(5), plan(func(p *store.BatchPlan) { p.Rate, p.RatePer = 2, time.Minute }))
		w.onHosts(first, "h000", "h001")
		w.onHosts(w.apply(first[0], store.End).Claimed)
		w.due(w.now.Add(time.Minute))
		w.pass(time.Minute)
		w.onHosts(w.advance().Claimed, "h002", "h003")
		w.is(b, harp.BatchRunning, "", 4)
	}},
	{"batch/later", "no host is reached before StartAfter", func(w *world) {
		hosts := hostsOf(1)
		w.gate(hosts...)
		w.batch(hosts, plan(func(p *store.BatchPlan) { p.StartAfter = w.now.Add(time.Hour) }))
		w.onHosts(w.advance().Claimed)
		w.due(w.now.Add(time.Hour))
		w.pass(time.Hour)
		w.onHosts(w.advance().Claimed, "h000")
	}},
	{"batch/stop", "in or after the operation in which failures reach their limit no host is reached, and nothing is started", func(w *world) {
		b, first := w.begun(hostsOf(9), parallel(3), stopAfter(2))
		w.onHosts(w.failure(first[0]).Claimed, "h003")
		out, err := w.st.Apply(w.ctx(),
			store.Transition{ID: first[1].ID, Event: w.event(first[1], store.End)},
			store.Transition{ID: first[2].ID, Event: func() store.Event {
				e := w.event(first[2], store.End)
				e.Failure = failures.New("remote", "no")
				return e
			}()})
		w.must(err)
		w.onHosts(slices.Concat(out[0].Claimed, out[1].Claimed))
		w.is(b, harp.BatchPaused, harp.BatchReasonFailures, 4)
		w.onHosts(w.advance().Claimed)
		w.apply(w.members(b)[3], store.End)
		w.onHosts(w.advance().Claimed)
		w.checkBatch(b)
		w.change(b, store.BatchResumed)
		w.onHosts(w.advance().Claimed, "h004", "h005", "h006")
	}},
	{"batch/stop/cancel", "a batch that is to be cancelled by failures asks those that run to stop", func(w *world) {
		b, first := w.begun(hostsOf(5), parallel(2), stopAfter(1), plan(func(p *store.BatchPlan) { p.StopCancel = true }))
		w.onHosts(w.failure(first[0]).Claimed)
		did := w.advanceAll()
		w.onHosts(did.Asked, "h001")
		w.checkBatch(b)
		w.apply(w.state(first[1], harp.StateCancelling), store.End)
		w.is(b, harp.BatchFailed, harp.BatchReasonFailures, 2)
		w.checkBatch(b)
	}},
}
