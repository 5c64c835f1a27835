package dispatcher_test

import (
	"context"
	"runtime"
	"slices"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/notify"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// goingStore is a store in which the last commit of the deletion of a notification takes until it is let go on.
type goingStore struct {
	store.Store
	reached, goOn chan struct{}
	asked         chan struct{} // has a token for each operation that is asked after, when it is deleted
}

func (s *goingStore) ChangeDocuments(ctx context.Context, c store.DocumentChanges) (int, error) {
	if slices.ContainsFunc(c.Changes, func(c store.DocumentChange) bool { return c.Kind == "notification" && c.New == nil }) {
		close(s.reached)
		<-s.goOn
	}
	return s.Store.ChangeDocuments(ctx, c)
}

func (s *goingStore) DocumentsChanged(ctx context.Context, op store.Operation) (int, bool, error) {
	select {
	case <-s.reached:
		s.asked <- struct{}{}
	default:
	}
	return s.Store.DocumentsChanged(ctx, op)
}

// TestNotificationPutAsAnotherGoes: one is put at the moment in which another one that was deleted goes, and neither waits for the
// other for ever.
func TestNotificationPutAsAnotherGoes(t *testing.T) {
	st := &goingStore{Store: memory.Open(nil), reached: make(chan struct{}), goOn: make(chan struct{}), asked: make(chan struct{}, 10)}
	d := must[*dispatcher.Dispatcher](t)(dispatcher.Open(t.Context(), st, dispatcher.Config{Senders: []notify.Sender{downHook{}}}))
	defer func() { ok(t, d.Shutdown(context.WithoutCancel(t.Context()))) }()
	ns := d.Caller().Notifications()
	n := harp.Notification{Name: "old", On: []string{"group.*"}, To: harp.Receiver{Webhook: &harp.Webhook{URL: "https://x", Secrets: []string{"s"}}}}
	ok(t, ns.Put(t.Context(), n))
	ok(t, ns.Delete(t.Context(), "old"))
	<-st.reached
	n.Name = "new"
	put := make(chan error)
	go func() { put <- ns.Put(t.Context(), n) }()
	<-st.asked
	for range 10_000 { // until it looks at those that there are
		runtime.Gosched()
	}
	close(st.goOn)
	ok(t, <-put)
	must[harp.NotificationStatus](t)(ns.Get(t.Context(), "new"))
}
