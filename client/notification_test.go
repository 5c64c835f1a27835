package client

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
)

// newNotification is a notification with much in it.
func newNotification(name string) harp.Notification {
	return harp.Notification{
		Name: name, Doc: "for people", On: []string{"host.away"}, Procedures: []string{"disk.*"}, Schedules: []string{"nightly"}, Target: "role=db",
		States: []harp.State{harp.StateFailed}, Labels: map[string]string{"team": "db"}, For: 10 * time.Minute, Digest: time.Hour, Include: []string{harp.IncludeArgs},
		To: harp.Receiver{Webhook: &harp.Webhook{URL: "https://example.com/" + strings.Repeat("x", 1000), Secrets: []string{"new", "old"}}},
	}
}

// TestNotifications: what is put is what is got, pages are put together, and changes arrive.
func TestNotifications(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		ns, ctx := caller.Notifications(), t.Context()
		d.pageSize = 2
		mail := harp.Notification{Name: "mail", On: []string{"job.failed", "batch.*"}, To: harp.Receiver{Mail: &harp.Mail{To: []string{"ops@example.com"}}}}
		for _, want := range []harp.Notification{newNotification("hook"), mail, newNotification("other")} {
			if err := ns.Put(ctx, want); err != nil {
				t.Fatal(err)
			}
			got, err := ns.Get(ctx, want.Name)
			is := harp.NotificationStatus{
				Notification: want, Changed: at(1), Pause: &harp.NotificationPause{Reason: "r", Since: at(2)}, Behind: true, Pending: 1, GivenUp: 2, Away: 3, Gathered: 4, Sent: 5, Answer: "503", Tried: at(3),
			}
			if err != nil || !reflect.DeepEqual(got, is) {
				t.Errorf("got %+v, %v", got, err)
			}
		}
		var names []string
		for n, err := range ns.List(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, n.Name)
		}
		if fmt.Sprint(names) != "[hook mail other]" {
			t.Errorf("there are %v", names)
		}
		if _, err := ns.Get(ctx, "none"); !errors.Is(err, harp.ErrNotFound) {
			t.Error(err)
		}
		var want []harp.MessageStatus
		for n := range 5 {
			want = append(want, harp.MessageStatus{Notification: "hook", ID: fmt.Sprintf("msg_%d", n), Type: "job.failed", Time: at(n + 1), Subject: "s", Tries: n, Tried: at(2), Answer: "no", Due: at(3), GivenUp: n == 3})
		}
		d.notifications.messages = want
		var got []harp.MessageStatus
		for m, err := range ns.Messages(ctx, "hook") {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, m)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("messages are %+v", got)
		}
		errs := []error{ns.Pause(ctx, "hook", "why"), ns.Unpause(ctx, "hook"), ns.Delete(ctx, "hook")}
		taken, answer, err := ns.Test(ctx, "hook")
		n, also := ns.Retry(ctx, "hook", "msg_3")
		if err := errors.Join(append(errs, err, also)...); err != nil || !taken || answer != "a" || n != 3 {
			t.Errorf("test: %v %q; retry: %d; %v", taken, answer, n, err)
		}
		changes := []harp.NotificationChange{
			{Kind: harp.PauseOfNotification, Reason: "why"}, {Kind: harp.UnpauseOfNotification}, {Kind: harp.TestOfNotification}, {Kind: harp.RetryOfNotification, Message: "msg_3"},
		}
		if !reflect.DeepEqual(d.notifications.changes, changes) || fmt.Sprint(d.notifications.deleted) != "[hook]" {
			t.Errorf("asked for were %+v, %v", d.notifications.changes, d.notifications.deleted)
		}
	})
}
