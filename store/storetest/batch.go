package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
)

// A shape changes what a batch is submitted as.
type shape func(b *store.BatchSubmission)

func parallel(n int) shape {
	return func(b *store.BatchSubmission) { b.Batch.Plan.Parallel = n }
}

func waves(ends ...int) shape {
	return func(b *store.BatchSubmission) { b.Batch.Plan.Waves = ends }
}

func stopAfter(n int) shape {
	return func(b *store.BatchSubmission) { b.Batch.Plan.StopAfter = n }
}

func plan(change func(p *store.BatchPlan)) shape {
	return func(b *store.BatchSubmission) { change(&b.Batch.Plan) }
}

func member(change func(j *store.Job)) shape {
	return func(b *store.BatchSubmission) { change(&b.Batch.Member) }
}

// hostsOf are n hosts.
func hostsOf(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("h%03d", i)
	}
	return names
}

// batchOf is a call of procedure "p" on some hosts, ten at a time.
func (w *world) batchOf(hosts []string, shapes ...shape) store.BatchSubmission {
	b := store.BatchSubmission{
		Batch: store.Batch{
			ID: w.id(), Target: "h*", Classes: []store.BatchClass{{SilenceTimeout: time.Minute}},
			Plan:   store.BatchPlan{Waves: []int{len(hosts)}, Parallel: 10, MaxPause: 24 * time.Hour},
			Member: store.Job{Procedure: "p", OfflineWait: harp.NoLimit, SubmitTime: w.now, Principal: caller},
		},
		Request: harp.Submission{Request: []byte("request of all")},
	}
	for _, h := range hosts {
		b.Hosts = append(b.Hosts, store.BatchHost{Name: h})
	}
	for _, change := range shapes {
		change(&b)
	}
	copy(b.Digest[:], b.Batch.ID)
	return b
}

var caller = harp.Principal{Kind: "caller", Name: "ada"}

// batch submits a batch whose first hosts are reached by the next advance.
func (w *world) batch(hosts []string, shapes ...shape) *store.Batch {
	w.Helper()
	out, err := w.st.SubmitBatch(w.ctx(), w.batchOf(hosts, shapes...), w.now)
	w.must(err)
	begins := harp.BatchRunning
	if out.Batch.Plan.ApproveFirst {
		begins = harp.BatchPaused
	}
	if !out.New || out.Batch.State != begins || out.Batch.Hosts != len(hosts) {
		w.Fatalf("it is new: %v, and %+v", out.New, out.Batch)
	}
	return out.Batch
}

// begun submits a batch, opens its hosts and returns what was started first.
func (w *world) begun(hosts []string, shapes ...shape) (*store.Batch, []*store.Job) {
	w.Helper()
	w.gate(hosts...)
	b := w.batch(hosts, shapes...)
	return b, w.advance().Claimed
}

func (w *world) readBatch(b *store.Batch) *store.Batch {
	w.Helper()
	got, err := w.st.Batch(w.ctx(), b.ID)
	w.must(err)
	return got
}

// is checks in which state a batch is, and how many hosts it has reached.
func (w *world) is(b *store.Batch, state harp.BatchState, reason string, reached int) *store.Batch {
	w.Helper()
	got := w.readBatch(b)
	if got.State != state || got.Reason != reason || got.Reached != reached {
		w.Fatalf("it is %s(%s) and has reached %d, want %s(%s), %d", got.State, got.Reason, got.Reached, state, reason, reached)
	}
	return got
}

func (w *world) members(b *store.Batch) []*store.Job {
	w.Helper()
	got, err := w.st.BatchMembers(w.ctx(), b.ID, 0, b.Hosts*b.StepCount())
	w.must(err)
	if len(got) != b.Hosts*b.StepCount() {
		w.Fatalf("it has %d members, want %d", len(got), b.Hosts*b.StepCount())
	}
	return got
}

// change pauses, resumes or cancels a batch.
func (w *world) change(b *store.Batch, kind store.BatchEventKind) {
	w.Helper()
	_, err := w.st.ChangeBatch(w.ctx(), b.ID, store.BatchEvent{Kind: kind, Reason: "words"}, store.Operation{ID: w.id(), By: caller, Time: w.now})
	w.must(err)
}

// onHosts checks which hosts jobs are on.
func (w *world) onHosts(jobs []*store.Job, want ...string) {
	w.Helper()
	var got []string
	for _, j := range jobs {
		got = append(got, j.Host)
	}
	if !slices.Equal(got, want) {
		w.Fatalf("started are jobs on %v, want %v", got, want)
	}
}

// entries reads the log of a batch in small steps and checks that it has no gap.
func (w *world) entries(b *store.Batch, from uint64) (all []store.BatchEntry) {
	w.Helper()
	for {
		log, err := w.st.BatchLog(w.ctx(), b.ID, from, 3)
		w.must(err)
		for _, e := range log.Entries {
			if e.No != from {
				w.Fatalf("entry %d comes where %d should", e.No, from)
			}
			from++
			if e.Kind == store.BatchNotReached {
				from += uint64(e.Count - 1) //nolint:gosec // never negative
			}
			all = append(all, e)
		}
		if log.Next != from {
			w.Fatalf("the log goes on at %d, want %d", log.Next, from)
		}
		if len(log.Entries) == 0 {
			if log.Ended != w.readBatch(b).State.Ended() {
				w.Fatalf("the log has ended: %v", log.Ended)
			}
			return all
		}
	}
}

// endsOf are the hosts whose end a log tells.
func endsOf(entries []store.BatchEntry) (ends []int) {
	for _, e := range entries {
		switch e.Kind {
		case store.BatchMemberEnded, store.BatchMemberSkipped:
			ends = append(ends, e.Index)
		case store.BatchNotReached:
			for n := range e.Count {
				ends = append(ends, e.Index+n)
			}
		case store.BatchMemberRecords:
		}
	}
	return ends
}

// checkBatch checks what is always so of a batch: its counts are what its members say, no more of them
// hold a slot than may, none of a later wave is reached, and the log has each end once.
func (w *world) checkBatch(b *store.Batch) {
	w.Helper()
	got, all := w.readBatch(b), w.members(b)
	members := make([]*store.Job, 0, b.Hosts) // how each host stands
	var counts store.MemberCounts
	slots, ended := 0, []int{}
	for n, j := range all {
		host, step := n/b.StepCount(), n%b.StepCount()+1
		if j.Index != host || j.Batch != b.ID || j.Step() != step || j.ID != harp.MemberID(b.ID, j.Host, step) {
			w.Fatalf("member %d is %d of batch %s as step %d, job %s", n, j.Index, j.Batch, j.Step(), j.ID)
		}
		switch is := w.job(j.ID); {
		case is.State != j.State || is.Reason != j.Reason:
			w.Fatalf("job %s is %s(%s), and as a member %s(%s)", j.ID, is.State, is.Reason, j.State, j.Reason)
		case host >= got.Reached && step == 1 && j.Reason != harp.ReasonBatch && j.State != harp.StateCancelled:
			w.Fatalf("a member whose host is not reached is %s(%s)", j.State, j.Reason)
		}
	}
	entries := w.entries(b, 0)
	told := endsOf(entries)
	for steps := range slices.Chunk(all, b.StepCount()) {
		j, last := w.checkSteps(b, steps)
		n := len(members)
		if last.State == harp.StateCancelled && !got.State.Ended() && !slices.Contains(told, n) {
			j = last // its row does not say so yet: until then what came before it does not count
		}
		members = append(members, j)
		if store.HoldsSlot(j.State) {
			slots++
		}
		if j.State.Ended() {
			ended = append(ended, n)
		}
	}
	skipped := 0
	for _, n := range got.Skipped {
		skipped += n
	}
	for _, j := range members {
		if j.Reason == harp.ReasonUnfit || j.State == harp.StateExpired && (b.SkipAway || j.Reason == harp.ReasonWindow) {
			skipped--
			continue
		}
		addCount(&counts, j.State)
	}
	says := got.Counts
	says.Add(got.UnreachedLife().State, got.Unreached())
	ends := slices.Clone(told)
	for _, e := range entries {
		if j := members[e.Index]; e.Kind == store.BatchMemberEnded && j.State.Ended() && e.Step != j.Step() {
			w.Fatalf("the log tells of the end of step %d, and step %d says how host %d ended", e.Step, j.Step(), e.Index)
		}
	}
	slices.Sort(ends)
	ended = slices.DeleteFunc(ended, func(n int) bool { // their rows say so later, and the log with them
		return members[n].State == harp.StateCancelled && !got.State.Ended() && !slices.Contains(told, n)
	})
	switch {
	case counts != says || skipped != 0:
		w.Fatalf("it counts %+v and %v skipped, and its members are %+v", says, got.Skipped, counts)
	case slots > b.Plan.Parallel:
		w.Fatalf("%d members hold a slot, %d may", slots, b.Plan.Parallel)
	case got.Reached > b.Plan.Waves[got.Wave-1]:
		w.Fatalf("%d hosts are reached in wave %d of %v", got.Reached, got.Wave, b.Plan.Waves)
	case !slices.Equal(ends, ended):
		w.Fatalf("the log tells the ends of %v, and ended have %v", ends, ended)
	}
}

func addCount(c *store.MemberCounts, s harp.State) {
	for state, n := range map[harp.State]*int{
		harp.StateQueued: &c.Queued, harp.StateSent: &c.Sent, harp.StateRunning: &c.Running, harp.StateCancelling: &c.Cancelling,
		harp.StateUnknown: &c.Unknown, harp.StateSucceeded: &c.Succeeded, harp.StateFailed: &c.Failed, harp.StateTimedOut: &c.TimedOut,
		harp.StateCancelled: &c.Cancelled, harp.StateExpired: &c.Expired, harp.StateRejected: &c.Rejected, harp.StateLost: &c.Lost,
	} {
		if state == s {
			*n++
		}
	}
}

// failure ends a job as failed.
func (w *world) failure(j *store.Job) store.Change {
	w.Helper()
	e := w.event(j, store.End)
	e.Failure, e.Jitter = failures.New("remote", "no"), 1
	c := w.try(j, e)
	w.must(c.Err)
	return c
}

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
	{"batch/log", "the log tells records and ends in the order of their commits, numbered without gaps, from any number on", func(w *world) {
		b, first := w.begun(hostsOf(6), parallel(2))
		w.append(first[1], 0, harp.Record{}, harp.Record{})
		w.append(first[0], 0, harp.Record{})
		w.append(first[1], 2, harp.Record{})
		w.apply(first[1], store.End)
		w.change(b, store.BatchCancel)
		w.advanceAll()
		want := []store.BatchEntry{
			{No: 0, Kind: store.BatchMemberRecords, Index: 1, Host: "h001", Step: 1, First: 0, Count: 2},
			{No: 1, Kind: store.BatchMemberRecords, Index: 0, Host: "h000", Step: 1, First: 0, Count: 1},
			{No: 2, Kind: store.BatchMemberRecords, Index: 1, Host: "h001", Step: 1, First: 2, Count: 1},
			{No: 3, Kind: store.BatchMemberEnded, Index: 1, Host: "h001", Step: 1, Count: 1},
			{No: 4, Kind: store.BatchNotReached, Index: 3, Host: "h003", Step: 1, Count: 3},
		}
		if got := w.entries(b, 0); !slices.Equal(got, want) {
			w.Fatalf("the log is\n%+v, want\n%+v", got, want)
		}
		want[4] = store.BatchEntry{No: 6, Kind: store.BatchNotReached, Index: 5, Host: "h005", Step: 1, Count: 1}
		if got := w.entries(b, 6); !slices.Equal(got, want[4:]) {
			w.Fatalf("from 6 on the log is\n%+v, want\n%+v", got, want[4:])
		}
		for from := range uint64(8) {
			w.entries(b, from)
		}
	}},
	{"batch/events", "a batch tells what becomes of it, and of its members all but that they were submitted", func(w *world) {
		b, first := w.begun(hostsOf(3), parallel(1), waves(1, 3), member(func(j *store.Job) { j.Labels = map[string]string{"k": "v"} }))
		second := w.apply(first[0], store.End).Claimed
		w.change(b, store.BatchPaused)
		w.change(b, store.BatchResumed)
		w.change(b, store.BatchCancel)
		w.advanceAll()
		w.apply(w.job(second[0].ID), store.End)
		got := w.events(harp.EventFilter{After: harp.EventsFromStart})
		w.types(got, "batch.submitted", "job.sent", "job.succeeded", "batch.wave", "job.sent", "batch.paused", "batch.resumed",
			"batch.cancel_requested", "job.cancelling", "job.succeeded", "batch.cancelled")
		last := got[len(got)-1]
		if last.Counts[harp.StateSucceeded] != 2 || last.Labels["k"] != "v" || last.Procedure != "p" {
			w.Fatalf("the last event is %+v", last)
		}
		for _, e := range got {
			if e.Batch != b.ID {
				w.Fatalf("%s is of batch %q", e.Type, e.Batch)
			}
		}
		w.submit()
		f := harp.EventFilter{After: harp.EventsFromStart, Batch: b.ID}
		if of := w.events(f); len(of) != len(got) {
			w.Fatalf("%d events are of the batch, want %d", len(of), len(got))
		}
		f.Types = []string{"batch.*"}
		w.types(w.events(f), "batch.submitted", "batch.wave", "batch.paused", "batch.resumed", "batch.cancel_requested", "batch.cancelled")
		f.Batch = harp.NewID()
		w.types(w.events(f))
	}},
	{"batch/list", "batches are listed newest first, in pages", func(w *world) {
		var want []string
		for n := range 5 {
			b := w.batch(hostsOf(1), member(func(j *store.Job) { j.Procedure = fmt.Sprint("p", n%2) }))
			want = append(want, b.ID)
			w.pass(time.Second)
		}
		w.advance()
		slices.Reverse(want)
		for _, f := range []store.BatchFilter{{Limit: 2}, {Limit: 2, Procedure: "p0"}, {Limit: 2, States: []harp.BatchState{harp.BatchSucceeded}}} {
			var got []string
			for cursor := ""; ; {
				page, err := w.st.ListBatches(w.ctx(), f, cursor)
				w.must(err)
				for _, b := range page.Batches {
					got = append(got, b.ID)
				}
				if cursor = page.Cursor; cursor == "" {
					break
				}
			}
			wanted := want
			switch {
			case f.Procedure != "":
				wanted = []string{want[0], want[2], want[4]}
			case f.States != nil:
				wanted = nil
			}
			if !slices.Equal(got, wanted) {
				w.Fatalf("with %+v listed are %v, want %v", f, got, wanted)
			}
		}
		_, err := w.st.ListBatches(w.ctx(), store.BatchFilter{}, "no cursor")
		w.wants(err, harp.ErrInvalid)
	}},
	{"batch/prune", "a batch is deleted whole, after its own end, and answers for its members from then on", func(w *world) {
		hosts := hostsOf(1203)
		b, first := w.begun(hosts, parallel(2000))
		for _, j := range first[1:] {
			w.apply(j, store.End)
		}
		w.pass(time.Hour)
		if did := w.prune(store.Retention{EndedBefore: w.now}); did.Jobs != 0 {
			w.Fatalf("%d jobs were deleted of a batch that has not ended", did.Jobs)
		}
		w.append(first[0], 0, harp.Record{Value: make(harp.Value, 1000)})
		w.apply(first[0], store.End)
		w.is(b, harp.BatchSucceeded, "", len(hosts))
		w.pass(time.Hour)
		did, err := w.st.Prune(w.ctx(), store.Retention{EndedBefore: w.now}, w.now)
		w.must(err)
		if !did.More {
			w.Fatal("all is deleted at once")
		}
		_, err = w.st.Batch(w.ctx(), b.ID)
		w.wants(err, harp.ErrPruned)
		w.prune(store.Retention{EndedBefore: w.now})
		for _, id := range []string{first[0].ID, first[1202].ID} {
			_, err = w.st.Job(w.ctx(), id)
			w.wants(err, harp.ErrPruned)
		}
		_, err = w.st.BatchLog(w.ctx(), b.ID, 0, 10)
		w.wants(err, harp.ErrPruned)
		_, err = w.st.SubmitBatch(w.ctx(), w.batchOf(hosts, func(in *store.BatchSubmission) { in.Batch.ID = b.ID }), w.now)
		w.wants(err, harp.ErrPruned)
		page, err := w.st.List(w.ctx(), store.Filter{}, "")
		w.must(err)
		w.ids(page.Jobs)
		batches, err := w.st.ListBatches(w.ctx(), store.BatchFilter{}, "")
		w.must(err)
		if len(batches.Batches) != 0 {
			w.Fatalf("listed is %+v", batches.Batches)
		}
	}},
	{"batch/clock", "of a wave's pause as much is left as before when the clock is set", func(w *world) {
		_, first := w.begun(hostsOf(2), waves(1, 2), plan(func(p *store.BatchPlan) { p.WavePause = time.Minute }))
		w.apply(first[0], store.End)
		w.setClock(24 * time.Hour)
		w.due(w.now.Add(time.Minute))
		w.pass(59 * time.Second)
		w.onHosts(w.advance().Claimed)
		w.pass(time.Second)
		w.onHosts(w.advance().Claimed, "h001")
	}},
	{"batch/large", "hosts are reached in commits that are not too big, however many there are", func(w *world) {
		hosts := hostsOf(2500)
		w.gate(hosts[:100]...)
		b := w.batch(hosts, parallel(5000))
		if did := w.advance(); len(did.Claimed) != 100 {
			w.Fatalf("%d are started, want 100", len(did.Claimed))
		}
		w.is(b, harp.BatchRunning, "", 2500)
		w.change(b, store.BatchCancel)
		did := w.advanceAll()
		if len(did.Ended) != 2400 || len(did.Asked) != 100 {
			w.Fatalf("%d have ended and %d are asked to stop", len(did.Ended), len(did.Asked))
		}
		w.checkBatch(b)
	}},
}

// advanceAll is advance that notes who is asked to stop.
func (w *world) advanceAll() (all store.Advanced) {
	w.Helper()
	for {
		did, err := w.st.Advance(w.ctx(), w.now)
		w.must(err)
		all.Ended = append(all.Ended, did.Ended...)
		all.Claimed = append(all.Claimed, did.Claimed...)
		all.Asked = append(all.Asked, did.Asked...)
		if !did.More {
			return all
		}
	}
}

var reopeningBatches = []rule{
	{"batch/reopen", "a batch goes on where it was", func(w *world) {
		hosts := hostsOf(6)
		b, first := w.begun(hosts, parallel(2), waves(3, 6), plan(func(p *store.BatchPlan) { p.WavePause = time.Minute }))
		w.apply(first[0], store.End)
		w.checkBatch(b)
		w.reopen()
		w.checkBatch(b)
		w.onHosts(w.advance().Claimed)
		w.gate(hosts...)
		w.onHosts(w.claim(10, hosts...))
		w.checkBatch(b)
		for _, j := range w.members(b)[1:3] {
			w.apply(j, store.End)
		}
		w.is(b, harp.BatchRunning, "", 3)
		w.reopen()
		w.gate(hosts...)
		w.due(time.Unix(0, 1))
		w.onHosts(w.advance().Claimed)
		w.pass(time.Minute)
		w.onHosts(w.advance().Claimed, "h003", "h004")
		w.checkBatch(b)
	}},
	{"batch/reopen/new", "a batch that was stored and not begun is begun", func(w *world) {
		hosts := hostsOf(3)
		b := w.batch(hosts)
		w.reopen()
		w.gate(hosts...)
		w.onHosts(w.advance().Claimed, hosts...)
		w.checkBatch(b)
	}},
	{"batch/reopen/cancel", "a cancel that had not come to all members comes to the others", func(w *world) {
		hosts := hostsOf(4)
		b, _ := w.begun(hosts, parallel(2))
		w.change(b, store.BatchCancel)
		w.reopen()
		w.gate(hosts...)
		did := w.advanceAll()
		w.onHosts(did.Claimed)
		w.onHosts(did.Asked, "h000", "h001")
		w.checkBatch(b)
		w.reopen()
		w.onHosts(w.advanceAll().Asked)
		w.checkBatch(b)
	}},
	{"batch/reopen/pause", "a batch that is paused stays so", func(w *world) {
		hosts := hostsOf(3)
		w.gate("h000")
		b := w.batch(hosts, parallel(2))
		w.advance()
		w.change(b, store.BatchPaused)
		w.reopen()
		w.gate(hosts...)
		w.onHosts(w.claim(10, hosts...))
		w.onHosts(w.advance().Claimed)
		w.checkBatch(b)
		w.change(b, store.BatchResumed)
		w.onHosts(w.advance().Claimed, "h001")
		w.checkBatch(b)
	}},
	{"batch/reopen/ended", "a batch that has ended is read as it was", func(w *world) {
		b, first := w.begun(hostsOf(2))
		for _, j := range first {
			w.apply(j, store.End)
		}
		w.reopen()
		w.is(b, harp.BatchSucceeded, "", 2)
		w.checkBatch(b)
		w.onHosts(w.advance().Claimed)
	}},
}
