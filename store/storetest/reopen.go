package storetest

import (
	"fmt"
	"reflect"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

var reopening = []rule{
	{"id", "a store keeps its id", func(w *world) {
		id := w.st.ID()
		w.reopen()
		if w.st.ID() != id {
			w.Fatalf("id is %q after %q", w.st.ID(), id)
		}
	}},
	{"jobs", "all that was acknowledged is there: jobs, requests, values, records, hosts, documents", func(w *world) {
		full := w.fullSubmission()
		_, err := w.st.Submit(w.ctx(), []store.Submission{full}, w.now)
		w.must(err)
		j := w.running()
		w.append(j, 0, values(0, 5)...)
		e := w.event(j, store.End)
		e.Value = harp.Value{1}
		w.must(w.try(j, e).Err)
		_, err = w.st.OpenSession(w.ctx(), store.Session{Host: "h", At: w.now})
		w.must(err)
		w.must(w.st.PutDocument(w.ctx(), "k", "n", []byte("content")))
		before, ended := w.job(full.Job.ID), w.job(j.ID)
		w.reopen()
		w.same(before, full.Job.ID)
		w.same(ended, j.ID)
		w.records(j, 5)
		req, err := w.st.Request(w.ctx(), full.Job.ID)
		w.must(err)
		if !reflect.DeepEqual(req, full.Request) {
			w.Fatal("the request is not the one given")
		}
		v, err := w.st.Value(w.ctx(), j.ID)
		w.must(err)
		doc, err := w.st.Document(w.ctx(), "k", "n")
		w.must(err)
		epoch, err := w.st.OpenSession(w.ctx(), store.Session{Host: "h", At: w.now})
		w.must(err)
		if len(v) != 1 || string(doc) != "content" || epoch != 2 {
			w.Fatalf("value %v, document %q, epoch %d", v, doc, epoch)
		}
	}},
	{"taken", "how many calls the journal of a host has taken by the events of its attempts is kept, the highest, whatever else is said of the host, until its next session says anew", func(w *world) {
		wants := func(want uint64) {
			w.Helper()
			h, err := w.st.Host(w.ctx(), "h")
			w.must(err)
			page, _, err := w.st.ListHosts(w.ctx(), "", 10)
			w.must(err)
			if h.Taken != want || h.Journal != "j" || len(page) != 1 || page[0].Taken != want {
				w.Fatalf("it has taken %d, in a list %+v, want %d", h.Taken, page, want)
			}
		}
		put := func(taken uint64) {
			w.Helper()
			w.must(w.st.PutHost(w.ctx(), store.Host{Name: "h", Journal: "j", Taken: taken}))
		}
		opens := func(taken uint64) {
			w.Helper()
			_, err := w.st.OpenSession(w.ctx(), store.Session{Host: "h", At: w.now, Journal: "j", Taken: taken})
			w.must(err)
			put(taken)
		}
		opens(5)
		for n, kind := range []store.Kind{store.End, store.End, store.Lose} {
			j := w.running()
			e := w.event(j, kind)
			e.Reason, e.Taken = harp.LostAgentRestarted, []uint64{20, 19, 21}[n]
			w.must(w.try(j, e).Err)
			wants([]uint64{20, 20, 21}[n])
			w.wants(w.try(j, e).Err, store.ErrIllegal)
		}
		put(6)
		wants(21)
		put(22)
		wants(22)
		put(6)
		w.reopen()
		wants(21)
		opens(7) // it is another journal, or was rolled back
		wants(7)
		_, err := w.st.RemoveHost(w.ctx(), "h", store.Operation{By: somebody, Time: w.now})
		w.must(err)
		opens(3)
		wants(3)
	}},
	{"numbers", "submit numbers go on", func(w *world) {
		last := w.submit().No
		w.apply(w.submit(), store.CancelReq)
		w.reopen()
		if no := w.submit().No; no <= last+1 {
			w.Fatalf("number %d after %d", no, last+1)
		}
	}},
	{"slots", "slots that were held are held, and gates are closed", func(w *world) {
		w.gate("h")
		q := queue("q")
		var held []*store.Job
		for _, kind := range []store.Kind{"", store.Started, store.Silent, store.CancelReq} {
			j := w.submit(in(q), slots(4))
			if kind != "" {
				j = w.apply(j, kind).Job
			}
			held = append(held, j)
		}
		w.reopen()
		next := w.submit(in(q))
		w.waits(next, harp.ReasonQueue)
		other := w.waits(w.submit(), harp.ReasonOffline)
		w.gate("h")
		w.ids(w.claim(10, "h"), other)
		if s := w.status(q); s.Concurrency != 4 || s.Running != 4 || s.Waiting != 1 {
			w.Fatalf("queue is %+v", s)
		}
		active, err := w.st.Active(w.ctx(), "h")
		w.must(err)
		w.ids(active, append(held, other)...)
		w.ids(w.apply(held[0], store.End).Claimed, next)
	}},
	{"order", "the order of queues is kept, and what waits for its time still does", func(w *world) {
		low, first := w.submit(priority(-1)), w.submit()
		second, high := w.submit(), w.submit(priority(1))
		at := w.now.Add(time.Minute)
		early, late := w.submit(notBefore(at)), w.submit(expires(at))
		w.reopen()
		w.due(at)
		w.gate("h")
		w.ids(w.claim(4, "h"), high, first, second, late)
		w.ids(w.claim(4, "h"), low)
		w.now = at
		w.ids(w.advance().Claimed, early)
	}},
	{"fence", "a fence goes on rising", func(w *world) {
		j := w.running()
		w.reopen()
		w.gate("h")
		e := w.event(j, store.Silent)
		w.must(w.try(j, e).Err)
		w.must(w.try(j, w.event(j, store.Alive)).Err)
		e.Fence--
		w.wants(w.try(j, e).Err, store.ErrFenced)
	}},
	{"cancel", "a cancelled queue stays cancelled, and its rows are written afterwards", func(w *world) {
		w.gate("h")
		q := queue("q")
		running := w.running(in(q))
		var gone []*store.Job
		for range 3 {
			gone = append(gone, w.submit(in(q)))
		}
		w.cancelQueue(q)
		later := w.submit(in(q))
		w.reopen()
		w.gate("h")
		for _, j := range gone {
			w.state(j, harp.StateCancelled)
		}
		w.state(running, harp.StateCancelling)
		w.waits(later, harp.ReasonQueue)
		w.ids(w.claim(10, "h"))
		if due := w.st.NextDue(); due.IsZero() || due.After(w.now) {
			w.Fatalf("next due is %v, want now", due)
		}
		w.ids(w.advance().Ended, gone...)
		w.reopen()
		w.gate("h")
		w.due(time.Time{})
		if c := w.apply(running, store.CancelReq); !c.Effect.Tell {
			w.Fatal("the agent is not to be told")
		}
		w.ids(w.apply(running, store.End).Claimed, later)
	}},
	{"offline", "after opening, the wait for an absent host counts from when it was last heard", func(w *world) {
		w.away()
		j := w.submit(offlineWait(time.Minute))
		w.pass(time.Hour)
		w.reopen()
		w.away()
		w.due(w.now.Add(time.Minute))
		w.pass(time.Minute)
		w.ids(w.advance().Ended, j)
	}},
	{"queues", "queues are there again, each as it was", func(w *world) {
		for i := range 5 {
			for range i + 1 {
				w.submit(in(queue(fmt.Sprint(i))), slots(i+1))
			}
		}
		w.reopen()
		page, _, err := w.st.ListQueues(w.ctx(), "", 100)
		w.must(err)
		for i, s := range page {
			if string(s.Name) != string(queue(fmt.Sprint(i))) || s.Concurrency != i+1 || s.Waiting != i+1 {
				w.Fatalf("queue %d is %+v", i, s)
			}
		}
		if len(page) != 5 {
			w.Fatalf("%d queues, want 5", len(page))
		}
	}},
}
