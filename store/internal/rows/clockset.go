package rows

import (
	"context"
	"time"

	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/internal/schedule"
)

// ClockSet implements store.Upkeep.
func (s *Store) ClockSet(by time.Duration) {
	s.mu.Lock()
	s.sched.ClockSet(int64(by))
	s.clockAhead.Store(s.sched.Ahead)
	var last []*batch
	for _, b := range s.batches {
		b.life = b.life.ClockSet(by)
		s.sched.RingBatchBy(b.slots, nanos(b.life.NextDue(&b.row.Plan)))
		if !b.life.WakeAt.IsZero() || !b.life.RatedAt.IsZero() || b.life.Pause != nil {
			last = append(last, b)
		}
	}
	s.mu.Unlock()
	// A restart would take all keys for older, or younger, than they are, and pauses of batches for longer.
	keep := func(t *tx) error {
		for len(last) > 0 && t.hasRoom(maxStep) {
			b := last[0]
			if last = last[1:]; s.batches[b.id] == b {
				t.noteBatch(b)
			}
		}
		return nil
	}
	for first := true; first || len(last) > 0; first = false {
		if err := s.doAhead(context.Background(), SpaceCritical, keep); err != nil {
			s.log.Error("that the clock was set is not stored", "by", by, "err", err)
			return
		}
	}
}

// asked is how far ahead the clock was when an operation was asked for, which then waits for
// its turn.
func (s *Store) asked() int64 { return s.clockAhead.Load() }

// sinceSubmitted is since for the times of a submission, but for those that its caller named.
func sinceSubmitted(s *schedule.Schedule, asked int64, in store.Submission) *store.Submission {
	in.KeyUntil, in.Job.SubmitTime = s.Since(asked, in.KeyUntil), s.Since(asked, in.Job.SubmitTime)
	return &in
}
