package harptest_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/harptest"
	"github.com/harpcaller/harp/notify"
)

// TestRunsThatArePrunedAreTold: a notification of a schedule that was behind tells of runs, too, that are deleted by the time it looks.
func TestRunsThatArePrunedAreTold(t *testing.T) {
	notified(t, dispatcher.Config{}, func(t *testing.T, sys *harptest.System, r *receivers) {
		c := sys.Caller()
		r.answers(func(context.Context, string, notify.Message) error {
			return &notify.Error{Answer: "503", After: 2 * time.Hour}
		})
		if err := c.Retention().Put(t.Context(), harp.RetentionRule{Name: "short", Schedule: "often", Keep: time.Minute}); err != nil {
			t.Fatal(err)
		}
		on := []string{"job.failed", "batch.failed"}
		putNotification(t, sys, harp.Notification{Name: "n", On: on, Schedules: []string{"often"}, To: to(hook)})
		req, err := harp.NewBatchRequest("web01", "fail", harp.Args{"N": 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Schedules().Put(t.Context(), harp.Schedule{Name: "often", Cron: "every 1s", Request: req}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(600 * time.Second)
		if err := c.Schedules().Delete(t.Context(), "often"); err != nil {
			t.Fatal(err)
		}
		fail(t, sys, 1) // is no run
		time.Sleep(30 * time.Minute)
		r.answers(nil)
		if _, err := c.Notifications().Retry(t.Context(), "n", ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		runs := 0
		for _, err := range c.Schedules().Ledger(t.Context(), harp.LedgerFilter{Schedule: "often", Outcomes: []harp.TimeOutcome{harp.TimeFired}}) {
			if runs++; err != nil {
				t.Fatal(err)
			}
		}
		if n := len(r.taken(hook)); n != 2*runs || runs < 590 {
			t.Errorf("%d ends were told of the jobs and batches of %d runs; %q", n, runs, notificationEvents(t, sys))
		}
	})
}

// TestReplacedNotificationLooksAtNothingAgain: what a notification has looked at is not told by one that is put in its place, though the
// dispatcher is killed.
func TestReplacedNotificationLooksAtNothingAgain(t *testing.T) {
	notified(t, dispatcher.Config{}, func(t *testing.T, sys *harptest.System, r *receivers) {
		putNotification(t, sys, harp.Notification{Name: "n", On: []string{"batch.failed"}, To: to(hook)})
		for i := range 3 {
			fail(t, sys, i)
		}
		time.Sleep(time.Second)
		putNotification(t, sys, harp.Notification{Name: "n", On: []string{"job.failed"}, To: to(hook)})
		sys.CrashDispatcher()
		sys.StartDispatcher()
		sys.WaitOnline("web01")
		fail(t, sys, 4)
		time.Sleep(time.Minute)
		if got := r.subjects(hook); len(got) != 1 {
			t.Errorf("told was %q", got)
		}
	})
}

// TestAnswerOfAReceiverThatWasReplaced: a receiver that wants no more messages, or is to be tried later, says that of itself alone: what it was
// being sent goes to the one that was put in its place.
func TestAnswerOfAReceiverThatWasReplaced(t *testing.T) {
	for _, answer := range []*notify.Error{{Answer: "410", Gone: true}, {Answer: "400", Final: true}, {Answer: "503"}} {
		notified(t, dispatcher.Config{}, func(t *testing.T, sys *harptest.System, r *receivers) {
			const other = "https://other.example/"
			r.answers(func(_ context.Context, url string, _ notify.Message) error {
				if url == other {
					return nil
				}
				time.Sleep(5 * time.Second)
				return answer
			})
			n := harp.Notification{Name: "n", On: []string{"job.failed"}, To: to(hook)}
			putNotification(t, sys, n)
			fail(t, sys, 1)
			time.Sleep(time.Second)
			n.To = to(other)
			putNotification(t, sys, n)
			time.Sleep(5 * time.Second)
			if got := len(r.taken(other)); got != 1 {
				t.Errorf("the old receiver answers %s: the new one has %d messages; %+v", answer.Answer, got, status(t, sys, "n"))
			}
		})
	}
}

// TestAHostThatCameBackWhileNobodyLookedIsNotTold: a host that was away comes back while no dispatcher runs, which is started after the host was to be
// told of: it has time to say that it is there.
func TestAHostThatCameBackWhileNobodyLookedIsNotTold(t *testing.T) {
	notified(t, dispatcher.Config{}, func(t *testing.T, sys *harptest.System, r *receivers) {
		putNotification(t, sys, harp.Notification{Name: "n", On: []string{"host.away"}, For: 10 * time.Minute, To: to(hook)})
		for _, isBack := range []bool{true, false} {
			sys.StopAgent("web01")
			time.Sleep(5 * time.Minute)
			sys.CrashDispatcher()
			if isBack {
				sys.StartAgent("web01")
			}
			time.Sleep(10 * time.Minute)
			sys.StartDispatcher()
			if isBack {
				sys.WaitOnline("web01")
			}
			time.Sleep(2 * time.Minute)
		}
		if got, want := r.subjects(hook), []string{"host.away: web01"}; !slices.Equal(got, want) {
			t.Errorf("told was %q, want %q", got, want)
		}
	})
}

// TestRetryOfAMessageThatIsBeingSent: it is tried, as it was asked for.
func TestRetryOfAMessageThatIsBeingSent(t *testing.T) {
	notified(t, dispatcher.Config{}, func(t *testing.T, sys *harptest.System, r *receivers) {
		r.answers(func(ctx context.Context, _ string, _ notify.Message) error {
			<-ctx.Done()
			return ctx.Err()
		})
		putNotification(t, sys, harp.Notification{Name: "n", On: []string{"job.failed"}, To: to(hook)})
		fail(t, sys, 1)
		time.Sleep(time.Second)
		for m, err := range sys.Caller().Notifications().Messages(t.Context(), "n") {
			if err != nil {
				t.Fatal(err)
			}
			if n, err := sys.Caller().Notifications().Retry(t.Context(), "n", m.ID); n != 1 || err != nil {
				t.Error(n, err)
			}
		}
	})
}

// TestAwayIsNotToldWhenNobodyAsksAnyMore: a notification that waits for a host is replaced by one that is not about it: the host is not told.
func TestAwayIsNotToldWhenNobodyAsksAnyMore(t *testing.T) {
	for _, other := range []harp.Notification{
		{On: []string{"job.failed"}},
		{On: []string{"host.away"}, For: 10 * time.Minute, Target: "db*"},
	} {
		notified(t, dispatcher.Config{}, func(t *testing.T, sys *harptest.System, r *receivers) {
			putNotification(t, sys, harp.Notification{Name: "n", On: []string{"host.away"}, For: 10 * time.Minute, To: to(hook)})
			sys.StopAgent("web01")
			time.Sleep(5 * time.Minute)
			other.Name, other.To = "n", to(hook)
			putNotification(t, sys, other)
			time.Sleep(time.Hour)
			if got, s := r.subjects(hook), status(t, sys, "n"); got != nil || s.Away != 0 {
				t.Errorf("%v: told was %q; %+v", other.On, got, s)
			}
		})
	}
}

// TestReplacedNotificationWaitsNoLonger: what a notification has gathered, or waits for, is told when the one that was put in its place says, though
// that is sooner, and though the dispatcher is started anew meanwhile.
func TestReplacedNotificationWaitsNoLonger(t *testing.T) {
	for name, c := range map[string]struct {
		n       harp.Notification
		happens func(t *testing.T, sys *harptest.System)
		wait    func(n *harp.Notification) *time.Duration
	}{
		"digest": {
			harp.Notification{On: []string{"job.failed"}},
			func(t *testing.T, sys *harptest.System) { fail(t, sys, 1) },
			func(n *harp.Notification) *time.Duration { return &n.Digest },
		},
		"for": {
			harp.Notification{On: []string{"host.away"}},
			func(_ *testing.T, sys *harptest.System) { sys.StopAgent("web01") },
			func(n *harp.Notification) *time.Duration { return &n.For },
		},
	} {
		for _, wait := range []time.Duration{0, time.Minute, time.Hour} {
			for _, isRestarted := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %v restarted %v", name, wait, isRestarted), func(t *testing.T) {
					notified(t, dispatcher.Config{}, func(t *testing.T, sys *harptest.System, r *receivers) {
						n := c.n
						n.Name, n.To = "n", to(hook)
						*c.wait(&n) = 24 * time.Hour
						putNotification(t, sys, n)
						c.happens(t, sys)
						time.Sleep(time.Hour)
						*c.wait(&n) = wait
						putNotification(t, sys, n)
						time.Sleep(wait*9/10 + time.Second) // what is being sent as a dispatcher stops is sent again
						if isRestarted {
							sys.RestartDispatcher()
							time.Sleep(time.Minute) // in which hosts may come back
						}
						time.Sleep(wait/10 + time.Second)
						if got := r.subjects(hook); len(got) != 1 {
							t.Errorf("told was %q", got)
						}
					})
				})
			}
		}
	}
}
