package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/notify"
	"github.com/harpcaller/harp/store/memory"
)

// countingHook takes all, and counts it by message.
type countingHook struct {
	mu  sync.Mutex
	got map[string]int
}

func (*countingHook) Accepts(r harp.Receiver) bool { return r.Webhook != nil }

func (*countingHook) Check(harp.Receiver) error { return nil }

func (h *countingHook) Send(ctx context.Context, _ harp.Receiver, m notify.Message) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.got[m.Subject]++
	return nil
}

func (h *countingHook) count(subject string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.got[subject]
}

// TestNotificationPutWhileItIsDeleted: one that is put while it is deleted is there when that was acknowledged, and tells, unless it was
// deleted after it.
func TestNotificationPutWhileItIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook := &countingHook{got: map[string]int{}}
		d := must[*dispatcher.Dispatcher](t)(dispatcher.Open(t.Context(), memory.OpenDisk(memory.NewDisk(), nil), dispatcher.Config{Senders: []notify.Sender{hook}}))
		defer func() { ok(t, d.Shutdown(context.WithoutCancel(t.Context()))) }()
		ns := d.Caller().Notifications()
		n := harp.Notification{Name: "n", On: []string{"group.*"}, To: harp.Receiver{Webhook: &harp.Webhook{URL: "https://x", Secrets: []string{"s"}}}}
		for i := range 100 {
			ok(t, ns.Put(t.Context(), n))
			var both sync.WaitGroup
			both.Go(func() { ok(t, ns.Delete(t.Context(), "n")) })
			for range 4 {
				both.Go(func() {
					if err := ns.Put(t.Context(), n); err != nil {
						t.Errorf("%d: put: %v", i, err)
					}
				})
			}
			both.Wait()
			var last harp.EventType
			for after := harp.EventsFromStart; ; {
				page := must[harp.EventPage](t)(d.Caller().EventsPage(t.Context(), harp.EventFilter{After: after, Types: []string{"notification.*"}}, false))
				for _, e := range page.Events {
					last = e.Type
				}
				if after == page.Cursor {
					break
				}
				after = page.Cursor
			}
			_, err := ns.Get(t.Context(), "n")
			if there := err == nil; there != (last == harp.EventNotificationChanged) || err != nil && !errors.Is(err, harp.ErrNotFound) {
				t.Fatalf("%d: the last event is %s, and then: %v", i, last, err)
			}
			if err != nil {
				continue
			}
			name := fmt.Sprintf("g%d", i)
			ok(t, d.Caller().Groups().Put(t.Context(), name, "web*"))
			time.Sleep(time.Second)
			if s := must[harp.NotificationStatus](t)(ns.Get(t.Context(), "n")); s.Pending != 0 || hook.count("group.changed: "+name) == 0 && s.Sent == 0 {
				t.Fatalf("%d: it tells nobody: %+v", i, s)
			}
		}
	})
}
