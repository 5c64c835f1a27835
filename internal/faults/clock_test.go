//go:build linux && !race

package faults

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/faults/actor"
	"github.com/harpcaller/harp/internal/faults/history"
)

// setClock makes the dispatcher's clock wrong by d, in one step.
func setClock(t *testing.T, f *Fleet, d time.Duration) {
	t.Helper()
	next := f.Dispatcher.Clock + ".next"
	must(t, os.WriteFile(next, []byte(d.String()), 0o600))
	must(t, os.Rename(next, f.Dispatcher.Clock))
}

// T13: the dispatcher's clock jumps. Limits and silence are measured on clocks that
// do not; what is due at a time is due by the clock that jumped.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Dispatcher.Clock = filepath.Join(f.Dir, "clock")
	f.Dispatcher.Heartbeat = 500 * time.Millisecond
	setClock(t, f, 0)
	must(t, f.StartDispatcher())
	all := callers(t, f, 3)
	hosts := names(2)
	startAgents(t, f, all[0], hosts...)
	l := &Load{Fleet: f, Callers: all, Hosts: hosts, Rate: 300, Workers: 48, Args: longer}
	took := underLoad(t, l, func(*rand.Rand) {
		// Further back a caller's fresh ids would be of a time that has not come.
		for range pick(1, 10) {
			for _, wrong := range []time.Duration{time.Hour, 0, 24 * time.Hour, 0, -50 * time.Minute, 0} {
				setClock(t, f, wrong)
				time.Sleep(700 * time.Millisecond)
			}
		}
	})
	checkDue(t, f, all[0])
	holds(t, f, all[0])
	for _, c := range f.History.Calls() {
		if c.Final != nil && (c.Final.Status.State == harp.StateTimedOut || c.Final.Status.State == harp.StateLost) {
			t.Errorf("job %s is %s (%s): a clock that jumped is no reason", c.ID, c.Final.Status.State, c.Final.Status.Reason)
		}
	}
	if n := sawUnknown(f.History); n > 0 {
		t.Errorf("%d jobs were unknown: a clock that jumped is no silence", n)
	}
	loaded(t, l, took)
}

// checkDue expects calls to start when they are due by a clock that is wrong.
func checkDue(t *testing.T, f *Fleet, caller *harp.Caller) {
	t.Helper()
	const wrong = time.Hour
	setClock(t, f, wrong)
	for what, at := range map[string]time.Time{
		"due by now":      time.Now().Add(wrong / 2),
		"due in a moment": time.Now().Add(wrong + time.Second),
	} {
		id := harp.NewID()
		f.History.Invoke(history.Call{ID: id, Host: "host00", Acked: true})
		job, err := caller.Host("host00").Call(t.Context(), actor.Work, actor.Args{}, harp.JobID(id), harp.StartAfter(at))
		must(t, err)
		eventually(t, "a call starts that is "+what, func() bool {
			s, err := job.Status(t.Context())
			return err == nil && s.State.Ended()
		})
	}
	setClock(t, f, 0)
}
