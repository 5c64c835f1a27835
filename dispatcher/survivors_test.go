package dispatcher_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store/memory"
)

// TestProcessesThatOutliveKill: a job whose agent says that processes of it will not go has
// not ended, and its status and an event name them until it has.
func TestProcessesThatOutliveKill(t *testing.T) {
	for name, c := range map[string]struct {
		stop  wire.Stopping
		state harp.State
	}{
		"of a job that is stopped":        {wire.Stopping{Cause: wire.CauseMaxExecTime, Since: 1, Limit: 1}, harp.StateCancelling},
		"of one that has ended by itself": {wire.Stopping{}, harp.StateRunning},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { outliveKill(t, c.stop, c.state) })
		})
	}
}

func outliveKill(t *testing.T, stop wire.Stopping, state harp.State) {
	sys := newSystem(t, embedded, memory.Open(nil), dispatcher.Config{})
	agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
	agent.tr.Beat(10 * time.Second)
	go agent.answerProbes()
	defer agent.tr.Close(nil)
	asked := agent.exchanges(t)
	synctest.Wait()
	job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
	m := <-asked
	m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
	if stop.Cause != "" {
		m.sendFrame(t, wire.TypeStopping, false, stop)
	}
	for _, pids := range [][]int{{11, 12}, {12}, nil} {
		stop.Left = nil
		for _, pid := range pids {
			stop.Left = append(stop.Left, int64(pid))
		}
		m.sendFrame(t, wire.TypeStopping, false, stop)
		synctest.Wait()
		if s := must[harp.JobStatus](t)(job.Status(t.Context())); s.State != state || !slices.Equal(s.Survivors, pids) {
			t.Errorf("it is %s, and %v outlive KILL; want %s, %v", s.State, s.Survivors, state, pids)
		}
	}
	m.sendFrame(t, wire.TypeEnd, true, wire.End{Started: &wire.Started{Time: 1}})
	m.expectAck(t)
	if s := must[harp.JobStatus](t)(job.Status(t.Context())); !s.State.Ended() || s.Survivors != nil {
		t.Errorf("it is %s, and %v outlive KILL", s.State, s.Survivors)
	}
	page, err := sys.caller.EventsPage(t.Context(), harp.EventFilter{After: harp.EventsFromStart, Types: []string{string(harp.EventJobSurvivors)}}, false)
	if err != nil || len(page.Events) != 2 || page.Events[0].Reason != "11 12" || page.Events[1].Reason != "12" || page.Events[0].Job != job.ID() {
		t.Errorf("the feed has %+v, %v", page.Events, err)
	}
}
