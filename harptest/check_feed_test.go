package harptest_test

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/harpcaller/harp"
)

// feed is I11: everybody who reads the feed gets the same, all of it, once, or is told that
// what follows was pruned. That is never more than somebody asked for.
func feed(h *history) (wrong []string) {
	seen := map[string]bool{}
	for i, e := range h.Feed {
		if seen[e.Cursor] {
			wrong = append(wrong, fmt.Sprintf("event %d has the cursor of another", i))
		}
		seen[e.Cursor] = true
	}
	if what := h.keptFeed(); what != "" {
		wrong = append(wrong, what)
	}
	for n, s := range h.Subscribers {
		if what := h.got(s); what != "" {
			wrong = append(wrong, fmt.Sprintf("subscriber %d: %s", n, what))
		}
	}
	return wrong
}

// keptFeed says what is wrong with what the feed tells in the end: all but what was pruned.
func (h *history) keptFeed() string {
	gone := len(h.Feed) - len(h.Kept)
	if gone < 0 {
		return fmt.Sprintf("%d events are kept of %d", len(h.Kept), len(h.Feed))
	}
	for i, e := range h.Feed {
		switch {
		case i >= gone && !isSame(h.Kept[i-gone], e):
			return fmt.Sprintf("event %d is kept as %v, was %v", i, h.Kept[i-gone], e)
		case i < gone && !h.mayBeGone(e):
			return fmt.Sprintf("event %d of %s is not kept, and nobody pruned it: %v", i, clock(e.Time), e)
		}
	}
	return ""
}

// mayBeGone reports whether an event was to be pruned.
func (h *history) mayBeGone(e harp.Event) bool {
	return slices.ContainsFunc(h.Prunes, func(p prune) bool { return e.Time.Before(p.before) })
}

func isSame(a, b harp.Event) bool {
	return a.Cursor == b.Cursor && a.Type == b.Type && a.Job == b.Job && a.State == b.State && a.Attempt == b.Attempt
}

// got says what is wrong with what a subscriber got.
func (h *history) got(s *subscriber) string {
	if s.err != nil {
		return fmt.Sprintf("ended with %v", s.err)
	}
	n := 0 // of those that it got
	for i, e := range h.Feed {
		switch {
		case n < len(s.events) && isSame(s.events[n], e):
			n++
		case slices.Contains(s.pruned, n) && h.mayBeGone(e):
		case n == len(s.events):
			return fmt.Sprintf("got %d events, and not the last of %d", n, len(h.Feed))
		default:
			return fmt.Sprintf("event %d was %v, is %v", i, s.events[n], e)
		}
	}
	if n < len(s.events) {
		return fmt.Sprintf("got %v, which is not told", s.events[n])
	}
	return ""
}

// told is I12: the feed tells the life of each job, which never goes backwards, and
// all that was ever shown of it.
func told(h *history) (wrong []string) {
	for _, c := range h.Calls {
		life := h.life(c.job)
		if c.job != "" && len(life) == 0 {
			wrong = append(wrong, fmt.Sprintf("nothing is told of job %s", c.job))
			continue
		}
		if what := lived(life); what != "" {
			wrong = append(wrong, fmt.Sprintf("job %s: %s", c.job, what))
		}
		looks := slices.Clone(c.looks)
		if h.queueWasCancelled(c.plan.Queue) { // all of it is shown so from then on
			looks = slices.DeleteFunc(looks, func(s harp.JobStatus) bool { return s.State == harp.StateCancelling })
		}
		if f := h.Finals[c.job]; f.err == nil && c.job != "" {
			looks = append(looks, f.status)
		}
		if look, ok := shown(looks, life); !ok {
			wrong = append(wrong, fmt.Sprintf("job %s was shown as %s in attempt %d, which is not told, or not there", c.job, look.State, look.Attempt))
		}
	}
	for _, x := range h.Executions {
		if !h.wasSent(attempt{x.Job, x.Attempt}) {
			wrong = append(wrong, fmt.Sprintf("it is not told that attempt %d of job %s was sent", x.Attempt, x.Job))
		}
	}
	return wrong
}

// queueWasCancelled reports whether the feed tells that a queue was cancelled.
func (h *history) queueWasCancelled(queue string) bool {
	name, err := harp.NewValue(queueName(queue))
	return err == nil && slices.ContainsFunc(h.Feed, func(e harp.Event) bool {
		return e.Type == harp.EventQueueCancelled && slices.Equal(e.Queue, name)
	})
}

// lived says what is wrong with the order of a job's events.
func lived(life []harp.Event) string {
	at := -1 // the rank of the state; what is unknown stays where it was
	for i, e := range life {
		now := rank(harp.JobStatus{State: e.State})
		switch {
		case (i == 0) != (e.Type == harp.EventJobSubmitted):
			return fmt.Sprintf("event %d is %s", i, e.Type)
		case i > 0 && life[i-1].State.Ended():
			return fmt.Sprintf("had ended as %s, is %s", life[i-1].State, e.State)
		case i > 0 && e.Attempt < life[i-1].Attempt:
			return fmt.Sprintf("was in attempt %d, is in %d", life[i-1].Attempt, e.Attempt)
		case e.State == harp.StateUnknown:
			continue
		case i > 0 && now < at && (now != rankQueued || at > rankSent && e.Reason != harp.ReasonBackoff):
			return fmt.Sprintf("went from %s to %s (%s)", life[i-1].State, e.State, e.Reason)
		}
		at = now
	}
	return ""
}

// shown reports whether looks at a job are among its events, in their order, and if
// not which one is not.
func shown(looks []harp.JobStatus, life []harp.Event) (harp.JobStatus, bool) {
	for _, look := range looks {
		for len(life) > 0 && (life[0].State != look.State || life[0].Attempt != look.Attempt) {
			life = life[1:]
		}
		if len(life) == 0 {
			return look, false
		}
	}
	return harp.JobStatus{}, true
}

// wasSent reports whether the feed tells that an attempt was sent.
func (h *history) wasSent(a attempt) bool {
	for _, e := range h.life(a.job) {
		if e.State == harp.StateSent && e.Attempt == a.number {
			return true
		}
	}
	return false
}

// over is I13: what is told to have ended does not start any more, pruned or not, and
// what was to be pruned is.
func over(h *history) (wrong []string) {
	for _, x := range h.Executions {
		end, ended := h.ended(x.Job)
		switch end.State {
		case harp.StateLost, harp.StateCancelled: // its call may have been on its way
		default:
			if ended && x.Start.After(end.Time) {
				wrong = append(wrong, fmt.Sprintf("job %s ended %s as %s, attempt %d started %s", x.Job, clock(end.Time), end.State, x.Attempt, clock(x.Start)))
			}
		}
	}
	for id, f := range h.Finals {
		if h.mustBePruned(id) && !errors.Is(f.err, harp.ErrPruned) {
			wrong = append(wrong, fmt.Sprintf("job %s is not pruned, %v", id, f.err))
		}
	}
	return wrong
}

// mustBePruned reports whether a job had ended long enough before a prune that was
// acknowledged. What a queue's cancel has ended is written a little later, and so is
// what had to wait for space.
func (h *history) mustBePruned(id string) bool {
	end, ended := h.ended(id)
	if !ended || end.State == harp.StateCancelled || len(h.Outages) > 0 {
		return false
	}
	for _, p := range h.Prunes {
		if p.done && end.Time.Before(p.before) && end.Time.Add(h.Syncs+time.Second).Before(p.begin) {
			return true
		}
	}
	return false
}
