package rows

import (
	"errors"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// TestRemoveHostIsBrokenOff: a dispatcher is killed as the second of the commits fails in which the jobs of a host are ended. Asked again
// while the host is back, which refuses it, nothing more is ended; later all is, and the count is of all.
func TestRemoveHostIsBrokenOff(t *testing.T) {
	const jobs = maxDue + 100
	op := store.Operation{ID: harp.NewID(), Time: noon}
	e := closed(t, func(s *Store) {
		if _, err := s.OpenSession(t.Context(), store.Session{Host: "h", At: noon, Journal: "j"}); err != nil {
			t.Fatal(err)
		}
		onHost(t, s, jobs, func(*store.Submission) {})
	})
	s := opened(t, e, Options{})
	fails := false
	e.onCommit = func([]Write) error {
		if fails {
			return errors.New("trouble")
		}
		fails = true
		return nil
	}
	if done, err := s.RemoveHost(t.Context(), "h", op); err == nil || len(done.Ended) != maxDue {
		t.Fatalf("it ended %d, %v", len(done.Ended), err)
	}
	e.onCommit = nil
	if err := s.Close(); err != nil && !errors.Is(err, store.ErrPoisoned) {
		t.Fatal(err)
	}
	s = opened(t, e, Options{})
	refused := op
	refused.Refused = errors.New("it is back")
	if done, err := s.RemoveHost(t.Context(), "h", refused); !errors.Is(err, refused.Refused) || len(done.Ended) != 0 {
		t.Errorf("refused it ended %d, %v", len(done.Ended), err)
	}
	if _, err := s.Host(t.Context(), "h"); err != nil {
		t.Errorf("the host is gone: %v", err)
	}
	if done, err := s.RemoveHost(t.Context(), "h", op); err != nil || done.Count != jobs || len(done.Ended) != jobs-maxDue {
		t.Errorf("asked again it ended %d of %d, %v", len(done.Ended), done.Count, err)
	}
	if done, err := s.RemoveHost(t.Context(), "h", refused); err != nil || done.Count != jobs {
		t.Errorf("done before it tells of %d, %v", done.Count, err)
	}
}
