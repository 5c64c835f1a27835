package storetest

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
)

var applying = []rule{
	{"apply/life", "a job goes through its life as store.Life says, with all that it notes", func(w *world) {
		stopping := &store.Stopping{Cause: harp.LimitSilenceTimeout, Since: w.now, Limit: time.Minute}
		code := int64(3)
		failure := harp.Failure{Code: "remote", Type: "panic", Message: "no", Data: harp.Value{0xc3}, ExitCode: &code}
		for name, events := range map[string][]store.Event{
			"succeeds":   {{Kind: store.Started}, {Kind: store.End, Value: harp.Value{1}}},
			"fails":      {{Kind: store.Started}, {Kind: store.End, Failure: failure}},
			"times out":  {{Kind: store.Started}, {Kind: store.Stop, Stopping: stopping}, {Kind: store.End, Stopping: stopping}},
			"cancelled":  {{Kind: store.CancelReq, By: somebody}, {Kind: store.Started}, {Kind: store.End, Stopping: &store.Stopping{Cause: "cancel", Since: w.now}}},
			"rejected":   {{Kind: store.Refused, Failure: failures.New("rejected_denied", "policy")}},
			"not now":    {{Kind: store.NotNow, Wake: w.now.Add(time.Hour)}},
			"unknown":    {{Kind: store.Started}, {Kind: store.Silent}, {Kind: store.CancelReq, By: somebody}, {Kind: store.Alive}},
			"lost, late": {{Kind: store.Silent}, {Kind: store.Lose, Reason: harp.LostTooLong}, {Kind: store.End, Failure: failure}},
		} {
			w.gate("h")
			j := w.submit(of(name)) // of another procedure, for which its agent is not busy
			want := j.Life
			for _, e := range events {
				w.pass(time.Second)
				e.At, e.Attempt, e.Fence = w.now, j.Attempt, j.Fence
				next, effect, err := want.Next(e)
				w.must(err)
				c := w.try(j, e)
				w.must(c.Err)
				got := w.job(j.ID)
				want = next
				if got.State == harp.StateQueued {
					want.Reason = got.Reason
				}
				if c.Effect != effect || !reflect.DeepEqual(got.Life, want) {
					w.Fatalf("%s: after %s it is\n%+v, want\n%+v\neffect %+v, want %+v", name, e.Kind, got.Life, want, c.Effect, effect)
				}
			}
		}
	}},
	{"apply/apart", "the error of one transition does not touch the others, and changes nothing", func(w *world) {
		a, b, c := w.running(), w.running(), w.submit(on("elsewhere"))
		fenced := w.event(b, store.End)
		fenced.Fence++
		changes, err := w.st.Apply(w.ctx(),
			store.Transition{ID: harp.NewID(), Event: w.event(a, store.End)},
			store.Transition{ID: b.ID, Event: fenced},
			store.Transition{ID: c.ID, Event: w.event(c, store.Silent)},
			store.Transition{ID: a.ID, Event: w.event(a, store.End)},
			store.Transition{ID: a.ID, Event: w.event(a, store.Silent)})
		w.must(err)
		w.wants(changes[0].Err, harp.ErrNotFound)
		w.wants(changes[1].Err, store.ErrFenced)
		w.wants(changes[2].Err, store.ErrIllegal)
		w.must(changes[3].Err)
		w.wants(changes[4].Err, store.ErrIllegal)
		w.state(a, harp.StateSucceeded)
		w.state(b, harp.StateRunning)
		w.state(c, harp.StateQueued)
	}},
	{"apply/claimed", "slots are given by claims alone", func(w *world) {
		j := w.submit()
		w.wants(w.try(j, store.Event{Kind: store.Claimed, At: w.now, Fence: 9}).Err, store.ErrIllegal)
	}},
	{"apply/next", "a slot that comes free starts the next of its queue in the same commit, on whatever host", func(w *world) {
		q := queue("q")
		w.gate("h", "other")
		for _, kind := range []store.Kind{store.End, store.Refused, store.Lose} {
			j := w.submit(in(q))
			w.state(j, harp.StateSent)
			second := w.submit(in(q))
			first := w.submit(in(q), on("other"), priority(1))
			c := w.apply(j, kind)
			w.ids(c.Claimed, first)
			if !c.Effect.Gives || c.Claimed[0].State != harp.StateSent {
				w.Fatalf("%s: effect %+v", kind, c.Effect)
			}
			w.ids(w.apply(c.Claimed[0], store.End).Claimed, second)
			w.apply(w.job(second.ID), store.End)
		}
	}},
	{"apply/host", "a host that was full starts its next when one of its attempts ends, of whatever queue", func(w *world) {
		w.st.SetGate("h", store.Gate{Open: true, Most: 1})
		w.gate("other")
		a := w.submit(in(queue("q")))
		next := w.submit(in(queue("r")))
		sameQueue := w.submit(in(queue("q")), on("other"))
		w.ids(w.apply(a, store.End).Claimed, sameQueue, next)
	}},
	{"apply/both", "the next of the queue may be what fills the host again", func(w *world) {
		w.st.SetGate("h", store.Gate{Open: true, Most: 1})
		a := w.submit(in(queue("q")))
		next, other := w.submit(in(queue("q"))), w.submit()
		w.ids(w.apply(a, store.End).Claimed, next)
		w.ids(w.apply(w.job(next.ID), store.End).Claimed, other)
	}},
	{"apply/again", "NOT_NOW gives the slot back and keeps the place and the attempt; the job waits for its time", func(w *world) {
		q := queue("q")
		w.gate("h")
		a, b, c := w.submit(in(q)), w.submit(in(q), of("other")), w.submit(in(q), of("other"))
		e := w.event(a, store.NotNow)
		e.Wake = w.now.Add(time.Second)
		w.ids(w.try(a, e).Claimed, b)
		if got := w.waits(a, harp.ReasonAgentBusy); got.QueuePos != 1 {
			w.Fatalf("its place is %d, want 1", got.QueuePos)
		}
		w.due(w.now.Add(time.Second))
		w.pass(time.Second)
		w.ids(w.advance().Claimed)
		w.ids(w.apply(w.job(b.ID), store.End).Claimed, a)
		if got := w.job(a.ID); got.Attempt != 1 || len(got.Attempts) != 1 || got.Busy != 1 {
			w.Fatalf("it is %+v", got.Life)
		}
		w.waits(c, harp.ReasonQueue)
	}},
	{"apply/ready", "who waits because the agent was busy is tried once that is ready, one after the other, and stands where he stood; others wait on", func(w *world) {
		q := queue("q")
		w.gate("h", "other")
		notNow := func(j *store.Job) {
			e := w.event(j, store.NotNow)
			e.Wake = w.now.Add(30 * time.Second)
			w.must(w.try(j, e).Err)
		}
		elsewhere, failed := w.submit(on("other")), w.running(retries(harp.StateFailed))
		notNow(elsewhere)
		w.fails(failed)
		a, b := w.submit(in(q)), w.submit(in(queue("r")))
		late := w.submit(expires(w.now.Add(time.Second)))
		for _, j := range []*store.Job{b, late, a} {
			notNow(j)
		}
		w.pass(2 * time.Second)
		w.must(w.st.Wake(w.ctx(), "nobody", w.now))
		w.ids(w.claim(10, "h"))
		w.must(w.st.Wake(w.ctx(), "h", w.now))
		w.waits(a, harp.ReasonQueue)
		w.ids(w.claim(10, "h", "other"), a)
		w.waits(b, harp.ReasonAgentBusy)
		if got := w.job(a.ID); got.Attempt != 1 {
			w.Fatalf("it is %+v", got.Life)
		}
		w.waits(elsewhere, harp.ReasonAgentBusy)
		w.waits(failed, harp.ReasonBackoff)
		w.ids(w.advance().Ended, late)

		w.ids(w.apply(w.job(a.ID), store.Started).Claimed, b)
		notNow(w.job(b.ID))
		w.cancelQueue(queue("r"))
		w.must(w.st.Wake(w.ctx(), "h", w.now))
		w.ids(w.claim(10, "h"))
		w.ids(w.advance().Ended, b)
	}},
	{"apply/value", "what a procedure returned lies beside the row, of any size", func(w *world) {
		for _, size := range []int{1, 1000, 64 << 10, 64<<10 + 1, 2 << 20} {
			j := w.running()
			if v, err := w.st.Value(w.ctx(), j.ID); err != nil || v != nil {
				w.Fatalf("value before the end: %v, %v", v, err)
			}
			e := w.event(j, store.End)
			e.Value = harp.Value(bytes.Repeat([]byte{0xc0}, size))
			w.must(w.try(j, e).Err)
			v, err := w.st.Value(w.ctx(), j.ID)
			w.must(err)
			if !bytes.Equal(v, e.Value) || !w.job(j.ID).HasValue {
				w.Fatalf("value of %d bytes came back with %d", size, len(v))
			}
		}
	}},
	{"apply/failure", "a failure of any size stays with its job", func(w *world) {
		j := w.running()
		e := w.event(j, store.End)
		e.Failure = harp.Failure{Code: "remote", Type: "big", Message: "m", Data: harp.Value(bytes.Repeat([]byte{0xc0}, 1<<20))}
		w.must(w.try(j, e).Err)
		if got := w.job(j.ID); !reflect.DeepEqual(got.Failure, e.Failure) {
			w.Fatalf("failure came back with %d bytes of data", len(got.Failure.Data))
		}
	}},
	{"apply/late", "what an agent says of a lost job is noted once, with its value, and nothing else changes", func(w *world) {
		j := w.apply(w.running(), store.Lose).Job
		e := w.event(j, store.End)
		e.Value = harp.Value{7}
		c := w.try(j, e)
		w.must(c.Err)
		got := w.state(j, harp.StateLost)
		if !c.Effect.Late || got.Late == nil || got.Late.State != harp.StateSucceeded || !got.Late.HasValue || got.HasValue {
			w.Fatalf("it is %+v, late %+v", got.Life, got.Late)
		}
		v, err := w.st.Value(w.ctx(), j.ID)
		w.must(err)
		if !bytes.Equal(v, e.Value) {
			w.Fatalf("late value is %v", v)
		}
		w.wants(w.try(j, e).Err, store.ErrIllegal)
	}},
	{"apply/many", "hundreds of transitions are one commit", func(w *world) {
		w.gate("h")
		var ts []store.Transition
		for i := range 500 {
			j := w.submit(in(queue(fmt.Sprint(i % 7))))
			if j.State == harp.StateQueued {
				ts = append(ts, store.Transition{ID: j.ID, Event: store.Event{Kind: store.CancelReq, At: w.now, By: somebody}})
			}
		}
		changes, err := w.st.Apply(w.ctx(), ts...)
		w.must(err)
		for _, c := range changes {
			w.must(c.Err)
		}
		page, err := w.st.List(w.ctx(), store.Filter{States: []harp.State{harp.StateQueued}}, "")
		w.must(err)
		w.ids(page.Jobs)
	}},
	{"apply/large", "hundreds of jobs with long labels are claimed, lost, silenced and ended at once", func(w *world) {
		const n = 800
		large := func(s *store.Submission) {
			s.Job.Labels = map[string]string{}
			for i := range 16 {
				s.Job.Labels[fmt.Sprintf("%064d", i)] = strings.Repeat("v", 90)
			}
			s.Job.Retry = harp.RetryPolicy{On: []harp.State{harp.StateLost}, Attempts: 2, Backoff: time.Minute, MaxBackoff: time.Minute}
			s.Job.Expires = w.now.Add(time.Hour)
		}
		for i := 0; i < 2*n; i += 100 {
			var some []store.Submission
			for len(some) < 100 {
				some = append(some, w.submission(in(queue(fmt.Sprintf("%0900d", (i+len(some))%n))), large))
			}
			_, err := w.st.Submit(w.ctx(), some, w.now)
			w.must(err)
		}
		w.gate("h")
		first := w.claim(2*n, "h")
		var ts []store.Transition
		for _, j := range first {
			e := w.event(j, store.Lose)
			e.Jitter = 1
			ts = append(ts, store.Transition{ID: j.ID, Event: e})
		}
		changes, err := w.st.Apply(w.ctx(), ts...)
		w.must(err)
		claimed := 0
		for _, c := range changes {
			w.must(c.Err)
			claimed += len(c.Claimed)
		}
		silent, err := w.st.Silence(w.ctx(), "h", w.now, w.now.Add(time.Minute))
		w.must(err)
		if len(first) != n || claimed != n || len(silent) != n {
			w.Fatalf("%d were claimed, then %d, and %d are unknown, of %d each", len(first), claimed, len(silent), n)
		}
		w.pass(time.Minute)
		if did := w.advance(); len(did.Ended) > 0 || len(did.Claimed) != n {
			w.Fatalf("%d have ended, want none, and %d were claimed, of %d", len(did.Ended), len(did.Claimed), n)
		}
		w.pass(time.Hour)
		if did := w.advance(); len(did.Ended) != n {
			w.Fatalf("%d of %d have ended", len(did.Ended), n)
		}
	}},
	{"apply/joined", "of ends that come together each has another start, of its queue and of its host", func(w *world) {
		q, other := queue("q"), queue("other")
		w.st.SetGate("h", store.Gate{Open: true, Most: 4})
		var first, last []*store.Job
		for range 4 {
			first = append(first, w.submit(in(q), slots(4)))
		}
		for range 2 {
			last = append(last, w.submit(in(q), slots(4)), w.submit(in(other), slots(4)))
		}
		var ts []store.Transition
		for _, j := range first {
			w.state(j, harp.StateSent)
			ts = append(ts, store.Transition{ID: j.ID, Event: w.event(j, store.End)})
		}
		out, err := w.st.Apply(w.ctx(), ts...)
		w.must(err)
		var claimed []*store.Job
		for _, c := range out {
			w.must(c.Err)
			claimed = append(claimed, c.Claimed...)
		}
		if len(claimed) != len(last) {
			w.Fatalf("%d are started, want %d", len(claimed), len(last))
		}
	}},
	{"apply/active", "Active is the jobs that hold an attempt, on one host or on all", func(w *world) {
		w.gate("a", "b")
		a := w.submit(on("a"))
		gone := w.apply(w.submit(on("a")), store.End).Job
		b := w.apply(w.submit(on("b")), store.Silent).Job
		w.submit(on("c"))
		for host, want := range map[string][]*store.Job{"": {a, b}, "a": {a}, "b": {b}, "c": nil, "nowhere": nil} {
			got, err := w.st.Active(w.ctx(), host)
			w.must(err)
			w.ids(got, want...)
		}
		w.state(gone, harp.StateSucceeded)
	}},
}
