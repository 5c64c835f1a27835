package rows

import (
	"container/heap"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// maxClaims is how many jobs one operation claims, if a commit takes so many.
const maxClaims = 500

// Claim implements store.Jobs.
func (s *Store) Claim(ctx context.Context, hosts []string, n int, now time.Time) ([]store.Job, error) {
	var out []store.Job
	for len(out) < n {
		var got []store.Job
		var more bool
		err := s.doAhead(ctx, SpaceLow, func(t *tx) (err error) {
			got, more, err = s.claimOn(t, hosts, min(n-len(out), maxClaims), s.sched.at(now))
			return err
		})
		if err != nil {
			return out, err
		}
		out = append(out, got...)
		if !more {
			break
		}
	}
	return out, nil
}

// Wake implements store.Jobs.
func (s *Store) Wake(ctx context.Context, hostName string, now time.Time) error {
	return s.doAhead(ctx, SpaceFull, func(*tx) error {
		at := s.sched.at(now)
		h := s.sched.hosts[hostName]
		if h == nil {
			return nil
		}
		for e := range h.busy {
			if e.isDoomed() {
				continue
			}
			s.sched.agenda.clear(&e.waking)
			if e.pauseEnds() > at {
				e.pauseSet = at - e.pause
			}
			if e.wake = e.comes(); e.wake > at {
				delete(h.busy, e)
				s.sched.agenda.set(&e.waking, e.wake) // its StartAfter, which had come before the clock was set back
				continue
			}
			s.sched.wake(e, at)
		}
		s.sched.wakeBacklogs(h, at)
		return nil
	})
}

// claimOn claims up to n jobs on some hosts, the first in order of all of them
// each time, and reports whether there may be more.
func (s *Store) claimOn(t *tx, names []string, n int, now int64) (out []store.Job, more bool, err error) {
	var offers offers
	names = slices.Clone(names)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		offers.offer(s.sched, s.sched.host(name), now)
	}
	for len(out) < n && len(offers) > 0 && t.hasRoom(maxStep) {
		h := heap.Pop(&offers).(offer).host
		// What was offered may have lost its slot to another host meanwhile.
		e := h.next(s.sched, now)
		if e == nil {
			continue
		}
		if len(offers) > 0 && offers[0].entry.before(e) {
			offers.offer(s.sched, h, now)
			continue
		}
		j, err := s.claim(t, e, now)
		if err != nil {
			return out, false, err
		}
		if j != nil {
			out = append(out, *j)
		}
		offers.offer(s.sched, h, now)
	}
	return out, len(offers) > 0, nil
}

// An offer is the first job that may start on a host.
type offer struct {
	host  *host
	entry *entry
}

type offers []offer

func (o *offers) offer(s *schedule, h *host, now int64) {
	if e := h.next(s, now); e != nil {
		heap.Push(o, offer{h, e})
	}
}

func (o offers) Len() int           { return len(o) }
func (o offers) Less(i, j int) bool { return o[i].entry.before(o[j].entry) }
func (o offers) Swap(i, j int)      { o[i], o[j] = o[j], o[i] }
func (o *offers) Push(x any)        { *o = append(*o, x.(offer)) }
func (o *offers) Pop() any {
	last := len(*o) - 1
	x := (*o)[last]
	*o = (*o)[:last]
	return x
}

// claim moves a job that may start to sent; nil if its row cannot be read: then it
// waits for somebody to look at it, out of everybody's way.
func (s *Store) claim(t *tx, e *entry, now int64) (*store.Job, error) {
	before, err := readJob(t, e.id)
	switch {
	case errors.Is(err, ErrDamaged), errors.Is(err, harp.ErrNotFound):
		s.log.Error("job cannot be started", "job", e.id.String(), "err", err)
		s.sched.leave(e, now)
		return nil, nil
	case err != nil:
		return nil, err
	}
	after := s.claimed(e, before, now)
	t.change(e.id, &before, &after)
	return &after, nil
}

// refill claims what may start by a slot that came free: the next of the queue,
// and the next of the host if that was full. A job that cannot be read takes no slot.
func (s *Store) refill(t *tx, freed *entry, hostWasFull bool, now int64) ([]store.Job, error) {
	var out []store.Job
	add := func(next func(s *schedule, now int64) *entry) error {
		for e := next(s.sched, now); e != nil; e = next(s.sched, now) {
			j, err := s.claim(t, e, now)
			if err != nil {
				return err
			}
			if j != nil {
				out = append(out, *j)
				return nil
			}
		}
		return nil
	}
	err := add(freed.queue.next)
	if err == nil && hostWasFull {
		err = add(freed.host.next)
	}
	s.sched.settle(freed, now)
	return out, err
}
