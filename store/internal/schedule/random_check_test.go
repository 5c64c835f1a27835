package schedule

import (
	"maps"
	"math"
	"reflect"
	"slices"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/msgpack"
	"github.com/harpcaller/harp/store"
)

func (d *driver) nothingIsLeft() {
	s := d.s
	if len(s.holders) > 0 {
		d.Fatalf("left are holders: %+v", s.holders)
	}
	if s.Len()+len(s.queues)+s.names.Len()+len(s.agenda.list)+len(s.cancelled) > 0 || s.NextDue() != 0 {
		d.Fatalf("left are %d jobs, %d queues of %d names, %d alarms and %d cancels", s.Len(), len(s.queues), s.names.Len(), len(s.agenda.list), len(s.cancelled))
	}
	for name, h := range s.hosts {
		if len(h.active)+len(h.returning)+len(h.busy)+len(h.backlogs)+len(h.hostQueues)+len(h.parked)+len(h.holds.kept) > 0 || h.ready != nil && h.ready.Len() > 0 {
			d.Fatalf("left on host %q is %+v", name, *h)
		}
		if q := h.own; q != nil && (q.jobs != 0 || q.Len() != 0 || len(q.hostQueues)+len(q.parked) > 0 || q.heads.Len() > 0) {
			d.Fatalf("left in no queue on host %q is %+v", name, *q)
		}
	}
}

// checkAll compares what is known in several places.
func (d *driver) checkAll() {
	d.Helper()
	for i, e := range d.s.jobs {
		d.checkJob(i, e)
	}
	if len(d.rows) != len(d.s.jobs) {
		d.Fatalf("%d jobs are scheduled and %d have not ended", len(d.s.jobs), len(d.rows))
	}
	for name, h := range d.s.hosts {
		d.checkHost(name, h)
	}
	names, _ := d.s.QueueNames("", math.MaxInt)
	for name, q := range d.s.queues {
		if _, ok := d.s.names.Get(name); !ok || name != q.Name || q.IsGone() == slices.Contains(names, name) {
			d.Fatalf("queue %q is gone: %v, and listed: %v", name, q.IsGone(), slices.Contains(names, name))
		}
		d.checkQueue(q)
	}
	for _, b := range d.s.batches {
		d.checkBatch(b)
	}
	d.checkHolders()
	d.checkAgenda()
	doomed := map[*Job]struct{}{}
	for _, cancel := range d.s.cancelled {
		cancel.entries.Scan(func(e *Job) bool {
			if doomed[e] = struct{}{}; e.Queue != cancel.queue {
				d.Fatalf("job %d counts as cancelled with another queue", e.No)
			}
			return true
		})
	}
	d.same("cancelled", doomed, d.jobs((*Job).IsCancelled))
}

func (d *driver) checkBatch(b *Batch) {
	d.same("members of "+b.id, b.members, d.jobs(func(e *Job) bool { return e.batch == b }))
	if n := len(d.jobs(func(e *Job) bool { return e.batch == b && e.inSlot })); n != b.taken || n > b.parallel {
		d.Fatalf("of %d slots of batch %q %d count as taken, and %d are", b.parallel, b.id, b.taken, n)
	}
	parked := map[*Job]struct{}{}
	b.parked.Scan(func(e *Job) bool { parked[e] = struct{}{}; return true })
	d.same("parked in "+b.id, parked, d.jobs(func(e *Job) bool { return e.batch == b && e.parked && !e.inSlot }))
	keeping := map[*Job]struct{}{}
	b.keeping.Scan(func(e *Job) bool { keeping[e] = struct{}{}; return true })
	d.same("parked with a slot in "+b.id, keeping, d.jobs(func(e *Job) bool { return e.batch == b && e.parked && e.inSlot }))
	if d.s.Unparks(b) && b.again.index == 0 {
		d.Fatalf("%d members of batch %q are parked, which has %d free slots", len(parked), b.id, b.Free())
	}
	for e := range b.members {
		if b.halted && e.Waits() && e.hostQueue != nil {
			d.Fatalf("job %d waits for its host, and its batch is halted", e.No)
		}
		if e.inSlot && e.Waits() && e.hostQueue != nil && !e.host.gate.Open {
			d.Fatalf("job %d holds a slot of its batch and its host is away", e.No)
		}
		if e.inSlot && e.isKept {
			d.Fatalf("job %d holds a slot of its batch and is kept back", e.No)
		}
	}
}

// checkHolders compares what is counted of each principal with what there is of it.
func (d *driver) checkHolders() {
	d.Helper()
	want := map[harp.Principal]*holder{}
	of := func(who harp.Principal) *holder {
		if want[who] == nil {
			want[who] = &holder{who: who, queues: map[*Queue]int{}}
		}
		return want[who]
	}
	for i, e := range d.s.jobs {
		h := of(d.rows[i].Principal)
		h.jobs++
		if !e.active {
			h.waiting++
		}
		if e.Queue.Name != "" {
			h.queues[e.Queue]++
		}
	}
	unended := 0
	for _, b := range d.s.batches {
		if unended += b.ahead + len(b.members); b.ahead > 0 {
			h := of(harp.Principal{Name: b.id})
			h.jobs += b.ahead
			h.waiting += b.ahead
		}
	}
	if unended != d.s.UnendedMembers() {
		d.Fatalf("batches have %d members that have not ended, counted are %d", unended, d.s.UnendedMembers())
	}
	for _, q := range d.s.queues {
		if (q.Pause != nil || q.Fixed) != (q.keeper != nil) {
			d.Fatalf("queue %q is paused: %v, of a fixed concurrency: %v, and kept by %+v", q.Name, q.Pause != nil, q.Fixed, q.Keeper())
		}
		if q.keeper != nil {
			of(q.Keeper()).queues[q]++
		}
	}
	if !reflect.DeepEqual(d.s.holders, want) {
		d.Fatalf("principals have %+v, counted is %+v", want, d.s.holders)
	}
}

// jobs are those that something is so of.
func (d *driver) jobs(is func(e *Job) bool) map[*Job]struct{} {
	found := map[*Job]struct{}{}
	for _, e := range d.s.jobs {
		if is(e) {
			found[e] = struct{}{}
		}
	}
	return found
}

func (d *driver) checkJob(i ID, e *Job) {
	j := d.rows[i]
	switch {
	case j == nil || e.ID != i || e.No != j.No:
		d.Fatalf("job %d is scheduled and has ended", e.No)
	case e.active != store.HoldsSlot(j.State):
		d.Fatalf("job %d has a slot, %v, in %s", e.No, e.active, j.State)
	case !e.active && e.survives != j.Survivor:
		d.Fatalf("job %d waits for its last attempt, %v, and the row says %v", e.No, e.survives, j.Survivor)
	}
	if e.IsCancelled() {
		return // it waits for its row to say so
	}
	places := 0
	for _, is := range []bool{
		e.active, e.hostQueue != nil, e.held != nil, e.parked, e.isKept, e.survives && !e.active,
		e.hostQueue == nil && e.waking.index > 0,
		e.Waits() && e.hostQueue == nil && e.held == nil && !e.parked && !e.isKept && !e.survives && e.waking.index == 0 && e.isLate(d.s.Latest), // the agenda ends it
	} {
		if is {
			places++
		}
	}
	if places != 1 {
		d.Fatalf("job %d is in %d places: %+v", e.No, places, *e)
	}
	if e.hostQueue != nil && (e.hostQueue.queue != e.Queue || e.hostQueue.host != e.host || e.host.hostQueues == nil) {
		d.Fatalf("job %d stands in another's line", e.No)
	}
	if e.held != nil && (e.held != e.host.backlogs[e.procedure]) {
		d.Fatalf("job %d is held by another's backlog", e.No)
	}
	if (e.expiring.index > 0) != (e.expires != 0 && e.Waits()) {
		d.Fatalf("job %d expires at %d: its alarm is %d", e.No, e.expires, e.expiring.at)
	}
	if e.probes != nil && !e.active {
		d.Fatalf("job %d is a probe and was not sent", e.No)
	}
}

func (d *driver) checkHost(name string, h *host) {
	if h.name != name {
		d.Fatalf("host %q is called %q", name, h.name)
	}
	if h.own == nil {
		return
	}
	d.checkQueue(h.own)
	if n := len(d.jobs(func(e *Job) bool { return e.host == h })); n != h.jobs {
		d.Fatalf("host %q has %d jobs, counted are %d", name, n, h.jobs)
	}
	d.same("active on "+name, h.active, d.jobs(func(e *Job) bool { return e.host == h && e.active }))
	d.same("returning to "+name, h.returning, d.jobs(func(e *Job) bool {
		return e.host == h && !e.active && d.rows[e.ID].GivenUp() && !e.IsCancelled()
	}), (*Job).IsCancelled)
	d.same("kept back on "+name, h.holds.kept, d.jobs(func(e *Job) bool { return e.host == h && e.isKept }))
	for e := range h.busy {
		if is := e.IsCancelled() || e.Waits() && e.hostQueue == nil && e.held == nil && e.waking.index > 0; !is || d.s.jobs[e.ID] != e || d.rows[e.ID].Reason != harp.ReasonAgentBusy {
			d.Fatalf("job %d counts as waiting for the busy agent of %q", e.No, name)
		}
	}
	for procedure, b := range h.backlogs {
		held := map[*Job]struct{}{}
		b.entries.Scan(func(e *Job) bool { held[e] = struct{}{}; return true })
		d.same("held on "+name+" for "+procedure, held, d.jobs(func(e *Job) bool { return e.held == b }), (*Job).IsCancelled)
		probes := d.jobs(func(e *Job) bool { return e.probes == b })
		if len(probes) != b.probes || b.procedure != procedure || b.host != h {
			d.Fatalf("backlog %q of %q has %d probes of %d", procedure, name, b.probes, len(probes))
		}
		if b.entries.Len()+b.probes == 0 || b.entries.Len() > 0 && b.again.index == 0 {
			d.Fatalf("backlog %q of %q has %d jobs and %d probes and an alarm at %d", procedure, name, b.entries.Len(), b.probes, b.again.index)
		}
	}
	for l := range h.hostQueues {
		d.checkLine(l)
	}
	for l := range h.parked {
		if _, is := h.hostQueues[l]; !is || l.inHeads || h.mayStart() {
			d.Fatalf("a line is parked on %q, which may start %v", name, h.mayStart())
		}
	}
	h.ready.Scan(func(l *hostQueue) bool {
		if _, is := h.hostQueues[l]; !is || !l.inReady {
			d.Fatalf("a line is ready on %q that is not there", name)
		}
		return true
	})
}

// same compares sets, but for jobs that something is so of.
func (d *driver) same(what string, got, want map[*Job]struct{}, but ...func(e *Job) bool) {
	d.Helper()
	left := func(e *Job, _ struct{}) bool {
		return slices.ContainsFunc(but, func(is func(e *Job) bool) bool { return is(e) })
	}
	got, want = maps.Clone(got), maps.Clone(want)
	maps.DeleteFunc(got, left)
	maps.DeleteFunc(want, left)
	for e := range got {
		if _, is := want[e]; !is {
			d.Fatalf("job %d counts as %s and is not", e.No, what)
		}
	}
	for e := range want {
		if _, is := got[e]; !is {
			d.Fatalf("job %d is %s and does not count as that", e.No, what)
		}
	}
}

func (d *driver) checkLine(l *hostQueue) {
	head, ok := l.entries.Min()
	if !ok || head != l.head || l.queue.hostQueues[l.host] != l {
		d.Fatalf("a line is empty, or not where it is looked for: %+v", *l)
	}
	for _, is := range []struct {
		in    bool
		lines interface {
			Get(*hostQueue) (*hostQueue, bool)
		}
		parked map[*hostQueue]struct{}
	}{{l.inHeads, l.queue.heads, l.host.parked}, {l.inReady, l.host.ready, l.queue.parked}} {
		got, found := is.lines.Get(l)
		_, parked := is.parked[l]
		if is.in != found || found && got != l || is.in == parked {
			d.Fatalf("the line of job %d stands among others, %v, and is there, %v, or parked, %v", head.No, is.in, found, parked)
		}
	}
	free, n := l.queue.free(), 0
	l.allowJobs(d.s, d.s.Latest)
	if want := min(free, l.entries.Len()); l.allowed != want {
		d.Fatalf("of a line of %d jobs %d count as allowed, and %d are", l.entries.Len(), l.allowed, want)
	}
	l.entries.Scan(func(e *Job) bool {
		n++
		switch isAllowed := n <= free; {
		case e.hostQueue != l:
			d.Fatalf("job %d stands in a line and does not know it", e.No)
		case e.isAllowed != isAllowed:
			d.Fatalf("job %d is allowed, %v, as number %d of %d", e.No, e.isAllowed, n, free)
		case (e.leaving.index > 0) != (e.isAllowed && e.host.isAway() && e.wait != int64(harp.NoLimit)):
			d.Fatalf("job %d waits for its host until %d", e.No, e.leaving.at)
		}
		return true
	})
}

func (d *driver) checkQueue(q *Queue) {
	isIn := func(e *Job) bool { return e.Queue == q }
	if n := len(d.jobs(isIn)); n != q.jobs {
		d.Fatalf("queue %q counts %d jobs of %d", q.Name, q.jobs, n)
	}
	if n := len(d.jobs(func(e *Job) bool { return isIn(e) && e.No <= q.through })); n != q.marked {
		d.Fatalf("queue %q counts %d jobs as covered by its mark, and %d are", q.Name, q.marked, n)
	}
	d.same("active in "+q.Name, q.active, d.jobs(func(e *Job) bool { return isIn(e) && e.active }))
	waiting := map[*Job]struct{}{}
	q.waiting.Scan(func(e *Job) bool {
		waiting[e] = struct{}{}
		if e.Position() != len(waiting) {
			d.Fatalf("job %d has position %d, want %d", e.No, e.Position(), len(waiting))
		}
		return true
	})
	d.same("waiting in "+q.Name, waiting, d.jobs(func(e *Job) bool { return isIn(e) && e.Waits() }))
	if !q.unlimited() && len(q.active)+len(q.since)+q.floor != q.Concurrency {
		d.Fatalf("of %d slots of %q, %d are taken, %d were and %d never", q.Concurrency, q.Name, len(q.active), len(q.since), q.floor)
	}
	if !q.unlimited() && !d.resized[q] && q.floor < 0 {
		d.Fatalf("queue %q has %d slots that were never free", q.Name, q.floor)
	}
	for l := range q.parked {
		if q.hostQueues[l.host] != l || l.inReady || q.free() > 0 {
			d.Fatalf("a line of %q is parked, which has %d free slots", q.Name, q.free())
		}
	}
	for h, l := range q.hostQueues {
		if _, is := h.hostQueues[l]; !is || l.queue != q || l.host != h {
			d.Fatalf("a line of %q is not of its host %q", q.Name, h.name)
		}
	}
	q.heads.Scan(func(l *hostQueue) bool {
		if q.hostQueues[l.host] != l || !l.inHeads {
			d.Fatalf("a head of %q is of no line", q.Name)
		}
		return true
	})
}

func (d *driver) checkAgenda() {
	for n, a := range d.s.agenda.list {
		if before := d.s.agenda.list[max(0, n-1)/2]; a.index != n+1 || a.at < before.at {
			d.Fatalf("alarm %d counts as %d, and is set to %d behind one at %d", n, a.index, a.at, before.at)
		}
		is := true
		switch e := a.Job; a.Kind {
		case AlarmWake:
			is = e.Waits() && e.held == nil || e.IsCancelled()
		case AlarmExpire:
			is = !e.active && a.at == e.expires
		case AlarmAway:
			is = e.hostQueue != nil && e.isAllowed || e.IsCancelled()
		case AlarmLost:
			is = e.active
		case AlarmRearm, AlarmFill:
			is = d.s.queues[a.Queue.Name] == a.Queue
		case AlarmUnpause:
			is = d.s.queues[a.Queue.Name] == a.Queue && a.Queue.Pause != nil && a.at == msgpack.Nanos(a.Queue.Pause.Until)
		case AlarmBacklog:
			is = a.Backlog.host.backlogs[a.Backlog.procedure] == a.Backlog
		case AlarmBatch:
			is = d.s.batches[a.Batch.id] == a.Batch
		case AlarmHolds:
			is = d.s.hosts[a.host.name] == a.host && a == &a.host.holds.review
		}
		if is = is && (a.Job == nil || d.s.jobs[a.Job.ID] == a.Job); !is {
			d.Fatalf("an alarm of kind %d is set to %d for nothing: %+v", a.Kind, a.at, a.Job)
		}
	}
}
