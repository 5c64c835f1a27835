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
			from += e.Numbers()
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
		case store.BatchMemberRecords, store.BatchGap:
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
		if j.Reason == harp.ReasonUnfit || j.State == harp.StateExpired && (b.SkipAway || j.Reason == harp.ReasonWindow || j.Reason == harp.ReasonPaused) {
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

// advanceAll is advance that notes which jobs are asked to stop.
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
