package schedule

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/msgpack"
	"github.com/harpcaller/harp/store"
)

// TestRandom does at random what a store does with a schedule. What is known of a job in more than
// one place is the same in all of them after each step, and when all jobs have ended nothing is left.
func TestRandom(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := &driver{T: rt, s: New(), rows: map[ID]*store.Job{}, now: now, resized: map[*Queue]bool{}}
		for name, parallel := range batchSizes {
			d.s.OpenBatch(name, parallel, 3, harp.Principal{Name: name})
		}
		for range 10 { // times the usual steps
			rt.Repeat(map[string]func(*rapid.T){
				"submit": d.submit, "submit more": d.submit, "claim": d.claim, "gate": d.gate, "event": d.event, "more events": d.event,
				"change": d.change, "cancel": d.cancel, "pass": d.pass, "silence": d.silence, "wake": d.wake, "set the clock": d.setClock,
				"halt": d.halt, "resume": d.resume, "next host": d.nextHost,
				"": func(*rapid.T) { d.checkAll() },
			})
		}
		d.endAll()
		d.checkAll()
		d.nothingIsLeft()
	})
}

// driver is a schedule, the rows of its jobs, and what a store does with them.
type driver struct {
	*rapid.T
	s    *Schedule
	rows map[ID]*store.Job
	now  int64

	resized map[*Queue]bool // by an operator
}

func (d *driver) time() time.Time { return msgpack.FromNanos(d.now) }

func (d *driver) tick() {
	d.now++
	d.s.NoteTime(d.time())
}

// seconds draws a span that no two things share.
func (d *driver) seconds(name string, least, most int) int64 {
	d.now++
	return int64(rapid.IntRange(least, most).Draw(d.T, name))*int64(time.Second) + d.now%1e6
}

var (
	hostNames  = []string{"a", "b", "c"}
	queueNames = []string{"", "p", "q"}
	batchNames = []string{"", "", "x", "y"}
	batchSizes = map[string]int{"x": 1, "y": 3}
)

func (d *driver) host() string { return rapid.SampledFrom(hostNames).Draw(d.T, "host") }

func (d *driver) who() harp.Principal {
	return harp.Principal{Kind: "caller", Name: rapid.SampledFrom([]string{"ada", "bob"}).Draw(d.T, "who")}
}

func (d *driver) submit(*rapid.T) {
	d.tick()
	d.s.Number++
	j := &store.Job{
		No: d.s.Number, Host: d.host(), Procedure: rapid.SampledFrom([]string{"f", "f", "g"}).Draw(d.T, "procedure"),
		Priority: rapid.IntRange(-1, 1).Draw(d.T, "priority"), OfflineWait: harp.NoLimit, SubmitTime: d.time(), Principal: d.who(), Life: store.Begin(d.time(), ""),
	}
	if name := rapid.SampledFrom(queueNames).Draw(d.T, "queue"); name != "" {
		j.Queue, j.Concurrency = harp.Value(name), rapid.IntRange(1, 3).Draw(d.T, "concurrency")
		if q := d.s.Queue(name); q != nil && q.IsIdle() && !q.Fixed {
			q.Reopen(j.Concurrency)
			delete(d.resized, q)
		}
	}
	if b := d.s.Batch(rapid.SampledFrom(batchNames).Draw(d.T, "batch")); b != nil && b.Free() > 0 {
		j.Batch = b.ID()
	}
	switch rapid.IntRange(0, 5).Draw(d.T, "waits") {
	case 0:
		j.NotBefore = d.time().Add(time.Duration(d.seconds("not before", 0, 30)))
	case 1:
		j.Expires = d.time().Add(time.Duration(d.seconds("expires", 0, 30)))
	case 2:
		j.OfflineWait = time.Duration(d.seconds("offline wait", 0, 30))
	}
	j.Retry = harp.RetryPolicy{On: []harp.State{harp.StateLost, harp.StateFailed}, Attempts: rapid.IntRange(1, 3).Draw(d.T, "attempts"), Backoff: time.Second, MaxBackoff: time.Minute}
	i := ID{byte(j.No >> 8), byte(j.No)}
	d.rows[i] = j
	if e, started := d.s.Submit(i, j, d.now); started {
		if e.isLate(d.now) || !e.host.gate.Open || e.Queue.Paused || e.notBefore > d.now || e.isBlocked() {
			d.Fatalf("job %d is started at once, though it may not start", e.No)
		}
		d.send(e)
	}
}

// start starts a job, which must be one that may.
func (d *driver) start(e *Job) {
	j := d.rows[e.ID]
	switch {
	case j == nil || !e.Waits() || e.survives:
		d.Fatalf("a job that does not wait is started: %+v", j)
	case e.isLate(d.now):
		d.Fatalf("job %d is started though its time is over", e.No)
	case !e.host.mayStart() || e.Queue.free() == 0:
		d.Fatalf("job %d is started where there is no room", e.No)
	case e.isBlocked():
		d.Fatalf("job %d is started and its batch has no slot for it", e.No)
	}
	d.send(e)
	d.s.Start(e, d.now)
}

// send has the life of a job go on as that of one that is sent.
func (d *driver) send(e *Job) {
	j := d.rows[e.ID]
	next, _, err := j.Next(store.Event{Kind: store.Claimed, At: d.time(), Fence: j.Fence + 1})
	if err != nil {
		d.Fatal(err)
	}
	j.Life = next
}

func (d *driver) claim(*rapid.T) {
	d.tick()
	n := rapid.IntRange(1, 4).Draw(d.T, "n")
	for o := d.s.Offers([]string{d.host(), d.host()}, d.now); n > 0 && o.More(); n-- {
		e := o.Next()
		if e == nil {
			break
		}
		d.start(e)
	}
}

func (d *driver) gate(*rapid.T) {
	d.tick()
	g := store.Gate{Open: rapid.Bool().Draw(d.T, "open"), Most: rapid.IntRange(0, 3).Draw(d.T, "most")}
	if !g.Open {
		g.Reason = rapid.SampledFrom([]string{harp.ReasonOffline, harp.ReasonOffline, "window"}).Draw(d.T, "reason")
		g.LastHeard = d.time()
	}
	if rapid.Bool().Draw(d.T, "awaited") {
		g.Awaited = d.time().Add(5 * time.Second)
	}
	d.s.SetGate(d.host(), g)
}

// any draws a job that has not ended.
func (d *driver) any() *Job {
	ids := idsOf(slices.Collect(d.s.All()))
	if len(ids) == 0 {
		d.Skip("no job")
	}
	return d.s.Job(rapid.SampledFrom(ids).Draw(d.T, "job"))
}

func (d *driver) event(*rapid.T) {
	d.tick()
	e := d.any()
	j := d.rows[e.ID]
	event := store.Event{At: d.time(), Attempt: j.Attempt, Fence: j.Fence, Kind: rapid.SampledFrom([]store.Kind{
		store.Started, store.NotNow, store.NotNow, store.NotNow, store.CancelReq, store.End, store.End, store.Lose, store.Alive, store.Gone,
	}).Draw(d.T, "kind")}
	switch event.Kind {
	case store.NotNow:
		event.Wake = d.time().Add(time.Duration(d.seconds("again", 0, 3)))
	case store.End:
		event.Failure = failures.New("remote", "no")
	case store.Lose:
		event.Reason = harp.LostAgentRestarted
	default:
	}
	d.applyEvent(e, event)
}

// applyEvent lets an event happen to a job, if it may.
func (d *driver) applyEvent(e *Job, event store.Event) {
	j := d.rows[e.ID]
	if j == nil || e.IsCancelled() {
		return // it has ended; of one whose queue was cancelled the row says so with the next advance
	}
	next, effect, err := j.Next(event)
	if err != nil {
		return
	}
	j.Life = next
	hostWasFull := e.HostIsFull()
	switch {
	case effect.Gives:
		d.s.Release(e, d.now)
	case effect.Ends:
		d.s.Dequeue(e, d.now)
	}
	if effect.Ends {
		d.forget(e)
	}
	var b *Backlog
	var most int
	if effect.Gives || j.State == harp.StateRunning {
		b, most = d.s.Answered(e, j.State == harp.StateQueued && j.Reason == harp.ReasonAgentBusy, effect.Gives)
	}
	if !effect.Gives {
		d.s.Stays(e, j, d.now)
		d.probe(b, most)
		return
	}
	if !effect.Ends {
		d.s.Enqueue(e, j, d.now, d.now)
	}
	if next := d.s.NextInQueue(e.Queue, d.now); next != nil {
		d.start(next)
	}
	if hostWasFull {
		if next := d.s.NextOnHostOf(e, d.now); next != nil {
			d.start(next)
		}
	}
	d.s.Settle(e, d.now)
	d.probe(b, most)
}

func (d *driver) forget(e *Job) {
	delete(d.rows, e.ID)
	q := e.Queue
	if gone := d.s.Drop(e); gone != (d.s.Queue(q.Name) == nil && q.Name != "") {
		d.Fatalf("the queue %q has gone with its last job: %v", q.Name, gone)
	}
	q.DropMarks()
}

func (d *driver) probe(b *Backlog, most int) {
	for e := range d.s.Probes(b, most, d.now, func() bool { return true }) {
		d.start(e)
	}
}

func (d *driver) pass(*rapid.T) {
	until := d.now + d.seconds("seconds", 0, 40)
	for due := d.s.NextDue(); due != 0 && due <= until; due = d.s.NextDue() {
		d.now = max(d.now, due)
		d.advance()
		if d.s.IsDue(d.now) {
			d.advance() // what ended by it has left slots of its batch
		}
		if again := d.s.NextDue(); again != 0 && again <= d.now {
			d.Fatalf("at %d something stays due at %d: %+v", d.now, again, d.s.agenda.list[0])
		}
		d.checkAll()
	}
	d.now = until
}

func (d *driver) advance() {
	d.s.NoteTime(d.time())
	var woken []*Job
	for a := d.s.PopAlarm(d.now); a != nil; a = d.s.PopAlarm(d.now) {
		switch e := a.Job; a.Kind {
		case AlarmWake:
			if !e.IsCancelled() && d.s.Wake(e, d.now) {
				woken = append(woken, e)
			}
		case AlarmExpire:
			d.expire(e)
		case AlarmAway:
			if d.s.HasLeft(e, d.now) {
				d.expire(e)
			}
		case AlarmLost:
			if !d.s.IsAwaited(e, d.now) {
				d.applyEvent(e, store.Event{Kind: store.Lose, At: d.time(), Reason: harp.LostTooLong})
			}
		case AlarmRearm:
			d.s.Rearm(a.Queue, d.now)
		case AlarmBacklog:
			d.probe(a.Backlog, a.Backlog.OneMore())
		case AlarmFill:
			for e := d.s.NextInQueue(a.Queue, d.now); e != nil; e = d.s.NextInQueue(a.Queue, d.now) {
				d.start(e)
			}
		case AlarmBatch:
			d.fill(a.Batch)
		}
	}
	slices.SortFunc(woken, (*Job).Compare)
	for _, e := range woken {
		if next := d.s.NextInQueue(e.Queue, d.now); next != nil {
			d.start(next)
		}
	}
	for e := d.s.NextCancelled(); e != nil; e = d.s.NextCancelled() {
		d.s.Dequeue(e, 0)
		d.forget(e)
	}
}

// fill starts what is parked for the slots of a batch that are free.
func (d *driver) fill(b *Batch) {
	for e := d.s.Unpark(b, d.now); e != nil; e = d.s.Unpark(b, d.now) {
		if next := d.s.NextInQueue(e.Queue, d.now); next != nil {
			d.start(next)
		}
	}
}

func (d *driver) batch() *Batch {
	return d.s.Batch(rapid.SampledFrom([]string{"x", "y"}).Draw(d.T, "batch"))
}

func (d *driver) halt(*rapid.T) {
	d.tick()
	d.s.Halt(d.batch(), d.now)
}

func (d *driver) resume(*rapid.T) {
	d.tick()
	b := d.batch()
	d.s.Resume(b)
	d.s.RingBatch(b, d.now)
}

func (d *driver) nextHost(*rapid.T) {
	if b := d.batch(); b.ahead > 0 {
		d.s.NextHost(b)
	}
}

func (d *driver) expire(e *Job) {
	if !e.IsCancelled() {
		d.s.Dequeue(e, d.now)
		d.forget(e)
	}
}

func (d *driver) silence(*rapid.T) {
	d.tick()
	wake := d.time().Add(time.Duration(d.seconds("patience", 0, 30)))
	for _, i := range d.s.HeardOf(d.host()) {
		j := d.rows[i]
		d.applyEvent(d.s.Job(i), store.Event{Kind: store.Silent, At: d.time(), Wake: wake, Attempt: j.Attempt, Fence: j.Fence})
	}
}

func (d *driver) wake(*rapid.T) {
	d.tick()
	d.s.WakeHost(d.host(), d.now)
}

func (d *driver) setClock(*rapid.T) {
	by := d.seconds("by", -100, 100)
	d.now += by
	d.s.ClockSet(by)
}

func (d *driver) change(*rapid.T) {
	d.tick()
	var c harp.QueueChange
	if rapid.Bool().Draw(d.T, "pause") {
		is := rapid.Bool().Draw(d.T, "paused")
		c.Paused = &is
	}
	if n := rapid.IntRange(-1, 4).Draw(d.T, "concurrency"); n >= 0 {
		c.Concurrency = &n
	}
	if q := d.s.Queue(rapid.SampledFrom(queueNames[1:]).Draw(d.T, "queue")); q != nil {
		d.s.ChangeQueue(q, c, d.now)
		q.Keep(d.s, d.who())
		d.resized[q] = true
		d.s.DropQueue(q)
	}
}

func (d *driver) cancel(*rapid.T) {
	d.tick()
	if q := d.s.Queue(rapid.SampledFrom(queueNames[1:]).Draw(d.T, "queue")); q != nil && !q.IsIdle() {
		d.s.CancelQueue(q, harp.Principal{Name: "ada"}, d.time())
	}
}

// endAll has all jobs end, and all queues be as jobs make them.
func (d *driver) endAll() {
	for _, i := range idsOf(slices.Collect(d.s.All())) {
		e := d.s.Job(i)
		if e == nil || e.IsCancelled() {
			continue
		}
		j := d.rows[i]
		d.applyEvent(e, store.Event{Kind: store.CancelReq, At: d.time()})
		d.applyEvent(e, store.Event{Kind: store.Lose, At: d.time(), Reason: harp.LostForced, Attempt: j.Attempt, Fence: j.Fence})
		d.applyEvent(e, store.Event{Kind: store.End, At: d.time(), Attempt: j.Attempt, Fence: j.Fence}) // what is not silent is not given up
	}
	d.advance()
	no, none := false, 0
	for b := range d.s.Batches() {
		d.s.DropBatch(b)
	}
	for q := range d.s.Queues() {
		d.s.ChangeQueue(q, harp.QueueChange{Paused: &no, Concurrency: &none}, d.now)
		q.Keep(d.s, d.who())
		d.s.DropQueue(q)
	}
}

func (d *driver) nothingIsLeft() {
	s := d.s
	if len(s.holders) > 0 {
		d.Fatalf("left are holders: %+v", s.holders)
	}
	if s.Len()+len(s.queues)+s.names.Len()+len(s.agenda.list)+len(s.cancelled) > 0 || s.NextDue() != 0 {
		d.Fatalf("left are %d jobs, %d queues of %d names, %d alarms and %d cancels", s.Len(), len(s.queues), s.names.Len(), len(s.agenda.list), len(s.cancelled))
	}
	for name, h := range s.hosts {
		if len(h.active)+len(h.returning)+len(h.busy)+len(h.backlogs)+len(h.hostQueues)+len(h.parked) > 0 || h.ready != nil && h.ready.Len() > 0 {
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
		if (q.Paused || q.Fixed) != (q.keeper != nil) {
			d.Fatalf("queue %q is paused: %v, of a fixed concurrency: %v, and kept by %+v", q.Name, q.Paused, q.Fixed, q.Keeper())
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
		e.active, e.hostQueue != nil, e.held != nil, e.parked, e.survives && !e.active,
		e.hostQueue == nil && e.waking.index > 0,
		e.Waits() && e.hostQueue == nil && e.held == nil && !e.parked && !e.survives && e.waking.index == 0 && e.isLate(d.s.Latest), // the agenda ends it
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
	d.same("active on "+name, h.active, d.jobs(func(e *Job) bool { return e.host == h && e.active }))
	d.same("returning to "+name, h.returning, d.jobs(func(e *Job) bool {
		return e.host == h && !e.active && d.rows[e.ID].GivenUp() && !e.IsCancelled()
	}), (*Job).IsCancelled)
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
		case AlarmBacklog:
			is = a.Backlog.host.backlogs[a.Backlog.procedure] == a.Backlog
		case AlarmBatch:
			is = d.s.batches[a.Batch.id] == a.Batch
		}
		if is = is && (a.Job == nil || d.s.jobs[a.Job.ID] == a.Job); !is {
			d.Fatalf("an alarm of kind %d is set to %d for nothing: %+v", a.Kind, a.at, a.Job)
		}
	}
}
