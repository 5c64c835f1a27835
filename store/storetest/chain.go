package storetest

import (
	"errors"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/window"
)

// then adds a step that follows such an end.
func then(on harp.Ending, changes ...func(s *store.BatchStep)) shape {
	return func(b *store.BatchSubmission) {
		s := store.BatchStep{Procedure: "then", On: on, Classes: slices.Clone(b.Batch.Classes)}
		for _, change := range changes {
			change(&s)
		}
		b.Batch.Steps = append(b.Batch.Steps, s)
	}
}

// unbegun reports whether a step has not begun.
func unbegun(j *store.Job) bool { return j.Reason == harp.ReasonChain }

// checkSteps checks what is always so of the steps of a chain on one host, and returns that which says how the host
// stands: the one that has begun and not ended, or else the first that did not succeed, or else the last; and the one
// that began last.
func (w *world) checkSteps(b *store.Batch, steps []*store.Job) (result, last *store.Job) {
	w.Helper()
	last, result = steps[0], steps[0]
	for _, j := range steps[1:] {
		fits := b.Steps[j.Step()-2].On.FitsJob(last.State)
		switch {
		case last.State == harp.StateLost && last.Reason == harp.LostRestored && j.State == harp.StateLost:
		case unbegun(j) && !j.State.Ended() && last.State == harp.StateCancelled && last.Queue != nil && j.Step() >= b.NextStep(last):
			// the row of the last one does not say so yet
		case unbegun(j) && j.State.Ended() != (last.State.Ended() || slices.ContainsFunc(steps[j.Step():], func(other *store.Job) bool { return !unbegun(other) })):
			w.Fatalf("step %d is %s(%s) behind one that is %s(%s)", j.Step(), j.State, j.Reason, last.State, last.Reason)
		case unbegun(j) && j.State.Ended() && (j.Started != harp.DidNotRun || j.State != harp.StateCancelled):
			w.Fatalf("a step that has not begun is %s and started: %s", j.State, j.Started)
		case unbegun(j):
		case !last.State.Ended() || !fits:
			w.Fatalf("step %d began behind one that is %s(%s), on %q", j.Step(), last.State, last.Reason, b.Steps[j.Step()-2].On)
		default:
			if last = j; result.State == harp.StateSucceeded {
				result = j
			}
		}
	}
	if !last.State.Ended() {
		return last, last
	}
	return result, last
}

// stepOf is a step of a batch on one of its hosts.
func (w *world) stepOf(b *store.Batch, host, step int) *store.Job {
	w.Helper()
	got, err := w.st.BatchMembers(w.ctx(), b.ID, host*b.StepCount()+step-1, 1)
	w.must(err)
	if len(got) != 1 || got[0].Index != host || got[0].Step() != step {
		w.Fatalf("step %d of host %d is %+v", step, host, got)
	}
	return w.job(got[0].ID)
}

// areSteps checks how the steps of a host are.
func (w *world) areSteps(b *store.Batch, host int, want ...string) {
	w.Helper()
	var are []string
	for step := range b.StepCount() {
		j := w.stepOf(b, host, step+1)
		text := string(j.State)
		if j.Reason != "" {
			text += "(" + j.Reason + ")"
		}
		are = append(are, text)
	}
	if !slices.Equal(are, want) {
		w.Fatalf("the steps of host %d are %v, want %v", host, are, want)
	}
	w.checkBatch(b)
}

// counts checks how many hosts are in which state.
func (w *world) counts(b *store.Batch, want store.MemberCounts) {
	w.Helper()
	if got := w.readBatch(b).Counts; got != want {
		w.Fatalf("it counts %+v, want %+v", got, want)
	}
}

const (
	did      = "succeeded"
	left     = "cancelled(chain)"
	awaited  = "queued(chain)"
	sent     = "sent"
	waitsFor = "queued(batch)"
)

var chains = []rule{
	{"chain/steps", "the next step of a chain is written and claimed in the operation in which one ends, and each host has one result", func(w *world) {
		b, started := w.begun(hostsOf(2), then(""), then(harp.OnSucceeded))
		w.areSteps(b, 0, sent, awaited, awaited)
		w.counts(b, store.MemberCounts{Sent: 2})
		c := w.apply(started[0], store.End)
		if len(c.Claimed) != 1 || c.Claimed[0].ID != harp.MemberID(b.ID, "h000", 2) || c.Claimed[0].Procedure != "then" || c.Claimed[0].State != harp.StateSent {
			w.Fatalf("claimed are %+v", c.Claimed)
		}
		w.areSteps(b, 0, did, sent, awaited)
		w.counts(b, store.MemberCounts{Sent: 2})
		told := w.events(harp.EventFilter{After: harp.EventsFromStart, Batch: b.ID, Types: []string{string(harp.EventChainStep)}})
		if len(told) != 1 || told[0].Job != c.Claimed[0].ID || told[0].Host != "h000" || told[0].Procedure != "then" || told[0].Reason != "2 of 3" {
			w.Fatalf("the events are %+v", told)
		}
		if ends := endsOf(w.entries(b, 0)); len(ends) != 0 {
			w.Fatalf("the log tells the ends of %v", ends)
		}
		c = w.apply(c.Claimed[0], store.End)
		w.areSteps(b, 0, did, did, sent)
		w.apply(c.Claimed[0], store.End)
		w.areSteps(b, 0, did, did, did)
		w.counts(b, store.MemberCounts{Sent: 1, Succeeded: 1})
		w.failure(started[1])
		w.areSteps(b, 1, "failed", left, left)
		w.is(b, harp.BatchFailed, "", 2)
		w.counts(b, store.MemberCounts{Failed: 1, Succeeded: 1})
	}},
	{"chain/again", "an end that is told again begins no step again, and a late one none", func(w *world) {
		b, started := w.begun(hostsOf(1), then(harp.OnEnded), then(harp.OnEnded))
		end := w.event(started[0], store.End)
		second := w.try(started[0], end).Claimed
		if again := w.try(started[0], end); again.Err == nil || len(again.Claimed) != 0 {
			w.Fatalf("again it is %+v", again)
		}
		w.areSteps(b, 0, did, sent, awaited)
		lose := w.event(second[0], store.Lose)
		lose.Reason = harp.LostAgentRestarted
		w.must(w.try(second[0], lose).Err)
		w.areSteps(b, 0, did, "lost(agent_restarted)", sent)
		third := w.stepOf(b, 0, 3)
		w.apply(third, store.End)
		w.areSteps(b, 0, did, "lost(agent_restarted)", did)
		w.is(b, harp.BatchFailed, "", 1)
		w.counts(b, store.MemberCounts{Lost: 1})
	}},
	{"chain/endings", "a step begins where the last that ran ended as it wants; the first that did not succeed says how the host ended", func(w *world) {
		rollback := []shape{then(harp.OnFailed), then(""), then(harp.OnEnded)}
		b, started := w.begun(hostsOf(2), rollback...)
		w.apply(started[0], store.End)
		w.areSteps(b, 0, did, left, sent, awaited)
		w.failure(w.stepOf(b, 0, 3))
		w.areSteps(b, 0, did, left, "failed", sent)
		w.apply(w.stepOf(b, 0, 4), store.End)
		w.areSteps(b, 0, did, left, "failed", did)
		w.failure(started[1])
		w.areSteps(b, 1, "failed", sent, awaited, awaited)
		w.counts(b, store.MemberCounts{Failed: 1, Sent: 1})
		w.apply(w.stepOf(b, 1, 2), store.End)
		w.apply(w.stepOf(b, 1, 3), store.End)
		w.apply(w.stepOf(b, 1, 4), store.End)
		w.areSteps(b, 1, "failed", did, did, did)
		w.counts(b, store.MemberCounts{Failed: 2})
		var told []int
		for _, e := range w.entries(b, 0) {
			told = append(told, e.Step)
		}
		if !slices.Equal(told, []int{3, 1}) {
			w.Fatalf("the log tells of steps %v, want 3 and 1", told)
		}
	}},
	{"chain/ways", "each way in which a step ends begins the next one once, but for the end of its host", func(w *world) {
		type way struct {
			name string
			end  func(j *store.Job)
			want []string
		}
		lost := func(reason string) func(j *store.Job) {
			return func(j *store.Job) {
				e := w.event(j, store.Lose)
				e.Reason = reason
				w.must(w.try(j, e).Err)
			}
		}
		for _, way := range []way{
			{"refused", func(j *store.Job) { w.apply(j, store.Refused) }, []string{"rejected", sent}},
			{"given up", lost(harp.LostForced), []string{"lost(forced)", sent}},
			{"cancelled", func(j *store.Job) {
				w.apply(j, store.CancelReq)
				e := w.event(j, store.End)
				e.Stopping = &store.Stopping{Cause: "cancel"}
				w.must(w.try(j, e).Err)
			}, []string{"cancelled", sent}},
			{"removed", func(j *store.Job) {
				_, err := w.st.RemoveHost(w.ctx(), j.Host, store.Operation{ID: w.id(), By: caller, Time: w.now})
				if !errors.Is(err, harp.ErrNotFound) {
					w.must(err)
				}
			}, []string{"lost(host_removed)", left}},
		} {
			b, started := w.begun(hostsOf(1), then(harp.OnEnded))
			way.end(started[0])
			w.areSteps(b, 0, way.want...)
			if j := w.stepOf(b, 0, 2); !j.State.Ended() {
				w.apply(j, store.End)
			}
			if is := w.readBatch(b).State; is != harp.BatchFailed {
				w.Fatalf("%s: the batch is %s", way.name, is)
			}
		}
	}},
	{"chain/waiting", "a step that never started is followed too: one that was cancelled, with its queue or by itself, and one whose time was over", func(w *world) {
		w.gate(hostsOf(3)...)
		q := queue("q")
		w.st.SetGate("h000", store.Gate{Reason: harp.ReasonOffline, LastHeard: w.now})
		b := w.batch(hostsOf(3), then(harp.OnEnded), member(func(j *store.Job) { j.Queue, j.Concurrency, j.OfflineWait = q, 1, time.Minute }))
		w.onHosts(w.advance().Claimed, "h001")
		w.cancelQueue(q)
		w.areSteps(b, 2, "cancelled", awaited)
		for w.advance().More {
		}
		w.areSteps(b, 2, "cancelled", "queued(queue)")
		w.apply(w.stepOf(b, 1, 1), store.End)
		w.checkBatch(b)
		w.pass(2 * time.Minute)
		w.advance()
		w.checkBatch(b)
	}},
	{"chain/limits", "a step has its own procedure, limits and retries, waits for its host as long as it may, and neither for the batch's StartBefore nor for windows", func(w *world) {
		b, started := w.begun(hostsOf(1), member(func(j *store.Job) { j.Expires = w.now.Add(time.Minute) }), then("", func(s *store.BatchStep) {
			s.Classes[0] = store.BatchClass{
				SilenceTimeout: time.Second, MaxExecTime: 2 * time.Second, OfflineWait: time.Hour,
				Retry: harp.RetryPolicy{On: []harp.State{harp.StateFailed}, Attempts: 2, Backoff: time.Second, MaxBackoff: time.Second},
			}
		}), then(harp.OnFailed, func(s *store.BatchStep) { s.Classes[0].OfflineWait = time.Hour }))
		w.setHolds("h000", w.windowOf(0, 24*time.Hour, func(is *window.Window) { is.Mode = window.Refuse }))
		w.pass(2 * time.Minute)
		c := w.apply(started[0], store.End)
		if len(c.Claimed) != 1 {
			w.Fatalf("claimed are %+v", c.Claimed)
		}
		j := c.Claimed[0]
		if j.Procedure != "then" || j.SilenceTimeout != time.Second || j.MaxExecTime != 2*time.Second || j.OfflineWait != time.Hour || !j.Expires.IsZero() {
			w.Fatalf("the step is %+v", j)
		}
		w.failure(j)
		w.areSteps(b, 0, did, "queued(backoff)", awaited)
		w.pass(time.Minute)
		w.onHosts(w.advance().Claimed, "h000")
		w.leaves("h000")
		w.failure(w.stepOf(b, 0, 2))
		w.areSteps(b, 0, did, "failed", "queued(offline)")
		w.pass(59 * time.Minute)
		w.advance()
		w.areSteps(b, 0, did, "failed", "queued(offline)")
		w.pass(2 * time.Minute)
		w.advance()
		w.areSteps(b, 0, did, "failed", "expired(offline)")
		w.is(b, harp.BatchFailed, "", 1)
		w.counts(b, store.MemberCounts{Failed: 1})
	}},
	{"chain/each", "where windows keep back each step, a step that waits for the end of one holds no slot, whatever that refuses", func(w *world) {
		each := func(b *store.BatchSubmission) { b.Batch.EachStep = true }
		b, started := w.begun(hostsOf(2), parallel(1), each, then(""))
		w.setHolds("h000", w.windowOf(0, time.Hour, func(is *window.Window) { is.Mode, is.Procedures = window.Refuse, []string{"then"} }))
		w.onHosts(w.apply(started[0], store.End).Claimed, "h001")
		w.areSteps(b, 0, did, "queued(window)")
		w.wantObstacles(w.stepOf(b, 0, 2), "window since 0s until 1h0m0s")
		w.pass(time.Hour)
		w.onHosts(w.advance().Claimed)
		w.onHosts(w.apply(w.stepOf(b, 1, 1), store.End).Claimed, "h001")
		w.areSteps(b, 0, did, waitsFor)
		w.onHosts(w.apply(w.stepOf(b, 1, 2), store.End).Claimed, "h000")
		w.areSteps(b, 0, did, sent)
	}},
	{"chain/classes", "a further step has on each host what hosts of its kind grant", func(w *world) {
		b, started := w.begun(hostsOf(2), func(b *store.BatchSubmission) {
			b.Batch.Classes = append(b.Batch.Classes, store.BatchClass{MaxExecTime: time.Second})
			b.Hosts[1].Class = 1
		}, then("", func(s *store.BatchStep) {
			s.Classes[0].MaxExecTime, s.Classes[1].MaxExecTime = 2*time.Second, 3*time.Second
		}), then(""))
		for i, want := range []time.Duration{2 * time.Second, 3 * time.Second} {
			w.apply(started[i], store.End)
			j := w.stepOf(b, i, 2)
			if j.MaxExecTime != want {
				w.Fatalf("on host %d the second step may take %v, want %v", i, j.MaxExecTime, want)
			}
			w.apply(j, store.End)
		}
		if last := w.stepOf(b, 1, 3); last.MaxExecTime != time.Second {
			w.Fatalf("the third step may take %v", last.MaxExecTime)
		}
	}},
	{"chain/slot", "a host holds its slot of the batch for its whole chain, but not while it is away", func(w *world) {
		b, started := w.begun(hostsOf(2), parallel(1), then(""))
		w.onHosts(started, "h000")
		w.onHosts(w.apply(started[0], store.End).Claimed, "h000")
		w.is(b, harp.BatchRunning, "", 1)
		w.onHosts(w.apply(w.stepOf(b, 0, 2), store.End).Claimed, "h001")
		w.silence("h001")
		w.leaves("h001")
		w.areSteps(b, 1, "unknown", awaited)
		w.is(b, harp.BatchRunning, "", 2)

		b, started = w.begun(hostsOf(2), parallel(1), then(""), func(b *store.BatchSubmission) { b.Hosts[1].Name = "h005" })
		w.onHosts(started, "h000")
		w.gate("h005")
		w.leaves("h000")
		w.onHosts(w.apply(started[0], store.End).Claimed, "h005")
		w.areSteps(b, 0, did, "queued(offline)")
		w.gate("h000")
		w.claim(10, "h000")
		w.areSteps(b, 0, did, waitsFor)
		w.apply(w.stepOf(b, 1, 1), store.End)
		w.checkBatch(b)
	}},
	{"chain/pause", "while a batch is paused the next step waits, and keeps its slot", func(w *world) {
		b, started := w.begun(hostsOf(2), parallel(1), then(""))
		w.change(b, store.BatchPaused)
		if c := w.apply(started[0], store.End); len(c.Claimed) != 0 {
			w.Fatalf("claimed are %+v", c.Claimed)
		}
		w.areSteps(b, 0, did, waitsFor)
		w.change(b, store.BatchResumed)
		w.onHosts(w.advance().Claimed, "h000")
		w.areSteps(b, 0, did, sent)
		w.is(b, harp.BatchRunning, "", 1)
	}},
	{"chain/halted", "a step that is cancelled while its batch is paused leaves its slot to the next one, once", func(w *world) {
		b, started := w.begun(hostsOf(2), parallel(1), then(harp.OnEnded), then(harp.OnEnded))
		w.change(b, store.BatchPaused)
		w.apply(started[0], store.End)
		w.areSteps(b, 0, did, waitsFor, awaited)
		w.apply(w.stepOf(b, 0, 2), store.CancelReq)
		w.areSteps(b, 0, did, "cancelled", waitsFor)
		w.change(b, store.BatchResumed)
		w.onHosts(w.advance().Claimed, "h000")
		w.areSteps(b, 0, did, "cancelled", sent)
		w.onHosts(w.apply(w.stepOf(b, 0, 3), store.End).Claimed, "h001")
		w.apply(w.stepOf(b, 1, 1), store.End)
		w.apply(w.stepOf(b, 1, 2), store.End)
		w.apply(w.stepOf(b, 1, 3), store.End)
		w.is(b, harp.BatchFailed, "", 2)
		w.counts(b, store.MemberCounts{Cancelled: 1, Succeeded: 1})
	}},
	{"chain/marked", "a step that comes behind one which is cancelled with its queue has not ended before it begins", func(w *world) {
		w.gate(hostsOf(2)...)
		q := queue("q")
		b := w.batch(hostsOf(2), then(harp.OnFailed), then(harp.OnEnded), member(func(j *store.Job) { j.Queue, j.Concurrency = q, 1 }))
		w.onHosts(w.advance().Claimed, "h000")
		w.cancelQueue(q)
		w.areSteps(b, 1, "cancelled", left, awaited)
		for w.advance().More {
		}
		w.areSteps(b, 1, "cancelled", left, "queued(queue)")
	}},
	{"chain/markedAway", "on a host that is removed no step begins behind one that is cancelled with its queue", func(w *world) {
		w.gate(hostsOf(2)...)
		w.connect("h001")
		q := queue("q")
		b := w.batch(hostsOf(2), then(harp.OnEnded), member(func(j *store.Job) { j.Queue, j.Concurrency = q, 1 }))
		w.onHosts(w.advance().Claimed, "h000")
		w.cancelQueue(q)
		w.leaves("h001")
		_, err := w.st.RemoveHost(w.ctx(), "h001", store.Operation{ID: w.id(), By: caller, Time: w.now})
		w.must(err)
		for w.advance().More {
		}
		w.areSteps(b, 1, "cancelled", left)
	}},
	{"chain/cancel", "a batch that is cancelled begins no step: a host that would have gone on is cancelled", func(w *world) {
		b, started := w.begun(hostsOf(4), parallel(3), then(""), then(harp.OnEnded))
		w.apply(started[1], store.End)
		one := w.readBatch(b).Counted
		w.change(b, store.BatchCancel)
		c := w.apply(started[0], store.End)
		if got := w.readBatch(b).Counted; got < 3*one-one/4 {
			w.Fatalf("a job counts %d bytes, and that with one that ended and one that did not begin %d", one, got)
		}
		if len(c.Claimed) != 0 || len(c.Left) != 1 || c.Left[0].ID != harp.MemberID(b.ID, "h000", 2) {
			w.Fatalf("claimed are %+v, left %+v", c.Claimed, c.Left)
		}
		w.areSteps(b, 0, did, "cancelled(batch)", left)
		w.failure(w.stepOf(b, 1, 2))
		w.areSteps(b, 1, did, "failed", left)
		w.failure(started[2])
		w.areSteps(b, 2, "failed", left, left)
		w.areSteps(b, 3, "cancelled(batch)", left, left)
		w.advance()
		w.is(b, harp.BatchCancelled, harp.BatchReasonRequested, 3)
		w.checkBatch(b)
	}},
	{"chain/stop", "a chain that fails counts once for StopAfter, and what ends with it begins no step", func(w *world) {
		b, started := w.begun(hostsOf(4), parallel(3), stopAfter(1), then(""), then(harp.OnFailed))
		w.apply(started[0], store.End)
		failed := w.event(started[1], store.End)
		failed.Failure.Code = "remote"
		cs, err := w.st.Apply(w.ctx(), store.Transition{ID: started[2].ID, Event: w.event(started[2], store.End)}, store.Transition{ID: started[1].ID, Event: failed})
		w.must(err)
		w.must(cs[0].Err)
		w.must(cs[1].Err)
		w.areSteps(b, 1, "failed", left, sent) // its chain goes on
		w.apply(w.stepOf(b, 1, 3), store.End)
		w.is(b, harp.BatchPaused, harp.BatchReasonFailures, 3)

		b, started = w.begun(hostsOf(3), parallel(2), stopAfter(1), then(""))
		failed = w.event(started[1], store.End)
		failed.Failure.Code = "remote"
		cs, err = w.st.Apply(w.ctx(), store.Transition{ID: started[0].ID, Event: w.event(started[0], store.End)}, store.Transition{ID: started[1].ID, Event: failed})
		w.must(err)
		if got := slices.Concat(cs[0].Claimed, cs[1].Claimed); len(got) != 0 {
			w.Fatalf("claimed are %+v, with the end that stopped it", got)
		}
		w.areSteps(b, 0, did, waitsFor)
		w.is(b, harp.BatchPaused, harp.BatchReasonFailures, 2)
	}},
	{"chain/one", "a step is cancelled by itself once it has begun, and not before", func(w *world) {
		b, started := w.begun(hostsOf(1), then(""), then(""))
		j := w.stepOf(b, 0, 3)
		if err := w.try(j, w.event(j, store.CancelReq)).Err; !errors.Is(err, harp.ErrConflict) {
			w.Fatalf("before it has begun it is %v", err)
		}
		w.failure(started[0])
		if err := w.try(j, w.event(j, store.CancelReq)).Err; !errors.Is(err, store.ErrIllegal) {
			w.Fatalf("when it will not begin it is %v", err)
		}
		_, err := w.st.Obstacles(w.ctx(), j.ID)
		w.must(err)
	}},
	{"chain/bad", "a chain with too many steps, or for too many hosts, is refused", func(w *world) {
		for name, in := range map[string]store.BatchSubmission{
			"steps": w.batchOf(hostsOf(1), func(b *store.BatchSubmission) {
				for range harp.MaxSteps {
					then("")(b)
				}
			}),
			"members": w.batchOf(hostsOf(store.MaxBatchHosts/harp.MaxSteps+1), func(b *store.BatchSubmission) {
				for range harp.MaxSteps - 1 {
					then("")(b)
				}
			}),
			"classes": w.batchOf(hostsOf(1), then("", func(s *store.BatchStep) { s.Classes = nil })),
		} {
			_, err := w.st.SubmitBatch(w.ctx(), in, w.now)
			w.wants(err, harp.ErrInvalid)
			if _, err := w.st.Batch(w.ctx(), in.Batch.ID); !errors.Is(err, harp.ErrNotFound) {
				w.Fatalf("%s: it is stored: %v", name, err)
			}
		}
	}},
	{"chain/prune", "a chain is deleted whole", func(w *world) {
		hosts := hostsOf(300)
		b, started := w.begun(hosts, parallel(300), then(""), then(harp.OnFailed))
		for _, j := range started {
			w.apply(j, store.End)
			if j.Index%2 == 0 {
				w.failure(w.stepOf(b, j.Index, 2))
				w.apply(w.stepOf(b, j.Index, 3), store.End)
				continue
			}
			w.apply(w.stepOf(b, j.Index, 2), store.End)
		}
		w.is(b, harp.BatchFailed, "", 300)
		w.pass(time.Hour)
		deleted := 0
		for more := true; more; {
			out, err := w.st.Prune(w.ctx(), store.Retention{EndedBefore: w.now}, w.now)
			w.must(err)
			deleted, more = deleted+out.Jobs, out.More
		}
		if deleted != 300*2+150 {
			w.Fatalf("%d jobs were deleted", deleted)
		}
		_, err := w.st.Batch(w.ctx(), b.ID)
		w.wants(err, harp.ErrPruned)
		_, err = w.st.Job(w.ctx(), harp.MemberID(b.ID, "h001", 3))
		w.wants(err, harp.ErrPruned)
	}},
}

var reopeningChains = []rule{
	{"chain/reopenSlot", "a member that has left its slot between its attempts does not have it again in a store that is opened anew", func(w *world) {
		b, started := w.begun(hostsOf(2), parallel(1), func(b *store.BatchSubmission) {
			b.Batch.Classes[0].Retry = harp.RetryPolicy{On: []harp.State{harp.StateFailed}, Attempts: 2, Backoff: time.Second, MaxBackoff: time.Second}
		})
		w.leaves("h000")
		w.failure(started[0])
		w.pass(time.Minute)
		w.onHosts(w.advance().Claimed, "h001")
		w.reopen()
		w.gate(hostsOf(2)...)
		w.claim(10, hostsOf(2)...)
		w.advance()
		w.checkBatch(b)
		w.onHosts(w.apply(w.stepOf(b, 1, 1), store.End).Claimed, "h000")
	}},
	{"chain/reopen", "a chain goes on where it was, and begins no step twice", func(w *world) {
		b, started := w.begun(hostsOf(3), parallel(2), then(""), then(""))
		w.apply(started[0], store.End)
		w.reopen()
		w.checkBatch(b)
		w.gate(hostsOf(3)...)
		w.areSteps(b, 0, did, sent, awaited)
		w.silence("h000")
		w.change(b, store.BatchPaused)
		w.apply(w.stepOf(b, 1, 1), store.End)
		w.reopen()
		w.areSteps(b, 1, did, waitsFor, awaited)
		w.gate(hostsOf(3)...)
		w.advance()
		w.change(b, store.BatchResumed)
		w.advance()
		w.claim(10, hostsOf(3)...)
		w.areSteps(b, 1, did, sent, awaited)
		w.reopen()
		w.gate(hostsOf(3)...)
		for n := 0; !w.readBatch(b).State.Ended(); n++ {
			for _, j := range w.members(b) {
				if store.HoldsSlot(j.State) {
					w.apply(j, store.End)
				}
			}
			w.advance()
			if n > 20 {
				w.Fatalf("it does not end: %+v", w.readBatch(b))
			}
		}
		w.is(b, harp.BatchSucceeded, "", 3)
		w.reopen()
		w.checkBatch(b)
	}},
}
