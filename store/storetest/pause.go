package storetest

import (
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

func (w *world) tryChange(q harp.Value, c harp.QueueChange) error {
	return w.st.ChangeQueue(w.ctx(), q, c, store.Operation{By: somebody, Time: w.now})
}

// pause pauses a queue, or lets it go on.
func (w *world) pause(q harp.Value, is bool) {
	w.Helper()
	w.must(w.tryChange(q, harp.QueueChange{Paused: &is}))
}

func (w *world) resize(q harp.Value, concurrency int) {
	w.Helper()
	w.must(w.tryChange(q, harp.QueueChange{Concurrency: &concurrency}))
}

var pausing = []rule{
	{"pause/waits", "nothing of a paused queue starts, however a slot or its time comes; what runs goes on", func(w *world) {
		q := queue("q")
		a := w.running(in(q), slots(3))
		w.pause(q, true)
		b := w.submit(in(q))
		early := w.submit(in(q), notBefore(w.now.Add(time.Minute)))
		other := w.submit()
		w.state(other, harp.StateSent)
		w.waits(b, harp.ReasonPaused)
		w.waits(early, harp.ReasonStartAfter)
		w.ids(w.apply(a, store.End).Claimed)
		w.pass(time.Minute)
		w.ids(w.advance().Claimed)
		w.ids(w.claim(10, "h"))
		w.waits(early, harp.ReasonPaused)
		if s := w.status(q); !s.Paused || s.Running != 0 || s.Waiting != 2 || s.Concurrency != 3 {
			w.Fatalf("queue is %+v", s)
		}
		w.pause(q, false)
		w.waits(b, harp.ReasonQueue)
		w.ids(w.claim(10, "h"), b, early)
		if w.status(q).Paused {
			w.Fatal("it is paused")
		}
	}},
	{"pause/empty", "a pause makes the queue, which is kept without jobs until it goes on", func(w *world) {
		q := queue("q")
		w.pause(q, true)
		w.pause(q, true)
		if s := w.status(q); !s.Paused || s.Running+s.Waiting != 0 {
			w.Fatalf("queue is %+v", s)
		}
		page, _, err := w.st.ListQueues(w.ctx(), "", 10)
		w.must(err)
		if len(page) != 1 || !page[0].Paused {
			w.Fatalf("queues are %+v", page)
		}
		w.gate("h")
		j := w.waits(w.submit(in(q)), harp.ReasonPaused)
		w.apply(j, store.CancelReq)
		w.status(q)
		w.pause(q, false)
		_, err = w.st.Queue(w.ctx(), q)
		w.wants(err, harp.ErrNotFound)
	}},
	{"pause/first", "a queue that a pause has made has the concurrency of its first job, unless an operator has said one", func(w *world) {
		w.gate("h")
		q, r := queue("q"), queue("r")
		w.pause(q, true)
		w.pause(r, true)
		w.resize(r, 2)
		for _, name := range []harp.Value{q, r} {
			w.submit(in(name), slots(5))
			w.submit(in(name), slots(7))
		}
		if s, t := w.status(q), w.status(r); s.Concurrency != 5 || t.Concurrency != 2 {
			w.Fatalf("queues are %+v and %+v", s, t)
		}
	}},
	{"pause/offline", "waiting in a pause does not count as waiting for the host", func(w *world) {
		q := queue("q")
		w.away()
		j := w.submit(in(q), offlineWait(time.Minute))
		w.pass(30 * time.Second)
		w.pause(q, true)
		w.due(time.Time{})
		w.pass(time.Hour)
		w.ids(w.advance().Ended)
		w.waits(j, harp.ReasonPaused)
		w.pause(q, false)
		w.due(w.now.Add(time.Minute))
		w.pass(time.Minute)
		w.ids(w.advance().Ended, j)
	}},
	{"pause/freed", "a slot that came free in a pause is free since its end", func(w *world) {
		q := queue("q")
		a := w.running(in(q))
		j := w.submit(in(q), on("away"), offlineWait(time.Minute))
		w.pause(q, true)
		w.apply(a, store.End)
		w.pass(time.Hour)
		w.pause(q, false)
		w.due(w.now.Add(time.Minute))
		w.waits(j, harp.ReasonOffline)
	}},
	{"pause/expires", "a job that waits in a pause ends when it must have started", func(w *world) {
		q := queue("q")
		w.pause(q, true)
		w.gate("h")
		j := w.submit(in(q), expires(w.now.Add(time.Minute)))
		w.pass(time.Minute)
		w.ids(w.advance().Ended, j)
		w.state(j, harp.StateExpired)
		w.status(q)
	}},
	{"pause/cancel", "cancelling a paused queue cancels what is in it, and the pause stays", func(w *world) {
		q := queue("q")
		w.pause(q, true)
		if n := w.cancelQueue(q).Count; n != 0 {
			w.Fatalf("%d were cancelled in an empty queue", n)
		}
		w.gate("h")
		j := w.submit(in(q))
		if n := w.cancelQueue(q).Count; n != 1 {
			w.Fatalf("%d were cancelled, want 1", n)
		}
		w.ids(w.advance().Ended, j)
		later := w.waits(w.submit(in(q)), harp.ReasonPaused)
		w.pause(q, false)
		w.ids(w.claim(10, "h"), later)
		w.apply(w.job(later.ID), store.End)
		_, err := w.st.Queue(w.ctx(), q)
		w.wants(err, harp.ErrNotFound)
	}},
	{"pause/again", "a job that comes back to a paused queue keeps its place in it", func(w *world) {
		q := queue("q")
		a := w.running(in(q), retries(harp.StateFailed))
		w.submit(in(q))
		w.pause(q, true)
		w.ids(w.fails(a).Claimed)
		w.pass(time.Hour)
		w.ids(w.advance().Claimed)
		if got := w.waits(a, harp.ReasonPaused); got.QueuePos != 1 {
			w.Fatalf("its place is %d, want 1", got.QueuePos)
		}
		w.pause(q, false)
		w.ids(w.claim(1, "h"), a)
	}},
	{"queue/kept", "the concurrency that an operator has said holds, whatever drains, until it is taken back", func(w *world) {
		q := queue("q")
		w.gate("h")
		a := w.submit(in(q), slots(3))
		w.resize(q, 1)
		w.apply(a, store.End)
		if s := w.status(q); s.Concurrency != 1 {
			w.Fatalf("drained, the queue is %+v", s)
		}
		b, c := w.submit(in(q), slots(3)), w.submit(in(q), slots(3))
		w.state(b, harp.StateSent)
		w.waits(c, harp.ReasonQueue)
		w.cancelQueue(q)
		w.apply(w.job(b.ID), store.End)
		w.advance()
		if s := w.status(q); s.Concurrency != 1 || s.Running+s.Waiting > 0 {
			w.Fatalf("cancelled, the queue is %+v", s)
		}
		w.resize(q, 0)
		_, err := w.st.Queue(w.ctx(), q)
		w.wants(err, harp.ErrNotFound)
		w.submit(in(q), slots(3))
		if s := w.status(q); s.Concurrency != 3 {
			w.Fatalf("taken back, the queue is %+v", s)
		}
	}},
	{"queue/wider", "another concurrency holds from then on: more start, or none until fewer run", func(w *world) {
		q := queue("q")
		w.gate("h")
		var jobs []*store.Job
		for range 6 {
			jobs = append(jobs, w.submit(in(q)))
		}
		w.ids(w.claim(10, "h"))
		w.resize(q, 3)
		w.ids(w.claim(10, "h"), jobs[1:3]...)
		w.resize(q, 1)
		if s := w.status(q); s.Concurrency != 1 || s.Running != 3 {
			w.Fatalf("queue is %+v", s)
		}
		w.ids(w.apply(jobs[0], store.End).Claimed)
		w.ids(w.apply(w.job(jobs[1].ID), store.End).Claimed)
		w.ids(w.claim(10, "h"))
		w.ids(w.apply(w.job(jobs[2].ID), store.End).Claimed, jobs[3])
		w.resize(q, 2)
		w.ids(w.claim(10, "h"), jobs[4])
	}},
	{"queue/go on", "what a change of its queue lets start is due at once, on all hosts, as many as there are slots", func(w *world) {
		q := queue("q")
		w.gate("h", "i")
		w.pause(q, true)
		a, b, c := w.submit(in(q), slots(2)), w.submit(in(q), on("i")), w.submit(in(q))
		w.due(time.Time{})
		w.pause(q, false)
		w.due(w.now)
		w.ids(w.advance().Claimed, a, b)
		w.due(time.Time{})
		w.resize(q, 4)
		w.due(w.now)
		w.ids(w.advance().Claimed, c)
		w.resize(q, 5) // for nothing
		w.due(time.Time{})
	}},
	{"queue/much", "what is too much for one commit follows in the next", func(w *world) {
		q := queue("q")
		w.gate("h")
		w.pause(q, true)
		var jobs []*store.Job
		for range 1200 {
			jobs = append(jobs, w.submit(in(q), slots(2000)))
		}
		w.st.SetGate("h", store.Gate{Open: true, Most: 2000})
		w.pause(q, false)
		w.ids(w.advance().Claimed, jobs...)
		w.due(time.Time{})
	}},
	{"queue/wait", "a slot that an operator adds is free since then", func(w *world) {
		q := queue("q")
		w.running(in(q))
		w.away()
		j := w.submit(in(q), offlineWait(time.Minute))
		w.pass(time.Hour)
		w.resize(q, 2)
		w.due(w.now.Add(time.Minute))
		w.waits(j, harp.ReasonOffline)
		w.resize(q, 1)
		w.due(time.Time{})
		w.waits(j, harp.ReasonQueue)
	}},
	{"queue/change", "a queue that is not there cannot be changed, and none has no slots", func(w *world) {
		q, no, one, none := queue("q"), false, 1, -1
		w.wants(w.tryChange(q, harp.QueueChange{Paused: &no}), harp.ErrNotFound)
		w.wants(w.tryChange(q, harp.QueueChange{Concurrency: &one}), harp.ErrNotFound)
		w.submit(in(q))
		w.wants(w.tryChange(q, harp.QueueChange{Concurrency: &none}), harp.ErrInvalid)
	}},
}
