package dispatcher_test

import (
	"context"
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

// batchOfSchedule is a store whose batches are runs of a schedule, and cannot be read at first.
type batchOfSchedule struct {
	store.Store
	troubles atomic.Int32
}

func (s *batchOfSchedule) Batch(context.Context, string) (*store.Batch, error) {
	if s.troubles.Add(-1) >= 0 {
		return nil, errTrouble
	}
	return &store.Batch{Member: store.Job{Schedule: "nightly"}}, nil
}

// TestNotificationWhenABatchCannotBeRead: an event of which it cannot be read now whose run it is about is looked at again.
func TestNotificationWhenABatchCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook := &countingHook{got: map[string]int{}}
		st := &batchOfSchedule{Store: memory.OpenDisk(memory.NewDisk(), nil)}
		st.troubles.Store(2)
		d := must[*dispatcher.Dispatcher](t)(dispatcher.Open(t.Context(), st, dispatcher.Config{Senders: []notify.Sender{hook}}))
		defer func() { ok(t, d.Shutdown(context.WithoutCancel(t.Context()))) }()
		to := harp.Receiver{Webhook: &harp.Webhook{URL: "https://x", Secrets: []string{"s"}}}
		ok(t, d.Caller().Notifications().Put(t.Context(), harp.Notification{Name: "n", On: []string{"batch.*"}, Schedules: []string{"night*"}, To: to}))
		id := harp.NewID()
		ok(t, st.AppendEvents(t.Context(), harp.Event{Type: harp.EventBatchWave, Time: time.Now(), Batch: id}))
		time.Sleep(time.Minute)
		if n := hook.count("batch.wave: " + id); n != 1 {
			t.Errorf("it was told %d times", n)
		}
	})
}

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
