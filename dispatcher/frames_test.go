package dispatcher_test

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/wire"
)

// frame receives a frame of an exchange.
func frame[M any](t *testing.T, m agentExchange) (typ int, message M) {
	t.Helper()
	f, err := m.x.Receive(t.Context())
	if err == nil {
		err = wire.Decode(f.Body, &message)
	}
	if err != nil {
		t.Fatal(err)
	}
	return int(f.Type), message
}

// expectUnsaid checks that the agent is told nothing more of the job.
func expectUnsaid(t *testing.T, m agentExchange) {
	t.Helper()
	synctest.Wait()
	if f, ok, _ := m.x.TryReceive(); ok {
		t.Errorf("it is told frame %d", f.Type)
	}
}

// What an agent is told with a call.
func TestCallSaysWhatWasGranted(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		before := time.Now().Add(90 * time.Second)
		agent, asked, i, m := sys.called(t, harp.SilenceTimeout(time.Minute), harp.MaxExecTime(time.Hour), harp.StartBefore(before))
		c := m.call
		if c.Attempt != 1 || c.Fence != 1 || c.Epoch != agent.welcome.Epoch || time.Duration(c.SilenceTimeout) != time.Minute || time.Duration(c.MaxExecTime) != time.Hour || c.Window != 256<<10 {
			t.Errorf("it is told %+v", c)
		}
		if time.Duration(c.Left) != 90*time.Second {
			t.Errorf("it has %v left", time.Duration(c.Left))
		}
		s := i.status(t)
		if want := s.Principal; c.Principal != want || want.Kind == "" {
			t.Errorf("it is told that %+v calls, want %+v", c.Principal, want)
		}
		if req, err := harp.DecodeRequest(c.Request); err != nil || req.ID != i.job.ID() {
			t.Errorf("the request is %+v, %v", req, err)
		}
		must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
		if c = (<-asked).call; c.Left != 0 {
			t.Errorf("what may begin at any time has %v left", time.Duration(c.Left))
		}
		m.notNow(t)
		synctest.Wait()
		time.Sleep(time.Second)
		c = (<-asked).call
		if c.Attempt != 1 || c.Fence != 2 || time.Duration(c.Left) != 89*time.Second {
			t.Errorf("then it is told %+v", c)
		}
		if req, err := harp.DecodeRequest(c.Request); err != nil || req.ID != i.job.ID() {
			t.Errorf("then the request is %+v, %v", req, err)
		}
	})
}

// An agent that is too busy is asked again after a second, twice that, and so on to half a minute.
func TestPausesForABusyAgent(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		agent, asked, _, m := sys.called(t)
		agent.tr.Beat(10 * time.Second)
		for n, want := range []int{1, 2, 4, 8, 16, 30, 30, 30} {
			at := time.Now()
			m.notNow(t)
			m = <-asked
			if took := time.Since(at).Round(100 * time.Millisecond); took != time.Duration(want)*time.Second {
				t.Errorf("pause %d is %v, want %d s", n, took, want)
			}
		}
	})
}

// An agent is told once that it shall stop, and once more when it shall not wait; by whoever
// came first.
func TestACancelIsToldOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		_, _, i, m := sys.called(t)
		m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
		synctest.Wait()
		for _, now := range []bool{false, true} {
			for range 3 {
				var opts []harp.CancelOption
				if now {
					opts = append(opts, harp.KillNow())
				}
				must[bool](t)(i.job.Cancel(t.Context(), opts...))
				synctest.Wait()
			}
			typ, c := frame[wire.Cancel](t, m)
			if typ != int(wire.TypeCancel) || c.Now != now || c.By.Kind == "" {
				t.Errorf("it is told frame %d, %+v, want now %v", typ, c, now)
			}
			expectUnsaid(t, m)
		}
		must[bool](t)(i.job.Cancel(t.Context())) // which takes nothing back
		expectUnsaid(t, m)
	})
}

// What is wanted of a job while its host is away comes with RESUME, and not again.
func TestResumeSaysWhatIsWanted(t *testing.T) {
	for _, now := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T, sys *system) {
			i := interrupt(t, sys, saidRecord, false)
			var opts []harp.CancelOption
			if now {
				opts = append(opts, harp.KillNow())
			}
			must[bool](t)(i.job.Cancel(t.Context(), opts...))
			a, asked := i.again(t, sys, "j", wire.HeldAlive)
			m := <-asked
			r := m.resume
			if r == nil || r.Job != i.job.ID() || r.Attempt != 1 || r.Epoch != a.welcome.Epoch || r.From != 1 || r.Window != 1<<20 || r.Cancel == nil || r.Cancel.Now != now {
				t.Errorf("it is asked %+v", r)
			}
			must[bool](t)(i.job.Cancel(t.Context(), opts...))
			expectUnsaid(t, m)
		})
	}
}

// What may be sent ahead is divided among the jobs that emit, and theirs alone again when the
// others have ended.
func TestTheWindowIsDividedAmongThoseThatEmit(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		asked := agent.exchanges(t)
		synctest.Wait()
		emitted := map[int]int64{}
		emit := func(n int, m agentExchange) (window int64) {
			m.sendFrame(t, wire.TypeRecords, false, wire.Records{First: emitted[n], Records: []wire.Record{{Time: 1}}})
			emitted[n]++
			typ, ack := frame[wire.Ack](t, m)
			if typ != int(wire.TypeAck) || ack.Next != emitted[n] {
				t.Fatalf("it is told frame %d, %+v", typ, ack)
			}
			return ack.Window
		}
		var all []agentExchange
		for n := range 300 {
			_, m := sys.callRunning(t, asked)
			all = append(all, m)
			emit(n, m)
			want := min(int64(16<<20)/int64(n+1), 1<<20)
			if got := emit(n, m); got != max(want, 64<<10) {
				t.Errorf("of %d the window is %d, want %d", n+1, got, want)
			}
		}
		for n, m := range all[:280] {
			m.sendFrame(t, wire.TypeEnd, true, wire.End{Records: emitted[n]})
			m.expectAck(t)
		}
		synctest.Wait()
		if got := emit(290, all[290]); got != 16<<20/20 {
			t.Errorf("of the last 20 the window is %d", got)
		}
		agent.tr.Close(nil)
		synctest.Wait()
		agent = must[*rawAgent](t)(sys.greetRaw(t.Context(), wire.Hello{Version: wire.Version, Instance: "i", Journal: "j2"}))
		asked = agent.exchanges(t)
		synctest.Wait()
		_, m := sys.callRunning(t, asked)
		if got := emit(1000, m); got != 1<<20 {
			t.Errorf("of one alone it is %d", got)
		}
	})
}

// What an agent says of a record is what a follower sees of it, and nobody can see less than
// nothing dropped.
func TestWhatIsSaidOfARecordIsKept(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		_, _, i, m := sys.called(t)
		m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
		m.sendFrame(t, wire.TypeRecords, false, wire.Records{Records: []wire.Record{
			{Time: 5, Value: []byte{1}},
			{Time: 6, Kind: "stdout", Value: []byte{2}, Partial: true},
			{Time: 7, Kind: "stderr", Truncated: 9},
			{Time: 8, Kind: "log", Truncated: -9},
		}})
		synctest.Wait()
		want := []harp.Record{
			{Seq: 0, Attempt: 1, Time: time.Unix(0, 5).UTC(), Kind: harp.KindData, Value: harp.Value{1}},
			{Seq: 1, Attempt: 1, Time: time.Unix(0, 6).UTC(), Kind: harp.KindStdout, Value: harp.Value{2}, Partial: true},
			{Seq: 2, Attempt: 1, Time: time.Unix(0, 7).UTC(), Kind: harp.KindStderr, Truncated: 9},
			{Seq: 3, Attempt: 1, Time: time.Unix(0, 8).UTC(), Kind: harp.KindLog},
		}
		got := i.records(t)
		for n := range got {
			if len(got[n].Value) == 0 {
				got[n].Value = nil
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("they are\n%+v, want\n%+v", got, want)
		}
	})
}

// A job began as long before its end as it ran, whatever its agent's clock says, and not after
// that.
func TestHowLongAJobRan(t *testing.T) {
	for ran, want := range map[time.Duration]time.Duration{3 * time.Second: 3 * time.Second, -time.Hour: 0} {
		inVirtualTime(t, func(t *testing.T, sys *system) {
			_, _, i, m := sys.called(t)
			time.Sleep(10 * time.Second)
			m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{})
			m.sendFrame(t, wire.TypeEnd, true, wire.End{RanFor: int64(ran), Started: &wire.Started{Time: 1}})
			m.expectAck(t)
			if s := i.status(t); s.EndTime.Sub(s.StartTime) != want {
				t.Errorf("it ran from %v to %v, want %v", s.StartTime, s.EndTime, want)
			}
		})
	}
}

// Of processes that outlive KILL no more are shown than go into a frame.
func TestNotAllThatOutlivesKillIsNamed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		_, _, i, m := sys.called(t)
		m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
		for _, n := range []int{3, wire.MaxLeft + 5} {
			left := make([]int64, n)
			for i := range left {
				left[i] = int64(i + 2)
			}
			m.sendFrame(t, wire.TypeStopping, false, wire.Stopping{Cause: wire.CauseMaxExecTime, Since: 7, Limit: int64(time.Hour), Left: left})
			s := i.status(t)
			if len(s.Survivors) != min(n, wire.MaxLeft) || s.Survivors[2] != 4 || s.State != harp.StateCancelling || s.Reason != wire.CauseMaxExecTime {
				t.Errorf("it is %s (%s), %v are left", s.State, s.Reason, s.Survivors)
			}
		}
	})
}

// The code of a command's exit is part of what a caller is given.
func TestAnExitCodeIsGiven(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		_, _, i, m := sys.called(t)
		m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
		code := int64(3)
		f := failures.New("exit", "exit status 3")
		f.ExitCode = &code
		m.sendFrame(t, wire.TypeEnd, true, wire.End{Failure: f.Err()})
		m.expectAck(t)
		for range 2 {
			if r := must[harp.Result](t)(i.job.Wait(t.Context())); r.State != harp.StateFailed || r.ExitCode == nil || *r.ExitCode != 3 {
				t.Errorf("the result is %+v", r)
			} else {
				*r.ExitCode = 4 // it is the caller's own
			}
		}
	})
}

// A call is bound by what the dispatcher knows of time and words.
func TestCallsOfAnotherTimeAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newSystem(t, embedded, nil, dispatcher.Config{})
		must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		synctest.Wait()
		idAt := func(at time.Time) string {
			ms := fmt.Sprintf("%012x", at.UnixMilli())
			return ms[:8] + "-" + ms[8:] + harp.NewID()[13:]
		}
		const day = 24 * time.Hour
		for name, c := range map[string]struct {
			ahead time.Duration
			code  error
		}{
			"an hour ahead":     {time.Hour, nil},
			"more than that":    {time.Hour + time.Millisecond, harp.ErrInvalid},
			"almost 30 days":    {-30*day + time.Millisecond, nil},
			"30 days":           {-30 * day, harp.ErrPruned},
			"of long ago":       {-300 * day, harp.ErrPruned},
			"of this very time": {0, nil},
		} {
			id := idAt(time.Now().Add(c.ahead))
			_, err := sys.caller.Host("web01").Call(t.Context(), "work", nil, harp.JobID(id))
			if !errors.Is(err, c.code) {
				t.Errorf("%s: a call gives %v, want %v", name, err, c.code)
			}
		}
	})
}

// A request that was answered leaves nothing behind, however many there are.
func TestRequestsLeaveNothingBehind(t *testing.T) {
	sys := newSystem(t, embedded, nil, dispatcher.Config{})
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	job := sys.caller.Job("none")
	before := heap()
	for range 30_000 {
		if _, err := job.Status(t.Context()); !errors.Is(err, harp.ErrInvalid) {
			t.Fatal(err)
		}
	}
	if grown := heap() - before; grown > 4<<20 {
		t.Errorf("30,000 requests have left %d KiB", grown>>10)
	}
}
