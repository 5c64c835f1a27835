package dispatcher_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/notify"
)

// TestUnknownTypesOfEventsAreRefused: a type that is typed wrongly would select nothing for ever, so
// it is refused by the feed, by a notification and by a document of one.
func TestUnknownTypesOfEventsAreRefused(t *testing.T) {
	ctx := t.Context()
	sys := newSystem(t, inMemory, nil, dispatcher.Config{Senders: []notify.Sender{downHook{}}})
	n := harp.Notification{Name: "n", On: []string{"job.failed", "job.faild"}, To: harp.Receiver{Webhook: &harp.Webhook{URL: "https://x", Secrets: []string{"s"}}}}
	_, paged := sys.caller.EventsPage(ctx, harp.EventFilter{After: harp.EventsFromStart, Types: []string{"jbo.*"}}, false)
	_, applied := sys.caller.Schedules().Apply(ctx, "ops", []harp.Document{{Notification: &n}}, harp.ApplyOptions{})
	for i, err := range []error{paged, sys.caller.Notifications().Put(ctx, n), applied} {
		var wrong *harp.FieldError
		if !errors.As(err, &wrong) || !strings.Contains(wrong.Message, "is not a type of event") {
			t.Errorf("%d: %v", i, err)
		}
	}
	for _, err := range sys.caller.Events(ctx, harp.EventFilter{Types: []string{"host.gone"}}) {
		if !errors.Is(err, harp.ErrInvalid) {
			t.Error(err)
		}
		break
	}
	if _, err := sys.caller.Notifications().Get(ctx, "n"); !errors.Is(err, harp.ErrNotFound) {
		t.Error(err)
	}
}
