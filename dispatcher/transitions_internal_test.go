package dispatcher

import (
	"context"
	"errors"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// halfStore is a store that applies the first of some transitions only.
type halfStore struct{ store.Store }

var errHalf = errors.New("half of it")

func (s halfStore) Apply(ctx context.Context, ts ...store.Transition) ([]store.Change, error) {
	out, err := s.Store.Apply(ctx, ts[:1]...)
	if err == nil && len(ts) > 1 {
		return append(out, store.Change{Err: errHalf}), errHalf
	}
	return out, err
}

// Of transitions of which the store could make some only, those are heeded: callers that wait for what they ended are told.
func TestWhatIsStoredOfTransitionsThatFailIsHeeded(t *testing.T) {
	d := opened(t, &halfStore{memory.Open(nil)}, Config{Hosts: StaticHosts{{Name: "web01"}}})
	var ts []store.Transition
	for range 2 {
		j, err := d.Caller().Host("web01").Call(t.Context(), "work", nil)
		if err != nil {
			t.Fatal(err)
		}
		ts = append(ts, store.Transition{ID: j.ID(), Event: store.Event{Kind: store.CancelReq, At: d.now()}})
	}
	w := d.watchers.acquire(ts[0].ID)
	defer d.watchers.release(w)
	if _, err := d.applyTransitions(t.Context(), ts...); !errors.Is(err, errHalf) {
		t.Errorf("it gives %v", err)
	}
	if !w.isOver() || w.ended == nil || w.ended.State != harp.StateCancelled {
		t.Error("who waits for the first is not told")
	}
}
