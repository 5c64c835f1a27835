package dispatcher_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// noRoomForStops has no space for what says that an attempt is being stopped, for a minute.
type noRoomForStops struct {
	store.Store
	until time.Time
}

func (s *noRoomForStops) Apply(ctx context.Context, ts ...store.Transition) ([]store.Change, error) {
	if ts[0].Event.Kind == store.Stop && time.Now().Before(s.until) {
		return []store.Change{{Err: harp.ErrNoSpace}}, nil
	}
	return s.Store.Apply(ctx, ts...)
}

// TestLongEndBehindStopping: while STOPPING waits for space in the store, an END behind it
// that is longer than the exchange's window does not cost the host its session.
func TestLongEndBehindStopping(t *testing.T) {
	for name, c := range map[string]struct {
		size    int
		records bool
	}{"short": {100, false}, "long": {600 << 10, false}, "long, read ahead": {600 << 10, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { endBehindStopping(t, c.size, c.records) })
		})
	}
}

func endBehindStopping(t *testing.T, size int, records bool) {
	st := &noRoomForStops{Store: memory.Open(nil), until: time.Now().Add(time.Minute)}
	sys := newSystem(t, embedded, st, dispatcher.Config{})
	agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
	agent.tr.Beat(10 * time.Second)
	go agent.answerProbes()
	asked := agent.exchanges(t)
	synctest.Wait()
	job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
	m := <-asked
	m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
	end := wire.End{Value: must[harp.Value](t)(harp.NewValue(strings.Repeat("x", size)))}
	if records {
		m.sendFrame(t, wire.TypeRecords, false, wire.Records{Records: []wire.Record{{Time: 1, Value: []byte{1}}}})
		end.Records = 1
	}
	m.sendFrame(t, wire.TypeStopping, false, wire.Stopping{Cause: wire.CauseMaxExecTime, Since: 1, Limit: 1})
	defer agent.tr.Close(nil)
	if err := m.x.Send(wire.TypeEnd, true, wire.Encode(end)); err != nil {
		t.Errorf("%v; the session: %v", err, agent.tr.Err())
		return
	}
	m.expectAck(t)
	if st := must[harp.JobStatus](t)(job.Status(t.Context())); !st.State.Ended() {
		t.Errorf("it is %s", st.State)
	}
}

// An agent that says STOPPING and nothing else breaks the protocol. One that says that
// nothing is left, and no cause, does not; neither makes the job one that is stopped.
func TestStoppingWithoutContentIsTaken(t *testing.T) {
	for name, c := range map[string]struct {
		body []byte
		ends bool
	}{"no body": {nil, true}, "no cause": {wire.Encode(wire.Stopping{Since: 1}), false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sys := newSystem(t, embedded, nil, dispatcher.Config{})
				agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
				asked := agent.exchanges(t)
				synctest.Wait()
				job, m := sys.callRunning(t, asked)
				if err := m.x.Send(wire.TypeStopping, false, c.body); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				if s := must[harp.JobStatus](t)(job.Status(t.Context())); s.State != harp.StateRunning {
					t.Errorf("it is %s (%s)", s.State, s.Reason)
				}
				if ended := agent.tr.Err() != nil; ended != c.ends {
					t.Errorf("the session has ended: %t, with %v", ended, agent.tr.Err())
				}
			})
		})
	}
}

// An END that says that it was stopped and not why breaks the protocol, too.
func TestAnEndThatWasStoppedForNoReasonIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newSystem(t, embedded, nil, dispatcher.Config{})
		agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		asked := agent.exchanges(t)
		synctest.Wait()
		job, m := sys.callRunning(t, asked)
		m.sendFrame(t, wire.TypeEnd, true, wire.End{Stopped: &wire.Stopping{Since: 1}})
		synctest.Wait()
		if s := must[harp.JobStatus](t)(job.Status(t.Context())); s.State != harp.StateRunning {
			t.Errorf("it is %s (%s)", s.State, s.Reason)
		}
	})
}
