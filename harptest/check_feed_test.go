package harptest_test

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/harpcaller/harp"
)

// feed is I11: everybody who reads the feed gets the same, all of it, once.
func feed(h *history) (wrong []string) {
	seen := map[string]bool{}
	for i, e := range h.Feed {
		if seen[e.Cursor] {
			wrong = append(wrong, fmt.Sprintf("event %d has the cursor of another", i))
		}
		seen[e.Cursor] = true
	}
	for n, s := range h.Subscribers {
		if what := h.got(s); what != "" {
			wrong = append(wrong, fmt.Sprintf("subscriber %d: %s", n, what))
		}
	}
	return wrong
}

// got says what is wrong with what a subscriber got.
func (h *history) got(s *subscriber) string {
	if s.err != nil {
		return fmt.Sprintf("ended with %v", s.err)
	}
	for i, e := range h.Feed {
		if i == len(s.events) {
			return fmt.Sprintf("got %d events of %d", i, len(h.Feed))
		}
		if got := s.events[i]; got.Cursor != e.Cursor || got.Type != e.Type || got.Job != e.Job || got.State != e.State || got.Attempt != e.Attempt {
			return fmt.Sprintf("event %d was %v, is %v", i, got, e)
		}
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
