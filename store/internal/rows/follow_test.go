package rows

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// counted counts the views of an engine.
type counted struct {
	*trial
	views  atomic.Int64
	before atomic.Pointer[func()] // the next one
}

func (c *counted) View() (Snapshot, error) {
	c.views.Add(1)
	if f := c.before.Swap(nil); f != nil {
		(*f)()
	}
	return c.trial.View()
}

// TestPrunedWhileItIsRead prunes what a follower is about to read: it is told so, and is not
// given what it has seen in place of what it has not.
func TestPrunedWhileItIsRead(t *testing.T) {
	e := &counted{trial: newTrial()}
	s := opened(t, e, Options{})
	note(t, s, "seen", 3, noon)
	_, cursor := page(t, s, harp.EventsFromStart, 1<<20)
	note(t, s, "not seen", 3, noon)
	prunes := func() {
		prune(t, s, store.Retention{EventsBefore: noon.Add(time.Minute)}, noon.Add(time.Hour))
		note(t, s, "new", 1, noon.Add(time.Hour))
	}
	e.before.Store(&prunes)
	if got, err := s.Events(t.Context(), harp.EventFilter{After: cursor}, 1<<20); !errors.Is(err, harp.ErrPruned) {
		t.Errorf("it is given %d events, %v, want ErrPruned", len(got.Events), err)
	}
	if got, _ := page(t, s, harp.EventsFromStart, 1<<20); len(got) != 1 {
		t.Errorf("%d events are left, want 1", len(got))
	}
}

// TestEveryFollowerReadsAnew checks that what has been committed is read and decoded once
// for all that follow the feed, and that each gets its own copy of it.
func TestEveryFollowerReadsAnew(t *testing.T) {
	e := &counted{trial: newTrial()}
	s := opened(t, e, Options{})
	note(t, s, "a", 3, noon)
	_, cursor := page(t, s, harp.EventsFromNow, 1)
	for range 5 {
		event := harp.Event{Type: harp.EventHostForgot, Host: "h", Labels: map[string]string{"k": "v"}, Queue: harp.Value{0x80}}
		if err := s.AppendEvents(t.Context(), event); err != nil {
			t.Fatal(err)
		}
		before, next := e.views.Load(), ""
		for range 400 {
			got, err := s.Events(t.Context(), harp.EventFilter{After: cursor}, 1<<20)
			if err != nil || len(got.Events) != 1 {
				t.Fatalf("%d events, %v", len(got.Events), err)
			}
			told := got.Events[0]
			if told.Host != "h" || told.Labels["k"] != "v" || told.Queue[0] != 0x80 || told.Cursor != got.Cursor {
				t.Fatalf("it is %+v", told)
			}
			told.Labels["k"], told.Queue[0] = "mine", 0
			if got, err := s.Events(t.Context(), harp.EventFilter{After: got.Cursor}, 1<<20); err != nil || len(got.Events) != 0 {
				t.Fatalf("after it are %d events, %v", len(got.Events), err)
			}
			next = got.Cursor
		}
		if n := e.views.Load() - before; n > 1 {
			t.Errorf("400 followers read the engine %d times", n)
		}
		cursor = next
	}
}
