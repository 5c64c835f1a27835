package schedule

import (
	"container/heap"
	"slices"
)

// Offers are the first jobs that may start on some hosts.
type Offers struct {
	s     *Schedule
	now   int64
	list  offers
	taken *host // of the last one, of which there may be another
}

// Offers returns those of some hosts.
func (s *Schedule) Offers(names []string, now int64) *Offers {
	o := &Offers{s: s, now: now}
	names = slices.Clone(names)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		o.offer(s.host(name))
	}
	return o
}

// More reports whether there may be another.
func (o *Offers) More() bool {
	if h := o.taken; h != nil {
		o.taken = nil
		o.offer(h)
	}
	return len(o.list) > 0
}

// Next is the first job in order of all of the hosts, nil if none. It is to be started, or passed,
// before the next.
func (o *Offers) Next() *Job {
	for o.More() {
		h := heap.Pop(&o.list).(offer).host
		// What was offered may have lost its slot to another host meanwhile.
		e := h.nextJob(o.s, o.now)
		switch {
		case e == nil:
		case len(o.list) > 0 && o.list[0].job.before(e):
			o.offer(h)
		default:
			o.taken = h
			return e
		}
	}
	return nil
}

func (o *Offers) offer(h *host) {
	if e := h.nextJob(o.s, o.now); e != nil {
		heap.Push(&o.list, offer{h, e})
	}
}

type offer struct {
	host *host
	job  *Job
}

type offers []offer

func (o offers) Len() int           { return len(o) }
func (o offers) Less(i, j int) bool { return o[i].job.before(o[j].job) }
func (o offers) Swap(i, j int)      { o[i], o[j] = o[j], o[i] }
func (o *offers) Push(x any)        { *o = append(*o, x.(offer)) }
func (o *offers) Pop() any {
	last := len(*o) - 1
	x := (*o)[last]
	*o = (*o)[:last]
	return x
}
