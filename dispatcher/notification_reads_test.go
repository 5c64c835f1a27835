package dispatcher_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/notify"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// pagedFeed is a store with pages of one event.
type pagedFeed struct {
	store.Store
	pages   atomic.Int64
	reached chan struct{} // is closed when some pages were read
}

func (s *pagedFeed) Events(ctx context.Context, f harp.EventFilter, _ int) (harp.EventPage, error) {
	if s.pages.Add(1) == 100 {
		close(s.reached)
	}
	return s.Store.Events(ctx, f, 1)
}

// TestNotificationIsSeenWhileItLooksAtMuch: who asks for a notification that has much to look at is not kept waiting until it has.
func TestNotificationIsSeenWhileItLooksAtMuch(t *testing.T) {
	const events = 30_000
	st := &pagedFeed{Store: memory.OpenDisk(memory.NewDisk(), nil), reached: make(chan struct{})}
	d := must[*dispatcher.Dispatcher](t)(dispatcher.Open(t.Context(), st, dispatcher.Config{Senders: []notify.Sender{downHook{}}}))
	defer func() { ok(t, d.Shutdown(context.WithoutCancel(t.Context()))) }()
	ns := d.Caller().Notifications()
	to := harp.Receiver{Webhook: &harp.Webhook{URL: "https://x", Secrets: []string{"s"}}}
	ok(t, ns.Put(t.Context(), harp.Notification{Name: "n", On: []string{"host.away"}, To: to}))
	var many []harp.Event
	for range 1000 {
		many = append(many, harp.Event{Type: harp.EventHostOnline, Time: time.Now(), Host: "web01"})
	}
	for range events / len(many) {
		ok(t, st.AppendEvents(t.Context(), many...))
	}
	<-st.reached
	must[harp.NotificationStatus](t)(ns.Get(t.Context(), "n"))
	if n := st.pages.Load(); n > events/2 {
		t.Errorf("it was told when %d pages were read", n)
	}
}
