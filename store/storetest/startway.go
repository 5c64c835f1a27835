package storetest

import (
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// startWay is how a job comes to start on a host. It prepares that, and returns the job and what has it start.
type startWay func(w *world, host string) (j *store.Job, start func())

// applied is apply for what has a job start.
func (w *world) applied(j *store.Job, kind store.Kind) func() {
	return func() { w.Helper(); w.apply(w.job(j.ID), kind) }
}

func (w *world) advances() { w.Helper(); w.advance() }

// notNow has an agent send a job back that is to be tried again at a time.
func (w *world) notNow(j *store.Job, reason string, wake time.Time) store.Change {
	w.Helper()
	e := w.event(w.job(j.ID), store.NotNow)
	e.Reason, e.Wake = reason, wake
	c := w.try(j, e)
	w.must(c.Err)
	return c
}

// tenMinutes is when what waysToStart prepare may start.
const tenMinutes = 10 * time.Minute

// waysToStart are all that there are, for a moment that is ten minutes ahead, and more by a little.
func waysToStart(little time.Duration) map[string]startWay {
	at := tenMinutes + little
	return map[string]startWay{
		"submission": func(w *world, host string) (*store.Job, func()) {
			var j store.Job
			w.gate(host)
			return &j, func() { j = *w.submit(on(host)) }
		},
		"submission behind others": func(w *world, host string) (*store.Job, func()) {
			var j store.Job
			w.gate(host)
			w.submit(on(host), expires(w.now.Add(time.Minute)), notBefore(w.now.Add(time.Hour)))
			w.notNow(w.submit(on(host), of("other")), "", w.now.Add(time.Hour))
			return &j, func() { j = *w.submit(on(host)) }
		},
		"claim": func(w *world, host string) (*store.Job, func()) {
			j := w.submit(on(host))
			return j, func() { w.gate(host); w.claim(10, host) }
		},
		"claim in a queue": func(w *world, host string) (*store.Job, func()) {
			j := w.submit(on(host), in(queue(host)))
			return j, func() { w.gate(host); w.claim(10, host) }
		},
		"StartAfter": func(w *world, host string) (*store.Job, func()) {
			w.gate(host)
			return w.submit(on(host), notBefore(w.now.Add(at))), w.advances
		},
		"StartAfter in a queue": func(w *world, host string) (*store.Job, func()) {
			w.gate(host)
			return w.submit(on(host), in(queue(host)), notBefore(w.now.Add(at))), w.advances
		},
		"slot of a queue": func(w *world, host string) (*store.Job, func()) {
			w.gate(host, "o"+host)
			first := w.submit(on("o"+host), in(queue(host)))
			return w.submit(on(host), in(queue(host))), w.applied(first, store.End)
		},
		"slot of a queue on the same host": func(w *world, host string) (*store.Job, func()) {
			w.gate(host)
			first := w.submit(on(host), in(queue(host)))
			return w.submit(on(host), in(queue(host))), w.applied(first, store.End)
		},
		"change of a queue": func(w *world, host string) (*store.Job, func()) {
			w.gate(host)
			w.pause(queue(host), true)
			return w.submit(on(host), in(queue(host))), func() { w.pause(queue(host), false); w.advance() }
		},
		"attempt of a host": func(w *world, host string) (*store.Job, func()) {
			w.st.SetGate(host, store.Gate{Open: true, Most: 1})
			first := w.submit(on(host))
			return w.submit(on(host)), w.applied(first, store.Refused)
		},
		"pause between attempts": func(w *world, host string) (*store.Job, func()) {
			w.gate(host)
			j := w.submit(on(host), func(s *store.Submission) {
				s.Job.Retry = harp.RetryPolicy{On: []harp.State{harp.StateFailed}, Attempts: 2, Backoff: at, MaxBackoff: at}
			})
			w.fails(j)
			return j, w.advances
		},
		"busy agent": func(w *world, host string) (*store.Job, func()) {
			w.gate(host)
			j := w.submit(on(host))
			w.notNow(j, "", w.now.Add(at))
			return j, w.advances
		},
		"ready agent": func(w *world, host string) (*store.Job, func()) {
			w.gate(host)
			j := w.submit(on(host))
			w.notNow(j, "", w.now.Add(time.Hour))
			return j, func() { w.must(w.st.Wake(w.ctx(), host, w.now)); w.claim(10, host) }
		},
		"agent that took another": func(w *world, host string) (*store.Job, func()) {
			w.gate(host)
			first, j := w.submit(on(host)), w.submit(on(host))
			w.notNow(j, "", w.now.Add(time.Hour))
			return j, w.applied(first, store.End)
		},
		"window that the agent met": func(w *world, host string) (*store.Job, func()) {
			w.gate(host)
			j := w.submit(on(host))
			w.notNow(j, harp.ReasonWindow, w.now.Add(at))
			return j, w.advances
		},
		"turn in a batch": func(w *world, host string) (*store.Job, func()) {
			w.gate(host)
			b := w.batch([]string{host}, plan(func(p *store.BatchPlan) { p.StartAfter = w.now.Add(at) }))
			return w.members(b)[0], w.advances
		},
		"batch that goes on": func(w *world, host string) (*store.Job, func()) {
			b := w.batch([]string{host})
			w.advance()
			w.change(b, store.BatchPaused)
			w.advance()
			w.gate(host)
			return w.members(b)[0], func() { w.change(b, store.BatchResumed); w.advance() }
		},
		"slot of a batch": func(w *world, host string) (*store.Job, func()) {
			b, first := w.begun([]string{"o" + host, host}, parallel(1))
			return w.members(b)[1], func() { w.apply(first[0], store.End); w.advance() }
		},
		"slot of a batch that it waits for": func(w *world, host string) (*store.Job, func()) {
			w.gate("o" + host)
			b := w.batch([]string{host, "o" + host}, parallel(1))
			first := w.advance().Claimed
			w.gate(host)
			w.ids(w.claim(10, host))
			return w.members(b)[0], func() { w.apply(first[0], store.End); w.advance() }
		},
	}
}
