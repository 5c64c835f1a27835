package storetest

import (
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/window"
)

// holdTimes are about windows when what is told is late, the clock is set or the host comes back,
// and about many at once.
var holdTimes = []rule{
	{"holds/unknown", "a gate that is not known any more keeps all back, a second early, until there is another, or none", func(w *world) {
		w.gate("h")
		known := func(from, until time.Duration) {
			g := window.NewGate(w.now.Add(from), w.now.Add(until), nil, nil)
			w.st.SetHolds("h", &g)
		}
		known(0, time.Minute)
		w.pass(time.Minute - time.Second - 1)
		w.state(w.submit(), harp.StateSent)
		w.pass(1)
		j := w.waits(w.submit(), harp.ReasonWindow)
		w.pass(time.Hour)
		w.ids(w.advance().Claimed)
		w.ids(w.claim(10, "h"))
		w.wantObstacles(j, "window")
		w.due(time.Time{})
		known(0, time.Minute)
		w.dueAtOnce()
		w.ids(w.advance().Claimed, j)
		w.st.SetHolds("h", &window.Gate{})
		second := w.waits(w.submit(), harp.ReasonWindow)
		w.st.SetHolds("h", nil)
		w.ids(w.advance().Claimed, second)
	}},
	{"holds/known later", "what is submitted at a time before that from which on a gate is known waits for that, and no longer", func(w *world) {
		w.gate("h")
		g := window.NewGate(w.now.Add(time.Second), w.now.Add(time.Hour), nil, nil)
		w.st.SetHolds("h", &g)
		w.startsAt(w.submit(), w.now.Add(time.Second))
	}},
	{"holds/known for long", "a gate that is known for a thousand years has nothing due", func(w *world) {
		g := window.NewGate(w.now, w.now.AddDate(1000, 0, 0), nil, nil)
		w.st.SetHolds("h", &g)
		j := w.submit()
		w.due(time.Time{})
		w.gate("h")
		w.ids(w.claim(1, "h"), j)
	}},
	{"holds/stale", "what an event lets start that is told late is kept back as by the time that the store was told", func(w *world) {
		for name, c := range map[string]struct {
			kind store.Kind
			wait func(first *store.Job) // prepares what it would let start
		}{
			"busy agent, started": {store.Started, func(first *store.Job) { w.notNow(w.submit(on(first.Host)), "", w.now.Add(30*time.Minute)) }},
			"busy agent, ended":   {store.End, func(first *store.Job) { w.notNow(w.submit(on(first.Host)), "", w.now.Add(30*time.Minute)) }},
			"queue":               {store.End, func(first *store.Job) { w.submit(on(first.Host), in(first.Queue)) }},
			"host": {store.End, func(first *store.Job) {
				w.st.SetGate(first.Host, store.Gate{Open: true, Most: 1})
				w.submit(on(first.Host))
			}},
		} {
			w.gate(name)
			first := w.submit(on(name), in(queue(name)))
			c.wait(first)
			w.setHolds(name, w.windowOf(time.Minute, time.Hour))
			w.pass(30 * time.Second)
			e := w.event(first, c.kind)
			w.pass(time.Minute)
			_, err := w.st.Claim(w.ctx(), []string{"nobody"}, 1, w.now) // or whatever names that time
			w.must(err)
			w.ids(w.try(first, e).Claimed)
		}
	}},
	{"holds/sent back", "an attempt that its agent did not start for a window waits until that begins, at the least, and for its end then", func(w *world) {
		w.gate("h")
		end := w.now.Add(time.Hour)
		w.setHolds("h", w.windowOf(time.Minute, time.Hour))
		j := w.submit(expires(w.now.Add(2 * time.Hour)))
		w.pass(58 * time.Second)
		w.ids(w.notNow(j, harp.ReasonWindow, w.now.Add(2*time.Second)).Claimed)
		w.must(w.st.Wake(w.ctx(), "h", w.now))
		w.ids(w.claim(10, "h"))
		w.due(w.now.Add(2 * time.Second))
		got := w.waits(j, harp.ReasonWindow)
		if got.Busy != 0 || got.Attempt != 0 && len(got.Attempts) != 1 {
			w.Fatalf("it is %+v", got.Life)
		}
		w.pass(2*time.Second - 1)
		w.ids(w.advance().Claimed)
		w.pass(1)
		w.ids(w.advance().Claimed)
		w.startsAt(j, end)

		w.st.SetHolds("h", nil)
		w.notNow(j, harp.ReasonWindow, w.now.Add(time.Minute))
		w.pass(time.Minute - 1)
		w.ids(w.advance().Claimed)
		w.ids(w.claim(10, "h"))
		w.pass(1)
		w.ids(w.advance().Claimed, j)
		w.notNow(j, "start_before", time.Time{})
		w.state(j, harp.StateExpired)
	}},
	{"holds/retry", "an attempt that comes due in a window waits for its end", func(w *world) {
		end := w.now.Add(time.Hour)
		j := w.running(retries(harp.StateFailed))
		w.setHolds("h", w.windowOf(0, time.Hour))
		w.fails(j)
		w.waits(j, harp.ReasonBackoff)
		w.pass(time.Minute)
		w.ids(w.advance().Claimed)
		w.startsAt(j, end)
		if got := w.job(j.ID); got.Attempt != 2 {
			w.Fatalf("it is attempt %d", got.Attempt)
		}
	}},
	{"holds/runs", "what was sent goes on in a window, and its end starts nothing that is kept back", func(w *world) {
		w.gate("h")
		q := queue("q")
		j := w.submit(in(q))
		kept := w.submit(in(q))
		w.setHolds("h", w.windowOf(0, time.Hour))
		w.apply(j, store.Started)
		w.ids(w.apply(j, store.End).Claimed)
		w.state(j, harp.StateSucceeded)
		w.waits(kept, harp.ReasonWindow)
	}},
	{"holds/clock", "a window stays at its times when the clock is set: out of it what was kept back starts, and into it nothing does", func(w *world) {
		w.gate("h")
		w.setHolds("h", w.windowOf(time.Hour, 3*time.Hour))
		w.setClock(2 * time.Hour)
		j := w.waits(w.submit(), harp.ReasonWindow)
		w.setClock(-2 * time.Hour)
		w.dueAtOnce()
		w.ids(w.advance().Claimed, j)
		w.setClock(2 * time.Hour)
		j = w.waits(w.submit(), harp.ReasonWindow)
		w.due(w.now.Add(time.Hour))
		w.setClock(2 * time.Hour)
		w.dueAtOnce()
		w.ids(w.advance().Claimed, j)
		w.setClock(-2 * time.Hour)
		j = w.submit()
		w.setClock(-30 * time.Minute)
		w.ids(w.advance().Claimed)
		w.startsAt(j, w.now.Add(time.Hour+30*time.Minute))
	}},
	{"holds/clock/absent", "what a window keeps back does not end for its absent host because the clock is set before it is looked at", func(w *world) {
		for _, by := range []time.Duration{time.Hour, -time.Hour} {
			w.away()
			j := w.submit(offlineWait(time.Minute))
			w.setHolds("h", w.windowOf(-2*time.Hour, 3*time.Hour))
			w.pass(2 * time.Minute)
			w.submit(on("other")) // names the time
			w.setClock(by)
			w.ids(w.advance().Ended)
			w.waits(j, harp.ReasonWindow)
			w.apply(j, store.CancelReq)
		}
	}},
	{"holds/clock/came", "a job whose time had come before the clock was set back does not wait for it again at the end of a window", func(w *world) {
		w.away()
		j := w.submit(notBefore(w.now.Add(time.Minute)), offlineWait(time.Hour))
		w.pass(2 * time.Minute)
		w.setHolds("h", w.windowOf(-time.Minute, time.Hour))
		w.advance()
		w.waits(j, harp.ReasonWindow)
		w.setClock(-4 * time.Minute)
		w.ids(w.advance().Ended)
		w.waits(j, harp.ReasonOffline)
		w.st.SetHolds("h", nil)
		w.pass(time.Hour)
		w.ids(w.advance().Ended, j)
	}},
	{"holds/clock/nothing", "what was to be looked at, as nothing keeps it back any more, is looked at when the clock is set back", func(w *world) {
		w.gate("h")
		w.setHolds("h", w.windowOf(0, time.Hour))
		j := w.submit()
		w.st.SetHolds("h", nil)
		w.setClock(-time.Hour)
		w.dueAtOnce()
		w.ids(w.advance().Claimed, j)
	}},
	{"holds/obstacles", "windows that keep a job back are told, and what else does", func(w *world) {
		w.away()
		w.setHolds("h", w.windowOf(-time.Minute, time.Hour), w.windowOf(2*time.Hour, 3*time.Hour, func(is *window.Window) { is.Name, is.Only = "night", true }))
		begin := w.now
		j := w.submit()
		w.wantObstacles(j, "window since -1m0s until 1h0m0s", "window until 2h0m0s", "offline since 0s")
		all, err := w.st.Obstacles(w.ctx(), j.ID)
		w.must(err)
		if all[0].Window != "w" || all[0].Only || all[1].Window != "night" || !all[1].Only {
			w.Fatalf("they are %+v", all)
		}
		w.gate("h")
		w.startsAt(j, begin.Add(2*time.Hour))
		w.wantObstacles(j)
		w.pauseHost(time.Second, 0)
		soon := w.submit()
		w.wantObstacles(soon, "window since 1s ada")
		early := w.submit(notBefore(w.now.Add(time.Hour)))
		w.pass(time.Second)
		w.advance()
		w.wantObstacles(early, "start_after until 59m59s", "window since 0s ada")
		if all, err = w.st.Obstacles(w.ctx(), soon.ID); err != nil || all[0].By != (harp.Principal{Kind: "caller", Name: "ada"}) || all[0].Why != "disk" {
			w.Fatalf("they are %+v, %v", all, err)
		}
	}},
	{"holds/prune", "what is kept back is kept", func(w *world) {
		w.gate("h")
		end := w.now.Add(time.Hour)
		w.setHolds("h", w.windowOf(0, time.Hour))
		j, over := w.submit(), w.submit()
		w.apply(over, store.CancelReq)
		w.pass(time.Minute)
		if did := w.prune(store.Retention{EndedBefore: w.now}); did.Jobs != 1 {
			w.Fatalf("it pruned %+v", did)
		}
		w.startsAt(j, end)
	}},
	{"holds/many", "however many jobs a window keeps back, all start at its end, in their order", func(w *world) {
		const all = 2000
		w.st.SetGate("h", store.Gate{Open: true, Most: 2 * all})
		w.setHolds("h", w.windowOf(0, time.Hour))
		for range all / 200 {
			var some []store.Submission
			for n := range 200 {
				some = append(some, w.submission(priority(n%2), offlineWait(time.Minute)))
			}
			_, err := w.st.Submit(w.ctx(), some, w.now)
			w.must(err)
		}
		w.pass(time.Hour)
		var last *store.Job
		n, advances := 0, 0
		for more := true; more; advances++ {
			did, err := w.st.Advance(w.ctx(), w.now)
			w.must(err)
			for _, j := range did.Claimed {
				if last != nil && (last.Priority < j.Priority || last.Priority == j.Priority && last.No >= j.No) {
					w.Fatalf("number %d of priority %d comes after %d of %d", j.No, j.Priority, last.No, last.Priority)
				}
				last = j
			}
			n, more = n+len(did.Claimed), did.More
		}
		if n != all || advances < 2 {
			w.Fatalf("%d have started by %d advances", n, advances)
		}
		w.st.SetHolds("h", nil)
		w.due(time.Time{})
	}},
	{"holds/race", "however many submit and claim while a window begins, nothing starts by its own time too late, and all start once", testHoldsRace},
}

var reopeningHolds = []rule{
	{"holds/reopen", "windows are told to each process anew: a store of which that was not said keeps nothing back", func(w *world) {
		w.gate("h")
		w.setHolds("h", w.windowOf(0, time.Hour))
		j, member := w.submit(), w.batch([]string{"h"})
		w.advance()
		w.reopen()
		w.waits(j, harp.ReasonOffline)
		w.advance()
		w.gate("h")
		w.ids(w.claim(10, "h"), j, w.members(member)[0])
		w.reopen()
		end := w.now.Add(time.Hour)
		w.setHolds("h", w.windowOf(0, time.Hour))
		w.gate("h")
		w.startsAt(w.submit(), end)
	}},
	{"holds/reopen/offline", "behind a window that ended while there was no process a job waits for its absent host as long as ever", func(w *world) {
		w.away()
		j := w.submit(offlineWait(10 * time.Minute))
		w.setHolds("h", w.windowOf(0, time.Hour))
		w.pass(30 * time.Minute)
		w.advance()
		w.reopen()
		w.pass(35 * time.Minute)
		w.st.SetGate("h", store.Gate{Reason: harp.ReasonOffline, LastHeard: w.now.Add(-time.Hour)})
		w.setHolds("h", w.windowOf(-65*time.Minute, -5*time.Minute))
		w.ids(w.advance().Ended)
		w.due(w.now.Add(5 * time.Minute))
		w.pass(5 * time.Minute)
		w.ids(w.advance().Ended, j)
	}},
}
