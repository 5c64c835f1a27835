package harptest_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/harpcaller/harp"
)

// subscriber reads the feed of events from its beginning on. When it is told that what
// follows was pruned it goes on with the first event that is kept.
type subscriber struct {
	every  int // events after which it goes away, and comes back with its cursor; 0: never
	events []harp.Event
	pruned []int // before which of the events it was told so
	err    error // why it ended before it was told to
}

// read reads until ctx ends.
func (s *subscriber) read(ctx context.Context, c *harp.Caller) {
	after := harp.EventsFromStart
	for ctx.Err() == nil {
		n := 0
		for e, err := range c.Events(ctx, harp.EventFilter{After: after}) {
			if errors.Is(err, harp.ErrPruned) {
				s.pruned = append(s.pruned, len(s.events))
				after = harp.EventsFromStart
				break
			}
			if err != nil {
				if ctx.Err() == nil {
					s.err = err
				}
				return
			}
			s.events = append(s.events, e)
			after = e.Cursor
			if n++; n == s.every {
				break
			}
		}
	}
}

// subscribe lets some read the feed, each in another way, until the function that it
// returns is called.
func (p *player) subscribe() (stop func()) {
	ctx, cancel := context.WithCancel(p.t.Context())
	done := make(chan struct{}, 2)
	for _, every := range []int{0, 3} {
		s := &subscriber{every: every}
		p.history.Subscribers = append(p.history.Subscribers, s)
		go func() {
			s.read(ctx, p.sys.Caller())
			done <- struct{}{}
		}()
	}
	return func() {
		cancel()
		<-done
		<-done
	}
}

// readFeed reads the events after a cursor that there are.
func readFeed(ctx context.Context, c *harp.Caller, after string) (events []harp.Event, err error) {
	for {
		page, err := c.EventsPage(ctx, harp.EventFilter{After: after}, false)
		if err != nil || len(page.Events) == 0 && page.Cursor == after {
			return events, err
		}
		events, after = append(events, page.Events...), page.Cursor
	}
}

// archive notes what the feed tells before anybody prunes it. A dispatcher whose store has
// failed tells nothing any more, its successor does.
func (p *player) archive(c *harp.Caller) {
	after := harp.EventsFromStart
	if n := len(p.history.Feed); n > 0 {
		after = p.history.Feed[n-1].Cursor
	}
	events, err := readFeed(p.t.Context(), c, after)
	if err != nil && !p.poisoned {
		p.t.Errorf("read the feed: %v", err)
	}
	p.history.Feed = append(p.history.Feed, events...)
}

// prune deletes jobs that ended some time ago, and the events of that time, whether those
// who read the feed are connected or not.
func (p *player) prune(ago time.Duration) {
	if p.down[""] || p.poisoned {
		return
	}
	caller := p.sys.Embedded()
	defer caller.Close()
	p.archive(caller)
	begin := time.Now()
	_, err := caller.Prune(p.t.Context(), begin.Add(-ago))
	if err != nil && !mayFail(err) {
		p.t.Errorf("prune: %v", err)
	}
	p.history.Prunes = append(p.history.Prunes, prune{before: begin.Add(-ago), begin: begin, done: err == nil})
}

// prune is one that was asked for.
type prune struct {
	before, begin time.Time
	done          bool // and acknowledged
}

// life is what the feed tells of a job: its events, those that are of it and do not
// name a state it came into left out.
func (h *history) life(job string) (life []harp.Event) {
	for _, e := range h.Feed {
		if e.Job == job && (e.Type == harp.EventJobSubmitted || string(e.Type) == "job."+string(e.State)) {
			life = append(life, e)
		}
	}
	return life
}

// ended is the event with which a job ended, if it has.
func (h *history) ended(job string) (harp.Event, bool) {
	life := h.life(job)
	n := slices.IndexFunc(life, func(e harp.Event) bool { return e.State.Ended() })
	if n < 0 {
		return harp.Event{}, false
	}
	return life[n], true
}

// isPruned reports whether a job cannot be read because it was pruned, as it may have
// been.
func (h *history) isPruned(job string, err error) bool {
	end, has := h.ended(job)
	return errors.Is(err, harp.ErrPruned) && has &&
		slices.ContainsFunc(h.Prunes, func(p prune) bool { return end.Time.Before(p.before) })
}
