package journal

import (
	"slices"
	"sort"
	"time"
)

// attempt is what is known of one. Its extents are shared by its copies.
type attempt struct {
	accepted  bool // false only while segments are read: the beginning comes later
	state     State
	fence     int64
	info      []byte
	started   int64 // Unix nanoseconds
	stop      *Stop
	dropped   bool
	next      int64 // the number that the next record gets
	acked     int64
	spool     []*extent // what was not acknowledged, in order
	spooled   int64     // bytes of it
	end       *extent   // nil: not ended
	elsewhere int64     // bytes of records that may be kept elsewhere until it has ended; not on disk
	home      uint64    // the first segment with something of its state; 0: not written yet
}

// extent is where records or an END are: in an entry of a segment, or not yet.
type extent struct {
	first, count int64
	cost         int64
	pending      [][]byte // until it is written
	segment      uint64
	offset       int64
	size         int
}

func (x *extent) next() int64 { return x.first + x.count }

// size is what an attempt takes.
type size struct {
	job    int64 // of its job's bytes
	agent  int64 // of the agent's bytes
	needed int64 // on disk, at least half of it
}

func (a *attempt) size() size {
	if a == nil {
		return size{}
	}
	s := size{job: a.spooled}
	if a.end != nil {
		s.job += a.end.cost
	}
	s.needed = s.job + stateCost + int64(len(a.info))
	s.agent = s.needed
	if a.end == nil {
		s.agent += Reserve + a.elsewhere
		s.job += a.elsewhere
	}
	return s
}

// running reports whether it was started and has not ended.
func (a *attempt) running() bool { return a.state == Started || a.state == Stopping }

// add spools an extent of which the end is new; in place of what has its number.
func (a *attempt) add(x *extent) {
	i := sort.Search(len(a.spool), func(i int) bool { return a.spool[i].first >= x.first })
	if i < len(a.spool) && a.spool[i].first == x.first {
		a.spooled -= a.spool[i].cost
		a.spool[i] = x
	} else {
		a.spool = slices.Insert(a.spool, i, x)
	}
	a.spooled += x.cost
	a.next = max(a.next, x.next())
}

// ack forgets the records before next.
func (a *attempt) ack(next int64) {
	a.acked = max(a.acked, next)
	for len(a.spool) > 0 && a.spool[0].next() <= a.acked {
		a.spooled -= a.spool[0].cost
		a.spool = a.spool[1:]
	}
}

// held is the attempt for others to keep.
func (a *attempt) held(k Key) Held {
	h := Held{
		Key: k, State: a.state, Fence: a.fence, Info: slices.Clone(a.info),
		Records: a.next, Spooled: a.acked, Acked: a.acked, Dropped: a.dropped,
	}
	if n := len(a.spool); n > 0 {
		h.Spooled = max(h.Spooled, a.spool[n-1].next())
	}
	if a.state != Accepted {
		h.Started = time.Unix(0, a.started)
	}
	if a.stop != nil {
		stop := *a.stop
		h.Stop = &stop
	}
	return h
}

// entry is the attempt's state as it is written again.
func (a *attempt) entry(k Key) *entry {
	return &entry{
		kind: kindState, key: k, fence: a.fence, info: a.info, state: a.state, started: a.started,
		stop: a.stop, dropped: a.dropped, count: a.next, acked: a.acked,
	}
}
