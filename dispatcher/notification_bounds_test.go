package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/notify"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// toldHook answers as the test says.
type toldHook struct {
	mu  sync.Mutex
	err error
	ids []string // of the messages that were tried
}

func (*toldHook) Accepts(r harp.Receiver) bool { return r.Webhook != nil }

func (*toldHook) Check(harp.Receiver) error { return nil }

func (h *toldHook) Send(_ context.Context, _ harp.Receiver, m notify.Message) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ids = append(h.ids, m.ID)
	return h.err
}

func (h *toldHook) answers(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
}

func (h *toldHook) tried() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.ids...)
}

// notifiedWorld is a dispatcher, its store, and a notification n of what happens to hosts.
func notifiedWorld(t *testing.T, h notify.Sender, n harp.Notification) (*dispatcher.Dispatcher, store.Store) {
	t.Helper()
	st := memory.Open(nil)
	d := must[*dispatcher.Dispatcher](t)(dispatcher.Open(t.Context(), st, dispatcher.Config{Senders: []notify.Sender{h}}))
	t.Cleanup(func() { ok(t, d.Shutdown(context.WithoutCancel(t.Context()))) })
	n.Name, n.To = "n", harp.Receiver{Webhook: &harp.Webhook{URL: "https://x", Secrets: []string{"s"}}}
	ok(t, d.Caller().Notifications().Put(t.Context(), n))
	return d, st
}

// statusOf is the notification n.
func statusOf(t *testing.T, d *dispatcher.Dispatcher) harp.NotificationStatus {
	t.Helper()
	return must[harp.NotificationStatus](t)(d.Caller().Notifications().Get(t.Context(), "n"))
}

// appendEvents has so many hosts be away, which says why in so many bytes.
func appendEvents(t *testing.T, st store.Store, n, bytes int) {
	t.Helper()
	for i := range n {
		e := harp.Event{Type: harp.EventHostAway, Time: time.Now(), Host: fmt.Sprint("host", i), Reason: strings.Repeat("r", bytes)}
		ok(t, st.AppendEvents(t.Context(), e))
	}
}

// messagesOf is how many documents of messages there are, and their bytes.
func messagesOf(t *testing.T, st store.Store) (count, size int) {
	t.Helper()
	for cursor := ""; ; {
		page, next, err := st.ListDocuments(t.Context(), "message of n", cursor, 1000)
		ok(t, err)
		for _, doc := range page {
			count, size = count+1, size+len(doc.Content)
		}
		if cursor = next; cursor == "" {
			return count, size
		}
	}
}

// TestLongMessagesThatWaitAreBounded: few messages that are long keep a notification waiting as many short ones do.
func TestLongMessagesThatWaitAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &toldHook{err: &notify.Error{Answer: "503", After: time.Hour}}
		d, st := notifiedWorld(t, h, harp.Notification{On: []string{"host.away"}})
		const events, each = 400, 50 << 10
		appendEvents(t, st, events, each)
		time.Sleep(2 * time.Minute)
		if n, size := messagesOf(t, st); size < 15<<20 || size > 16<<20+64<<10 || n >= events || !statusOf(t, d).Behind {
			t.Errorf("%d messages of %d bytes wait: %+v", n, size, statusOf(t, d))
		}
		h.answers(nil)
		time.Sleep(2 * time.Hour)
		if s := statusOf(t, d); s.Sent != events || s.Behind || s.Pending != 0 {
			t.Errorf("then it is %+v", s)
		}
	})
}

// TestLongMessagesThatWereGivenUpAreBounded: of messages that were given up the last are kept, as many as there is room for.
func TestLongMessagesThatWereGivenUpAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &toldHook{err: &notify.Error{Answer: "no", Final: true}}
		d, st := notifiedWorld(t, h, harp.Notification{On: []string{"host.away"}})
		const events, each = 400, 50 << 10
		appendEvents(t, st, events, each)
		time.Sleep(time.Hour)
		n, size := messagesOf(t, st)
		if s := statusOf(t, d); size < 15<<20 || size > 16<<20 || s.GivenUp != n || s.Pending != 0 {
			t.Errorf("%d messages of %d bytes are kept: %+v", n, size, s)
		}
		f := harp.EventFilter{After: harp.EventsFromStart, Types: []string{"notification.gap"}}
		dropped := 0
		for _, e := range must[harp.EventPage](t)(d.Caller().EventsPage(t.Context(), f, false)).Events {
			var some int
			if _, err := fmt.Sscanf(e.Reason, "%d messages that were given up were deleted", &some); err != nil {
				t.Errorf("told is %q", e.Reason)
			}
			dropped += some
		}
		if dropped != events-n {
			t.Errorf("of %d messages %d are kept, and %d are told as deleted", events, n, dropped)
		}
		ids := slices.Sorted(slices.Values(h.tried()))
		for m, err := range d.Caller().Notifications().Messages(t.Context(), "n") {
			ok(t, err)
			if m.ID != ids[len(ids)-n] {
				t.Errorf("the first that is kept is %s, want %s", m.ID, ids[len(ids)-n])
			}
			break
		}
	})
}

// TestHostsOfADeletedNotification: what a notification knows of hosts that are away goes with it.
func TestHostsOfADeletedNotification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hosts = 1200
		d, st := notifiedWorld(t, &toldHook{}, harp.Notification{On: []string{"host.away"}, For: time.Hour})
		appendEvents(t, st, hosts, 10)
		time.Sleep(time.Minute)
		if s := statusOf(t, d); s.Away != hosts {
			t.Fatalf("it is %+v", s)
		}
		ok(t, d.Caller().Notifications().Delete(t.Context(), "n"))
		time.Sleep(time.Minute)
		for _, kind := range []string{"away of n", "message of n", "notified", "notification"} {
			if left, _, err := st.ListDocuments(t.Context(), kind, "", 1000); len(left) > 0 || err != nil {
				t.Errorf("of kind %s %d documents are left, %v", kind, len(left), err)
			}
		}
	})
}

// TestPagesOfMessages: each message that waits is in one page.
func TestPagesOfMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const messages = 700
		d, st := notifiedWorld(t, &toldHook{err: errors.New("down")}, harp.Notification{On: []string{"host.away"}})
		appendEvents(t, st, messages, 10)
		time.Sleep(time.Minute)
		last, n := "", 0
		for m, err := range d.Caller().Notifications().Messages(t.Context(), "n") {
			ok(t, err)
			if m.ID <= last {
				t.Fatalf("%s comes behind %s", m.ID, last)
			}
			last = m.ID
			n++
		}
		if n != messages {
			t.Errorf("there are %d messages in pages, want %d", n, messages)
		}
	})
}

// TestAnswerOfAMessageThatWasTaken: the answer of a try that failed is shown until a message is taken.
func TestAnswerOfAMessageThatWasTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &toldHook{err: &notify.Error{Answer: "503"}}
		d, st := notifiedWorld(t, h, harp.Notification{On: []string{"host.away"}})
		appendEvents(t, st, 1, 10)
		time.Sleep(time.Second)
		s := statusOf(t, d)
		if s.Answer != "503" || s.Tried.IsZero() {
			t.Fatalf("it is %+v", s)
		}
		h.answers(nil)
		time.Sleep(time.Minute)
		if is := statusOf(t, d); is.Answer != "" || !is.Tried.After(s.Tried) || is.Sent != 1 {
			t.Errorf("then it is %+v", is)
		}
	})
}
