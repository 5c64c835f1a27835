package harptest_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/harptest"
)

// goodHistory is one in which every promise was kept: a job that succeeded with two
// records, one that was lost in a crash and ran again, one that never started, one
// that was refused, and two of a queue of which one may run.
func goodHistory() *history {
	var (
		t0    = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		at    = func(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }
		value = func(v any) harp.Value {
			encoded, err := harp.NewValue(v)
			if err != nil {
				panic(err)
			}
			return encoded
		}
		record = func(job string, seq, number, n int) harp.Record {
			return harp.Record{Seq: uint64(seq), Attempt: number, Kind: harp.KindData, Value: value(recordOf(job, number, n))}
		}
		ran = func(job string, number, from, to int) harptest.Execution {
			return harptest.Execution{Job: job, Attempt: number, Host: "h1", Start: at(from), End: at(to)}
		}
		call = func(no int, job string, p callPlan) *callRecord {
			p.No = no
			return &callRecord{plan: &p, begin: t0, id: job, job: job, acked: t0}
		}
	)
	succeeded := func(job string, attempts ...harp.Attempt) final {
		n := len(attempts)
		return final{
			status: harp.JobStatus{ID: job, Host: "h1", State: harp.StateSucceeded, Started: harp.DidRun, Attempts: attempts, Attempt: n, SubmitTime: t0, EndTime: at(50)},
			result: harp.Result{State: harp.StateSucceeded, Value: value(valueOf(job, n))},
		}
	}
	ok := harp.Attempt{Number: 1, Sent: at(1), Outcome: "succeeded"}
	streamed := succeeded("streamed", ok)
	streamed.status.Records = 2
	streamed.records = []harp.Record{record("streamed", 0, 1, 0), record("streamed", 1, 1, 1)}
	again := succeeded("again", harp.Attempt{Number: 1, Sent: at(1), Outcome: "lost"}, harp.Attempt{Number: 2, Sent: at(12), Outcome: "succeeded"})
	lost := again
	lost.status.State, lost.status.Reason, lost.status.Started = harp.StateLost, harp.LostAgentRestarted, harp.MayHaveRun
	lost.status.ID, lost.status.Attempts, lost.status.Attempt = "lost", again.status.Attempts[:1], 1
	lost.result = harp.Result{State: harp.StateLost, Err: harp.ErrLost}
	never := final{
		status: harp.JobStatus{ID: "never", Host: "h1", State: harp.StateExpired, Started: harp.DidNotRun, SubmitTime: t0, EndTime: at(9)},
		result: harp.Result{State: harp.StateExpired, Err: harp.ErrExpired},
	}
	queue := callPlan{Queue: "q", Concurrency: 1}
	h := &history{
		Hosts: []string{"h1"},
		Calls: []*callRecord{
			call(0, "streamed", callPlan{Follow: true}), call(1, "again", callPlan{Idempotent: true}), call(2, "lost", callPlan{}),
			call(3, "never", callPlan{}), call(4, "refused", callPlan{}), call(5, "first", queue), call(6, "second", queue),
			call(7, "later", callPlan{StartAfter: 20 * time.Second}),
		},
		Crashes: []crash{{host: "h1", at: at(10)}},
		Executions: []harptest.Execution{
			ran("streamed", 1, 2, 4), ran("again", 1, 2, 11), ran("again", 2, 13, 14), ran("lost", 1, 5, 10),
			ran("first", 1, 2, 3), ran("second", 1, 3, 5), ran("later", 1, 20, 21),
		},
		Finals: map[string]final{
			"streamed": streamed, "again": again, "lost": lost, "never": never,
			"refused": {err: harp.ErrNotFound},
			"first":   succeeded("first", ok), "second": succeeded("second", ok), "later": succeeded("later", ok),
		},
		Emitted: map[attempt][]string{{"streamed", 1}: {recordOf("streamed", 1, 0), recordOf("streamed", 1, 1)}},
	}
	h.Calls[0].followed = streamed.records
	h.Calls[0].looks = []harp.JobStatus{{State: harp.StateQueued}, {State: harp.StateSent, Attempt: 1}, {State: harp.StateUnknown, UnknownOf: harp.StateRunning, Attempt: 1}}
	h.Calls[4].job, h.Calls[4].errs = "", []error{harp.ErrUnreachable}
	for _, c := range h.Calls {
		if c.job != "" {
			h.tell(c.job, at)
		}
	}
	h.Kept = slices.Clone(h.Feed)
	h.Subscribers = []*subscriber{{events: slices.Clone(h.Feed)}}
	return h
}

// tell writes what the feed tells of a job whose attempts began when their executions
// did.
func (h *history) tell(job string, at func(seconds int) time.Time) {
	event := func(state harp.State, number int, t time.Time) {
		what := harp.EventType("job." + state)
		if number == 0 && state == harp.StateQueued {
			what = harp.EventJobSubmitted
		}
		h.Feed = append(h.Feed, harp.Event{
			Cursor: strconv.Itoa(len(h.Feed)), Time: t, Type: what, Job: job, State: state, Attempt: number,
		})
	}
	s := h.Finals[job].status
	event(harp.StateQueued, 0, at(0))
	for n, x := range h.executions(job) {
		if n > 0 {
			event(harp.StateQueued, n, x.Start)
			h.Feed[len(h.Feed)-1].Reason = harp.ReasonBackoff
		}
		event(harp.StateSent, n+1, x.Start)
		event(harp.StateRunning, n+1, x.Start)
		event(harp.StateUnknown, n+1, x.End)
	}
	event(s.State, s.Attempt, s.EndTime)
}

// change changes what is said of a job in the end.
func (h *history) change(job string, how func(*final)) {
	f := h.Finals[job]
	how(&f)
	h.Finals[job] = f
}

// trouble adds that a disk was in trouble, from one time after the beginning to another.
func (h *history) trouble(kind fault, host string, from, to time.Duration) {
	begin := h.Calls[0].begin
	h.Outages = append(h.Outages, outage{kind: kind, host: host, begin: begin.Add(from), end: begin.Add(to)})
}

// prunes takes the first events away: nobody has read them, and who reads is told so.
func (h *history) prunes() {
	const n = 3
	last := h.Feed[n-1].Time
	h.Prunes = []prune{{before: last.Add(1), begin: last}}
	h.Kept = slices.Clone(h.Feed[n:])
	h.Subscribers[0].events, h.Subscribers[0].pruned = slices.Clone(h.Kept), []int{0}
}

// untell takes events of a job, of a type or all that begin so, out of the feed.
func (h *history) untell(job string, what harp.EventType) {
	h.Feed = slices.DeleteFunc(h.Feed, func(e harp.Event) bool {
		return e.Job == job && strings.HasPrefix(string(e.Type), string(what))
	})
}

func TestAGoodHistory(t *testing.T) {
	pruned := goodHistory()
	pruned.prunes()
	for _, h := range []*history{goodHistory(), pruned} {
		if wrong := check(h); len(wrong) > 0 {
			t.Errorf("in a good history is wrong: %s", strings.Join(wrong, "\n"))
		}
	}
}

// mutants are histories in which one promise was broken, by the rule that must say so.
var mutants = []struct {
	rule, name string
	mutate     func(*history)
}{
	{"I0", "a job that did not start was executed", func(h *history) {
		h.Executions = append(h.Executions, harptest.Execution{Job: "never", Attempt: 1, Host: "h1"})
	}},
	{"I0", "a refused call was executed", func(h *history) {
		h.Executions = append(h.Executions, harptest.Execution{Job: "refused", Attempt: 1, Host: "h1"})
	}},
	{"I0", "a job that did not run is said to have", func(h *history) { h.Executions = h.Executions[1:] }},
	{"I0", "it is said to be unknown whether a job ran that succeeded", func(h *history) {
		h.change("first", func(f *final) { f.status.Started = harp.MayHaveRun })
	}},
	{"I1", "an acknowledged call is gone", func(h *history) {
		h.change("never", func(f *final) { f.err = harp.ErrNotFound })
	}},
	{"I1", "an acknowledged call did not end", func(h *history) {
		h.change("never", func(f *final) { f.status.State, f.status.Started = harp.StateQueued, "" })
	}},
	{"I1", "a call became another job", func(h *history) { h.Calls[5].job = "second" }},
	{"I1", "a job cannot be read", func(h *history) {
		h.change("refused", func(f *final) { f.err = harp.ErrUnavailable })
	}},
	{"I2", "an attempt was executed twice", func(h *history) { h.Executions = append(h.Executions, h.Executions[1]) }},
	{"I2", "a job was executed twice that must not be", func(h *history) { h.Calls[1].plan.Idempotent = false }},
	{"I2", "a job had too many attempts", func(h *history) { h.Calls[1].plan.Retry.Attempts = 1 }},
	{"I2", "a job was executed that nobody called for", func(h *history) {
		h.Executions = append(h.Executions, harptest.Execution{Job: "ghost", Attempt: 1})
	}},
	{"I3", "a job succeeded whose procedure failed", func(h *history) { h.Executions[0].Err = errors.New("no") }},
	{"I3", "a job returned what its procedure did not", func(h *history) {
		h.change("first", func(f *final) { f.result.Value = h.Finals["second"].result.Value })
	}},
	{"I3", "a job failed whose procedure succeeded", func(h *history) {
		h.change("first", func(f *final) { f.status.State, f.result.State = harp.StateFailed, harp.StateFailed })
	}},
	{"I3", "a job timed out whose procedure runs", func(h *history) {
		h.change("first", func(f *final) { f.status.State, f.result.State = harp.StateTimedOut, harp.StateTimedOut })
		h.Executions[4].End = time.Time{}
	}},
	{"I3", "a job has a result of another kind", func(h *history) {
		h.change("never", func(f *final) { f.result.State = harp.StateCancelled })
	}},
	{"I3", "a job was lost without a crash", func(h *history) { h.Crashes = nil }},
	{"I3", "a job was lost in a crash of another host", func(h *history) { h.Crashes[0].host = "h2" }},
	{"I3", "a job was lost that had ended before the crash", func(h *history) { h.Executions[3].End = h.Crashes[0].at.Add(-1) }},
	{"I3", "a journal is said to be gone that is not", func(h *history) {
		h.change("lost", func(f *final) { f.status.Reason = harp.LostJournalGone })
	}},
	{"I4", "a record is missing", func(h *history) {
		h.change("streamed", func(f *final) { f.records, f.status.Records = f.records[:1], 1 })
	}},
	{"I4", "a record has another's number", func(h *history) {
		h.change("streamed", func(f *final) { f.records[1].Seq = 0 })
	}},
	{"I4", "records are in another order", func(h *history) {
		h.change("streamed", func(f *final) {
			f.records[0].Value, f.records[1].Value = f.records[1].Value, f.records[0].Value
		})
	}},
	{"I4", "a record is there twice", func(h *history) {
		h.change("streamed", func(f *final) {
			f.records, f.status.Records = append(f.records, f.records[1]), 3
			f.records[2].Seq = 2
		})
	}},
	{"I4", "bytes were dropped", func(h *history) {
		h.change("streamed", func(f *final) { f.records[1].Truncated = 1 })
	}},
	{"I4", "a record is of an attempt that never was", func(h *history) {
		h.change("streamed", func(f *final) { f.records[1].Attempt = 2 })
	}},
	{"I4", "a follower missed a record", func(h *history) { h.Calls[0].followed = h.Calls[0].followed[1:] }},
	{"I4", "a follower missed the last", func(h *history) { h.Calls[0].followed = h.Calls[0].followed[:1] }},
	{"I4", "a follower was left alone", func(h *history) { h.Calls[0].follow = harp.ErrClosed }},
	{"I5", "a running job was sent", func(h *history) {
		h.Calls[0].looks = append(h.Calls[0].looks, harp.JobStatus{State: harp.StateSent, Attempt: 1})
	}},
	{"I5", "a running job was queued", func(h *history) {
		h.Calls[0].looks = append(h.Calls[0].looks, harp.JobStatus{State: harp.StateQueued, Attempt: 1, Attempts: []harp.Attempt{{Number: 1}}})
	}},
	{"I5", "a job that had ended changed", func(h *history) {
		h.Calls[0].looks = append(h.Calls[0].looks, harp.JobStatus{State: harp.StateFailed, Attempt: 1})
	}},
	{"I5", "records went away", func(h *history) { h.Calls[0].looks[1].Records = 3 }},
	{"I5", "a cancel was forgotten", func(h *history) { h.Calls[0].looks[1].CancelRequested = &harp.CancelRequest{} }},
	{"I6", "two of a queue ran at a time", func(h *history) { h.Executions[5].Start = h.Executions[5].Start.Add(-1) }},
	{"I6", "one of a queue never ended and the next began", func(h *history) {
		h.Executions[4].End, h.Crashes = time.Time{}, nil
	}},
	{"I7", "a job started before its time", func(h *history) { h.Calls[7].plan.StartAfter = 21 * time.Second }},
	{"I8", "a job was sent after its cancel", func(h *history) { h.Calls[5].cancelled = h.Calls[5].begin }},
	{"I2", "two attempts of a job ran at the same time", func(h *history) { h.Executions[2].Start = h.Crashes[0].at.Add(-1) }},
	{"I3", "a job was given up too early", func(h *history) {
		h.LostAfter = time.Hour
		h.change("lost", func(f *final) { f.status.Reason = harp.LostTooLong })
	}},
	{"I3", "what was said late was not kept", func(h *history) {
		h.Crashes = nil
		h.change("lost", func(f *final) { f.status.Reason = harp.LostForced })
	}},
	{"I3", "what was said late was wrong", func(h *history) {
		h.change("lost", func(f *final) {
			f.status.Reason, f.status.Late = harp.LostForced, &harp.Result{State: harp.StateFailed}
		})
	}},
	{"I9", "a job was sent while its queue was paused", func(h *history) {
		h.Pauses = []queuePause{{queue: "q", begin: h.Calls[5].begin, end: h.Calls[5].begin.Add(time.Hour)}}
	}},
	{"I1", "a job that is known was refused for want of space", func(h *history) {
		h.Calls[0].after = []error{harp.ErrNoSpace}
	}},
	{"I10", "a job was accepted when there was little space", func(h *history) {
		h.trouble(faultLow, "", -time.Hour, time.Second)
	}},
	{"I10", "a job was sent when there was no space", func(h *history) {
		h.trouble(faultCritical, "", time.Nanosecond, time.Hour)
	}},
	{"I3", "a job was lost that had ended and could be written", func(h *history) {
		h.trouble(faultFull, "h1", 0, time.Second)
		h.Executions[3].End = h.Crashes[0].at.Add(-1)
	}},
	{"I3", "a job was lost as its agent stopped, with a disk that works", func(h *history) {
		h.Stops, h.Crashes = h.Crashes, nil
	}},
	{"I3", "a job was lost that did not start, and its journal worked", func(h *history) {
		h.trouble(faultBroken, "h1", -time.Hour, 0)
		h.Crashes, h.Executions = nil, slices.Delete(h.Executions, 3, 4)
	}},
	{"I4", "a record is missing though there was space", func(h *history) {
		h.trouble(faultFull, "h2", -time.Hour, time.Hour)
		h.change("streamed", func(f *final) { f.records, f.status.Records = f.records[:1], 1 })
	}},
	{"I4", "records are in another order, and there was no space", func(h *history) {
		h.trouble(faultFull, "h1", -time.Hour, time.Hour)
		h.change("streamed", func(f *final) {
			f.records[0].Value, f.records[1].Value = f.records[1].Value, f.records[0].Value
		})
	}},
	{"I1", "a key stands for two jobs", func(h *history) {
		h.Calls[5].plan.Key, h.Calls[6].plan.Key = "k", "k"
	}},
	{"I1", "a job is said to be pruned that nobody pruned", func(h *history) {
		h.change("never", func(f *final) { f.err = harp.ErrPruned })
	}},
	{"I1", "a job was pruned that ended too late for it", func(h *history) {
		h.change("never", func(f *final) { f.err = harp.ErrPruned })
		h.Prunes = []prune{{before: h.Finals["never"].status.EndTime, done: true}}
	}},
	{"I11", "a subscriber missed an event", func(h *history) {
		h.Subscribers[0].events = slices.Delete(h.Subscribers[0].events, 3, 4)
	}},
	{"I11", "a subscriber missed the last event", func(h *history) {
		h.Subscribers[0].events = h.Subscribers[0].events[:len(h.Feed)-1]
	}},
	{"I11", "a subscriber got an event twice", func(h *history) {
		h.Subscribers[0].events = slices.Insert(h.Subscribers[0].events, 3, h.Feed[2])
	}},
	{"I11", "two events have one cursor", func(h *history) { h.Feed[1].Cursor = h.Feed[0].Cursor }},
	{"I11", "a subscriber was left alone", func(h *history) { h.Subscribers[0].err = harp.ErrUnavailable }},
	{"I11", "a subscriber was not told that events were pruned", func(h *history) {
		h.prunes()
		h.Subscribers[0].pruned = nil
	}},
	{"I11", "a subscriber missed more than was pruned", func(h *history) {
		h.prunes()
		h.Subscribers[0].events = h.Subscribers[0].events[1:]
	}},
	{"I11", "a subscriber was told that events were pruned, and got one twice", func(h *history) {
		h.Subscribers[0].pruned = []int{3}
		h.Subscribers[0].events = slices.Insert(h.Subscribers[0].events, 3, h.Feed[2])
	}},
	{"I11", "events were pruned that are too young", func(h *history) { h.Kept = h.Kept[3:] }},
	{"I11", "an event went that is younger than one that is kept", func(h *history) {
		h.prunes()
		h.Kept = slices.Delete(h.Kept, 1, 2)
	}},
	{"I12", "what was shown is not told", func(h *history) {
		h.Calls[5].looks = []harp.JobStatus{{State: harp.StateCancelling, Attempt: 1}}
	}},
	{"I12", "what was shown is told in another order", func(h *history) {
		h.Calls[0].looks[0], h.Calls[0].looks[1] = h.Calls[0].looks[1], h.Calls[0].looks[0]
	}},
	{"I12", "nothing is told of a job", func(h *history) { h.untell("first", "job.") }},
	{"I12", "it is not told that a job was sent", func(h *history) { h.untell("first", harp.EventJobSent) }},
	{"I12", "it is not told how a job ended", func(h *history) { h.untell("first", harp.EventJobSucceeded) }},
	{"I12", "a job that ran is told to have waited again", func(h *history) {
		for i := range h.Feed {
			h.Feed[i].Reason = ""
		}
	}},
	{"I12", "a job is told to have gone on when it had ended", func(h *history) {
		h.Feed = append(h.Feed, harp.Event{Cursor: "x", Type: harp.EventJobRunning, State: harp.StateRunning, Job: "first", Attempt: 1})
	}},
	{"I13", "a job that was over started", func(h *history) {
		h.Executions[4].Start = h.Finals["first"].status.EndTime.Add(1)
	}},
	{"I13", "a job was not pruned", func(h *history) {
		later := h.Finals["first"].status.EndTime.Add(time.Hour)
		h.Prunes = []prune{{before: later, begin: later, done: true}}
	}},
	{"I8", "a job was sent after its queue was cancelled", func(h *history) {
		h.Cancels = []queueCancel{{queue: "q", begin: h.Calls[5].begin.Add(1), end: h.Calls[5].begin.Add(2)}}
	}},
}

// Each rule sees its promise broken.
func TestMutants(t *testing.T) {
	caught := map[string]bool{}
	for _, m := range mutants {
		t.Run(m.rule+" "+m.name, func(t *testing.T) {
			h := goodHistory()
			m.mutate(h)
			for _, what := range check(h) {
				if strings.HasPrefix(what, m.rule+":") {
					caught[m.rule] = true
					return
				}
			}
			t.Errorf("the rule says nothing; said is %q", check(h))
		})
	}
	for _, r := range rules {
		if rule, _, _ := strings.Cut(r.name, ":"); !caught[rule] {
			t.Errorf("no mutant tries rule %s", rule)
		}
	}
}
