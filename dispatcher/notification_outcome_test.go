package dispatcher

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/notify"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// TestAnswerThatIsNotStoredYet: a receiver wants no more messages, and before that is stored another one takes its place: it is asked.
func TestAnswerThatIsNotStoredYet(t *testing.T) {
	st := memory.Open(nil)
	d := opened(t, st, Config{})
	to := func(url string) notificationDocument {
		return notificationDocument{Notification: harp.Notification{Name: "n", To: harp.Receiver{Webhook: &harp.Webhook{URL: url}}}}
	}
	n := d.newNotifier(to("https://old"))
	_, err := st.ChangeDocuments(t.Context(), store.DocumentChanges{Changes: []store.DocumentChange{
		{Kind: messageKind("n"), Name: messageName(1), New: wire.Encode(messageDocument{Type: "host.away", Due: time.Now()})},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	m := n.messages[1]
	m.busy, m.outcome = true, &outcome{err: &notify.Error{Answer: "410", Gone: true}, at: time.Now()}
	n.replace(to("https://new"))
	if err := n.storeOutcomes(t.Context()); err != nil || m.busy || n.state.Pause != nil {
		t.Errorf("it is paused: %+v, and its message busy: %v; %v", n.state.Pause, m.busy, err)
	}
}

// unreadJobs is a store whose jobs cannot be read.
type unreadJobs struct{ store.Store }

func (unreadJobs) Job(context.Context, string) (*store.Job, error) { return nil, errTest }

// TestDetailsThatCannotBeRead: a message names what it was to have of a job that is gone, or cannot be read.
func TestDetailsThatCannotBeRead(t *testing.T) {
	for name, st := range map[string]store.Store{"is gone": memory.Open(nil), "cannot be read": unreadJobs{memory.Open(nil)}} {
		d := opened(t, st, Config{})
		n := &harp.Notification{Name: "n", Include: []string{harp.IncludeResult, harp.IncludeArgs}}
		e := &harp.Event{Type: harp.EventJobFailed, Job: harp.NewID(), State: harp.StateFailed}
		var data struct {
			LeftOut []string `json:"left_out"`
		}
		if err := json.Unmarshal(newMessage(n, e, d.notesOf(t.Context(), n, e, nil)).Data, &data); err != nil || !slices.Equal(data.LeftOut, []string{"args", "result"}) {
			t.Errorf("of a job that %s it names %q as left out: %v", name, data.LeftOut, err)
		}
	}
}
