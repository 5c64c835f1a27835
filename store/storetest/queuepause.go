package storetest

import (
	"reflect"
	"strings"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// pauseFor pauses a queue for some time, as ada.
func (w *world) pauseFor(q harp.Value, reason string, d time.Duration) time.Time {
	w.Helper()
	until := w.now.Add(d)
	w.must(w.st.ChangeQueue(w.ctx(), q, pausedUntil(reason, until), store.Operation{By: ada, Time: w.now}))
	return until
}

func pausedUntil(reason string, until time.Time) harp.QueueChange {
	return harp.QueueChange{Paused: new(true), Reason: reason, Until: until}
}

// isPaused checks by whom a queue is paused, why, since when and until when; nil: it is not.
func (w *world) isPaused(q harp.Value, want *harp.QueuePause) {
	w.Helper()
	if s := w.status(q); s.Paused != (want != nil) || !reflect.DeepEqual(s.Pause, want) {
		w.Fatalf("paused is %v, by %+v, want %+v", s.Paused, s.Pause, want)
	}
}

// pausedFor checks what is told first of what keeps a job from starting.
func (w *world) pausedFor(j *store.Job, want harp.Obstacle) {
	w.Helper()
	all, err := w.st.Obstacles(w.ctx(), j.ID)
	w.must(err)
	if len(all) == 0 || !reflect.DeepEqual(all[0], want) {
		w.Fatalf("it waits for %+v, want %+v", all, want)
	}
}

func (w *world) isGone(q harp.Value) {
	w.Helper()
	_, err := w.st.Queue(w.ctx(), q)
	w.wants(err, harp.ErrNotFound)
	page, _, err := w.st.ListQueues(w.ctx(), "", 10)
	w.must(err)
	for _, s := range page {
		if string(s.Name) == string(q) {
			w.Fatalf("queue is listed: %+v", s)
		}
	}
}

// wrong checks that a change is refused for a field.
func (w *world) wrong(err error, field string) {
	w.Helper()
	if w.wants(err, harp.ErrInvalid); harp.FailureOf(err).Field != field {
		w.Fatalf("error is %v, want one of %q", err, field)
	}
}

var pausesEnding = []rule{
	{"pause/until", "a pause ends by itself at its time, and what waits in the queue starts in its order, on all hosts, by as many as there are slots", func(w *world) {
		q := queue("q")
		w.gate("h", "i")
		until, since := w.pauseFor(q, "disk", time.Hour), w.now
		low, first, other := w.submit(in(q), slots(2), priority(-1)), w.submit(in(q)), w.submit(in(q), on("i"))
		w.isPaused(q, &harp.QueuePause{By: ada, Reason: "disk", Since: since, Until: until})
		page, _, err := w.st.ListQueues(w.ctx(), "", 10)
		w.must(err)
		if len(page) != 1 || !reflect.DeepEqual(page[0], w.status(q)) {
			w.Fatalf("queues are %+v", page)
		}
		w.due(until)
		w.pass(time.Hour - 1)
		w.ids(w.advance().Claimed)
		w.ids(w.claim(10, "h", "i"))
		w.waits(first, harp.ReasonPaused)
		w.pausedFor(first, harp.Obstacle{Reason: harp.ReasonPaused, By: ada, Why: "disk", Since: since, Until: until})
		w.pass(1)
		w.ids(w.advance().Claimed, first, other)
		w.isPaused(q, nil)
		w.due(time.Time{})
		w.waits(low, harp.ReasonQueue)
		w.ids(w.apply(w.job(first.ID), store.End).Claimed, low)
	}},
	{"pause/until/late", "however late it is noticed, a pause is over when it is, and what comes until then waits for that", func(w *world) {
		q := queue("q")
		w.gate("h")
		w.pauseFor(q, "", time.Minute)
		a := w.submit(in(q), slots(2))
		w.pass(time.Hour)
		b := w.submit(in(q))
		w.waits(b, harp.ReasonPaused)
		w.ids(w.advance().Claimed, a, b)
	}},
	{"pause/until/empty", "a queue that is kept for its pause alone goes with it, and counts no more as that of who has paused it", func(w *world) {
		q, r := queue("q"), queue("r")
		w.pauseFor(q, "disk", time.Minute)
		w.pauseFor(r, "disk", time.Minute)
		w.resize(r, 3)
		if used := w.st.QuotaUsed(ada); used.Queues != 2 {
			w.Fatalf("%d queues count as those of who has paused them, want 2", used.Queues)
		}
		w.pass(time.Minute)
		w.advance()
		w.isGone(q)
		w.isPaused(r, nil)
		if s := w.status(r); s.Concurrency != 3 {
			w.Fatalf("queue is %+v", s)
		}
		if used := w.st.QuotaUsed(ada); used.Queues != 1 {
			w.Fatalf("%d queues count as those of who has paused them, want 1", used.Queues)
		}
		w.due(time.Time{})
		w.resize(r, 0)
		w.isGone(r)
	}},
	{"pause/until/again", "a pause takes the place of the one before it, with its end: a later one, an earlier one, none", func(w *world) {
		q := queue("q")
		w.gate("h")
		w.pauseFor(q, "disk", time.Hour)
		j := w.submit(in(q))
		w.pass(time.Minute)
		late := w.pauseFor(q, "more disks", 2*time.Hour)
		w.isPaused(q, &harp.QueuePause{By: ada, Reason: "more disks", Since: w.now, Until: late})
		w.due(late)
		w.pass(90 * time.Minute)
		w.ids(w.advance().Claimed)
		soon := w.pauseFor(q, "", time.Minute)
		w.due(soon)
		w.pauseBy(bob, q, true)
		w.isPaused(q, &harp.QueuePause{By: bob, Since: w.now})
		w.due(time.Time{})
		w.pass(24 * time.Hour)
		w.ids(w.advance().Claimed)
		w.waits(j, harp.ReasonPaused)
		w.pauseFor(q, "", time.Minute)
		w.pause(q, false)
		w.due(w.now)
		w.ids(w.advance().Claimed, j)
		w.due(time.Time{})
	}},
	{"pause/until/resized", "another concurrency leaves a pause as it is, and holds when that is over", func(w *world) {
		q := queue("q")
		w.gate("h")
		until := w.pauseFor(q, "disk", time.Hour)
		since := w.now
		a, b, c := w.submit(in(q)), w.submit(in(q)), w.submit(in(q))
		w.pass(time.Minute)
		w.resize(q, 2)
		w.isPaused(q, &harp.QueuePause{By: ada, Reason: "disk", Since: since, Until: until})
		w.due(until)
		w.now = until
		w.ids(w.advance().Claimed, a, b)
		w.waits(c, harp.ReasonQueue)
	}},
	{"pause/until/cancel", "a cancel of the queue leaves its pause as it is, and its end starts nothing that was cancelled", func(w *world) {
		q := queue("q")
		w.gate("h")
		until := w.pauseFor(q, "disk", time.Hour)
		gone := w.submit(in(q))
		w.cancelQueue(q)
		later := w.submit(in(q))
		w.now = until
		did := w.advance()
		w.ids(did.Ended, gone)
		w.ids(did.Claimed, later)
		w.cancelQueue(q)
		w.apply(w.job(later.ID), store.End)
		w.isGone(q)

		until = w.pauseFor(q, "disk", time.Hour)
		w.submit(in(q))
		w.cancelQueue(q)
		w.advance()
		w.due(until)
		w.now = until
		w.ids(w.advance().Claimed)
		w.isGone(q)
		w.due(time.Time{})
	}},
	{"pause/until/waits", "waiting in a pause that ends does not count as waiting for the host, and who waits for a later time waits on", func(w *world) {
		q := queue("q")
		w.away()
		until := w.pauseFor(q, "", time.Hour)
		j := w.submit(in(q), slots(2), offlineWait(time.Minute))
		early := w.submit(in(q), on("i"), notBefore(until.Add(time.Hour)))
		w.gate("i")
		w.now = until
		w.ids(w.advance().Claimed)
		w.waits(j, harp.ReasonOffline)
		w.waits(early, harp.ReasonStartAfter)
		w.due(until.Add(time.Minute))
		w.pass(time.Minute)
		w.ids(w.advance().Ended, j)
		w.now = until.Add(time.Hour)
		w.ids(w.advance().Claimed, early)
	}},
	{"pause/until/once", "a pause that is asked again under its id changes nothing and is answered as before, also when it is over; another reason or end under its id is another request", func(w *world) {
		q := queue("q")
		op := store.Operation{ID: w.id(), By: ada, Time: w.now}
		until := w.now.Add(time.Minute)
		ask := func(c harp.QueueChange) error {
			op.Time = w.now
			return w.st.ChangeQueue(w.ctx(), q, c, op)
		}
		w.must(ask(pausedUntil("disk", until)))
		since, from := w.now, w.cursor()
		w.pass(time.Second)
		w.must(ask(pausedUntil("disk", until)))
		w.isPaused(q, &harp.QueuePause{By: ada, Reason: "disk", Since: since, Until: until})
		w.wants(ask(pausedUntil("disks", until)), harp.ErrConflict)
		w.wants(ask(pausedUntil("disk", until.Add(1))), harp.ErrConflict)
		w.wants(ask(harp.QueueChange{Paused: new(true)}), harp.ErrConflict)
		w.types(w.events(harp.EventFilter{After: from}))
		w.pass(time.Hour)
		w.advance()
		w.must(ask(pausedUntil("disk", until)))
		w.isGone(q)
	}},
	{"pause/until/invalid", "a pause that would be over, or whose reason is too long, is refused, and changes nothing", func(w *world) {
		q, r := queue("q"), queue("r")
		w.submit(in(r))
		w.pauseFor(r, "disk", time.Hour)
		before := w.status(r)
		from := w.cursor()
		for _, name := range []harp.Value{q, r} {
			w.wrong(w.tryChange(name, pausedUntil("", w.now)), "until")
			w.wrong(w.tryChange(name, pausedUntil("", w.now.Add(-time.Hour))), "until")
			w.wrong(w.tryChange(name, pausedUntil("", time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC))), "until")
			w.wrong(w.tryChange(name, pausedUntil(strings.Repeat("r", harp.MaxWhy+1), time.Time{})), "reason")
			w.wrong(w.tryChange(name, pausedUntil("\xff", time.Time{})), "reason")
		}
		w.isGone(q)
		if s := w.status(r); !reflect.DeepEqual(s, before) {
			w.Fatalf("queue is %+v, was %+v", s, before)
		}
		w.types(w.events(harp.EventFilter{After: from}))
		w.must(w.tryChange(q, pausedUntil(strings.Repeat("r", harp.MaxWhy), w.now.Add(1))))
		w.must(w.tryChange(q, pausedUntil("", time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC))))
	}},
	{"pause/until/quota", "a queue counts as that of who has paused it first, whoever pauses it again", func(w *world) {
		q := queue("q")
		one := store.Quota{Queues: 1}
		pause := func(who harp.Principal, q harp.Value) error {
			return w.st.ChangeQueue(w.ctx(), q, pausedUntil("", w.now.Add(time.Hour)), store.Operation{By: who, Time: w.now, Most: one})
		}
		w.must(pause(ada, q))
		w.wants(pause(ada, queue("r")), harp.ErrRefused)
		w.pass(time.Minute)
		w.must(pause(bob, q))
		w.isPaused(q, &harp.QueuePause{By: bob, Since: w.now, Until: w.now.Add(time.Hour)})
		if a, b := w.st.QuotaUsed(ada), w.st.QuotaUsed(bob); a.Queues != 1 || b.Queues != 0 {
			w.Fatalf("ada has %d queues, and bob %d", a.Queues, b.Queues)
		}
		w.pass(time.Hour)
		w.advance()
		w.must(pause(ada, queue("r")))
	}},
	{"pause/until/events", "each pause is an event, which says by whom, why and until when, and so is its end, by itself or not", func(w *world) {
		q := queue("q")
		from := w.cursor()
		until := w.pauseFor(q, "disk", time.Hour)
		w.resize(q, 2)
		w.pauseBy(bob, q, true)
		w.pause(q, false)
		w.pauseFor(q, "disk", time.Hour)
		w.now = until
		w.advance()
		got := w.events(harp.EventFilter{After: from})
		w.types(got, "queue.paused", "queue.changed", "queue.paused", "queue.unpaused", "queue.paused", "queue.unpaused")
		for n, want := range map[int]harp.Event{
			0: {Type: harp.EventQueuePaused, By: ada, Reason: "disk", Until: until, Time: got[0].Time},
			2: {Type: harp.EventQueuePaused, By: bob, Time: got[2].Time},
			3: {Type: harp.EventQueueUnpaused, By: somebody, Time: got[3].Time},
			5: {Type: harp.EventQueueUnpaused, Time: until},
		} {
			if want.Cursor, want.Queue = got[n].Cursor, q; !reflect.DeepEqual(got[n], want) {
				w.Errorf("event %d is %+v, want %+v", n, got[n], want)
			}
		}
	}},
	{"pause/until/mine", "what is told of a pause is the receiver's", func(w *world) {
		q := queue("q")
		until := w.pauseFor(q, "disk", time.Hour)
		*w.status(q).Pause = harp.QueuePause{}
		w.isPaused(q, &harp.QueuePause{By: ada, Reason: "disk", Since: w.now, Until: until})
	}},
	{"clock/pause", "a pause ends at the time that it names, wherever the clock is set to meanwhile; one that has ended has", func(w *world) {
		q := queue("q")
		w.gate("h")
		until := w.pauseFor(q, "disk", time.Hour)
		j := w.submit(in(q))
		for _, by := range []time.Duration{30 * time.Minute, -2 * time.Hour} {
			w.setClock(by)
			w.due(until)
			w.ids(w.advance().Claimed)
			w.waits(j, harp.ReasonPaused)
		}
		w.setClock(24 * time.Hour)
		w.ids(w.advance().Claimed, j)
		w.setClock(-24 * time.Hour)
		w.isPaused(q, nil)
		w.due(time.Time{})
	}},
}

var reopeningPauses = []rule{
	{"pause/until", "a pause is there again as it was, and ends at its time", func(w *world) {
		q, empty := queue("q"), queue("empty")
		until, since := w.pauseFor(q, "disk", time.Hour), w.now
		w.pauseFor(empty, "disk", 2*time.Hour)
		j := w.submit(in(q))
		w.reopen()
		w.gate("h")
		w.isPaused(q, &harp.QueuePause{By: ada, Reason: "disk", Since: since, Until: until})
		w.due(until)
		w.pausedFor(j, harp.Obstacle{Reason: harp.ReasonPaused, By: ada, Why: "disk", Since: since, Until: until})
		w.pass(time.Minute)
		w.resize(q, 2)
		w.cancelQueue(q)
		w.advance()
		j = w.submit(in(q))
		w.reopen()
		w.gate("h")
		w.isPaused(q, &harp.QueuePause{By: ada, Reason: "disk", Since: since, Until: until})
		w.ids(w.claim(10, "h"))
		w.now = until
		w.ids(w.advance().Claimed, j)
		w.reopen()
		w.isPaused(q, nil)
		w.pass(time.Hour)
		w.due(w.now)
		w.advance()
		w.isGone(empty)
		w.reopen()
		w.isGone(empty)
		w.due(time.Time{})
	}},
	{"pause/until/passed", "a pause that was over while the store was closed ends with the first Advance", func(w *world) {
		q, empty := queue("q"), queue("empty")
		w.pauseFor(q, "disk", time.Hour)
		until := w.pauseFor(empty, "disk", time.Hour)
		j := w.submit(in(q))
		w.pass(24 * time.Hour)
		w.reopen()
		w.gate("h")
		w.due(until)
		w.waits(j, harp.ReasonPaused)
		w.ids(w.advance().Claimed, j)
		w.isGone(empty)
	}},
	{"pause/until/cancelled", "what a cancel has said of the queue's jobs is kept when a pause ends", func(w *world) {
		q := queue("q")
		running := w.running(in(q))
		until := w.pauseFor(q, "disk", time.Hour)
		gone := w.submit(in(q))
		w.cancelQueue(q)
		w.ids(w.advance().Ended, gone)
		w.now = until
		w.advance()
		w.reopen()
		w.isPaused(q, nil)
		w.state(running, harp.StateCancelling)
	}},
	{"pause/until/once", "a pause is not asked for again after a restart, nor when it was over before", func(w *world) {
		q := queue("q")
		op := store.Operation{ID: w.id(), By: ada, Time: w.now}
		c := pausedUntil("disk", w.now.Add(time.Minute))
		w.must(w.st.ChangeQueue(w.ctx(), q, c, op))
		w.pass(time.Hour)
		w.reopen()
		w.advance()
		op.Time = w.now
		w.must(w.st.ChangeQueue(w.ctx(), q, c, op))
		w.isGone(q)
	}},
	{"pause/until/clock", "a pause ends at the time that it names, over a restart after the clock was set", func(w *world) {
		q := queue("q")
		until := w.pauseFor(q, "disk", time.Hour)
		j := w.submit(in(q))
		for _, by := range []time.Duration{30 * time.Minute, -2 * time.Hour} {
			w.setClock(by)
			w.reopen()
			w.gate("h")
			w.due(until)
			w.ids(w.advance().Claimed)
			w.waits(j, harp.ReasonPaused)
		}
		w.now = until
		w.ids(w.advance().Claimed, j)
	}},
}
