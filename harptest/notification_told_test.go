package harptest_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/harptest"
	"github.com/harpcaller/harp/notify"
	"github.com/harpcaller/harp/store"
)

// TestReplacedFor: a notification that waited for hosts and is replaced by one that does not tells of their return and of their removal
// as of any others.
func TestReplacedFor(t *testing.T) {
	notified(t, dispatcher.Config{}, func(t *testing.T, sys *harptest.System, r *receivers) {
		waits := harp.Notification{Name: "n", On: []string{"host.away"}, For: 10 * time.Minute, To: to(hook)}
		putNotification(t, sys, waits)
		for _, after := range []time.Duration{time.Minute, 20 * time.Minute} { // before and after it was told
			sys.StopAgent("web01")
			time.Sleep(after)
			putNotification(t, sys, harp.Notification{Name: "n", On: []string{"host.online", "host.removed"}, To: to(hook)})
			sys.StartAgent("web01")
			sys.WaitOnline("web01")
			time.Sleep(time.Minute)
			putNotification(t, sys, waits)
		}
		sys.StopAgent("web01")
		time.Sleep(time.Minute)
		putNotification(t, sys, harp.Notification{Name: "n", On: []string{"host.removed"}, To: to(hook)})
		if _, err := sys.Caller().Hosts().Remove(t.Context(), "web01"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		want := []string{"host.online: web01", "host.away: web01", "host.online: web01", "host.removed: web01"}
		if got := r.subjects(hook); !slices.Equal(got, want) {
			t.Errorf("told was %q, want %q", got, want)
		}
		if s := status(t, sys, "n"); s.Away != 0 || s.Pending != 0 || s.Sent != 4 {
			t.Errorf("%+v", s)
		}
	})
}

// TestTargetOfRemovedHost: what happens to a host that is removed is told, though nothing but its name is known by then.
func TestTargetOfRemovedHost(t *testing.T) {
	notified(t, dispatcher.Config{}, func(t *testing.T, sys *harptest.System, r *receivers) {
		const others, labelled = "https://receiver.example/others", "https://receiver.example/labelled"
		on := []string{"host.removed", "job.lost", "job.expired", "job.cancelled"}
		putNotification(t, sys, harp.Notification{Name: "n", On: on, Target: "web*", To: to(hook)})
		putNotification(t, sys, harp.Notification{Name: "others", On: on, Target: "db*", To: to(others)})
		putNotification(t, sys, harp.Notification{Name: "labelled", On: on, Target: "role=web", To: to(labelled)})
		sys.StopAgent("web01")
		time.Sleep(time.Minute)
		if _, err := sys.Caller().Host("web01").Call(t.Context(), "fail", harp.Args{"N": 1}, harp.OfflineWait(24*time.Hour)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if _, err := sys.Caller().Hosts().Remove(t.Context(), "web01"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := r.subjects(hook); len(got) != 2 {
			t.Errorf("told was %q", got)
		}
		if got := r.subjects(labelled); len(got) != 2 { // its label may have been that
			t.Errorf("told was %q", got)
		}
		if got := r.subjects(others); got != nil {
			t.Errorf("others were told %q", got)
		}
	})
}

// TestNotificationWhenTheDiskIsFull: while nothing can be stored no message is sent twice, and all are sent when there is room again.
func TestNotificationWhenTheDiskIsFull(t *testing.T) {
	notified(t, dispatcher.Config{}, func(t *testing.T, sys *harptest.System, r *receivers) {
		r.answers(func(context.Context, string, notify.Message) error { return &notify.Error{Answer: "503"} })
		putNotification(t, sys, harp.Notification{Name: "n", On: []string{"job.failed"}, To: to(hook)})
		for i := range 5 {
			fail(t, sys, i)
		}
		time.Sleep(time.Second)
		sys.SetSpace(store.SpaceFull)
		r.answers(nil)
		time.Sleep(time.Hour)
		if n := len(r.taken(hook)); n > 5 {
			t.Errorf("%d messages were taken of 5", n)
		}
		sys.SetSpace(store.SpacePlenty)
		time.Sleep(time.Hour)
		fail(t, sys, 6)
		time.Sleep(time.Minute)
		ids := map[string]bool{}
		for _, m := range r.taken(hook) {
			ids[m.ID] = true
		}
		if n := len(r.taken(hook)); n != 6 || len(ids) != 6 {
			t.Errorf("%d messages were taken, %d of them others; want 6: %q", n, len(ids), r.subjects(hook))
		}
		if s := status(t, sys, "n"); s.Pending != 0 || s.Sent != 6 {
			t.Errorf("%+v", s)
		}
	})
}

// TestRestoredMessage: a message that waits as a backup is made is the same one in the store that is restored from it, so that a receiver
// that remembers ids does not act twice.
func TestRestoredMessage(t *testing.T) {
	notified(t, dispatcher.Config{}, func(t *testing.T, sys *harptest.System, r *receivers) {
		var ids []string
		r.answers(func(_ context.Context, _ string, m notify.Message) error {
			ids = append(ids, m.ID)
			return &notify.Error{Answer: "503", After: time.Hour}
		})
		putNotification(t, sys, harp.Notification{Name: "n", On: []string{"job.failed"}, To: to(hook)})
		fail(t, sys, 1)
		time.Sleep(time.Second)
		var backup strings.Builder
		if err := sys.Caller().Backup(t.Context(), &backup); err != nil {
			t.Fatal(err)
		}
		sys.StopDispatcher()
		sys.RestoreDispatcher(strings.NewReader(backup.String()))
		sys.StartDispatcher()
		sys.WaitOnline("web01")
		r.answers(nil)
		for m, err := range sys.Caller().Notifications().Messages(t.Context(), "n") {
			if err != nil || m.ID != ids[0] {
				t.Errorf("%+v, %v", m, err)
			}
		}
		if n, err := sys.Caller().Notifications().Retry(t.Context(), "n", ids[0]); n != 1 || err != nil {
			t.Error(n, err)
		}
		time.Sleep(time.Second)
		if got := r.taken(hook); len(got) != 1 || got[0].ID != ids[0] {
			t.Errorf("%+v, want %s", got, ids[0])
		}
		fail(t, sys, 2)
		time.Sleep(time.Second)
		if got := r.taken(hook); len(got) != 2 || got[1].ID[len("msg_0123456789abcdef"):] == ids[0][len("msg_0123456789abcdef"):] {
			t.Errorf("what happens afterwards is told as of the store before: %+v", got)
		}
	})
}
