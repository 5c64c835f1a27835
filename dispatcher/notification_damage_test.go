package dispatcher_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/notify"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// downHook takes nothing.
type downHook struct{}

func (downHook) Accepts(r harp.Receiver) bool { return r.Webhook != nil }

func (downHook) Check(harp.Receiver) error { return nil }

func (downHook) Send(context.Context, harp.Receiver, notify.Message) error {
	return &notify.Error{Answer: "503"}
}

// TestDamagedNotifications: what the disk has lost of a notification is told, and nothing else is lost with it.
func TestDamagedNotifications(t *testing.T) {
	for _, c := range []struct {
		name   string
		kind   string
		gap    string
		broken bool
		left   int // messages
	}{
		{"a message", "message of n", "1 messages cannot be read", false, 2},
		{"its place", "notified", "where it was in the feed cannot be read: it goes on with what happens now", false, 3},
		{"what was put", "notification", "", true, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := memory.NewDisk()
				open := func() *dispatcher.Dispatcher {
					return must[*dispatcher.Dispatcher](t)(dispatcher.Open(t.Context(), memory.OpenDisk(disk, nil), dispatcher.Config{Senders: []notify.Sender{downHook{}}}))
				}
				d := open()
				n := harp.Notification{Name: "n", On: []string{"group.*"}, To: harp.Receiver{Webhook: &harp.Webhook{URL: "https://x", Secrets: []string{"s"}}}}
				ok(t, d.Caller().Notifications().Put(t.Context(), n))
				for _, name := range []string{"a", "b", "c"} {
					ok(t, d.Caller().Groups().Put(t.Context(), name, "web*"))
				}
				time.Sleep(time.Second)
				ok(t, d.Shutdown(t.Context()))

				st := memory.OpenDisk(disk, nil)
				page, _, err := st.ListDocuments(t.Context(), c.kind, "", 1)
				if err != nil || len(page) != 1 {
					t.Fatalf("%d documents of kind %s, %v", len(page), c.kind, err)
				}
				_, err = st.ChangeDocuments(t.Context(), store.DocumentChanges{Changes: []store.DocumentChange{{Kind: c.kind, Name: page[0].Name, Old: page[0].Content}}})
				ok(t, err)
				ok(t, st.Close())

				d = open()
				defer func() { ok(t, d.Shutdown(t.Context())) }()
				time.Sleep(time.Second)
				events := must[harp.EventPage](t)(d.Caller().EventsPage(t.Context(), harp.EventFilter{After: harp.EventsFromStart, Types: []string{"notification.gap"}}, false))
				var reasons []string
				for _, e := range events.Events {
					reasons = append(reasons, e.Reason)
				}
				if got := strings.Join(reasons, "; "); got != c.gap {
					t.Errorf("told is %q, want %q", got, c.gap)
				}
				s := must[harp.NotificationStatus](t)(d.Caller().Notifications().Get(t.Context(), "n"))
				if (s.Err != nil) != c.broken || s.Pending != c.left || (d.Health(t.Context()).Checks["notifications"] != nil) != c.broken {
					t.Errorf("it is %+v", s)
				}
				ok(t, d.Caller().Notifications().Put(t.Context(), n))
				ok(t, d.Caller().Groups().Put(t.Context(), "d", "web*"))
				time.Sleep(time.Second)
				if s := must[harp.NotificationStatus](t)(d.Caller().Notifications().Get(t.Context(), "n")); s.Err != nil || s.Pending != c.left+1 {
					t.Errorf("put anew it is %+v", s)
				}
			})
		})
	}
}

// TestDamagedAwayHosts: of how many hosts that are away the disk has lost what a notification waits for is told, and the others wait on.
func TestDamagedAwayHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := memory.NewDisk()
		var st store.Store
		open := func() *dispatcher.Dispatcher {
			st = memory.OpenDisk(disk, nil)
			return must[*dispatcher.Dispatcher](t)(dispatcher.Open(t.Context(), st, dispatcher.Config{Senders: []notify.Sender{downHook{}}}))
		}
		d := open()
		to := harp.Receiver{Webhook: &harp.Webhook{URL: "https://x", Secrets: []string{"s"}}}
		ok(t, d.Caller().Notifications().Put(t.Context(), harp.Notification{Name: "n", On: []string{"host.away"}, For: time.Hour, To: to}))
		for _, name := range []string{"a", "b", "c"} {
			ok(t, st.AppendEvents(t.Context(), harp.Event{Type: harp.EventHostAway, Host: name, Time: time.Now()}))
		}
		ok(t, d.Caller().Groups().Put(t.Context(), "g", "web*")) // an event of the dispatcher's own, for it to look
		time.Sleep(5 * time.Minute)
		ok(t, d.Shutdown(t.Context()))

		st = memory.OpenDisk(disk, nil)
		page, _, err := st.ListDocuments(t.Context(), "away of n", "", 10)
		if err != nil || len(page) != 3 {
			t.Fatalf("%d hosts are away, %v", len(page), err)
		}
		_, err = st.ChangeDocuments(t.Context(), store.DocumentChanges{Changes: []store.DocumentChange{
			{Kind: "away of n", Name: "a", Old: page[0].Content},
			{Kind: "away of n", Name: "b", Old: page[1].Content, New: []byte("nothing")},
		}})
		ok(t, err)
		ok(t, st.Close())

		d = open()
		defer func() { ok(t, d.Shutdown(t.Context())) }()
		time.Sleep(time.Second)
		events := must[harp.EventPage](t)(d.Caller().EventsPage(t.Context(), harp.EventFilter{After: harp.EventsFromStart, Types: []string{"notification.gap"}}, false))
		if want := "of 2 hosts that are away nothing can be read"; len(events.Events) != 1 || events.Events[0].Reason != want {
			t.Errorf("told is %+v, want %q", events.Events, want)
		}
		if s := must[harp.NotificationStatus](t)(d.Caller().Notifications().Get(t.Context(), "n")); s.Err != nil || s.Away != 1 {
			t.Errorf("it is %+v", s)
		}
	})
}

// TestNotificationsAreManaged: a notification of a document is changed by its document alone, keeps its place, and keeps a group that it
// uses from being deleted.
func TestNotificationsAreManaged(t *testing.T) {
	ctx := t.Context()
	sys := newSystem(t, inMemory, nil, dispatcher.Config{Senders: []notify.Sender{downHook{}}})
	n := harp.Notification{Name: "n", On: []string{"group.*"}, Target: "@g", To: harp.Receiver{Webhook: &harp.Webhook{URL: "https://x", Secrets: []string{"s"}}}}
	documents := []harp.Document{{Notification: &n}, {Group: &harp.Group{Name: "g", Target: "web*"}}}
	apply := func(documents []harp.Document) harp.Applied {
		t.Helper()
		return must[harp.Applied](t)(sys.caller.Schedules().Apply(ctx, "ops", documents, harp.ApplyOptions{Prune: true}))
	}
	if got := apply(documents); got.Count != 2 {
		t.Errorf("%+v", got)
	}
	if got := apply(documents); got.Count != 0 {
		t.Errorf("again: %+v", got)
	}
	wantCode(t, "conflict", sys.caller.Notifications().Put(ctx, n), sys.caller.Notifications().Delete(ctx, "n"), sys.caller.Groups().Delete(ctx, "g"))
	if _, err := sys.caller.Schedules().Apply(ctx, "ops", documents[:1], harp.ApplyOptions{Prune: true}); harp.FailureOf(err).Code != "conflict" && harp.FailureOf(err).Code != "invalid" {
		t.Errorf("a group that is used goes: %v", err)
	}
	n.Digest = time.Hour
	if got := apply(documents); got.Count != 1 || len(got.Changes[0].Fields) != 1 || got.Changes[0].Fields[0].Field != "digest" {
		t.Errorf("%+v", got)
	}
	if got := apply(documents[1:]); got.Count != 1 || got.Changes[0].Action != harp.DocumentDeleted {
		t.Errorf("%+v", got)
	}
	if got := apply(documents); got.Count != 1 { // waits until the messages of the one before are gone
		t.Errorf("%+v", got)
	}
	n.Target = ""
	if got := apply(documents[:1]); got.Count != 2 { // the group goes with its last use
		t.Errorf("%+v", got)
	}
}

func wantCode(t *testing.T, code string, errs ...error) {
	t.Helper()
	for i, err := range errs {
		if got := harp.FailureOf(err).Code; got != code {
			t.Errorf("%d: %v, want %s", i, err, code)
		}
	}
}

// damagedMessages is a store of which the messages are damaged from some moment on.
type damagedMessages struct {
	store.Store
	are atomic.Bool
}

func (s *damagedMessages) Document(ctx context.Context, kind, name string) ([]byte, error) {
	if kind == "message of n" && s.are.Load() {
		return nil, store.ErrDamaged
	}
	return s.Store.Document(ctx, kind, name)
}

// ChangeDocuments takes what is damaged for what is not there, as stores do.
func (s *damagedMessages) ChangeDocuments(ctx context.Context, c store.DocumentChanges) (int, error) {
	for i, one := range c.Changes {
		if one.Kind == "message of n" && s.are.Load() {
			c.Changes[i].Old, _ = s.Store.Document(ctx, one.Kind, one.Name)
		}
	}
	return s.Store.ChangeDocuments(ctx, c)
}

// TestMessageThatIsDamagedAsItWaits: it is told as lost at its next try, and waits no longer.
func TestMessageThatIsDamagedAsItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &damagedMessages{Store: memory.Open(nil)}
		d := must[*dispatcher.Dispatcher](t)(dispatcher.Open(t.Context(), st, dispatcher.Config{Senders: []notify.Sender{downHook{}}}))
		defer func() { ok(t, d.Shutdown(context.WithoutCancel(t.Context()))) }()
		ns := d.Caller().Notifications()
		ok(t, ns.Put(t.Context(), harp.Notification{Name: "n", On: []string{"group.*"}, To: harp.Receiver{Webhook: &harp.Webhook{URL: "https://x", Secrets: []string{"s"}}}}))
		ok(t, d.Caller().Groups().Put(t.Context(), "a", "web*"))
		time.Sleep(time.Second)
		if s := must[harp.NotificationStatus](t)(ns.Get(t.Context(), "n")); s.Pending != 1 {
			t.Fatalf("it is %+v", s)
		}
		st.are.Store(true)
		time.Sleep(time.Minute)
		events := must[harp.EventPage](t)(d.Caller().EventsPage(t.Context(), harp.EventFilter{After: harp.EventsFromStart, Types: []string{"notification.gap"}}, false))
		if len(events.Events) != 1 || !strings.HasSuffix(events.Events[0].Reason, "cannot be read") {
			t.Errorf("told is %+v", events.Events)
		}
		if s := must[harp.NotificationStatus](t)(ns.Get(t.Context(), "n")); s.Pending != 0 {
			t.Errorf("it is %+v", s)
		}
	})
}
