//go:build !race

package rows

import (
	"reflect"
	"testing"

	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/storetest"
)

// TestRecent checks, through all that a store is tested with, that a job which is at
// hand is as its rows have it.
func TestRecent(t *testing.T) {
	storetest.Test(t, func(t *testing.T) store.Store {
		e := newTrial()
		s, err := Open(e, Options{})
		if err != nil {
			t.Fatal(err)
		}
		var last []Write
		e.onCommit = func(writes []Write) error {
			view, _ := e.View() // a trial always has one
			for _, w := range last {
				if w.Key[0] == prefixLife {
					checkRecent(t, s, view, id(w.Key[1:]))
				}
			}
			last = writes
			return nil
		}
		return s
	})
}

func checkRecent(t *testing.T, s *Store, view Snapshot, i id) {
	has := s.jobCache.get(i)
	want, _, err := readCall(view, i)
	switch {
	case err != nil && has != nil:
		t.Errorf("job %s is at hand: %v", i, err)
	case err == nil && has != nil && !reflect.DeepEqual(has, want):
		t.Errorf("job %s is at hand as\n%+v\nits rows have\n%+v", i, *has, *want)
	case err == nil && has == nil && jobSize(want) <= maxCachedJob:
		t.Errorf("job %s is not at hand", i)
	}
}
