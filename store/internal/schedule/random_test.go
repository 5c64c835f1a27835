package schedule

import (
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
		d := &driver{T: rt, s: New(), rows: map[ID]*store.Job{}, now: now, resized: map[*Queue]bool{}, holds: map[string]heldHost{}}
		for name, parallel := range batchSizes {
			d.s.OpenBatch(name, parallel, 3, 0, harp.Principal{Name: name})
		}
		for range 10 { // times the usual steps
			rt.Repeat(map[string]func(*rapid.T){
				"submit": d.submit, "submit more": d.submit, "claim": d.claim, "gate": d.gate, "event": d.event, "more events": d.event,
				"change": d.change, "cancel": d.cancel, "pass": d.pass, "silence": d.silence, "wake": d.wake, "set the clock": d.setClock,
				"halt": d.halt, "resume": d.resume, "next host": d.nextHost, "holds": d.setHolds,
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
	holds   map[string]heldHost
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
	if rapid.IntRange(0, 3).Draw(d.T, "scheduled") == 0 {
		j.Schedule, j.FireTime = "s", d.time()
	}
	j.ReadOnly = rapid.IntRange(0, 3).Draw(d.T, "read only") == 0
	j.Retry = harp.RetryPolicy{On: []harp.State{harp.StateLost, harp.StateFailed}, Attempts: rapid.IntRange(1, 3).Draw(d.T, "attempts"), Backoff: time.Second, MaxBackoff: time.Minute}
	i := ID{byte(j.No >> 8), byte(j.No)}
	d.rows[i] = j
	if e, started := d.s.Submit(i, j, d.now); started {
		if e.isLate(d.now) || !e.host.gate.Open || e.Queue.Pause != nil || e.notBefore > d.now || e.isBlocked() {
			d.Fatalf("job %d is started at once, though it may not start", e.No)
		}
		d.mayStart(e)
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
	d.mayStart(e)
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
	hosts := []string{d.host(), d.host()}
	for o := d.s.Offers(hosts, d.now); n > 0 && o.More(); n-- {
		e := o.Next()
		if e == nil {
			break
		}
		d.start(e)
	}
	if n > 0 {
		d.nothingMayStart(hosts...)
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
	if effect.Gives || j.State == harp.StateRunning {
		b = d.s.Answered(e, j.State == harp.StateQueued && j.Reason == harp.ReasonAgentBusy)
	}
	if !effect.Gives {
		d.s.Stays(e, j, d.now)
		d.probeAgain(b, false)
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
	d.probeAgain(b, true)
}

func (d *driver) forget(e *Job) {
	delete(d.rows, e.ID)
	q := e.Queue
	if gone := d.s.Drop(e); gone != (d.s.Queue(q.Name) == nil && q.Name != "") {
		d.Fatalf("the queue %q has gone with its last job: %v", q.Name, gone)
	}
	q.DropMarks()
}

func (d *driver) probeAgain(b *Backlog, isOver bool) {
	switch {
	case b == nil:
	case isOver:
		d.probe(b, b.OneMore())
	default:
		d.probe(b, b.MaxProbes())
	}
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
		d.checkHolds()
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
				d.mayExpire(e, a.at)
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
		case AlarmUnpause:
			d.s.ChangeQueue(a.Queue, harp.QueueChange{Paused: new(false)}, harp.Principal{}, d.now)
			a.Queue.Keep(d.s, harp.Principal{})
			d.s.DropQueue(a.Queue)
		case AlarmHolds:
			d.reviewHolds(a)
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
		if rapid.Bool().Draw(d.T, "ends") {
			c.Until = msgpack.FromNanos(d.now + d.seconds("until", 1, 60))
		}
	}
	if n := rapid.IntRange(-1, 4).Draw(d.T, "concurrency"); n >= 0 {
		c.Concurrency = &n
	}
	if q := d.s.Queue(rapid.SampledFrom(queueNames[1:]).Draw(d.T, "queue")); q != nil {
		d.s.ChangeQueue(q, c, d.who(), d.now)
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
	d.endHolds()
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
		d.s.ChangeQueue(q, harp.QueueChange{Paused: &no, Concurrency: &none}, d.who(), d.now)
		q.Keep(d.s, d.who())
		d.s.DropQueue(q)
	}
}
