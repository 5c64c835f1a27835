package dispatcher_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// brokenClock is a clock that is set at times, while the world's goes on.
type brokenClock struct {
	ahead atomic.Int64
	then  atomic.Int64 // how far ahead it is
	reads atomic.Int64 // when it was read so often
}

func (c *brokenClock) now() time.Time {
	if c.reads.Add(-1) == -1 {
		c.ahead.Store(c.then.Load())
	}
	return time.Now().Add(time.Duration(c.ahead.Load()))
}

func (c *brokenClock) set(ahead time.Duration) { c.setAfter(0, ahead) }

// setAfter sets it when it has been read so often.
func (c *brokenClock) setAfter(reads int64, ahead time.Duration) {
	c.then.Store(int64(ahead))
	c.reads.Store(reads)
}

// withBrokenClock runs a test body in virtual time, with an agent.
func withBrokenClock(t *testing.T, body func(t *testing.T, sys *system, clock *brokenClock)) {
	t.Helper()
	withBrokenClockOn(t, memory.NewDisk(), body)
}

func withBrokenClockOn(t *testing.T, disk *memory.Disk, body func(t *testing.T, sys *system, clock *brokenClock)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		clock := new(brokenClock)
		body(t, newSystem(t, embedded, memory.OpenDisk(disk, nil), dispatcher.Config{Now: clock.now}), clock)
	})
}

// A host that was heard last by a clock which was ahead is not about to return when the dispatcher is opened by one that is right.
func TestAHostHeardInTheFutureIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, clock := memory.NewDisk(), new(brokenClock)
		clock.set(48 * time.Hour)
		sys := newSystem(t, embedded, memory.OpenDisk(disk, nil), dispatcher.Config{Now: clock.now})
		leave := sys.agent("web01", greeter)
		leave()
		synctest.Wait()
		if err := sys.d.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		again := newSystem(t, embedded, memory.OpenDisk(disk, nil), dispatcher.Config{})
		job := must[*harp.Job](t)(again.caller.Host("web01").Call(t.Context(), "hello", helloArgs{Name: "x"}))
		time.Sleep(2 * time.Minute)
		if s := must[harp.JobStatus](t)(job.Status(t.Context())); s.State != harp.StateExpired || s.Reason != harp.ReasonOffline {
			t.Errorf("it is %s(%s)", s.State, s.Reason)
		}
		if _, err := job.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A clock that is a day ahead for a moment is no day of silence.
func TestAHostIsNotLostBecauseTheClockIsSet(t *testing.T) {
	withBrokenClock(t, func(t *testing.T, sys *system, clock *brokenClock) {
		agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		asked := agent.exchanges(t)
		synctest.Wait()
		job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
		expectCall(t, asked).sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
		agent.tr.Close(nil)
		time.Sleep(time.Minute)
		expectState(t, job, harp.StateUnknown)
		clock.set(25 * time.Hour)
		time.Sleep(15 * time.Second)
		expectState(t, job, harp.StateUnknown)
		clock.set(-25 * time.Hour)
		time.Sleep(24*time.Hour - 2*time.Minute)
		expectState(t, job, harp.StateUnknown)
		time.Sleep(2 * time.Minute)
		if s := expectState(t, job, harp.StateLost); s.Reason != harp.LostTooLong {
			t.Errorf("it is lost as %s", s.Reason)
		}
	})
}

func expectState(t *testing.T, job *harp.Job, want harp.State) harp.JobStatus {
	t.Helper()
	synctest.Wait()
	s := must[harp.JobStatus](t)(job.Status(t.Context()))
	if s.State != want {
		t.Fatalf("it is %s (%s), want %s", s.State, s.Reason, want)
	}
	return s
}

// A pause of a second is one, whatever the clock says meanwhile.
func TestAPauseEndsThoughTheClockIsSetBack(t *testing.T) {
	withBrokenClock(t, func(t *testing.T, sys *system, clock *brokenClock) {
		agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		asked := agent.exchanges(t)
		synctest.Wait()
		policy := harp.RetryPolicy{On: []harp.State{harp.StateFailed}, Attempts: 2, Backoff: time.Second}
		must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil, harp.Retry(policy)))
		m := expectCall(t, asked)
		m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
		m.sendFrame(t, wire.TypeEnd, true, wire.End{Failure: failures.New("remote", "no").Err()})
		m.expectAck(t)
		clock.set(-24 * time.Hour)
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		select {
		case again := <-asked:
			if again.call == nil || again.call.Attempt != 2 {
				t.Errorf("it is asked %+v", again)
			}
		default:
			t.Error("it waits on")
		}
	})
}

// A pause is as long as it is, though the clock was set while the disk had no room for it.
func TestAPauseThatHadNoRoomEndsThoughTheClockIsSetBack(t *testing.T) {
	for what, frame := range map[string]func(m agentExchange, t *testing.T){
		"failed": func(m agentExchange, t *testing.T) {
			m.sendFrame(t, wire.TypeEnd, true, wire.End{Failure: failures.New("remote", "no").Err()})
		},
		"busy": func(m agentExchange, t *testing.T) {
			m.sendFrame(t, wire.TypeNotNow, true, wire.NotNow{Reason: "busy"})
		},
	} {
		t.Run(what, func(t *testing.T) {
			disk := memory.NewDisk()
			withBrokenClockOn(t, disk, func(t *testing.T, sys *system, clock *brokenClock) {
				agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
				asked := agent.exchanges(t)
				synctest.Wait()
				policy := harp.RetryPolicy{On: []harp.State{harp.StateFailed}, Attempts: 2, Backoff: time.Second}
				job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil, harp.Retry(policy)))
				m := expectCall(t, asked)
				disk.SetSpace(store.SpaceCritical)
				frame(m, t)
				time.Sleep(10*time.Second + time.Second/2) // between two tries
				clock.set(-24 * time.Hour)
				_ = sys.d.Health(t.Context()) // which notices
				disk.SetSpace(store.SpacePlenty)
				time.Sleep(3 * time.Second)
				expectState(t, job, harp.StateSent)
			})
		})
	}
}

// How long a host's absence may hold a call is not measured by a clock that is set.
func TestWaitingForAHostIsNotMeasuredByAClockThatIsSet(t *testing.T) {
	for what, ahead := range map[string]time.Duration{"forward": time.Hour, "back": -time.Hour} {
		t.Run(what, func(t *testing.T) {
			withBrokenClock(t, func(t *testing.T, sys *system, clock *brokenClock) {
				agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
				synctest.Wait()
				agent.tr.Close(nil)
				synctest.Wait()
				job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil, harp.OfflineWait(time.Minute)))
				clock.set(ahead)
				time.Sleep(50 * time.Second)
				expectState(t, job, harp.StateQueued)
				time.Sleep(11 * time.Second)
				expectState(t, job, harp.StateExpired)
			})
		})
	}
}

// What was said to be once in ten minutes is that by a clock that is right.
func TestAnIdempotencyKeyLastsThoughTheClockIsSet(t *testing.T) {
	withBrokenClock(t, func(t *testing.T, sys *system, clock *brokenClock) {
		sys.agent("web01", greeter)
		call := func() string {
			host := sys.caller.Host("web01", harp.IdempotencyKey("once", 10*time.Minute))
			return must[*harp.Job](t)(host.Call(t.Context(), "hello", harp.Args{"name": "Ada"})).ID()
		}
		first := call()
		clock.set(time.Hour / 2)
		if again := call(); again != first {
			t.Error("it is called twice")
		}
		clock.set(-time.Hour / 2)
		time.Sleep(10*time.Minute + time.Second)
		if again := call(); again == first {
			t.Error("it is never called again")
		}
	})
}

// Retention goes by the date. It does not act on one that has just changed, and says so.
func TestResultsAreKeptWhileTheClockHasJustBeenSet(t *testing.T) {
	withBrokenClock(t, func(t *testing.T, sys *system, clock *brokenClock) {
		sys.agent("web01", greeter)
		job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "hello", harp.Args{"name": "Ada"}))
		must[harp.Value](t)(job.Get(t.Context()))
		clock.set(31 * 24 * time.Hour)
		time.Sleep(11 * time.Minute)
		must[harp.Value](t)(job.Get(t.Context()))
		h := sys.d.Health(t.Context())
		if err := h.Checks["clock"]; err == nil || !strings.Contains(err.Error(), "744h0m0s forward") || !h.Ready {
			t.Errorf("of the clock it says %v, ready %v", err, h.Ready)
		}
		if info := must[harp.ServerInfo](t)(sys.caller.Ping(t.Context())); len(info.Troubles) != 1 || !strings.HasPrefix(info.Troubles[0], "clock: the clock was set 744h") {
			t.Errorf("it says %v to callers", info.Troubles)
		}

		// Put right, it is as if nothing had been.
		clock.set(0)
		time.Sleep(time.Second)
		if err := sys.d.Health(t.Context()).Checks["clock"]; err != nil {
			t.Errorf("of a clock that is right again it says %v", err)
		}

		// What lasts for a day is taken for right.
		clock.set(31 * 24 * time.Hour)
		time.Sleep(23 * time.Hour)
		must[harp.Value](t)(job.Get(t.Context()))
		time.Sleep(2 * time.Hour)
		if _, err := job.Get(t.Context()); !errors.Is(err, harp.ErrPruned) {
			t.Errorf("it is kept: %v", err)
		}
		if err := sys.d.Health(t.Context()).Checks["clock"]; err != nil {
			t.Errorf("after a day it says %v", err)
		}

		// From then on it is what others are measured by.
		clock.set(31*24*time.Hour + 30*time.Second)
		if err := sys.d.Health(t.Context()).Checks["clock"]; err != nil {
			t.Errorf("30 s later it says %v", err)
		}
		clock.set(0)
		if err := sys.d.Health(t.Context()).Checks["clock"]; err == nil || !strings.Contains(err.Error(), "744h0m0s back") {
			t.Errorf("of a clock that is set back it says %v", err)
		}
	})
}

// The clock that retention goes by is the one that was judged, whenever it is set.
func TestResultsAreKeptWhenTheClockIsSetAsRetentionLooks(t *testing.T) {
	for reads := range int64(6) {
		withBrokenClock(t, func(t *testing.T, sys *system, clock *brokenClock) {
			stop := sys.agent("web01", greeter)
			job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "hello", harp.Args{"name": "Ada"}))
			must[harp.Value](t)(job.Get(t.Context()))
			stop()
			time.Sleep(10*time.Minute - time.Second)
			clock.setAfter(reads, 31*24*time.Hour)
			time.Sleep(2 * time.Minute)
			must[harp.Value](t)(job.Get(t.Context()))
		})
	}
}

// The id of a call whose job was pruned long ago is no new one when the clock is set back.
func TestAPrunedCallIsNotTakenAgainWhenTheClockIsSetBack(t *testing.T) {
	for name, passes := range map[string]func(*brokenClock){
		"while it is remembered":     func(clock *brokenClock) { clock.set(-15 * 24 * time.Hour); time.Sleep(40 * 24 * time.Hour) },
		"when it would be forgotten": func(clock *brokenClock) { time.Sleep(40 * 24 * time.Hour); clock.set(-15 * 24 * time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock := new(brokenClock)
				sys := newSystem(t, embedded, nil, dispatcher.Config{Now: clock.now, Retain: time.Hour})
				stop := sys.agent("web01", greeter)
				id := harp.NewID()
				call := func() (*harp.Job, error) {
					return sys.caller.Host("web01").Call(t.Context(), "hello", harp.Args{"name": "Ada"}, harp.JobID(id))
				}
				must[harp.Value](t)(must[*harp.Job](t)(call()).Get(t.Context()))
				stop()
				time.Sleep(24 * time.Hour)
				passes(clock)
				if job, err := call(); !errors.Is(err, harp.ErrPruned) {
					t.Errorf("called again it gives %v, %v", job, err)
				}
			})
		})
	}
}

// What was submitted by a clock which was ahead waits for its absent host as long as it was to, also where the dispatcher is opened by one
// that is right.
func TestWhatWasSubmittedInTheFutureWaitsNoLonger(t *testing.T) {
	for name, whileOpen := range map[string]bool{"set while it was open": true, "set while it was not": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk, clock := memory.NewDisk(), new(brokenClock)
				clock.set(48 * time.Hour)
				sys := newSystem(t, embedded, memory.OpenDisk(disk, nil), dispatcher.Config{Now: clock.now})
				leave := sys.agent("web01", greeter)
				leave()
				synctest.Wait()
				wait := harp.OfflineWait(10 * time.Minute)
				job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "hello", helloArgs{Name: "x"}, wait))
				batch := must[*harp.Batch](t)(sys.caller.Target("web01").Call(t.Context(), "hello", helloArgs{Name: "x"}, wait))
				if whileOpen {
					clock.set(0)
					time.Sleep(time.Minute)
				}
				if err := sys.d.Shutdown(t.Context()); err != nil {
					t.Fatal(err)
				}
				again := newSystem(t, embedded, memory.OpenDisk(disk, nil), dispatcher.Config{})
				time.Sleep(12 * time.Minute)
				for _, id := range []string{job.ID(), batch.Job("web01").ID()} {
					if s := must[harp.JobStatus](t)(again.caller.Job(id).Status(t.Context())); s.State != harp.StateExpired || s.Reason != harp.ReasonOffline {
						t.Errorf("it is %s(%s)", s.State, s.Reason)
					}
					if _, err := again.caller.Job(id).Cancel(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}
