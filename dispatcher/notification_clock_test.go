package dispatcher

import (
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// TestNotificationsWaitNoLongerThoughTheClockWasSetBack: a message that was not tried, one that was, and a host that is away wait after a
// restart for as long as they would have at most, wherever the clock stands by then.
func TestNotificationsWaitNoLongerThoughTheClockWasSetBack(t *testing.T) {
	for _, set := range []time.Duration{-30 * 24 * time.Hour, 0, 30 * 24 * time.Hour} {
		st := memory.Open(nil)
		d := opened(t, st, Config{Now: func() time.Time { return time.Now().Add(set) }})
		before := time.Now().UTC() // by the clock as it was
		n := d.newNotifier(notificationDocument{Notification: harp.Notification{Name: "n", On: []string{"host.away"}, For: 10 * time.Minute}})
		_, err := st.ChangeDocuments(t.Context(), store.DocumentChanges{Changes: []store.DocumentChange{
			{Kind: messageKind("n"), Name: messageName(1), New: wire.Encode(messageDocument{Type: "host.away", Due: before})},
			{Kind: messageKind("n"), Name: messageName(2), New: wire.Encode(messageDocument{Type: "host.away", Tries: 2, Tried: before, Due: before.Add(5 * time.Minute)})},
			{Kind: awayKind("n"), Name: "h", New: wire.Encode(awayDocument{Due: before.Add(10 * time.Minute)})},
		}})
		if err != nil {
			t.Fatal(err)
		}
		if err := n.load(t.Context()); err != nil {
			t.Fatal(err)
		}
		for what, wait := range map[string]struct {
			due  time.Time
			most time.Duration
		}{
			"one that was not tried": {n.messages[1].due, 0},
			"one that was tried":     {n.messages[2].due, 5 * time.Minute},
			"a host that is away":    {n.away["h"].due, 10 * time.Minute},
		} {
			took := wait.due.Sub(before)
			if slow := time.Since(before); took > wait.most+slow || set <= 0 && took < wait.most-time.Second {
				t.Errorf("the clock was set by %v: %s waits for %v, want %v", set, what, took, wait.most)
			}
		}
	}
}

// TestGapIsCountedToTheEvent: of events that were deleted before a notification has looked at them it is told how many, also of one.
func TestGapIsCountedToTheEvent(t *testing.T) {
	st := memory.Open(nil)
	d := opened(t, st, Config{})
	begun := time.Now()
	ok := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for n := range 5 {
		ok(st.AppendEvents(t.Context(), harp.Event{Type: harp.EventHostAway, Host: "h", Time: begun.Add(time.Duration(n) * time.Hour)}))
	}
	page, err := st.Events(t.Context(), harp.EventFilter{After: harp.EventsFromStart}, pageBytes)
	ok(err)
	third := st.EventNumber(page.Events[2].Cursor)
	_, err = st.Prune(t.Context(), store.Retention{EventsBefore: begun.Add(150 * time.Minute)}, begun)
	ok(err)
	for lost, want := range []string{"", "1 events were deleted for their age before they were looked at", "2 events were deleted for their age before they were looked at"} {
		n := d.newNotifier(notificationDocument{Notification: harp.Notification{Name: "n"}})
		n.state.No = third - uint64(lost)
		if page, err := n.findPlace(t.Context()); err != nil || st.EventNumber(page.Events[0].Cursor) != third+1 || n.gap != want {
			t.Errorf("%d are lost: %q, %+v, %v", lost, n.gap, page, err)
		}
	}
}
