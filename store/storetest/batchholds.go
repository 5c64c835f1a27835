package storetest

import (
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/window"
)

// windows over the hosts of batches.
var batchHolds = []rule{
	{"holds/batch", "a member that is kept back holds no slot of its batch, and starts before those that are not reached when it may", func(w *world) {
		hosts, end := hostsOf(5), w.now.Add(time.Hour)
		for _, h := range hosts[:2] {
			w.setHolds(h, w.windowOf(0, time.Hour))
		}
		b, first := w.begun(hosts, parallel(1))
		w.onHosts(first, "h002")
		w.is(b, harp.BatchRunning, "", 3)
		w.checkBatch(b)
		w.waits(w.members(b)[0], harp.ReasonWindow)
		w.now = end
		w.onHosts(w.advance().Claimed)
		w.waits(w.members(b)[0], harp.ReasonBatch)
		w.onHosts(w.apply(first[0], store.End).Claimed, "h000")
		w.onHosts(w.apply(w.members(b)[0], store.End).Claimed, "h001")
		w.checkBatch(b)
		w.onHosts(w.apply(w.members(b)[1], store.End).Claimed, "h003")
	}},
	{"holds/batch/waits", "a member that waits for its queue or its host gives its slot to another when a window begins", func(w *world) {
		hosts, q := hostsOf(4), queue("q")
		w.gate(hosts...)
		w.submit(on("o"), in(q))
		w.gate("o")
		w.claim(1, "o")
		b := w.batch(hosts, parallel(2), member(func(j *store.Job) { j.Queue, j.Concurrency = q, 1 }))
		w.advance()
		w.is(b, harp.BatchRunning, "", 2)
		w.setHolds("h000", w.windowOf(time.Minute, time.Hour))
		w.advance()
		w.is(b, harp.BatchRunning, "", 2)
		w.pass(time.Minute)
		w.advance()
		w.is(b, harp.BatchRunning, "", 3)
		w.waits(w.members(b)[0], harp.ReasonWindow)
		w.checkBatch(b)
	}},
	{"holds/batch/halted", "a member that is kept back waits for its batch too when that is paused, and for the window when it goes on", func(w *world) {
		hosts, begin := hostsOf(2), w.now
		for _, h := range hosts {
			w.setHolds(h, w.windowOf(0, time.Hour))
		}
		b, _ := w.begun(hosts)
		w.change(b, store.BatchPaused)
		w.advance()
		w.wantObstacles(w.members(b)[0], "window since 0s until 1h0m0s", "batch")
		w.setHolds("h001", w.windowOf(0, 2*time.Hour))
		w.now = begin.Add(time.Hour)
		w.onHosts(w.advance().Claimed)
		w.onHosts(w.claim(10, hosts...))
		w.waits(w.members(b)[0], harp.ReasonBatch)
		w.change(b, store.BatchResumed)
		w.onHosts(w.advance().Claimed, "h000")
		w.change(b, store.BatchPaused)
		w.change(b, store.BatchResumed)
		w.onHosts(w.advance().Claimed)
		w.startsAt(w.members(b)[1], begin.Add(2*time.Hour))
		w.checkBatch(b)
	}},
	{"holds/batch/halted, then held", "a member of a batch that is paused waits for that, and keeps its slot, also where a window keeps it back", func(w *world) {
		b, first := w.begun(hostsOf(2), parallel(1), retried)
		w.failure(first[0])
		w.change(b, store.BatchPaused)
		w.setHolds("h000", w.windowOf(0, time.Minute))
		w.pass(time.Second)
		w.onHosts(w.advance().Claimed)
		w.waits(w.members(b)[0], harp.ReasonBatch)
		w.pass(time.Minute)
		w.advance()
		w.change(b, store.BatchResumed)
		w.onHosts(w.advance().Claimed, "h000")
		w.checkBatch(b)
	}},
	{"holds/batch/skip", "hosts that are kept back at their turn are left out where the batch says so, or a window; such a window keeps back others", func(w *world) {
		refuses := func(is *window.Window) { is.Mode = window.Refuse }
		skipHeld := func(b *store.BatchSubmission) { b.Batch.SkipHeld = true }
		for _, c := range []struct {
			what   string
			shapes []shape
			from   time.Duration
			change func(is *window.Window)
			skips  bool
		}{
			{"hold", nil, 0, func(*window.Window) {}, false},
			{"refuse", nil, 0, refuses, true},
			{"skip", []shape{skipHeld}, 0, func(*window.Window) {}, true},
			{"hold, in a moment", nil, time.Second, func(*window.Window) {}, false},
			{"refuse, in a moment", nil, time.Second, refuses, true},
			{"skip, in a moment", []shape{skipHeld}, time.Second, func(*window.Window) {}, true},
			{"refuse what schedules start", []shape{member(func(j *store.Job) { j.Schedule, j.FireTime = "s", w.now })}, 0, func(is *window.Window) { is.Mode, is.SchedulesOnly = window.Refuse, true }, true},
			{"skip all but what is read only", []shape{skipHeld, func(b *store.BatchSubmission) { b.Batch.Classes[0].ReadOnly = true }}, 0, func(is *window.Window) { is.All = true }, true},
		} {
			hosts := hostsOf(3)
			for _, h := range hosts {
				w.st.SetHolds(h, nil)
			}
			w.setHolds("h001", w.windowOf(c.from, time.Hour, c.change))
			b, first := w.begun(hosts, c.shapes...)
			w.onHosts(first, "h000", "h002")
			got := w.members(b)[1]
			switch is := got.State == harp.StateExpired; {
			case is != c.skips:
				w.Fatalf("%s: it is %s(%s)", c.what, got.State, got.Reason)
			case is && (got.Reason != harp.ReasonWindow || got.Started != harp.DidNotRun || w.readBatch(b).Skipped[harp.ReasonWindow] != 1):
				w.Fatalf("%s: it is %+v, and of the batch are skipped %v", c.what, got.Life, w.readBatch(b).Skipped)
			}
			w.checkBatch(b)
			for _, j := range first {
				w.apply(j, store.End)
			}
			w.checkBatch(b)
			if c.skips {
				w.is(b, harp.BatchSucceeded, "", 3)
			}
			w.pass(2 * time.Hour)
			w.advance()
		}
	}},
	{"holds/batch/not skipped", "members are reached, and not left out, where no window is about them", func(w *world) {
		hosts := hostsOf(2)
		for _, h := range hosts {
			w.setHolds(h, w.windowOf(0, time.Hour, func(is *window.Window) { is.Mode = window.Refuse }))
		}
		w.setHolds("h001", w.windowOf(0, time.Hour, func(is *window.Window) { is.Mode, is.SchedulesOnly, is.All = window.Refuse, true, true }))
		_, first := w.begun(hosts, func(b *store.BatchSubmission) { b.Batch.SkipHeld, b.Batch.Classes[0].ReadOnly = true, true })
		w.onHosts(first, hosts...)
	}},
	{"holds/batch/unknown", "members are reached, and not left out, at a moment of which windows are not known yet, and start when they are", func(w *world) {
		hosts := hostsOf(2)
		w.setHolds("h001", w.windowOf(-3*time.Hour, -2*time.Hour))
		w.pass(48 * time.Hour)
		b, first := w.begun(hosts, func(b *store.BatchSubmission) { b.Batch.SkipHeld = true })
		w.onHosts(first, "h000")
		w.waits(w.members(b)[1], harp.ReasonWindow)
		w.setHolds("h001", w.windowOf(-3*time.Hour, -2*time.Hour))
		w.onHosts(w.advance().Claimed, "h001")
	}},
}
