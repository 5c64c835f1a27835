package harptest_test

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/harptest"
)

// history is what came of a plan, seen from outside: by those who called, by the
// procedures and by who made the faults.
type history struct {
	Hosts      []string
	Syncs      time.Duration // within which an agent has written what it knows
	Calls      []*callRecord
	Executions []harptest.Execution
	Crashes    []crash
	Stops      []crash // those in order
	Cancels    []queueCancel
	Pauses     []queuePause
	Outages    []outage // in the order of their beginnings
	LostAfter  time.Duration
	Prunes     []prune
	Restore    restore

	Feed        []harp.Event // all that it has told
	Kept        []harp.Event // what it tells in the end
	Subscribers []*subscriber

	Finals map[string]final // by job id: of all that anybody has named

	mu      sync.Mutex
	Emitted map[attempt][]string // what was taken, in order
}

// attempt names one.
type attempt struct {
	job    string
	number int
}

// crash is the end of an agent.
type crash struct {
	host  string
	begun time.Time // of a stop: when the agent was told
	at    time.Time
	wiped bool // its disk is gone
}

// outage is the time in which a disk was in trouble.
type outage struct {
	kind       fault
	host       string // "": the dispatcher's
	begin, end time.Time
}

// queueCancel is a cancel of a queue that was acknowledged.
type queueCancel struct {
	queue      string
	begin, end time.Time
}

// queuePause is a pause of a queue, from its acknowledgement to its end.
type queuePause struct {
	queue      string
	begin, end time.Time
}

// callRecord is a call as who made it knows it.
type callRecord struct {
	plan     *callPlan
	begin    time.Time // of the run
	id       string    // the one it chose
	job      string    // the one it was told; "": none
	acked    time.Time // when
	errs     []error   // of each submission that was not acknowledged
	after    []error   // those of them that began when another had been acknowledged
	looks    []harp.JobStatus
	followed []harp.Record
	follow   error // why following ended; nil: the job had ended

	cancelled time.Time // when its cancel was acknowledged; zero: it was not
}

// final is what is said of a job when all is over.
type final struct {
	status  harp.JobStatus
	result  harp.Result
	records []harp.Record
	err     error // it cannot be had
}

// emitted notes a record that was taken.
func (h *history) emitted(a attempt, value string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.Emitted == nil {
		h.Emitted = map[attempt][]string{}
	}
	h.Emitted[a] = append(h.Emitted[a], value)
}

// cancelled notes the cancel of a queue.
func (h *history) cancelled(q queueCancel) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Cancels = append(h.Cancels, q)
}

// paused notes the pause of a queue.
func (h *history) paused(q queuePause) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Pauses = append(h.Pauses, q)
}

// executions returns those of a job.
func (h *history) executions(job string) []harptest.Execution {
	var list []harptest.Execution
	for _, x := range h.Executions {
		if x.Job == job {
			list = append(list, x)
		}
	}
	return list
}

// callsOf returns the calls that a job was the answer to, or would have been.
func (h *history) callsOf(job string) []*callRecord {
	var list []*callRecord
	for _, c := range h.Calls {
		if c.job == job || c.id == job {
			list = append(list, c)
		}
	}
	return list
}

// released is when an execution did not count any more, in its queue: when it was over,
// or when its job was given up.
func (h *history) released(x harptest.Execution) time.Time {
	over := h.over(x)
	for _, a := range h.Finals[x.Job].status.Attempts {
		if a.Number == x.Attempt && a.Outcome == string(harp.StateLost) && (over.IsZero() || a.Ended.Before(over)) {
			return later(a.Ended, x.Start)
		}
	}
	if h.Finals[x.Job].err == nil {
		return over
	}
	for _, e := range h.life(x.Job) { // it is pruned
		givenUp := e.State == harp.StateLost || e.State == harp.StateCancelled || e.State == harp.StateQueued
		if givenUp && e.Attempt >= x.Attempt && e.Time.After(x.Start) && (over.IsZero() || e.Time.Before(over)) {
			return e.Time
		}
	}
	return over
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// over is when an execution was over: nothing goes on beyond its machine's crash.
func (h *history) over(x harptest.Execution) time.Time {
	for _, c := range h.Crashes {
		if c.host == x.Host && !c.at.Before(x.Start) && (x.End.IsZero() || c.at.Before(x.End)) {
			return c.at
		}
	}
	return x.End
}

// String tells the history of each job.
func (h *history) String() string {
	var text strings.Builder
	for _, c := range h.Crashes {
		fmt.Fprintf(&text, "%s crash of %s, wiped %v\n", clock(c.at), c.host, c.wiped)
	}
	for _, p := range h.Prunes {
		fmt.Fprintf(&text, "%s prune of what ended before %s, done %v\n", clock(p.begin), clock(p.before), p.done)
	}
	for _, o := range h.Outages {
		fmt.Fprintf(&text, "%s to %s %s %s\n", clock(o.begin), clock(o.end), o.kind, o.host)
	}
	for _, c := range h.Calls {
		fmt.Fprintf(&text, "call %d: id %s job %s errors %v cancelled %s follow %v\n", c.plan.No, c.id, c.job, c.errs, clock(c.cancelled), c.follow)
	}
	for id, f := range h.Finals {
		s := f.status
		fmt.Fprintf(&text, "job %s on %s: %s (%s) started %q submitted %s ended %s, %d records, value %v, error %v, late %+v, %v\n",
			id, s.Host, s.State, s.Reason, s.Started, clock(s.SubmitTime), clock(s.EndTime), len(f.records), f.result.Value, s.Err, s.Late, f.err)
		for _, a := range s.Attempts {
			fmt.Fprintf(&text, "    attempt %d: sent %s started %s ended %s outcome %s\n", a.Number, clock(a.Sent), clock(a.Started), clock(a.Ended), a.Outcome)
		}
		for _, x := range h.executions(id) {
			fmt.Fprintf(&text, "    executed attempt %d: %s to %s, %v\n", x.Attempt, clock(x.Start), clock(x.End), x.Err)
		}
	}
	return text.String()
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("15:04:05.000")
}
