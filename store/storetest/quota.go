package storetest

import (
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

func by(who harp.Principal) setting { return func(s *store.Submission) { s.Job.Principal = who } }

func most(q store.Quota) setting { return func(s *store.Submission) { s.Most = q } }

// trySubmit submits a job and returns why it was refused.
func (w *world) trySubmit(settings ...setting) error {
	w.Helper()
	out, err := w.st.Submit(w.ctx(), []store.Submission{w.submission(settings...)}, w.now)
	if err != nil {
		return err
	}
	return out[0].Err
}

var (
	ada = harp.Principal{Kind: "caller", Name: "ada", Auth: "certificate"}
	bob = harp.Principal{Kind: "caller", Name: "bob", Auth: "certificate"}
)

// fillWaiting has two jobs of ada wait, and one be sent, which does not count.
func fillWaiting(w *world) (two setting, sent, waits *store.Job) {
	two = most(store.Quota{Waiting: 2})
	w.gate("h")
	sent = w.submit(by(ada), two)
	w.state(sent, harp.StateSent)
	waits = w.submit(by(ada), two, on("away"))
	w.submit(by(ada), two, on("h"), notBefore(w.now.Add(time.Hour)))
	return two, sent, waits
}

// fillQueues has ada have three queues: of a job, of a pause and of a concurrency.
func fillQueues(w *world) (three setting, job *store.Job) {
	three = most(store.Quota{Queues: 3})
	job = w.submit(by(ada), three, in(queue("a")))
	w.pauseBy(ada, queue("b"), true)
	w.submit(by(bob), in(queue("c")))
	w.must(w.st.ChangeQueue(w.ctx(), queue("c"), harp.QueueChange{Concurrency: new(5)}, store.Operation{By: ada, Time: w.now}))
	return three, job
}

func (w *world) pauseBy(who harp.Principal, q harp.Value, is bool) {
	w.Helper()
	w.must(w.st.ChangeQueue(w.ctx(), q, harp.QueueChange{Paused: &is}, store.Operation{By: who, Time: w.now}))
}

var quotas = []rule{
	{"quota/waiting", "a principal with as many jobs waiting as it may has no more taken; others do, and those that are there are answered", func(w *world) {
		two, sent, waits := fillWaiting(w)
		w.wants(w.trySubmit(by(ada), two), harp.ErrRefused)
		w.submit(by(bob), two)
		again := w.submission(by(ada), two, on("away"))
		again.Job.ID = waits.ID
		copy(again.Digest[:], waits.ID)
		out, err := w.st.Submit(w.ctx(), []store.Submission{again}, w.now)
		if w.must(err); out[0].Err != nil || out[0].New {
			w.Fatalf("submitted again it is %+v", out[0])
		}
		w.apply(sent, store.End)
		w.wants(w.trySubmit(by(ada), two), harp.ErrRefused)
		w.apply(waits, store.CancelReq)
		w.must(w.trySubmit(by(ada), two, on("away")))
		w.wants(w.trySubmit(by(ada), two), harp.ErrRefused)
	}},
	{"quota/again", "a job that waits again counts again", func(w *world) {
		one := most(store.Quota{Waiting: 1})
		j := w.running(by(ada), one)
		w.must(w.trySubmit(by(ada), most(store.Quota{Waiting: 2}), on("away")))
		w.wants(w.trySubmit(by(ada), one), harp.ErrRefused)
		sent := w.submit(by(ada), most(store.Quota{Waiting: 2}))
		w.state(sent, harp.StateSent)
		e := w.event(sent, store.NotNow)
		e.Wake = w.now.Add(time.Minute)
		w.must(w.try(sent, e).Err)
		w.wants(w.trySubmit(by(ada), most(store.Quota{Waiting: 2})), harp.ErrRefused)
		w.apply(j, store.End)
	}},
	{"quota/used", "what a principal has is told: jobs that wait, hosts of its batches that are not reached, and queues", func(w *world) {
		uses := func(waiting, queues int) {
			w.Helper()
			if got := w.st.QuotaUsed(ada); got != (store.Quota{Waiting: waiting, Queues: queues}) {
				w.Fatalf("it uses %+v, want %d and %d", got, waiting, queues)
			}
		}
		uses(0, 0)
		j := w.submit(by(ada), in(queue("a")), on("away"))
		w.submit(by(ada), on("away"))
		w.submit(by(bob), in(queue("b")), on("away"))
		uses(2, 1)
		w.pauseBy(ada, queue("c"), true)
		uses(2, 2)
		w.apply(j, store.CancelReq)
		uses(1, 1)
	}},
	{"quota/cancelled", "jobs that a cancel of their queue has ended count until their rows say so", func(w *world) {
		one := most(store.Quota{Waiting: 1})
		q := queue("q")
		w.submit(by(ada), in(q))
		w.cancelQueue(q)
		w.advance()
		w.must(w.trySubmit(by(ada), one, in(q)))
		w.wants(w.trySubmit(by(ada), one, in(q)), harp.ErrRefused)
	}},
	{"quota/queues", "a principal with as many queues as it may makes no other, by a job or a pause; it may use those it has", func(w *world) {
		three, job := fillQueues(w)
		pause, quota := true, store.Quota{Queues: 3}
		w.wants(w.trySubmit(by(ada), three, in(queue("d"))), harp.ErrRefused)
		err := w.st.ChangeQueue(w.ctx(), queue("d"), harp.QueueChange{Paused: &pause}, store.Operation{By: ada, Time: w.now, Most: quota})
		w.wants(err, harp.ErrRefused)
		if _, err := w.st.Queue(w.ctx(), queue("d")); err == nil {
			w.Fatal("the queue is there")
		}
		for _, q := range []string{"a", "b", "c"} {
			w.must(w.trySubmit(by(ada), three, in(queue(q))))
		}
		w.must(w.st.ChangeQueue(w.ctx(), queue("a"), harp.QueueChange{Paused: &pause}, store.Operation{By: ada, Time: w.now, Most: quota}))
		w.submit(by(bob), three, in(queue("d")))
		w.apply(job, store.CancelReq)
		w.wants(w.trySubmit(by(ada), three, in(queue("d"))), harp.ErrRefused) // there is another job in a
		w.pauseBy(bob, queue("b"), false)
		w.cancelQueue(queue("b"))
		w.advance()
		w.must(w.trySubmit(by(ada), three, in(queue("d"))))
		w.wants(w.trySubmit(by(ada), three, in(queue("e"))), harp.ErrRefused)
	}},
	{"quota/kept", "a principal with as many queues as it may says nothing first of another's; it changes what others have said", func(w *world) {
		b := queue("b")
		change := func(c harp.QueueChange) error {
			return w.st.ChangeQueue(w.ctx(), b, c, store.Operation{By: ada, Time: w.now, Most: store.Quota{Queues: 1}})
		}
		w.submit(by(ada), in(queue("a")))
		w.submit(by(bob), in(b))
		w.wants(change(harp.QueueChange{Concurrency: new(5)}), harp.ErrRefused)
		w.must(change(harp.QueueChange{Concurrency: new(0)}))
		w.pauseBy(bob, b, true)
		w.must(change(harp.QueueChange{Concurrency: new(5)}))
		w.must(change(harp.QueueChange{Paused: new(false)}))
		w.must(change(harp.QueueChange{Paused: new(true)}))
	}},
}

var reopeningQuotas = []rule{
	{"quota/waiting", "jobs that wait count from when the store is opened", func(w *world) {
		two, sent, waits := fillWaiting(w)
		w.reopen()
		w.wants(w.trySubmit(by(ada), two), harp.ErrRefused)
		w.must(w.trySubmit(by(bob), two, on("away")))
		w.apply(sent, store.End)
		w.wants(w.trySubmit(by(ada), two), harp.ErrRefused)
		w.apply(waits, store.CancelReq)
		w.must(w.trySubmit(by(ada), two, on("away")))
	}},
	{"quota/queues", "queues count from when the store is opened", func(w *world) {
		three, job := fillQueues(w)
		w.reopen()
		w.wants(w.trySubmit(by(ada), three, in(queue("d"))), harp.ErrRefused)
		w.must(w.trySubmit(by(ada), three, in(queue("b"))))
		w.must(w.trySubmit(by(bob), three, in(queue("d"))))
		w.apply(job, store.CancelReq)
		w.must(w.trySubmit(by(ada), three, in(queue("d"))))
		w.wants(w.trySubmit(by(ada), three, in(queue("e"))), harp.ErrRefused)
	}},
}
