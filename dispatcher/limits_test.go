package dispatcher_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
)

// inVirtualTime runs a test body in a bubble with a clock of its own.
func inVirtualTime(t *testing.T, body func(t *testing.T, sys *system)) {
	for _, w := range []wiring{embedded, inMemory} {
		t.Run(string(w), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { body(t, newSystem(t, w, nil, dispatcher.Config{})) })
		})
	}
}

type causes chan error

// hang offers procedures that only end when they are stopped, and tells why they
// were: one silent, one that emits a record each 100 ms.
func (c causes) register(a *agent.Agent) {
	agent.Handle(a, harp.NewProc[struct{}, any]("silent"), func(ctx context.Context, _ struct{}) (any, error) {
		<-ctx.Done()
		c <- context.Cause(ctx)
		return nil, ctx.Err()
	})
	agent.HandleStream(a, harp.NewStreamProc[struct{}, int, any]("mute"), func(ctx context.Context, _ struct{}, _ func(int) error) (any, error) {
		<-ctx.Done()
		c <- context.Cause(ctx)
		return nil, ctx.Err()
	})
	agent.HandleStream(a, harp.NewStreamProc[struct{}, int, any]("busy"), func(ctx context.Context, _ struct{}, emit func(int) error) (any, error) {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			if err := emit(i); err != nil {
				c <- context.Cause(ctx)
				return nil, err
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				c <- context.Cause(ctx)
				return nil, ctx.Err()
			}
		}
	})
}

func TestLimitsAreIndependentAndReachTheProcedure(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		stopped := make(causes, 1)
		sys.agent("web01", stopped.register)
		for _, c := range []struct {
			name, proc string
			opts       []harp.Option
			of         string
			after      time.Duration
		}{
			{"silence", "silent", []harp.Option{harp.SilenceTimeout(time.Minute), harp.MaxExecTime(time.Hour)}, harp.LimitSilenceTimeout, time.Minute},
			{"silent in all", "silent", []harp.Option{harp.SilenceTimeout(time.Hour), harp.MaxExecTime(time.Minute)}, harp.LimitMaxExecTime, time.Minute},
			{"busy in all", "busy", []harp.Option{harp.SilenceTimeout(time.Second), harp.MaxExecTime(5 * time.Minute)}, harp.LimitMaxExecTime, 5 * time.Minute},
			{"default", "mute", nil, harp.LimitSilenceTimeout, 10 * time.Minute},
			{"none by default without records", "silent", []harp.Option{harp.MaxExecTime(time.Hour)}, harp.LimitMaxExecTime, time.Hour},
		} {
			job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), c.proc, nil, c.opts...))
			_, err := job.Get(t.Context())
			var limit *harp.TimeoutError
			if !errors.As(err, &limit) || limit.Of != c.of || limit.Limit != c.after || !errors.Is(err, harp.ErrTimeout) {
				t.Errorf("%s: error is %v", c.name, err)
			}
			s := must[harp.JobStatus](t)(job.Status(t.Context()))
			if ran := s.EndTime.Sub(s.StartTime); ran < c.after || ran > c.after+time.Second {
				t.Errorf("%s: ran %v, want %v", c.name, ran, c.after)
			}
			if s.State != harp.StateTimedOut || s.Reason != c.of || s.Started != harp.DidRun {
				t.Errorf("%s: status is %s (%s), started %s", c.name, s.State, s.Reason, s.Started)
			}
			if cause := <-stopped; !errors.As(cause, &limit) || limit.Of != c.of {
				t.Errorf("%s: the procedure's ctx ended because of %v", c.name, cause)
			}
		}
	})
}

func TestLimitsDoNotCountWaiting(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		sys.agent("web01", func(a *agent.Agent) {
			agent.Handle(a, harp.NewProc[struct{}, any]("sleep"), func(ctx context.Context, _ struct{}) (any, error) {
				select {
				case <-time.After(50 * time.Second):
					return "slept", nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			})
		})
		host := sys.caller.Host("web01", harp.Queue(harp.Args{}), harp.MaxExecTime(time.Minute), harp.SilenceTimeout(time.Minute))
		var jobs []*harp.Job
		for range 5 {
			jobs = append(jobs, must[*harp.Job](t)(host.Call(t.Context(), "sleep", nil)))
		}
		for _, job := range jobs {
			must[harp.Value](t)(job.Get(t.Context()))
		}
		s := must[harp.JobStatus](t)(jobs[4].Status(t.Context()))
		if waited := s.StartTime.Sub(s.SubmitTime); waited < 200*time.Second {
			t.Errorf("the last job waited %v", waited)
		}
	})
}

func TestCapsRefuseMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newSystem(t, embedded, nil, dispatcher.Config{Limits: dispatcher.Limits{MaxSilenceTimeout: time.Minute, MaxMaxExecTime: time.Hour}})
		sys.agent("web01", func(a *agent.Agent) {
			greeter(a)
			agent.Handle(a, harp.NewProc[struct{}, any]("own"), func(context.Context, struct{}) (any, error) { return nil, nil },
				agent.SilenceTimeout(time.Second), agent.MaxExecTime(10*time.Second))
		})
		host := sys.caller.Host("web01")
		for _, c := range []struct {
			proc string
			opt  harp.Option
		}{
			{"hello", harp.SilenceTimeout(2 * time.Minute)},
			{"hello", harp.MaxExecTime(harp.NoLimit)},
			{"own", harp.SilenceTimeout(2 * time.Second)},
			{"own", harp.MaxExecTime(time.Minute)},
		} {
			var args any
			if c.proc == "hello" {
				args = harp.Args{"name": "x"}
			}
			if _, err := host.Call(t.Context(), c.proc, args, c.opt); !errors.Is(err, harp.ErrRefused) || harp.RanOf(err) != harp.DidNotRun {
				t.Errorf("%s: more than the cap gives %v", c.proc, err)
			}
		}
		job := must[*harp.Job](t)(host.Call(t.Context(), "own", nil))
		s := must[harp.JobStatus](t)(job.Status(t.Context()))
		if s.SilenceTimeout != time.Second || s.MaxExecTime != 10*time.Second {
			t.Errorf("granted are %v and %v", s.SilenceTimeout, s.MaxExecTime)
		}
	})
}

func TestWaitingToStart(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		begun := time.Now()
		stop := sys.agent("web01", greeter)
		stop()
		synctest.Wait()
		host := sys.caller.Host("web01")
		args := harp.Args{"name": "x"}

		_, err := host.Call(t.Context(), "hello", args, harp.WhenOffline(harp.FailFast))
		if !errors.Is(err, harp.ErrUnreachable) || harp.RanOf(err) != harp.DidNotRun {
			t.Errorf("fail fast gives %v", err)
		}
		for _, c := range []struct {
			name   string
			opt    harp.Option
			after  time.Duration
			reason string
		}{
			{"offline", harp.OfflineWait(time.Minute), time.Minute, harp.ReasonOffline},
			{"offline by default", harp.Priority(0), 30 * time.Second, harp.ReasonOffline},
			{"start before", harp.Options(harp.CallOptions{OfflineWait: harp.NoLimit, StartBefore: time.Now().Add(time.Hour)}), time.Hour, harp.ReasonOffline},
		} {
			job := must[*harp.Job](t)(host.Call(t.Context(), "hello", args, c.opt))
			s := must[harp.JobStatus](t)(job.Status(t.Context()))
			if s.State != harp.StateQueued || s.Reason != c.reason {
				t.Errorf("%s: waits as %s (%s)", c.name, s.State, s.Reason)
			}
			_, err := job.Get(t.Context())
			if !errors.Is(err, harp.ErrExpired) || !errors.Is(err, harp.ErrUnreachable) || harp.RanOf(err) != harp.DidNotRun {
				t.Errorf("%s: error is %v, ran %s", c.name, err, harp.RanOf(err))
			}
			s = must[harp.JobStatus](t)(job.Status(t.Context()))
			want := c.after
			if c.name == "start before" {
				want = s.EndTime.Sub(s.SubmitTime) // counted from another moment, checked below
			}
			if got := s.EndTime.Sub(s.SubmitTime); got < want || got > want+time.Second {
				t.Errorf("%s: expired after %v, want %v", c.name, got, want)
			}
		}
		if gone := time.Since(begun); gone < time.Hour || gone > time.Hour+2*time.Minute {
			t.Errorf("all of it took %v", gone)
		}

		// Its time comes while the host is away; the host comes back.
		late := must[*harp.Job](t)(host.Call(t.Context(), "hello", args, harp.StartAfter(time.Now().Add(time.Hour))))
		if s := must[harp.JobStatus](t)(late.Status(t.Context())); s.Reason != harp.ReasonStartAfter {
			t.Errorf("it waits for %s", s.Reason)
		}
		sys.agent("web01", greeter)
		must[harp.Value](t)(late.Get(t.Context()))
		s := must[harp.JobStatus](t)(late.Status(t.Context()))
		if waited := s.StartTime.Sub(s.SubmitTime); waited < time.Hour || waited > time.Hour+time.Second {
			t.Errorf("started after %v", waited)
		}
	})
}

// A Go function cannot be killed: as long as it ignores its ctx the job is
// cancelling, keeps its slot, and its status says so.
func TestAFunctionThatIgnoresItsCtxKeepsTheJobCancelling(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		let := make(chan struct{})
		sys.agent("web01", func(a *agent.Agent) {
			agent.Handle(a, harp.NewProc[struct{}, any]("deaf"), func(context.Context, struct{}) (any, error) {
				<-let
				return "at last", nil
			})
		})
		host := sys.caller.Host("web01", harp.Queue(harp.Args{}))
		deaf := must[*harp.Job](t)(host.Call(t.Context(), "deaf", nil))
		next := must[*harp.Job](t)(host.Call(t.Context(), "deaf", nil))
		synctest.Wait()
		must[bool](t)(deaf.Cancel(t.Context()))
		time.Sleep(time.Hour) // of virtual time
		s := must[harp.JobStatus](t)(deaf.Status(t.Context()))
		if s.State != harp.StateCancelling || s.CancelRequested == nil || s.Since.IsZero() {
			t.Errorf("it is %s since %v, asked by %+v", s.State, s.Since, s.CancelRequested)
		}
		if s := must[harp.JobStatus](t)(next.Status(t.Context())); s.State != harp.StateQueued || s.Reason != harp.ReasonQueue {
			t.Errorf("the next job is %s (%s)", s.State, s.Reason)
		}
		close(let)
		if _, err := deaf.Get(t.Context()); !errors.Is(err, harp.ErrCancelled) || harp.RanOf(err) != harp.DidRun {
			t.Errorf("it ended with %v", err)
		}
		must[harp.Value](t)(next.Get(t.Context()))
	})
}
