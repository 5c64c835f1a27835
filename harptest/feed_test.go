package harptest_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/harpcaller/harp"
)

// subscriber reads the feed of events from its beginning on.
type subscriber struct {
	every  int // events after which it goes away, and comes back with its cursor; 0: never
	events []harp.Event
	err    error // why it ended before it was told to
}

// read reads until ctx ends.
func (s *subscriber) read(ctx context.Context, c *harp.Caller) {
	after := harp.EventsFromStart
	for ctx.Err() == nil {
		n := 0
		for e, err := range c.Events(ctx, harp.EventFilter{After: after}) {
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

// feed reads all events that there are.
func (p *player) feed(c *harp.Caller) {
	for f := (harp.EventFilter{After: harp.EventsFromStart}); ; {
		page, err := c.EventsPage(p.t.Context(), f, false)
		if err != nil {
			p.t.Errorf("read the feed: %v", err)
			return
		}
		if len(page.Events) == 0 && page.Cursor == f.After {
			return
		}
		p.history.Feed = append(p.history.Feed, page.Events...)
		f.After = page.Cursor
	}
}

// prune deletes jobs that ended some time ago.
func (p *player) prune(ctx context.Context, ago time.Duration) {
	begin := time.Now()
	_, err := p.sys.Caller().Prune(ctx, begin.Add(-ago))
	if err != nil && !mayFail(err) {
		p.t.Errorf("prune: %v", err)
	}
	p.history.pruned(prune{before: begin.Add(-ago), begin: begin, done: err == nil})
}

// prune is one that was asked for.
type prune struct {
	before, begin time.Time
	done          bool // and acknowledged
}

func (h *history) pruned(p prune) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Prunes = append(h.Prunes, p)
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
