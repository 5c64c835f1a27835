package rows

import "container/heap"

// An alarm is something that time alone makes due. It stands in the agenda once
// or not at all.
type alarm struct {
	at      int64
	index   int // in the agenda, from 1; 0: not in it
	kind    alarmKind
	entry   *entry // or
	queue   *queue // or
	backlog *backlog
}

type alarmKind int

const (
	alarmWake    alarmKind = iota // the entry's time has come
	alarmExpire                   // the entry may not start any more
	alarmAway                     // the entry's host may have been away too long
	alarmLost                     // the entry's host has been silent too long
	alarmRearm                    // the queue has had a free slot: look at all lines that wait for a host
	alarmBacklog                  // the backlog's agent may be less busy
	alarmFill                     // the queue was changed: jobs may start by its free slots
)

// number is that of the entry's job; 0 for a queue.
func (a *alarm) number() uint64 {
	if a.entry == nil {
		return 0
	}
	return a.entry.no
}

// agenda holds alarms in the order of their times, and of the jobs' numbers.
type agenda struct{ list alarmHeap }

// set puts the alarm at a time, wherever it was.
func (g *agenda) set(a *alarm, at int64) {
	a.at = at
	if a.index == 0 {
		heap.Push(&g.list, a)
		return
	}
	heap.Fix(&g.list, a.index-1)
}

// clear takes the alarm out, if it is in.
func (g *agenda) clear(a *alarm) {
	if a.index > 0 {
		heap.Remove(&g.list, a.index-1)
	}
}

// next is the time of the first alarm; false if there is none.
func (g *agenda) next() (int64, bool) {
	if len(g.list) == 0 {
		return 0, false
	}
	return g.list[0].at, true
}

// pop takes out the first alarm if it is due.
func (g *agenda) pop(now int64) *alarm {
	if len(g.list) == 0 || g.list[0].at > now {
		return nil
	}
	return heap.Pop(&g.list).(*alarm)
}

type alarmHeap []*alarm

func (h alarmHeap) Len() int { return len(h) }

func (h alarmHeap) Less(i, j int) bool {
	if h[i].at != h[j].at {
		return h[i].at < h[j].at
	}
	return h[i].number() < h[j].number()
}

func (h alarmHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

func (h *alarmHeap) Push(a any) {
	*h = append(*h, a.(*alarm))
	(*h)[len(*h)-1].index = len(*h)
}

func (h *alarmHeap) Pop() any {
	last := len(*h) - 1
	a := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	a.index = 0
	return a
}
