package harptest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/harptest"
)

type napArgs struct {
	For time.Duration `json:"for"`
}

var nap = harp.NewProc[napArgs, string]("nap", "sleep")

// lab is a system of one host that can nap, whose naps are seen.
type lab struct {
	*harptest.System
	t    *testing.T
	seen *harptest.Witness
	host *harp.Host
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, seen: &harptest.Witness{}}
	l.System = harptest.New(t, harptest.Options{
		Agents: []string{"web01"},
		Register: func(a *agent.Agent) {
			agent.Handle(a, nap, harptest.Watch(l.seen, func(ctx context.Context, args napArgs) (string, error) {
				select {
				case <-time.After(args.For):
					return "rested", nil
				case <-ctx.Done():
					return "", context.Cause(ctx)
				}
			}))
		},
		Dispatcher: dispatcher.Config{Heartbeat: time.Second},
	})
	l.host = l.Caller().Host("web01")
	return l
}

// inBubble runs a test body in virtual time.
func inBubble(t *testing.T, body func(l *lab)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { body(newLab(t)) })
}

// call calls nap.
func (l *lab) call(d time.Duration, opts ...harp.Option) *harp.Job {
	l.t.Helper()
	job, err := nap.Call(l.t.Context(), l.host, napArgs{d}, opts...)
	if err != nil {
		l.t.Fatal(err)
	}
	return job
}

// ends checks how a job ends.
func (l *lab) ends(job *harp.Job, want harp.State) harp.JobStatus {
	l.t.Helper()
	if _, err := job.Wait(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
	s, err := job.Status(l.t.Context())
	if err != nil || s.State != want {
		l.t.Errorf("the job ended as %s (%s), %v; want %s", s.State, s.Reason, err, want)
	}
	return s
}

// is checks the state of a job.
func (l *lab) is(job *harp.Job, want harp.State) {
	l.t.Helper()
	s, err := job.Status(l.t.Context())
	if err != nil || s.State != want {
		l.t.Errorf("the job is %s (%s), %v; want %s", s.State, s.Reason, err, want)
	}
}

// ranOnce checks that the procedure ran once for a job.
func (l *lab) ranOnce(job *harp.Job) {
	l.t.Helper()
	if got := l.seen.Of(job.ID()); len(got) != 1 {
		l.t.Errorf("it ran %d times: %+v", len(got), got)
	}
}

func TestItWorksInTheWorldsTimeToo(t *testing.T) {
	l := newLab(t)
	job := l.call(time.Millisecond)
	if v, err := harp.Get[string](t.Context(), job); v != "rested" || err != nil {
		t.Errorf("it returned %q, %v", v, err)
	}
	l.ranOnce(job)
	x := l.seen.Executions()[0]
	if x.Host != "web01" || x.Procedure != "nap" || x.Attempt != 1 || x.End.Before(x.Start) || x.Err != nil {
		t.Errorf("seen was %+v", x)
	}
}

// Who is cut off is not told. The job goes on, and is known again when all is healed.
func TestCutAndHeal(t *testing.T) {
	inBubble(t, func(l *lab) {
		job := l.call(time.Minute)
		time.Sleep(time.Second)
		l.Cut("web01")
		time.Sleep(time.Second)
		l.is(job, harp.StateRunning)
		time.Sleep(10 * time.Second)
		l.is(job, harp.StateUnknown)
		l.Heal("web01")
		l.WaitOnline("web01")
		l.is(job, harp.StateRunning)
		l.ends(job, harp.StateSucceeded)
		l.ranOnce(job)
	})
}

// One direction is enough to be silent.
func TestMuteAndDeafen(t *testing.T) {
	for _, way := range []struct {
		name string
		cut  func(*lab, string)
	}{
		{"mute", func(l *lab, host string) { l.Mute(host) }},
		{"deafen", func(l *lab, host string) { l.Deafen(host) }},
	} {
		t.Run(way.name, func(t *testing.T) {
			inBubble(t, func(l *lab) {
				job := l.call(time.Minute)
				time.Sleep(time.Second)
				way.cut(l, "web01")
				time.Sleep(time.Minute)
				l.is(job, harp.StateUnknown)
				l.Heal("web01")
				l.ends(job, harp.StateSucceeded)
				l.ranOnce(job)
			})
		})
	}
}

func TestReset(t *testing.T) {
	inBubble(t, func(l *lab) {
		job := l.call(time.Minute)
		time.Sleep(time.Second)
		l.Reset("web01")
		l.Reset(harptest.CallerName)
		l.ends(job, harp.StateSucceeded)
		l.ranOnce(job)
	})
}

func TestDelay(t *testing.T) {
	inBubble(t, func(l *lab) {
		l.Delay("web01", 300*time.Millisecond)
		begun := time.Now()
		l.ends(l.call(time.Second), harp.StateSucceeded)
		if took := time.Since(begun); took < 1600*time.Millisecond {
			t := l.t
			t.Errorf("it took %v", took)
		}
	})
}

// The caller's own connection can be hit as well: its calls wait and are made.
func TestTheCallerCanBeCutOff(t *testing.T) {
	inBubble(t, func(l *lab) {
		l.Cut(harptest.CallerName)
		time.AfterFunc(10*time.Second, func() { l.Heal(harptest.CallerName) })
		job := l.call(time.Second)
		l.ends(job, harp.StateSucceeded)
		l.ranOnce(job)
	})
}

// What ran when its agent crashed is lost, and does not run again.
func TestCrashAgent(t *testing.T) {
	inBubble(t, func(l *lab) {
		done := l.call(time.Millisecond)
		l.ends(done, harp.StateSucceeded)
		job := l.call(time.Minute)
		time.Sleep(time.Second)
		l.CrashAgent("web01")
		waits := l.call(time.Second, harp.OfflineWait(time.Hour))
		time.Sleep(time.Minute)
		l.is(job, harp.StateUnknown)
		l.is(waits, harp.StateQueued)
		l.StartAgent("web01")
		if s := l.ends(job, harp.StateLost); s.Reason != harp.LostAgentRestarted {
			l.t.Errorf("lost for the reason %q", s.Reason)
		}
		l.ends(waits, harp.StateSucceeded)
		l.ranOnce(job)
		l.ranOnce(waits)
		l.ranOnce(done)
	})
}

// An agent without its disk knows nothing of what it was sent.
func TestWipeAgent(t *testing.T) {
	inBubble(t, func(l *lab) {
		job := l.call(time.Minute)
		time.Sleep(time.Second)
		l.WipeAgent("web01")
		l.StartAgent("web01")
		if s := l.ends(job, harp.StateLost); s.Reason != harp.LostJournalGone {
			l.t.Errorf("lost for the reason %q", s.Reason)
		}
		l.ranOnce(job)
	})
}

// A stopped agent tells how its jobs ended.
func TestStopAgent(t *testing.T) {
	inBubble(t, func(l *lab) {
		job := l.call(time.Minute)
		time.Sleep(time.Second)
		l.StopAgent("web01")
		l.StartAgent("web01")
		l.WaitOnline("web01")
		s, err := job.Status(l.t.Context())
		if err != nil || s.State != harp.StateLost || s.Reason != harp.LostAgentStopped {
			l.t.Errorf("the job is %s (%s), %v", s.State, s.Reason, err)
		}
		l.ranOnce(job)
		l.ends(l.call(time.Second), harp.StateSucceeded)
	})
}

// A dispatcher that is started anew finds what it had committed; calls and what waits
// for their end go on.
func TestTheDispatcherEnds(t *testing.T) {
	for _, way := range []struct {
		name string
		end  func(*lab)
	}{
		{"stop", func(l *lab) { l.StopDispatcher() }},
		{"crash", func(l *lab) { l.CrashDispatcher() }},
	} {
		t.Run(way.name, func(t *testing.T) {
			inBubble(t, func(l *lab) {
				done := l.call(time.Millisecond)
				l.ends(done, harp.StateSucceeded)
				runs := l.call(30 * time.Second)
				later := l.call(time.Second, harp.StartAfter(time.Now().Add(time.Minute)))
				time.Sleep(time.Second)
				old := l.Embedded()
				way.end(l)
				synctest.Wait()
				if _, err := old.Ping(l.t.Context()); !errors.Is(err, harp.ErrClosed) {
					l.t.Errorf("a caller inside what has ended: %v", err)
				}
				time.Sleep(10 * time.Second)
				l.StartDispatcher()
				for _, job := range []*harp.Job{done, runs, later} {
					l.ends(job, harp.StateSucceeded)
					l.ranOnce(job)
				}
			})
		})
	}
}
