package dispatcher

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// unreadQueues is a store that cannot say anything of a queue while the test wants that.
type unreadQueues struct {
	store.Store
	unread atomic.Bool
}

var errUnread = errors.New("it cannot be read")

func (s *unreadQueues) Queue(ctx context.Context, name harp.Value) (harp.QueueStatus, error) {
	if s.unread.Load() {
		return harp.QueueStatus{}, errUnread
	}
	return s.Store.Queue(ctx, name)
}

// A queue that is not there is listed as none; of one that cannot be looked at that is said.
func TestListOneQueue(t *testing.T) {
	name, err := harp.QueueName(harp.Args{"q": 1})
	if err != nil {
		t.Fatal(err)
	}
	st := &unreadQueues{Store: memory.Open(nil)}
	s := opened(t, st, Config{}).service(ada)
	for want := range 2 {
		if page, err := s.ListQueues(t.Context(), name, ""); err != nil || len(page.Items) != want {
			t.Errorf("listed are %+v, %v, want %d", page, err, want)
		}
		yes := true
		if err := s.ChangeQueue(t.Context(), harp.NewID(), name, harp.QueueChange{Paused: &yes}); err != nil {
			t.Fatal(err)
		}
	}
	st.unread.Store(true)
	if _, err := s.ListQueues(t.Context(), name, ""); !errors.Is(err, errUnread) {
		t.Errorf("of a queue that cannot be read it is said %v", err)
	}
}
