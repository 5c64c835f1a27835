package journal

import "time"

// againAfter is the pause before what was lost with a commit is written again. It is longer where records are.
const againAfter = time.Second

// lasting is what holds though the commit that it was in failed: that records are kept elsewhere, that nobody
// will ask for an attempt, and what is left of one. Who says so does not wait, and says it once.
type lasting struct {
	acked   map[Key]int64 // the first record that is not
	tombs   map[Key]int64 // when they were made
	reduced map[Key]reduction
}

// reduction is what is left of an attempt.
type reduction struct{ info, end []byte }

func newLasting() lasting {
	return lasting{acked: map[Key]int64{}, tombs: map[Key]int64{}, reduced: map[Key]reduction{}}
}

// keep notes what lasts of a change of an attempt that is undone.
func (l lasting) keep(k Key, before, after *attempt) {
	if before == nil || after == nil {
		return
	}
	before.elsewhere = after.elsewhere // which is not on the disk
	if after.acked > before.acked {
		l.acked[k] = max(l.acked[k], after.acked)
	}
}

// repeatLocked journals again what lasts, to be written after a while. A journal that broke has to be opened anew,
// and who used it goes by what is in it then.
func (j *Journal) repeatLocked(l lasting) {
	if j.broken != nil || j.closed {
		return
	}
	g, now := newGroup(), time.Now()
	for k, n := range l.acked {
		_ = j.changeLocked(g, k, func(g *group, a *attempt) error { // it may be gone
			if n = min(n, a.next); n > a.acked {
				a.ack(n)
				g.add(&entry{kind: kindAcked, key: k, count: n})
			}
			return nil
		})
	}
	for k, left := range l.reduced {
		_ = j.reduceLocked(g, k, left) // it may be gone
	}
	for k, at := range l.tombs {
		j.entombLocked(g, k, at, now)
	}
	if len(g.buf) == 0 {
		return
	}
	j.pending, g.patient = g, true
	g.timer = time.AfterFunc(max(againAfter, j.opts.SyncWithin), func() { j.fallDue(g) })
}
