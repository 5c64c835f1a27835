package dispatcher

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// endlessFeed is a store in which something happens whenever somebody looks, and of which each look sees one event.
type endlessFeed struct{ store.Store }

func (s endlessFeed) Events(ctx context.Context, f harp.EventFilter, _ int) (harp.EventPage, error) {
	if err := s.AppendEvents(ctx, harp.Event{Type: harp.EventGroupChanged, Time: time.Now(), Reason: "g"}); err != nil {
		return harp.EventPage{}, err
	}
	return s.Store.Events(ctx, f, 1)
}

// dueNotifier is a notification that is paused, with a digest and a host that is away, both due since a second.
func dueNotifier(t *testing.T, st store.Store) *notifier {
	t.Helper()
	d := opened(t, st, Config{})
	n := d.newNotifier(notificationDocument{Notification: harp.Notification{Name: "n", On: []string{"host.away"}, For: time.Minute}})
	n.state = notifiedDocument{Cursor: harp.EventsFromStart, Pause: &harp.NotificationPause{}, Digest: &gathering{First: 1, Counts: map[string]int{"x": 1}}, Away: 1}
	due := time.Now().Add(-time.Second)
	away := awayDocument{Event: harp.Event{Type: harp.EventHostAway, Host: "h", Time: due.Add(-time.Minute)}, Due: due}
	if _, err := st.ChangeDocuments(t.Context(), store.DocumentChanges{Changes: []store.DocumentChange{{Kind: awayKind("n"), Name: "h", New: wire.Encode(away)}}}); err != nil {
		t.Fatal(err)
	}
	n.digestAt, n.away["h"] = due, &awayHost{due: due}
	return n
}

// happened notes events of the past.
func happened(t *testing.T, st store.Store, ago time.Duration, what harp.EventType, host string) {
	t.Helper()
	if err := st.AppendEvents(t.Context(), harp.Event{Type: what, Time: time.Now().Add(-ago), Host: host}); err != nil {
		t.Fatal(err)
	}
}

// TestDueMessagesWaitForNoEndOfTheFeed: a digest, and a host that is away for as long as was asked for, are told though each look at the
// feed finds that more has happened.
func TestDueMessagesWaitForNoEndOfTheFeed(t *testing.T) {
	n := dueNotifier(t, endlessFeed{memory.Open(nil)})
	if _, err := n.work(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n.state.Digest != nil || len(n.messages) != 2 || !n.away["h"].told {
		t.Errorf("%d messages were made, the digest is %+v, the host %+v", len(n.messages), n.state.Digest, n.away["h"])
	}
}

// TestHostThatIsBackIsNotToldAsAway: a host came back before it was away for as long as was asked for, but that is behind much else that
// was not looked at.
func TestHostThatIsBackIsNotToldAsAway(t *testing.T) {
	st := endlessFeed{memory.Open(nil)}
	n := dueNotifier(t, st)
	const others = 100
	for range others {
		happened(t, st, 3*time.Second, harp.EventHostOnline, "other")
	}
	happened(t, st, 2*time.Second, harp.EventHostOnline, "h")
	for range 2 * others {
		if _, err := n.work(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, there := n.away["h"]; there || len(n.messages) != 1 {
		t.Errorf("%d messages were made, of one digest; the host is still away: %v", len(n.messages), there)
	}
}

// TestHostIsNotToldAsAwayWhileMuchIsUnread: so it is while a notification reads no further, as too many of its messages wait.
func TestHostIsNotToldAsAwayWhileMuchIsUnread(t *testing.T) {
	st := memory.Open(nil)
	n := dueNotifier(t, st)
	happened(t, st, 2*time.Second, harp.EventHostOnline, "h")
	n.fullSince, n.state.Digest = time.Now(), nil
	for no := range uint64(goOn + 1) {
		n.messages[no] = &queued{no: no}
	}
	wait, err := n.work(t.Context())
	if err != nil || len(n.messages) != goOn+1 || wait <= 0 {
		t.Fatalf("%d messages wait, want %d; it looks again after %v: %v", len(n.messages), goOn+1, wait, err)
	}
	clear(n.messages)
	for range 2 {
		if _, err := n.work(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(n.messages) > 0 || len(n.away) > 0 {
		t.Errorf("it tells of a host that is back: %v", fmt.Sprint(n.messages, n.away))
	}
}
