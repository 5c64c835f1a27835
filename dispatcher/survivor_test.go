package dispatcher_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store/memory"
)

// A job whose lost attempt was found alive, and whose host then never comes back, does
// not wait for it for ever, whether the dispatcher is started anew meanwhile or not.
func TestALostAttemptOfAHostThatNeverReturnsIsNotWaitedFor(t *testing.T) {
	for _, restart := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			disk, network := memory.NewDisk(), newNetwork(t, embedded)
			sys := newSystemOn(t, embedded, network, memory.OpenDisk(disk, nil), dispatcher.Config{})
			i := interrupt(t, sys, saidStart, false,
				harp.Retry(harp.RetryPolicy{On: []harp.State{harp.StateLost}}), harp.OfflineWait(2*time.Hour))
			time.Sleep(24*time.Hour + time.Minute)
			a, asked := i.again(t, sys, "j", wire.HeldAlive)
			if m := <-asked; m.resume == nil || m.resume.Cancel == nil {
				t.Fatalf("it is asked %+v", m)
			}
			a.tr.Close(nil)
			if restart {
				synctest.Wait()
				if err := sys.d.Shutdown(context.WithoutCancel(t.Context())); err != nil {
					t.Fatal(err)
				}
				sys = newSystemOn(t, embedded, network, memory.OpenDisk(disk, nil), dispatcher.Config{})
				i.job = sys.caller.Job(i.job.ID())
			}
			time.Sleep(2*time.Hour + 5*time.Minute)
			s := i.status(t)
			if s.State != harp.StateLost || s.Reason != harp.LostTooLong || s.Started != harp.MayHaveRun {
				t.Errorf("restarted %v: it is %s (%s), started %s", restart, s.State, s.Reason, s.Started)
			}
		})
	}
}

// A job that is tried again though its lost attempt may still run, since the journal
// that could have told is gone, says so.
func TestAnAttemptWhoseJournalWentWhileItWasAwayMayRunTwice(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		i := interrupt(t, sys, saidStart, false,
			harp.Retry(harp.RetryPolicy{On: []harp.State{harp.StateLost}}), harp.OfflineWait(harp.NoLimit))
		time.Sleep(25 * time.Hour)
		_, asked := i.again(t, sys, "new", "")
		if m := <-asked; m.call == nil || m.call.Attempt != 2 {
			t.Fatalf("it is asked %+v", m)
		}
		if s := i.status(t); !s.DuplicatePossible || s.Attempts[0].Reason != harp.LostJournalGone {
			t.Errorf("possibly twice: %v, its attempts are %+v", s.DuplicatePossible, s.Attempts)
		}
	})
}

// A dispatcher that was away itself for longer than LostAfter gives its hosts time to
// return before it gives anything up.
func TestADispatcherThatWasAwayGivesNothingUpAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, network := memory.NewDisk(), newNetwork(t, embedded)
		sys := newSystemOn(t, embedded, network, memory.OpenDisk(disk, nil), dispatcher.Config{})
		i := interrupt(t, sys, saidStart, false)
		time.Sleep(time.Minute)
		if s := i.status(t); s.State != harp.StateUnknown {
			t.Fatalf("it is %s", s.State)
		}
		if err := sys.d.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
		time.Sleep(25 * time.Hour)
		sys = newSystemOn(t, embedded, network, memory.OpenDisk(disk, nil), dispatcher.Config{})
		i.job = sys.caller.Job(i.job.ID())
		time.Sleep(10 * time.Second)
		a, asked := i.again(t, sys, "j", wire.HeldEnded)
		a.tr.Beat(10 * time.Second)
		m := <-asked
		time.Sleep(10 * time.Minute) // it has much to tell
		m.sendFrame(t, wire.TypeEnd, true, wire.End{Value: []byte{7}})
		m.expectAck(t)
		if s := i.status(t); s.State != harp.StateSucceeded {
			t.Errorf("it is %s (%s)", s.State, s.Reason)
		}
	})
}
