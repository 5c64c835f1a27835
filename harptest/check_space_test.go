package harptest_test

import (
	"fmt"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/harptest"
)

// notWithoutSpace is I10, of the dispatcher's disk.
func notWithoutSpace(h *history) (wrong []string) {
	for id, f := range h.Finals {
		for _, o := range h.Outages {
			// The time of a submission is that at which its commit began.
			during := func(t time.Time) bool { return t.After(o.begin) && t.Before(o.end.Add(-h.Syncs)) }
			if (o.kind == faultLow || o.kind == faultCritical) && during(f.status.SubmitTime) {
				wrong = append(wrong, fmt.Sprintf("job %s was accepted %s", id, clock(f.status.SubmitTime)))
			}
			for _, a := range f.status.Attempts {
				if o.kind == faultCritical && during(a.Sent) && !h.wasFollowed(a) {
					wrong = append(wrong, fmt.Sprintf("attempt %d of job %s was sent %s", a.Number, id, clock(a.Sent)))
				}
			}
		}
	}
	return wrong
}

// wasFollowed reports whether an attempt took the slot of one that ended: it counts as
// sent when that one's end arrived, which is before it could be written.
func (h *history) wasFollowed(next harp.Attempt) bool {
	for _, f := range h.Finals {
		for _, a := range f.status.Attempts {
			if a.Ended.Equal(next.Sent) {
				return true
			}
		}
	}
	return false
}

// stoppedUnwritten reports whether an agent that stopped in order could not write how
// an execution had ended.
func (h *history) stoppedUnwritten(host string, x harptest.Execution, ran bool) bool {
	for _, s := range h.Stops {
		if ran && s.host == host && !s.at.Before(x.End) && h.written(host, x.End).After(x.End.Add(h.Syncs)) && !s.at.After(h.written(host, x.End)) {
			return true
		}
	}
	return false
}

// inDoubt reports whether the agent of a host cannot know whether it journalled the
// start of an attempt: then it may be on disk, and nothing has run.
func (h *history) inDoubt(host string, sent time.Time) bool {
	for _, o := range h.Outages {
		if o.kind == faultBroken && o.host == host && o.end.After(sent) {
			return true
		}
	}
	return false
}

// mended is how long after the end of its disk's troubles an agent has written what it
// could not before: it tries again every second, and one whose journal broke when it
// has connected again.
const mended = 2 * time.Second

// written is by when an agent has written what ended at a time.
func (h *history) written(host string, end time.Time) time.Time {
	by := end.Add(h.Syncs)
	for _, o := range h.Outages {
		switch {
		case o.host != host || o.begin.After(by) || o.end.Add(mended).Before(end):
		case o.kind == faultBroken: // as long as it is cut off
			return end.Add(24 * time.Hour)
		default:
			by = later(by, o.end.Add(mended+h.Syncs))
		}
	}
	return by
}

// mayDrop reports whether records of an attempt may have been dropped: its agent's
// disk did not take them. While its dispatcher is there nothing is, but who is there
// is not seen from here.
func (h *history) mayDrop(job string, number int) bool {
	x, ran := h.execution(job, number)
	for _, o := range h.Outages {
		if ran && o.host == x.Host && o.end.Add(mended+h.Syncs).After(x.Start) && (x.End.IsZero() || o.begin.Before(x.End)) {
			return true
		}
	}
	return false
}

// isWithin reports whether all of a is in b, in this order.
func isWithin(a, b []string) bool {
	for _, text := range b {
		if len(a) > 0 && a[0] == text {
			a = a[1:]
		}
	}
	return len(a) == 0
}
