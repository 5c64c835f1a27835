package storetest

import (
	"bytes"
	"context"
	"reflect"
	"strings"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

var submitting = []rule{
	{"submit/whole", "a job comes back as it was submitted, with its request byte for byte", func(w *world) {
		in := w.fullSubmission()
		out, err := w.st.Submit(w.ctx(), []store.Submission{in}, w.now)
		w.must(err)
		w.must(out[0].Err)
		want := in.Job
		want.No, want.Life = out[0].Job.No, store.Life{State: harp.StateQueued, Reason: harp.ReasonOffline, Since: w.now}
		for _, got := range []*store.Job{out[0].Job, w.job(in.Job.ID)} {
			got = got.Clone()
			got.QueuePos = 0
			got.Reason = harp.ReasonOffline
			if !reflect.DeepEqual(*got, want) {
				w.Fatalf("job is\n%+v, want\n%+v", *got, want)
			}
		}
		req, err := w.st.Request(w.ctx(), in.Job.ID)
		w.must(err)
		if !reflect.DeepEqual(req, in.Request) {
			w.Fatalf("request has %d bytes, want the %d given", len(req.Request), len(in.Request.Request))
		}
	}},
	{"submit/number", "submit numbers ascend in the order of acknowledgement, and within a batch in its order", func(w *world) {
		last := w.submit().No
		out, err := w.st.Submit(w.ctx(), []store.Submission{w.submission(), w.submission(), w.submission()}, w.now)
		w.must(err)
		for _, o := range out {
			if o.Job.No <= last {
				w.Fatalf("number %d after %d", o.Job.No, last)
			}
			last = o.Job.No
		}
	}},
	{"submit/again", "the same id with the same digest is the same job, also when it has ended; with another digest it is ErrConflict", func(w *world) {
		first := w.submission()
		other := first
		other.Digest[0]++
		for round := range 3 {
			out, err := w.st.Submit(w.ctx(), []store.Submission{first, other}, w.now)
			w.must(err)
			w.must(out[0].Err)
			w.wants(out[1].Err, harp.ErrConflict)
			if out[0].New != (round == 0) || out[0].Job.ID != first.Job.ID {
				w.Fatalf("round %d: new is %v", round, out[0].New)
			}
			if round == 1 {
				w.apply(out[0].Job, store.CancelReq)
			}
			if round == 2 && out[0].Job.State != harp.StateCancelled {
				w.Fatalf("it comes back as %s, want cancelled", out[0].Job.State)
			}
		}
	}},
	{"submit/twice", "the same id twice in one batch is one job", func(w *world) {
		s := w.submission()
		out, err := w.st.Submit(w.ctx(), []store.Submission{s, s}, w.now)
		w.must(err)
		if !out[0].New || out[1].New || out[1].Err != nil || out[0].Job.No != out[1].Job.No {
			w.Fatalf("outcomes %v %v %v", out[0].New, out[1].New, out[1].Err)
		}
	}},
	{"submit/apart", "the error of one submission does not touch the others", func(w *world) {
		bad := w.submission()
		bad.Job.ID = "no id"
		good := w.submission()
		out, err := w.st.Submit(w.ctx(), []store.Submission{bad, good}, w.now)
		w.must(err)
		w.wants(out[0].Err, harp.ErrInvalid)
		w.must(out[1].Err)
		w.state(&good.Job, harp.StateQueued)
	}},
	{"submit/starts", "a job that may start at once is claimed in the same commit", func(w *world) {
		w.gate("h")
		for _, settings := range [][]setting{nil, {in(queue("q"))}} {
			j := w.submit(settings...)
			if j.State != harp.StateSent || j.Attempt != 1 || j.Fence == 0 || len(j.Attempts) != 1 || !j.Attempts[0].Sent.Equal(w.now) {
				w.Fatalf("it is %+v", j.Life)
			}
			w.state(j, harp.StateSent)
		}
	}},
	{"submit/waits", "a job that may not start waits, and its reason says for what", func(w *world) {
		w.gate("h")
		w.waits(w.submit(on("elsewhere")), harp.ReasonOffline)
		w.waits(w.submit(notBefore(w.now.Add(time.Hour))), harp.ReasonStartAfter)
		w.submit(in(queue("q")))
		second := w.waits(w.submit(in(queue("q"))), harp.ReasonQueue)
		third := w.waits(w.submit(in(queue("q"))), harp.ReasonQueue)
		if second.QueuePos != 1 || third.QueuePos != 2 {
			w.Fatalf("places %d and %d, want 1 and 2", second.QueuePos, third.QueuePos)
		}
		w.st.SetGate("window", store.Gate{Reason: "window"})
		w.waits(w.submit(on("window")), "window")
		w.st.SetGate("busy", store.Gate{Open: true, Most: 1})
		w.submit(on("busy"))
		w.waits(w.submit(on("busy")), harp.ReasonAgentBusy)
	}},
	{"submit/context", "a context that has ended stops a call before it has begun", func(w *world) {
		ctx, cancel := context.WithCancel(w.ctx())
		cancel()
		s := w.submission()
		_, err := w.st.Submit(ctx, []store.Submission{s}, w.now)
		w.wants(err, context.Canceled)
		_, err = w.st.Job(w.ctx(), s.Job.ID)
		w.wants(err, harp.ErrNotFound)
	}},
	{"submit/unknown", "every question about a job that is not there is ErrNotFound", func(w *world) {
		for _, id := range []string{harp.NewID(), "", "no id", strings.ToUpper(harp.NewID())} {
			_, err := w.st.Job(w.ctx(), id)
			w.wants(err, harp.ErrNotFound)
			_, err = w.st.Request(w.ctx(), id)
			w.wants(err, harp.ErrNotFound)
			_, err = w.st.Value(w.ctx(), id)
			w.wants(err, harp.ErrNotFound)
			_, err = w.st.Read(w.ctx(), id, 0, store.ReadLimit{Bytes: 1})
			w.wants(err, harp.ErrNotFound)
			_, err = w.st.Append(w.ctx(), store.Append{ID: id, Attempt: 1})
			w.wants(err, harp.ErrNotFound)
			w.wants(w.try(&store.Job{ID: id}, store.Event{Kind: store.CancelReq}).Err, harp.ErrNotFound)
		}
	}},
}

// fullSubmission has every field set.
func (w *world) fullSubmission() store.Submission {
	return store.Submission{
		Job: store.Job{
			ID: harp.NewID(), Host: "höst/1", Procedure: "service.restart", Queue: queue("q"), Concurrency: 3, Priority: -7,
			NotBefore: w.now.Add(-time.Minute), Expires: w.now.Add(time.Hour), OfflineWait: harp.NoLimit,
			SilenceTimeout: time.Second, MaxExecTime: harp.NoLimit, Labels: map[string]string{"team": "ops", "": "empty"},
			Principal: somebody, Batch: "batch", Schedule: "nightly", FireTime: w.now.Add(-time.Second),
			RetryOf: harp.NewID(), DryRun: true, TraceParent: "00-trace", SubmitTime: w.now,
		},
		Request: harp.Submission{
			Request:   bytes.Repeat([]byte("request \x00\xff"), 1<<20/10),
			Signature: []byte{1, 2, 3}, KeyID: "key",
		},
		Digest: [32]byte{7},
	}
}
