package dispatcher

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/notify"
	"github.com/harpcaller/harp/store"
)

// What was refused as somebody else manages something, as it is in use, or as it is not so as it would have to be, is refused also when it is asked for again, since
// the answer was lost, and could be done by then: others have made it so, and count on what is there.
func TestWhatWasRefusedIsNotDoneLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const name = "web01"
		server := &calendarServer{content: eventCalendar(time.Now(), time.Hour)}
		d := opened(t, nil, Config{Senders: []notify.Sender{silentHook{}}, Calendars: server})
		s, ctx := d.service(ada), t.Context()
		if _, err := d.store.OpenSession(ctx, store.Session{Host: name, At: time.Now()}); err != nil {
			t.Fatal(err)
		}
		d.hosts.get(name).setRow(store.Host{Name: name, Connected: true, LastHeard: time.Now()})
		group := harp.Group{Name: "x", Target: "web*"}
		open := harp.Window{Name: "x", Target: "*", From: time.Now(), To: time.Now().Add(time.Hour)}
		fetched := harp.Window{Name: "x", Target: "*", Calendar: &harp.WindowCalendar{URL: calendarWindowURL}}
		sch := batchSchedule(t, "x", "hello", nil)
		hook := harp.Notification{Name: "x", On: []string{string(harp.EventHostAway)}, To: harp.Receiver{Webhook: &harp.Webhook{URL: "https://x", Secrets: []string{"s"}}}}
		rule := harp.RetentionRule{Name: "x", Keep: time.Hour}
		managed := []harp.Document{{Group: &group}, {Window: &open}, {Schedule: &sch}, {Notification: &hook}, {Retention: &rule}}
		apply := func(id, as string, docs ...harp.Document) error {
			_, err := s.ApplyDocuments(ctx, id, as, docs, harp.ApplyOptions{Prune: true})
			return err
		}
		must := func(errs ...error) {
			t.Helper()
			for _, err := range errs {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		remove := func() { must(apply(harp.NewID(), "ops")) }
		putAll := func() { // by hand, what is then there
			must(s.PutGroup(ctx, harp.NewID(), "x", "db*"), s.PutWindow(ctx, harp.NewID(), open), s.PutSchedule(ctx, harp.NewID(), sch),
				s.PutNotification(ctx, harp.NewID(), hook), s.PutRetentionRule(ctx, harp.NewID(), rule))
		}
		deleteAll := func() {
			for _, err := range []error{
				s.DeleteGroup(ctx, harp.NewID(), "x"), s.DeleteWindow(ctx, harp.NewID(), "x"), s.DeleteSchedule(ctx, harp.NewID(), "x"),
				s.DeleteNotification(ctx, harp.NewID(), "x"), s.DeleteRetentionRule(ctx, harp.NewID(), "x"),
			} {
				if err != nil && !errors.Is(err, harp.ErrNotFound) { // what was refused is done
					t.Fatal(err)
				}
			}
		}
		manage := func() { must(apply(harp.NewID(), "ops", managed...)) }
		change := func(kind harp.ScheduleChangeKind) error {
			return s.ChangeSchedule(ctx, harp.NewID(), "x", harp.ScheduleChange{Kind: kind})
		}
		listed := func(as *HostSpec) {
			h := d.hosts.get(name)
			h.mu.Lock()
			defer h.mu.Unlock()
			h.spec = as
		}
		batch := ""
		for what, c := range map[string]struct {
			do            func(id string) error
			refuse, allow func() // makes it so that it is refused, and then would not be
			after         func()
		}{
			"put group":           {func(id string) error { return s.PutGroup(ctx, id, "x", "other*") }, manage, remove, nil},
			"put window":          {func(id string) error { return s.PutWindow(ctx, id, open) }, manage, remove, nil},
			"put fetched window":  {func(id string) error { return s.PutWindow(ctx, id, fetched) }, manage, remove, nil},
			"put schedule":        {func(id string) error { return s.PutSchedule(ctx, id, sch) }, manage, remove, nil},
			"put notification":    {func(id string) error { return s.PutNotification(ctx, id, hook) }, manage, remove, nil},
			"put rule":            {func(id string) error { return s.PutRetentionRule(ctx, id, rule) }, manage, remove, nil},
			"apply":               {func(id string) error { return apply(id, "others", managed...) }, manage, remove, func() { must(apply(harp.NewID(), "others")) }},
			"delete group":        {func(id string) error { return s.DeleteGroup(ctx, id, "x") }, manage, func() { remove(); putAll() }, deleteAll},
			"delete window":       {func(id string) error { return s.DeleteWindow(ctx, id, "x") }, manage, func() { remove(); putAll() }, deleteAll},
			"end window":          {func(id string) error { return s.EndWindow(ctx, id, "x") }, manage, func() { remove(); putAll() }, deleteAll},
			"delete schedule":     {func(id string) error { return s.DeleteSchedule(ctx, id, "x") }, manage, func() { remove(); putAll() }, deleteAll},
			"delete notification": {func(id string) error { return s.DeleteNotification(ctx, id, "x") }, manage, func() { remove(); putAll() }, deleteAll},
			"delete rule":         {func(id string) error { return s.DeleteRetentionRule(ctx, id, "x") }, manage, func() { remove(); putAll() }, deleteAll},
			"delete group in use": {
				func(id string) error { return s.DeleteGroup(ctx, id, "x") },
				func() { putAll(); must(s.PutGroup(ctx, harp.NewID(), "user", "@x")) },
				func() { must(s.DeleteGroup(ctx, harp.NewID(), "user")) }, deleteAll,
			},
			"delete schedule in use": {
				func(id string) error { return s.DeleteSchedule(ctx, id, "x") },
				func() { putAll(); put(t, s, after(t, "user", "x")) },
				func() { must(s.DeleteSchedule(ctx, harp.NewID(), "user")) }, deleteAll,
			},
			"trigger a schedule that is paused": {
				func(id string) error { _, err := s.TriggerSchedule(ctx, id, "x", harp.Trigger{}); return err },
				func() { putAll(); must(change(harp.PauseOfSchedule)) },
				func() { must(change(harp.UnpauseOfSchedule)) }, deleteAll,
			},
			"trigger a schedule that runs": {
				func(id string) error { _, err := s.TriggerSchedule(ctx, id, "x", harp.Trigger{}); return err },
				func() {
					putAll()
					batch = harp.NewID()
					_, err := s.TriggerSchedule(ctx, batch, "x", harp.Trigger{})
					must(err)
				},
				func() {
					_, err := s.ChangeBatch(ctx, harp.NewID(), batch, harp.BatchChange{Kind: harp.CancelOfBatch})
					must(err)
				}, deleteAll,
			},
			"trigger a schedule that selects no hosts": {
				func(id string) error {
					_, err := s.TriggerSchedule(ctx, id, "x", harp.Trigger{})
					if errors.Is(err, harp.ErrNotFound) {
						err = harp.ErrConflict
					}
					return err
				},
				func() {
					putAll()
					other := sch
					other.Request.Target = "@x"
					must(s.PutSchedule(ctx, harp.NewID(), other))
				},
				func() { must(s.PutGroup(ctx, harp.NewID(), "x", "web*")) }, deleteAll,
			},
			"remove a host that is listed": {
				func(id string) error { _, err := s.RemoveHost(ctx, id, name); return err },
				func() { listed(&HostSpec{Name: name}) }, func() { listed(nil) }, nil,
			},
		} {
			c.refuse()
			id := harp.NewID()
			if err := c.do(id); !errors.Is(err, harp.ErrConflict) {
				t.Errorf("%s: it gives %v, want ErrConflict", what, err)
			}
			c.allow()
			synctest.Wait()
			time.Sleep(time.Minute)
			if err := c.do(id); !errors.Is(err, harp.ErrConflict) {
				t.Errorf("%s: asked again it gives %v, want ErrConflict", what, err)
			}
			if c.after != nil {
				c.after()
			}
		}
	})
}
