//go:build linux

package history

import (
	"fmt"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/faults/actor"
	"github.com/harpcaller/harp/internal/faults/witness"
)

// good is a history of one call that succeeded with two records.
func good() *History {
	h := New()
	h.Invoke(Call{ID: "j", Host: "h", Queue: "q", Concurrency: 1, Records: 2, Acked: true})
	h.See("j", harp.JobStatus{State: harp.StateSent, Attempt: 1})
	h.See("j", harp.JobStatus{State: harp.StateRunning, Attempt: 1})
	h.Witness = []witness.Line{line(witness.Begin, "j", 1, 10), line(witness.End, "j", 1, 20)}
	h.Change("j", func(c *Call) {
		c.Final = &Final{
			Status:  harp.JobStatus{ID: "j", State: harp.StateSucceeded, Started: harp.DidRun, Attempt: 1, Records: 2},
			Value:   `{"job":"j","attempt":1}`,
			Records: []harp.Record{record("j", 0), record("j", 1)},
		}
	})
	return h
}

func line(what, job string, attempt int, at int64) witness.Line {
	return witness.Line{What: what, Job: job, Attempt: attempt, PID: 7, At: at}
}

func record(job string, n int) harp.Record {
	v, err := harp.NewValue(actor.Record{Job: job, Attempt: 1, N: n})
	if err != nil {
		panic(err)
	}
	return harp.Record{Seq: uint64(n), Attempt: 1, Kind: harp.KindData, Value: v}
}

func TestAGoodHistory(t *testing.T) {
	if found := good().Check(); len(found) != 0 {
		t.Errorf("found %v", found)
	}
}

func TestBadHistories(t *testing.T) {
	change := func(f func(*Call)) func(*History) {
		return func(h *History) { h.Change("j", f) }
	}
	end := func(s harp.State, started harp.Ran) func(*History) {
		return change(func(c *Call) { c.Final.Status.State, c.Final.Status.Started = s, started })
	}
	also := func(fs ...func(*History)) func(*History) {
		return func(h *History) {
			for _, f := range fs {
				f(h)
			}
		}
	}
	witnessed := func(lines ...witness.Line) func(*History) {
		return func(h *History) { h.Witness = lines }
	}
	for i, c := range []struct {
		rule string
		bad  func(*History)
	}{
		{"I0", end(harp.StateRejected, harp.DidNotRun)},
		{"I0", also(end(harp.StateFailed, harp.DidRun), witnessed())},
		{"I0", change(func(c *Call) { c.Acked, c.Denied, c.Final = false, true, nil })},
		{"I1", change(func(c *Call) { c.Final = nil })},
		{"I1", change(func(c *Call) { c.Final = &Final{Missing: true} })},
		{"I1", also(change(func(c *Call) { c.Acked, c.Final = false, &Final{Missing: true} }))},
		{"I1", change(func(c *Call) { c.Final.Err = fmt.Errorf("bad") })},
		{"I1", end(harp.StateUnknown, "")},
		{"I2", func(h *History) { h.Witness = append(h.Witness, line(witness.Begin, "j", 1, 30)) }},
		{"I2", func(h *History) { h.Witness = append(h.Witness, line(witness.Begin, "j", 2, 30)) }},
		{"I2", func(h *History) { h.Witness = append(h.Witness, line(witness.Begin, "k", 1, 30)) }},
		{"I3", end(harp.StateFailed, harp.DidRun)},
		{"I3", end(harp.StateCancelled, harp.DidRun)},
		{"I3", witnessed(line(witness.Begin, "j", 1, 10))},
		{"I3", change(func(c *Call) { c.Final.Value = `{"job":"k","attempt":1}` })},
		{"I3", also(end(harp.StateLost, harp.MayHaveRun), func(h *History) { h.Ended(Attempt{"j", 1}) })},
		{"I4", change(func(c *Call) { c.Final.Records = c.Final.Records[:1] })},
		{"I4", change(func(c *Call) { c.Final.Records = c.Final.Records[1:] })},
		{"I4", change(func(c *Call) { c.Final.Records[1] = record("k", 1) })},
		{"I4", change(func(c *Call) { c.Final.Records[1].Value = c.Final.Records[0].Value })},
		{"I4", change(func(c *Call) { c.Seen[1].Records = 3 })},
		{"I4", change(func(c *Call) { c.Gaps = 1 })},
		{"I5", change(func(c *Call) { c.Seen[0], c.Seen[1] = c.Seen[1], c.Seen[0] })},
		{"I5", change(func(c *Call) { c.Seen[0].State = harp.StateLost })},
		{"I5", change(func(c *Call) { c.Seen[0].Attempt = 2 })},
		{"I6", func(h *History) {
			h.Invoke(Call{ID: "k", Queue: "q", Concurrency: 1})
			h.Witness = append(h.Witness, line(witness.Begin, "k", 1, 15), line(witness.End, "k", 1, 16))
		}},
	} {
		h := good()
		c.bad(h)
		found := false
		for _, v := range h.Check() {
			found = found || v.Rule == c.rule
		}
		if !found {
			t.Errorf("history %d: %s was not found: %v", i, c.rule, h.Check())
		}
	}
}

// What is allowed must not be found, or nobody will believe what is.
func TestWhatIsAllowed(t *testing.T) {
	for i, change := range []func(*History){
		func(h *History) { // its end was never heard of
			h.Change("j", func(c *Call) { c.Final.Status.State, c.Final.Status.Started = harp.StateLost, harp.MayHaveRun })
		},
		func(h *History) { // proven not started
			h.Change("j", func(c *Call) {
				c.Seen = []Sight{{harp.StateSent, 1, 0}, {harp.StateQueued, 1, 0}, {harp.StateSent, 1, 0}}
			})
		},
		func(h *History) { // unknown stands apart
			h.Change("j", func(c *Call) {
				c.Seen = []Sight{{harp.StateRunning, 1, 0}, {harp.StateUnknown, 1, 0}, {harp.StateRunning, 1, 0}}
			})
		},
		func(h *History) { // the process died with the job, before another one began
			h.Witness[1] = line(witness.Begin, "k", 1, 40)
			h.Deaths[7] = 35
			h.Witness[1].PID = 8
			h.Change("j", func(c *Call) { c.Final.Status.State, c.Final.Status.Started = harp.StateLost, harp.MayHaveRun })
			h.Invoke(Call{ID: "k", Queue: "q", Concurrency: 1})
		},
	} {
		h := good()
		change(h)
		if found := h.Check(); len(found) != 0 {
			t.Errorf("history %d: found %v", i, found)
		}
	}
}
