package storetest

import (
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/window"
)

// windowOf is a window from now on, or later, to a time after now; 0: without an end.
func (w *world) windowOf(from, to time.Duration, changes ...func(*window.Window)) window.Window {
	source := window.Once{From: w.now.Add(from)}
	if to != 0 {
		source.To = w.now.Add(to)
	}
	is := window.Window{Name: "w", Source: source}
	for _, change := range changes {
		change(&is)
	}
	return is
}

// setHolds puts windows on a host, of which all is known for a day.
func (w *world) setHolds(host string, windows ...window.Window) {
	g := w.gateOf(windows)
	w.st.SetHolds(host, &g)
}

func (w *world) gateOf(windows []window.Window, pauses ...window.Pause) window.Gate {
	const day = 24 * time.Hour
	var expanded []*window.Expanded
	for _, one := range windows {
		expanded = append(expanded, one.Expand(w.now.Add(-day), w.now.Add(day)))
	}
	return window.NewGate(w.now.Add(-day), w.now.Add(day), expanded, pauses)
}

// pauseHost pauses host "h" from now on, or later, to a time after now; 0: until somebody ends it.
func (w *world) pauseHost(from, to time.Duration) {
	p := window.Pause{What: "host", By: "ada", Kind: "caller", Reason: "disk", Since: w.now.Add(from)}
	if to != 0 {
		p.Until = w.now.Add(to)
	}
	g := w.gateOf(nil, p)
	w.st.SetHolds("h", &g)
}

// dueAtOnce checks that something is due.
func (w *world) dueAtOnce() {
	w.Helper()
	if due := w.st.NextDue(); due.IsZero() || due.After(w.now) {
		w.Fatalf("next due is %v at %v", due, w.now)
	}
}

// startsAt checks that a job which is kept back starts at a time, by an advance that is due then, and not before.
func (w *world) startsAt(j *store.Job, at time.Time) {
	w.Helper()
	w.waits(j, harp.ReasonWindow)
	for range 10 {
		if due := w.st.NextDue(); due.IsZero() || !due.Before(at) {
			break
		}
		w.now = later(w.now, w.st.NextDue())
		w.ids(w.advance().Claimed)
		w.waits(j, harp.ReasonWindow)
	}
	w.due(at)
	w.now = at.Add(-1)
	w.ids(w.claim(10, j.Host))
	w.ids(w.advance().Claimed)
	w.now = at
	w.ids(w.advance().Claimed, j)
}

var holds = []rule{
	{"holds/margin", "nothing starts from a second before a window to its end, in whatever way it comes to start, and what was kept back starts once then", func(w *world) {
		const length = tenMinutes
		moments := map[time.Duration]bool{
			-time.Second - 1: true, -time.Second: false, -1: false, 0: false, 1: false, length - 1: false, length: true,
		}
		for after, may := range moments {
			for name, way := range waysToStart(after) {
				host, begin := name+after.String(), w.now
				w.setHolds(host, w.windowOf(tenMinutes, tenMinutes+length))
				j, start := way(w, host)
				attempt := 0
				if j.ID != "" {
					attempt = w.job(j.ID).Attempt
				}
				w.now = begin.Add(tenMinutes + after)
				start()
				got := w.job(j.ID)
				if is := got.State == harp.StateSent; is != may {
					w.Fatalf("%s %v after the beginning of a window of %v: it is %s(%s)", name, after, length, got.State, got.Reason)
				}
				if !may {
					w.waits(got, harp.ReasonWindow)
					w.now = begin.Add(tenMinutes + length - 1)
					w.advance()
					w.ids(w.claim(10, host))
					w.now = begin.Add(tenMinutes + length)
					w.ids(w.advance().Claimed, got)
				} else {
					w.advance()
				}
				w.now = begin.Add(time.Hour)
				w.apply(w.job(j.ID), store.End)
				if got := w.job(j.ID); len(got.Attempts) > 2 || got.Fence > 2 || got.Attempt < attempt {
					w.Fatalf("%s: it was started %d times", name, got.Fence)
				}
				w.now = begin.Add(24 * time.Hour)
				w.advance()
			}
		}
	}},
	{"holds/submit", "what is submitted in a window waits for its end, and nothing else does", func(w *world) {
		w.gate("h", "other")
		w.setHolds("h", w.windowOf(time.Minute, time.Hour))
		end := w.now.Add(time.Hour)
		w.state(w.submit(), harp.StateSent)
		w.pass(time.Minute)
		j := w.submit()
		w.state(w.submit(on("other")), harp.StateSent)
		w.startsAt(j, end)
		w.ids(w.claim(10, "h", "other"))
	}},
	{"holds/several", "each job of a host is kept back as long as its own windows last, whichever was submitted first", func(w *world) {
		w.gate("h")
		begin := w.now
		procedures := func(pattern string) func(is *window.Window) {
			return func(is *window.Window) { is.Procedures = []string{pattern} }
		}
		w.setHolds("h", w.windowOf(0, 2*time.Hour, procedures("p")), w.windowOf(0, time.Hour, procedures("q")), w.windowOf(time.Minute, 3*time.Hour, procedures("r")))
		long, short := w.submit(), w.submit(of("q"))
		w.away()
		late := w.submit(of("r"), offlineWait(10*time.Minute))
		w.gate("other")
		w.now = begin.Add(time.Hour)
		w.ids(w.advance().Ended)
		w.waits(short, harp.ReasonOffline)
		w.gate("h")
		w.ids(w.claim(10, "h"), short)
		w.startsAt(long, begin.Add(2*time.Hour))
		w.startsAt(late, begin.Add(3*time.Hour))
	}},
	{"holds/own time", "each is kept back as by its own time, whatever others were told that came first", func(w *world) {
		w.gate("h")
		w.setHolds("h", w.windowOf(time.Minute, time.Hour))
		begin := w.now
		for _, c := range []struct {
			after time.Duration
			want  harp.State
		}{
			{time.Hour, harp.StateSent}, {time.Hour - 1, harp.StateQueued}, {time.Hour, harp.StateSent}, {59*time.Second - 1, harp.StateSent}, {59 * time.Second, harp.StateQueued},
		} {
			w.now = begin.Add(c.after)
			w.state(w.submit(), c.want)
		}
	}},
	{"holds/behind", "what is kept back is in the way of nothing behind it", func(w *world) {
		w.setHolds("h", w.windowOf(0, time.Hour, func(is *window.Window) { is.Procedures = []string{"p"} }))
		for _, settings := range [][]setting{nil, {in(queue("q")), slots(1)}} {
			w.away()
			first := w.submit(settings...)
			second := w.submit(append(settings, of("r"))...)
			w.gate("h")
			w.ids(w.claim(10, "h"), second)
			w.waits(first, harp.ReasonWindow)
			w.state(w.submit(of("r")), harp.StateSent)
		}
	}},
	{"holds/queue", "a slot of a queue goes to a job of another host while one is kept back", func(w *world) {
		w.gate("h", "other")
		q, end := queue("q"), w.now.Add(time.Hour)
		first := w.submit(in(q), on("other"))
		kept, next := w.submit(in(q)), w.submit(in(q), on("other"))
		w.setHolds("h", w.windowOf(0, time.Hour))
		w.ids(w.advance().Claimed)
		w.ids(w.apply(first, store.End).Claimed, next)
		if got := w.waits(kept, harp.ReasonWindow); got.QueuePos != 1 {
			w.Fatalf("its place is %d, want 1", got.QueuePos)
		}
		w.now = end
		w.ids(w.advance().Claimed) // its queue is full
		w.waits(kept, harp.ReasonQueue)
		w.ids(w.apply(w.job(next.ID), store.End).Claimed, kept)
	}},
	{"holds/waiting", "a window that is set while a job waits for something else keeps it back when that is over, and its end starts it", func(w *world) {
		ways := waysToStart(-time.Minute)
		delete(ways, "submission")
		delete(ways, "submission behind others")
		for name, way := range ways {
			begin := w.now
			j, start := way(w, name)
			w.advance()
			w.setHolds(name, w.windowOf(0, time.Hour))
			w.ids(w.advance().Claimed)
			w.now = begin.Add(tenMinutes - time.Minute)
			start()
			w.ids(w.claim(10, name))
			w.startsAt(j, begin.Add(time.Hour))
			w.apply(w.job(j.ID), store.End)
			w.now = begin.Add(24 * time.Hour)
			w.advance()
		}
	}},
	{"holds/set", "windows that are set keep back from then on, and what they kept back is looked at by an advance that is due at once", func(w *world) {
		w.gate("h")
		w.setHolds("h", w.windowOf(0, time.Hour))
		w.due(time.Time{})
		j := w.submit()
		w.due(w.now.Add(time.Hour))
		w.setHolds("h", w.windowOf(0, 2*time.Hour))
		w.dueAtOnce()
		w.ids(w.advance().Claimed)
		w.due(w.now.Add(2 * time.Hour))
		w.setHolds("h", w.windowOf(time.Hour, 2*time.Hour))
		w.dueAtOnce()
		w.ids(w.claim(10, "h"))
		w.ids(w.advance().Claimed, j)
		second := w.submit(in(queue("q")), notBefore(w.now.Add(3*time.Hour)))
		w.setHolds("h", w.windowOf(0, 0))
		third := w.waits(w.submit(), harp.ReasonWindow)
		w.st.SetHolds("h", nil)
		w.dueAtOnce()
		w.ids(w.advance().Claimed, third)
		w.due(w.now.Add(3 * time.Hour))
		w.pass(3 * time.Hour)
		w.ids(w.advance().Claimed, second)
		w.st.SetHolds("nobody", nil)
		w.due(time.Time{})
	}},
	{"holds/ahead", "a window that is set while a job waits for its host has it wait for the window instead when that begins", func(w *world) {
		w.away()
		j := w.submit(in(queue("q")))
		w.setHolds("h", w.windowOf(time.Hour, 2*time.Hour))
		w.ids(w.advance().Ended)
		w.waits(j, harp.ReasonOffline)
		end := w.now.Add(2 * time.Hour)
		w.due(w.now.Add(time.Hour - time.Second))
		w.pass(time.Hour - time.Second)
		w.ids(w.advance().Claimed)
		w.gate("h")
		w.startsAt(j, end)
	}},
	{"holds/over", "a window leaves nothing due behind it when nothing waits any more", func(w *world) {
		w.away()
		w.submit()
		w.setHolds("h", w.windowOf(time.Hour, 2*time.Hour))
		w.advance()
		w.gate("h")
		w.claim(10, "h")
		w.st.SetHolds("h", nil)
		w.due(time.Time{})
	}},
	{"holds/offline", "a job does not end for its absent host while it is kept back, also where it waited for it before, and has as long as ever afterwards", func(w *world) {
		for _, waitsBefore := range []bool{false, true} {
			begin, host := w.now, map[bool]string{true: "before", false: "within"}[waitsBefore]
			w.st.SetGate(host, store.Gate{Reason: harp.ReasonOffline, LastHeard: w.now})
			wait := []setting{on(host), offlineWait(time.Minute)}
			w.setHolds(host, w.windowOf(30*time.Second, time.Hour))
			if !waitsBefore {
				w.pass(30 * time.Second)
			}
			j := w.submit(wait...)
			if waitsBefore {
				w.due(begin.Add(29 * time.Second))
				w.pass(29 * time.Second)
				w.advance()
				w.pass(time.Second)
				w.advance()
			}
			w.due(begin.Add(time.Hour))
			w.now = begin.Add(time.Hour - 1)
			w.ids(w.advance().Ended)
			w.waits(j, harp.ReasonWindow)
			w.pass(1)
			w.ids(w.advance().Ended)
			w.waits(j, harp.ReasonOffline)
			w.due(w.now.Add(time.Minute))
			w.pass(time.Minute)
			w.ids(w.advance().Ended, j)
			w.state(j, harp.StateExpired)
		}
	}},
	{"holds/late advance", "an absence that began before a window ends no job in it when an advance comes late", func(w *world) {
		w.away()
		j := w.submit(offlineWait(time.Minute))
		w.setHolds("h", w.windowOf(30*time.Second, time.Hour))
		w.pass(10 * time.Minute)
		w.ids(w.advance().Ended)
		w.waits(j, harp.ReasonWindow)
	}},
	{"holds/expires", "a job that is kept back ends when it must have started", func(w *world) {
		w.gate("h")
		w.setHolds("h", w.windowOf(0, time.Hour))
		j, other := w.submit(expires(w.now.Add(time.Minute))), w.submit(expires(w.now.Add(time.Hour)))
		w.pass(time.Minute)
		w.ids(w.advance().Ended, j)
		if got := w.state(j, harp.StateExpired); got.Started != harp.DidNotRun || got.Reason != "start_before" {
			w.Fatalf("it is %+v", got.Life)
		}
		w.pass(59 * time.Minute)
		did := w.advance()
		w.ids(did.Claimed)
		w.ids(did.Ended, other) // a moment too late
		w.due(time.Time{})
	}},
	{"holds/cancel", "what is kept back can be cancelled, alone, with its queue and with its batch, and does not come back", func(w *world) {
		hosts, q := hostsOf(3), queue("q")
		w.gate("h")
		w.gate(hosts...)
		for _, h := range append(hosts, "h") {
			w.setHolds(h, w.windowOf(0, time.Hour))
		}
		alone, queued := w.submit(), w.submit(in(q))
		b := w.batch(hosts)
		w.advance()
		w.apply(alone, store.CancelReq)
		w.cancelQueue(q)
		w.change(b, store.BatchCancel)
		w.st.SetHolds("h", nil) // all is looked at before the rows say so
		did := w.advanceAll()
		w.ids(did.Claimed)
		if len(did.Ended) != 4 {
			w.Fatalf("%d have ended, want 4", len(did.Ended))
		}
		for _, j := range append(w.members(b), alone, queued) {
			w.state(j, harp.StateCancelled)
		}
		w.checkBatch(b)
		w.pass(time.Hour)
		did = w.advanceAll()
		w.ids(did.Claimed)
		w.ids(did.Ended)
		w.ids(w.claim(10, append(hosts, "h")...))
		w.due(time.Time{})
	}},
	{"holds/removed", "what is kept back ends with its host, and a host that comes anew is kept back as before", func(w *world) {
		w.connect("h")
		w.setHolds("h", w.windowOf(0, time.Hour))
		end := w.now.Add(time.Hour)
		j := w.submit()
		w.ids(w.removeHost(store.Operation{ID: w.id()}).Ended, j)
		if got := w.state(j, harp.StateCancelled); got.Reason != harp.LostHostRemoved {
			w.Fatalf("it is %+v", got.Life)
		}
		w.connect("h")
		w.gate("h")
		w.startsAt(w.submit(), end)
	}},
	{"holds/kinds", "a window keeps back the starts that it is about", func(w *world) {
		w.gate("h")
		readOnly := func(s *store.Submission) { s.Job.ReadOnly = true }
		scheduled := func(s *store.Submission) { s.Job.Schedule, s.Job.FireTime = "nightly", w.now }
		byHand := func(s *store.Submission) { s.Job.Schedule = "nightly" }
		plain := func(*store.Submission) {}
		for _, c := range []struct {
			what    string
			is      window.Window
			job     setting
			isAbout bool
		}{
			{"no more said", window.Window{}, plain, true},
			{"read only", window.Window{}, readOnly, false},
			{"read only, and all", window.Window{All: true}, readOnly, true},
			{"schedules only", window.Window{SchedulesOnly: true}, plain, false},
			{"schedules only, scheduled", window.Window{SchedulesOnly: true}, scheduled, true},
			{"schedules only, scheduled and started by hand", window.Window{SchedulesOnly: true}, byHand, false},
			{"another procedure", window.Window{Procedures: []string{"deploy.*"}}, plain, false},
			{"its procedure", window.Window{Procedures: []string{"deploy.*"}}, of("deploy.app"), true},
			{"exempt", window.Window{Exempt: []string{"p"}}, plain, false},
			{"refuse", window.Window{Mode: window.Refuse}, plain, true},
		} {
			c.is.Name, c.is.Source = "w", window.Once{From: w.now}
			w.setHolds("h", c.is)
			j := w.submit(c.job)
			if got := w.job(j.ID).State == harp.StateQueued; got != c.isAbout {
				w.Fatalf("%s: it is kept back: %v", c.what, got)
			}
			w.apply(j, store.CancelReq)
		}
	}},
	{"holds/only", "out of the windows that let start alone nothing does", func(w *world) {
		w.gate("h")
		only := func(is *window.Window) { is.Only = true }
		begin := w.now
		w.setHolds("h", w.windowOf(time.Hour, 2*time.Hour, only), w.windowOf(2*time.Hour, 3*time.Hour, only))
		w.startsAt(w.submit(), begin.Add(time.Hour))
		w.now = begin.Add(3*time.Hour - time.Second - 1)
		w.state(w.submit(), harp.StateSent)
		w.pass(1)
		j := w.waits(w.submit(), harp.ReasonWindow)
		w.pass(12 * time.Hour)
		w.ids(w.advance().Claimed)
		w.waits(j, harp.ReasonWindow)
	}},
	{"holds/next to each other", "two windows without time between them, or with less than a second, are as one", func(w *world) {
		for _, between := range []time.Duration{0, time.Second} {
			w.gate("h")
			begin := w.now
			w.setHolds("h", w.windowOf(0, time.Hour), w.windowOf(time.Hour+between, 2*time.Hour))
			j := w.submit()
			w.now = begin.Add(time.Hour)
			w.ids(w.advance().Claimed)
			w.now = w.now.Add(between)
			w.ids(w.advance().Claimed)
			w.startsAt(j, begin.Add(2*time.Hour))
		}
		begin := w.now
		w.setHolds("h", w.windowOf(0, time.Hour), w.windowOf(time.Hour+time.Second+1, 2*time.Hour))
		w.startsAt(w.submit(), begin.Add(time.Hour)) // in the nanosecond that is left
	}},
	{"holds/pause", "a pause of a host keeps back all, until its end, or until somebody ends it", func(w *world) {
		w.gate("h")
		begin := w.now
		w.pauseHost(0, time.Hour)
		w.startsAt(w.submit(func(s *store.Submission) { s.Job.ReadOnly = true }), begin.Add(time.Hour))
		w.pauseHost(0, 0)
		j := w.waits(w.submit(), harp.ReasonWindow)
		w.wantObstacles(j, "window since 0s ada")
		w.pass(23 * time.Hour)
		w.ids(w.advance().Claimed)
		w.st.SetHolds("h", nil)
		w.ids(w.advance().Claimed, j)
	}},
}
