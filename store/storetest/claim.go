package storetest

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

var claiming = []rule{
	{"claim/busy", "for what an agent was too busy waits all of its procedure on its host: one is tried when one ends, when it is ready, or after a pause", func(w *world) {
		w.gate("h", "i")
		var jobs []*store.Job
		for range 20 {
			jobs = append(jobs, w.submit())
		}
		w.apply(jobs[0], store.Started)
		for _, j := range jobs[1:10] {
			e := w.event(j, store.NotNow)
			e.Wake = w.now.Add(time.Second)
			c := w.try(j, e)
			w.must(c.Err)
			w.ids(c.Claimed)
		}
		w.ids(w.claim(100, "h"))
		late := w.waits(w.submit(), harp.ReasonAgentBusy)
		w.state(w.submit(of("other")), harp.StateSent)
		w.state(w.submit(on("i")), harp.StateSent)
		first := w.apply(jobs[0], store.End).Claimed
		w.ids(first, jobs[1])
		w.must(w.st.Wake(w.ctx(), "h", w.now)) // it was answered by the end
		w.ids(w.claim(100, "h"))
		e := w.event(first[0], store.NotNow)
		e.Wake = w.now.Add(time.Second)
		w.must(w.try(first[0], e).Err)
		w.must(w.st.Wake(w.ctx(), "h", w.now))
		again := w.claim(100, "h")
		w.ids(again, jobs[1])
		w.ids(w.apply(again[0], store.Started).Claimed, jobs[2])
		w.away()
		w.gate("h") // a new session
		w.ids(w.claim(100, "h"), append(slices.Clone(jobs[3:10]), late)...)
	}},
	{"claim/busy/more", "each attempt that is over lets one more go of what its agent was too busy for, though others let go were not answered yet, and so does each pause", func(w *world) {
		w.gate("h")
		var jobs []*store.Job
		for range 6 {
			jobs = append(jobs, w.submit())
		}
		for _, j := range jobs[:2] {
			w.apply(j, store.Started)
		}
		for _, j := range jobs[2:] {
			e := w.event(j, store.NotNow)
			e.Wake = w.now.Add(time.Second)
			w.ids(w.try(j, e).Claimed)
		}
		w.ids(w.apply(jobs[0], store.End).Claimed, jobs[2])
		w.ids(w.apply(jobs[1], store.End).Claimed, jobs[3])
		w.pass(time.Minute)
		w.ids(w.advance().Claimed, jobs[4])
	}},
	{"claim/busy/again", "an agent that took several in a row, and is too busy again, is tried with one", func(w *world) {
		w.gate("h")
		var jobs []*store.Job
		for range 12 {
			jobs = append(jobs, w.submit())
		}
		busy := func(j *store.Job) {
			e := w.event(j, store.NotNow)
			e.Wake = w.now.Add(time.Second)
			w.must(w.try(j, e).Err)
		}
		for _, j := range jobs[:10] {
			busy(j)
		}
		tried := w.apply(jobs[10], store.End).Claimed
		for range 3 {
			tried = append(tried[1:], w.apply(tried[0], store.Started).Claimed...)
		}
		if len(tried) < 2 {
			w.Fatalf("%d are tried at a time", len(tried))
		}
		for _, j := range tried {
			busy(j)
		}
		w.must(w.st.Wake(w.ctx(), "h", w.now))
		w.ids(w.claim(100, "h"), tried[0])
	}},
	{"claim/busy/full", "what its agent was too busy for is tried again and again where its host has no room as its time comes", func(w *world) {
		w.st.SetGate("h", store.Gate{Open: true, Most: 1})
		j := w.submit()
		other := w.submit(of("other"))
		e := w.event(j, store.NotNow)
		e.Wake = w.now.Add(time.Second)
		w.ids(w.try(j, e).Claimed, other)
		w.pass(time.Second)
		for range 2 {
			w.due(w.now)
			w.ids(w.advance().Claimed)
			w.waits(j, harp.ReasonAgentBusy)
			w.pass(30 * time.Second)
		}
		w.ids(w.apply(w.job(other.ID), store.End).Claimed)
		w.ids(w.advance().Claimed, j)
	}},
	{"claim/busy/over", "what its agent was too busy for and has ended meanwhile is not tried", func(w *world) {
		w.gate("h")
		var jobs []*store.Job
		for range 4 {
			jobs = append(jobs, w.submit(expires(w.now.Add(time.Minute))))
		}
		for _, j := range jobs {
			e := w.event(j, store.NotNow)
			e.Wake = w.now.Add(2 * time.Minute)
			w.ids(w.try(j, e).Claimed)
		}
		w.apply(jobs[0], store.CancelReq)
		w.must(w.st.Wake(w.ctx(), "h", w.now))
		w.ids(w.claim(10, "h"), jobs[1])
		w.pass(time.Minute)
		w.ids(w.advance().Ended, jobs[2:]...)
		w.ids(w.apply(w.job(jobs[1].ID), store.Started).Claimed)
		w.must(w.st.Wake(w.ctx(), "h", w.now))
		w.ids(w.claim(10, "h"))
		w.due(time.Time{})
	}},
	{"claim/order", "jobs are claimed by priority, higher first, then by submit number", func(w *world) {
		for _, settings := range [][]setting{nil, {in(queue("q")), slots(10)}} {
			low, first := w.submit(append(settings, priority(-5))...), w.submit(settings...)
			second, high := w.submit(settings...), w.submit(append(settings, priority(1))...)
			w.gate("h")
			w.ids(w.claim(10, "h"), high, first, second, low)
			w.away()
		}
	}},
	{"claim/number", "a claim takes as many as were asked for; fewer means that there are no more", func(w *world) {
		a, b, c := w.submit(), w.submit(), w.submit()
		w.gate("h")
		w.ids(w.claim(2, "h"), a, b)
		w.ids(w.claim(2, "h"), c)
		w.ids(w.claim(2, "h"))
		w.ids(w.claim(0, "h"))
	}},
	{"claim/hosts", "a claim for several hosts takes the first of all of them, and a host named twice is one", func(w *world) {
		b1 := w.submit(on("b"), in(queue("q")), slots(2))
		a1 := w.submit(on("a"), in(queue("q")))
		a2 := w.submit(on("a"), in(queue("q")), priority(1))
		w.submit(on("c"), in(queue("q")), priority(2))
		w.gate("a", "b", "c")
		w.ids(w.claim(9, "a", "b", "a", "nowhere"), a2, b1)
		w.apply(a2, store.CancelReq) // still holds its slot
		w.waits(a1, harp.ReasonQueue)
	}},
	{"claim/life", "a claim moves a job to sent under a raised fence", func(w *world) {
		j := w.submit()
		w.gate("h")
		got := w.claim(1, "h")[0]
		if got.State != harp.StateSent || got.Attempt != 1 || got.Fence <= j.Fence || !got.Since.Equal(w.now) {
			w.Fatalf("it is %+v", got.Life)
		}
		e := w.event(got, store.NotNow)
		e.Wake = w.now
		again := w.try(got, e).Claimed
		w.ids(again, got)
		if again[0].Fence <= got.Fence || again[0].Attempt != 1 {
			w.Fatalf("claimed again as attempt %d under fence %d after %d", again[0].Attempt, again[0].Fence, got.Fence)
		}
		w.wants(w.try(got, w.event(got, store.Started)).Err, store.ErrFenced)
	}},
	{"claim/slots", "sent, running, cancelling and unknown hold a slot of the queue; no more start than it has", func(w *world) {
		q := queue("q")
		w.gate("h")
		sent := w.submit(in(q), slots(4))
		running := w.running(in(q))
		cancelling := w.apply(w.running(in(q)), store.CancelReq).Job
		unknown := w.apply(w.running(in(q)), store.Silent).Job
		next := w.waits(w.submit(in(q)), harp.ReasonQueue)
		w.ids(w.claim(10, "h"))
		if s := w.status(q); s.Running != 4 || s.Waiting != 1 || s.Concurrency != 4 {
			w.Fatalf("queue is %+v", s)
		}
		for _, j := range []*store.Job{sent, running, cancelling, unknown} {
			w.state(j, j.State)
		}
		w.ids(w.apply(unknown, store.End).Claimed, next)
	}},
	{"claim/most", "no more attempts are on a host than its gate lets through, over all its queues", func(w *world) {
		w.st.SetGate("h", store.Gate{Open: true, Most: 2})
		a, b := w.submit(), w.submit(in(queue("q")))
		c, d := w.submit(in(queue("r"))), w.submit()
		w.waits(c, harp.ReasonAgentBusy)
		w.ids(w.claim(10, "h"))
		w.ids(w.apply(b, store.Refused).Claimed, c)
		w.st.SetGate("h", store.Gate{Open: true, Most: 3})
		w.ids(w.claim(10, "h"), d)
		w.state(a, harp.StateSent)
	}},
	{"claim/closed", "nothing starts on a closed host, and its jobs hold no slot: others pass them", func(w *world) {
		q := queue("q")
		w.submit(in(q), on("away"), priority(9))
		w.gate("h")
		here := w.submit(in(q))
		w.state(here, harp.StateSent)
		next := w.submit(in(q))
		w.ids(w.apply(here, store.End).Claimed, next)
		w.ids(w.claim(10, "away"))
	}},
	{"claim/gate", "opening a gate claims nothing; closing it takes nothing back", func(w *world) {
		j := w.submit()
		w.gate("h")
		w.state(j, harp.StateQueued)
		w.claim(1, "h")
		w.away()
		w.state(j, harp.StateSent)
	}},
	{"claim/late", "a job whose time to start is over is not claimed", func(w *world) {
		w.submit(expires(w.now.Add(time.Minute)))
		good := w.submit()
		w.gate("h")
		w.pass(time.Minute)
		w.ids(w.claim(10, "h"), good)
	}},
	{"claim/early", "a job whose time has not come is not claimed", func(w *world) {
		w.submit(notBefore(w.now.Add(time.Minute)))
		w.gate("h")
		w.ids(w.claim(10, "h"))
		w.ids(w.advance().Claimed)
	}},
	{"claim/concurrency", "a queue has the concurrency of its first job; later ones are ignored until it is gone", func(w *world) {
		q := queue("q")
		w.gate("h")
		a := w.submit(in(q), slots(1))
		b := w.submit(in(q), slots(5))
		w.state(b, harp.StateQueued)
		w.apply(a, store.End)
		w.apply(w.job(b.ID), store.End)
		_, err := w.st.Queue(w.ctx(), q)
		w.wants(err, harp.ErrNotFound)
		w.submit(in(q), slots(5))
		w.state(w.submit(in(q), slots(1)), harp.StateSent)
	}},
	{"claim/many", "ten thousand jobs that wait for an absent host do not hide the one behind them", func(w *world) {
		q := queue("q")
		for range 20 {
			batch := make([]store.Submission, 500)
			for i := range batch {
				batch[i] = w.submission(in(q), on("away"))
			}
			_, err := w.st.Submit(w.ctx(), batch, w.now)
			w.must(err)
		}
		w.gate("h")
		j := w.submit(in(q))
		w.state(j, harp.StateSent)
		next := w.submit(in(q))
		w.ids(w.apply(j, store.End).Claimed, next)
		if s := w.status(q); s.Waiting != 10000 || s.Running != 1 {
			w.Fatalf("queue is %+v", s)
		}
	}},
	{"claim/race", "many at once never take a job twice or more than the slots", testClaimRace},
}

// testClaimRace lets several goroutines submit, claim and finish the jobs of two
// queues on two hosts, and counts who holds a slot when.
func testClaimRace(w *world) {
	const workers, each, level = 8, 40, 3
	w.gate("a", "b")
	var held, done [2]atomic.Int64
	var finish func(j *store.Job)
	finish = func(j *store.Job) {
		n := 0
		if string(j.Queue) == string(queue("1")) {
			n = 1
		}
		if held[n].Add(1) > level {
			w.Errorf("more than %d jobs of a queue hold a slot", level)
		}
		held[n].Add(-1) // before the store gives the slot to another
		changes, err := w.st.Apply(w.ctx(), store.Transition{ID: j.ID, Event: w.event(j, store.End)})
		if err != nil || changes[0].Err != nil {
			w.Errorf("end: %v %v", err, changes)
			return
		}
		done[n].Add(1)
		for _, next := range changes[0].Claimed {
			finish(next)
		}
	}
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			for i := range each {
				q, h := "01"[(worker+i)%2:][:1], "ab"[i/2%2:][:1]
				out, err := w.st.Submit(w.ctx(), []store.Submission{w.submission(in(queue(q)), on(h), slots(level))}, w.now)
				if err != nil || out[0].Err != nil {
					w.Errorf("submit: %v", err)
					return
				}
				if out[0].Job.State == harp.StateSent {
					finish(out[0].Job)
				}
			}
		})
	}
	wg.Wait()
	if n := done[0].Load() + done[1].Load(); n != workers*each {
		w.Fatalf("%d jobs ended, want %d", n, workers*each)
	}
}
