package harptest_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/harptest"
	"github.com/harpcaller/harp/store"
)

// Who waits at a dispatcher whose store has failed hears from the next one.
func TestPoisonDispatcher(t *testing.T) {
	inBubble(t, func(l *lab) {
		job := l.call(20 * time.Second)
		time.Sleep(time.Second)
		l.PoisonDispatcher()
		var refused *harp.CallError
		if _, err := nap.Call(l.t.Context(), l.host, napArgs{time.Second}); !errors.As(err, &refused) || !errors.Is(err, harp.ErrUnavailable) || harp.RanOf(err) != harp.MayHaveRun {
			l.t.Errorf("a call whose commit failed gives %v", err)
		}
		told := make(chan error)
		go func() {
			for e, err := range l.Caller().Events(l.t.Context(), harp.EventFilter{After: harp.EventsFromStart, Job: job.ID()}) {
				if err != nil || e.State.Ended() {
					told <- err
					return
				}
			}
		}()
		time.Sleep(time.Minute)
		l.CrashDispatcher()
		l.StartDispatcher()
		if err := <-told; err != nil {
			l.t.Error("the feed ended: ", err)
		}
		l.ends(job, harp.StateSucceeded)
		l.ranOnce(job)
	})
}

// What a full disk has kept back is told, and written, when there is room again.
func TestFillDisk(t *testing.T) {
	for name, trouble := range map[string]func(*harptest.System, string){"full": (*harptest.System).FillDisk, "broken": (*harptest.System).BreakDisk} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(l *lab) {
				running := l.call(10 * time.Second)
				time.Sleep(time.Second)
				trouble(l.System, "web01")
				waiting := l.call(time.Second)
				time.Sleep(30 * time.Second)
				if s, err := waiting.Status(l.t.Context()); err != nil || s.State.Ended() || len(l.seen.Of(waiting.ID())) > 0 {
					l.t.Errorf("without a journal a job is %s, %v", s.State, err)
				}
				l.MendDisk("web01")
				l.ends(running, harp.StateSucceeded)
				l.ends(waiting, harp.StateSucceeded)
				l.ranOnce(running)
				l.ranOnce(waiting)
			})
		})
	}
}

// Without space no call is accepted, and one that was is known.
func TestSetSpace(t *testing.T) {
	inBubble(t, func(l *lab) {
		id := harp.NewID()
		job := l.call(time.Second, harp.JobID(id))
		l.SetSpace(store.SpaceLow)
		l.call(time.Second, harp.JobID(id))
		if _, err := nap.Call(l.t.Context(), l.host, napArgs{}); !errors.Is(err, harp.ErrNoSpace) || harp.RanOf(err) != harp.DidNotRun {
			l.t.Errorf("a call for which there is no space gives %v", err)
		}
		l.ends(job, harp.StateSucceeded)
		l.ranOnce(job)
	})
}

// A host that goes away while nothing can be stored is told of when there is room again, unless it has come back.
func TestAHostThatLeavesWhileTheDiskIsFull(t *testing.T) {
	inBubble(t, func(l *lab) {
		told := func() (types []harp.EventType) {
			page, err := l.Caller().EventsPage(l.t.Context(), harp.EventFilter{After: harp.EventsFromStart, Types: []string{"host.*"}, Host: "web01"}, false)
			if err != nil {
				l.t.Fatal(err)
			}
			for _, e := range page.Events {
				types = append(types, e.Type)
			}
			return types
		}
		leave := func() {
			l.SetSpace(store.SpaceFull)
			l.StopAgent("web01")
			time.Sleep(time.Hour + 30*time.Second) // it is tried again each minute
		}
		leave()
		l.SetSpace(store.SpacePlenty)
		time.Sleep(2 * time.Minute)
		want := []harp.EventType{harp.EventHostOnline, harp.EventHostAway}
		if got := told(); !slices.Equal(got, want) {
			l.t.Errorf("told is %v, want %v", got, want)
		}
		l.StartAgent("web01")
		l.WaitOnline("web01")
		leave()
		l.SetSpace(store.SpacePlenty)
		l.StartAgent("web01")
		l.WaitOnline("web01")
		time.Sleep(time.Hour)
		want = append(want, harp.EventHostOnline) // once, as nobody was told that it had left again
		if got := told(); !slices.Equal(got, want) {
			l.t.Errorf("told is %v, want %v", got, want)
		}
	})
}
