package rows

import (
	"context"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/internal/schedule"
)

// maxSilenced is how many jobs one commit of a host's silence moves at most: more than a
// host has attempts, but for one that was allowed unusually many.
const maxSilenced = 4096

// Silence implements store.Jobs.
func (s *Store) Silence(ctx context.Context, hostName string, at, lostAt time.Time) ([]*store.Job, error) {
	event := store.Event{Kind: store.Silent, At: fromNanos(nanos(at)), Wake: fromNanos(nanos(lostAt))}
	var out []*store.Job
	asked := s.asked()
	for more := true; more; {
		var moved []*store.Job
		err := s.doAhead(ctx, SpaceLow, func(t *tx) (err error) {
			event := event
			event.At, event.Wake = s.sched.Since(asked, event.At), s.sched.Since(asked, event.Wake)
			moved, more, err = s.silenceHost(t, hostName, event)
			return err
		})
		if err != nil {
			return out, err
		}
		out = append(out, moved...)
	}
	return out, nil
}

// silenceHost moves as many jobs of a host to unknown as one commit takes, and reports
// whether there are more. Of attempts that were lost and found alive it is no longer
// known whether they are.
func (s *Store) silenceHost(t *tx, hostName string, event store.Event) (moved []*store.Job, more bool, err error) {
	n := 0
	for _, i := range s.sched.HeardOf(hostName) {
		if n == maxSilenced || !t.hasRoom(maxStep) {
			return moved, true, nil
		}
		before, err := readJob(t, i)
		switch {
		case err != nil && s.skipDamaged(s.sched.Job(i), err), err == nil && before.State == harp.StateUnknown && before.WakeAt.Equal(event.Wake):
			continue
		case err != nil:
			return moved, false, err
		}
		var c store.Change
		event.Attempt, event.Fence = before.Attempt, before.Fence
		if err := s.applyEvent(t, i, before, event, &c); err != nil {
			return moved, false, err
		}
		switch {
		case c.Err != nil && s.skipDamaged(s.sched.Job(i), c.Err):
			continue
		case c.Err != nil:
			return moved, false, c.Err
		}
		n++
		if c.Job.State == harp.StateUnknown && before.State != harp.StateUnknown {
			moved = append(moved, c.Job)
		}
	}
	return moved, false, nil
}

// Returning implements store.Jobs.
func (s *Store) Returning(ctx context.Context, hostName string) ([]*store.Job, error) {
	var ids []schedule.ID
	err := s.doAhead(ctx, SpaceFull, func(*tx) error {
		ids = s.sched.Returning(hostName)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s.readThose(ids, func(j *store.Job) bool { return j.State == harp.StateQueued && j.GivenUp() })
}
