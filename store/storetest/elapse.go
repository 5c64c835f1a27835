package storetest

import (
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

var elapsing = []rule{
	{"advance/cancelled", "what time makes due does not wait until all rows of a cancelled queue are written", func(w *world) {
		q := queue("q")
		w.gate("h")
		late := w.submit(notBefore(w.now.Add(time.Minute)))
		expiring := w.submit(on("away"), expires(w.now.Add(time.Minute)))
		var batch []store.Submission
		for range 2000 {
			batch = append(batch, w.submission(on("away"), in(q)))
		}
		for some := range slices.Chunk(batch, 200) {
			_, err := w.st.Submit(w.ctx(), some, w.now)
			w.must(err)
		}
		w.cancelQueue(q)
		w.pass(time.Minute)
		did, err := w.st.Advance(w.ctx(), w.now)
		w.must(err)
		w.ids(did.Claimed, late)
		w.state(expiring, harp.StateExpired)
		if !did.More {
			w.Fatal("there is nothing more to do")
		}
		if n := len(w.advance().Ended) + len(did.Ended); n != 2001 {
			w.Fatalf("%d jobs ended, want 2001", n)
		}
	}},
	{"advance/nothing", "a store in which nothing waits for time has nothing due", func(w *world) {
		w.due(time.Time{})
		w.running()
		w.submit(on("away"))
		w.due(time.Time{})
		if did := w.advance(); len(did.Ended)+len(did.Claimed) > 0 {
			w.Fatalf("it did %+v", did)
		}
	}},
	{"advance/expires", "a job that has not started by its time ends as expired, whatever it waited for", func(w *world) {
		w.gate("h")
		q := queue("q")
		w.submit(in(q))
		waits := w.submit(in(q), expires(w.now.Add(time.Minute)))
		started := w.submit(expires(w.now.Add(time.Minute)))
		w.due(w.now.Add(time.Minute))
		w.pass(time.Minute - 1)
		w.ids(w.advance().Ended)
		w.pass(1)
		w.ids(w.advance().Ended, waits)
		got := w.state(waits, harp.StateExpired)
		if got.Started != harp.DidNotRun || !got.EndTime.Equal(w.now) || got.Failure.Code != "expired" {
			w.Fatalf("it is %+v", got.Life)
		}
		w.state(started, harp.StateSent)
		w.due(time.Time{})
	}},
	{"advance/blame", "a job that expires while only its absent host was in its way says so", func(w *world) {
		w.away()
		j := w.submit(expires(w.now.Add(time.Minute)))
		w.pass(time.Minute)
		w.advance()
		if got := w.state(j, harp.StateExpired); got.Failure.Code != "expired_offline" || got.Reason != harp.ReasonOffline {
			w.Fatalf("it is %+v", got.Life)
		}
	}},
	{"advance/start", "a job whose time has come starts, if nothing else is in its way", func(w *world) {
		w.gate("h")
		at := w.now.Add(time.Minute)
		j, elsewhere := w.submit(notBefore(at)), w.submit(notBefore(at), on("away"))
		w.due(at)
		w.pass(time.Minute)
		w.ids(w.advance().Claimed, j)
		w.waits(elsewhere, harp.ReasonOffline)
		w.due(time.Time{})
	}},
	{"advance/order", "of jobs whose time came together the first of the queue starts", func(w *world) {
		w.gate("h")
		q, at := queue("q"), w.now.Add(time.Minute)
		w.submit(in(q), notBefore(at))
		first := w.submit(in(q), notBefore(at.Add(time.Second)), priority(1))
		w.pass(2 * time.Minute)
		w.ids(w.advance().Claimed, first)
	}},
	{"advance/both", "a job whose time came and passed at once does not start", func(w *world) {
		w.gate("h")
		j := w.submit(notBefore(w.now.Add(time.Second)), expires(w.now.Add(time.Minute)))
		w.pass(time.Hour)
		did := w.advance()
		w.ids(did.Claimed)
		w.ids(did.Ended, j)
	}},
	{"advance/bounded", "one Advance does a bounded amount and says that there is more", func(w *world) {
		w.gate("h")
		const all = 2000
		for range 4 {
			var batch []store.Submission
			for range all / 4 {
				batch = append(batch, w.submission(on("away"), expires(w.now.Add(time.Second))))
			}
			_, err := w.st.Submit(w.ctx(), batch, w.now)
			w.must(err)
		}
		w.pass(time.Second)
		ended := 0
		for more := true; more; {
			did, err := w.st.Advance(w.ctx(), w.now)
			w.must(err)
			if len(did.Ended) > 1000 {
				w.Fatalf("one Advance ended %d", len(did.Ended))
			}
			ended, more = ended+len(did.Ended), did.More
		}
		if ended != all {
			w.Fatalf("%d ended, want %d", ended, all)
		}
	}},
	{"offline/submitted", "a job waits for its absent host as long as it may, counted from its submission", func(w *world) {
		w.away()
		w.pass(time.Hour)
		j := w.submit(offlineWait(time.Minute))
		never := w.submit()
		w.due(w.now.Add(time.Minute))
		w.pass(time.Minute)
		w.ids(w.advance().Ended, j)
		if got := w.state(j, harp.StateExpired); got.Failure.Code != "expired_offline" {
			w.Fatalf("it is %+v", got.Life)
		}
		w.waits(never, harp.ReasonOffline)
		w.due(time.Time{})
	}},
	{"offline/heard", "the wait counts from the moment the host was last heard, if that is later", func(w *world) {
		j := w.submit(offlineWait(time.Minute))
		w.pass(50 * time.Second)
		w.away()
		w.pass(50 * time.Second)
		w.ids(w.advance().Ended)
		w.due(w.now.Add(10 * time.Second))
		w.pass(10 * time.Second)
		w.ids(w.advance().Ended, j)
	}},
	{"offline/back", "a host that has come back is no longer waited for", func(w *world) {
		w.st.SetGate("h", store.Gate{Open: true, Most: 1})
		w.submit()
		j := w.submit(offlineWait(time.Minute))
		w.away()
		w.due(w.now.Add(time.Minute))
		w.st.SetGate("h", store.Gate{Open: true, Most: 1})
		w.due(time.Time{})
		w.pass(time.Hour)
		w.ids(w.advance().Ended)
		w.waits(j, harp.ReasonAgentBusy)
		w.away()
		w.due(w.now.Add(time.Minute))
	}},
	{"offline/other", "while something else keeps the host closed, its absence does not count; then it counts anew", func(w *world) {
		j := w.submit(offlineWait(time.Minute))
		w.st.SetGate("h", store.Gate{Reason: "window"})
		w.due(time.Time{})
		w.pass(time.Hour)
		w.ids(w.advance().Ended)
		w.st.SetGate("h", store.Gate{Reason: harp.ReasonOffline, LastHeard: w.now.Add(-2 * time.Hour)})
		w.due(w.now.Add(time.Minute))
		w.waits(j, harp.ReasonOffline)
	}},
	{"offline/queue", "a job that waits for a slot as well does not wait for its host", func(w *world) {
		q := queue("q")
		w.gate("other")
		w.away()
		holder := w.submit(in(q), on("other"))
		j := w.waits(w.submit(in(q), offlineWait(time.Minute)), harp.ReasonQueue)
		behind := w.submit(in(q), offlineWait(time.Hour))
		w.due(time.Time{})
		w.pass(time.Hour)
		w.ids(w.advance().Ended)
		w.ids(w.apply(holder, store.End).Claimed)
		w.waits(j, harp.ReasonOffline)
		w.waits(behind, harp.ReasonQueue)
		w.due(w.now.Add(time.Minute))
		w.pass(time.Minute)
		w.ids(w.advance().Ended, j)
		w.waits(behind, harp.ReasonOffline)
		w.due(w.now.Add(time.Hour))
	}},
	{"offline/taken", "a slot that is taken again stops the wait", func(w *world) {
		q := queue("q")
		w.gate("other")
		w.away()
		j := w.submit(in(q), offlineWait(time.Minute))
		w.pass(30 * time.Second)
		holder := w.submit(in(q), on("other"))
		w.state(holder, harp.StateSent)
		w.pass(time.Hour)
		w.ids(w.advance().Ended)
		w.waits(j, harp.ReasonQueue)
		w.apply(holder, store.End)
		w.pass(time.Minute - 1)
		w.ids(w.advance().Ended)
		w.pass(1)
		w.ids(w.advance().Ended, j)
	}},
	{"offline/early", "a job whose time has not come does not wait for its host", func(w *world) {
		at := w.now.Add(time.Hour)
		w.away()
		j := w.submit(notBefore(at), offlineWait(time.Minute))
		w.due(at)
		w.now = at
		w.ids(w.advance().Ended)
		w.due(at.Add(time.Minute))
		w.waits(j, harp.ReasonOffline)
	}},
}
