package storetest

import (
	"errors"
	"reflect"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

func isClosed(err error) bool { return errors.Is(err, harp.ErrClosed) }

var sharing = []rule{
	{"share/given", "what was given may be changed afterwards: the store keeps its own", func(w *world) {
		s := w.submission(in(queue("q")), label("k", "v"))
		w.gate("h")
		out, err := w.st.Submit(w.ctx(), []store.Submission{s}, w.now)
		w.must(err)
		before := w.job(s.Job.ID)
		s.Job.Labels["k"], s.Job.Queue[0], s.Request.Request[0] = "changed", 0, 'X'
		w.same(before, s.Job.ID)
		if req, err := w.st.Request(w.ctx(), s.Job.ID); err != nil || string(req.Request) != "request" {
			w.Fatalf("request is %q, %v", req.Request, err)
		}
		records := values(0, 2)
		w.append(out[0].Job, 0, records...)
		records[1].Value[0] = 0
		w.records(out[0].Job, 2)

		e := w.event(out[0].Job, store.End)
		e.Failure, e.Stopping = harp.Failure{Code: "remote", Data: harp.Value{1}}, &store.Stopping{Cause: "cause"}
		c := w.try(out[0].Job, e)
		before = w.job(s.Job.ID)
		e.Failure.Data[0], e.Stopping.Cause = 9, "changed"
		w.same(before, s.Job.ID)
		if c.Job.Stopping.Cause == "changed" {
			w.Fatal("what Apply returned is shared with what it was given")
		}

		labels := map[string]string{"k": "v"}
		_, err = w.st.OpenSession(w.ctx(), store.Session{Host: "h", Labels: labels})
		w.must(err)
		labels["k"] = "changed"
		content := []byte("content")
		w.must(w.st.PutDocument(w.ctx(), "k", "n", content))
		content[0] = 'X'
		host, err := w.st.Host(w.ctx(), "h")
		w.must(err)
		got, err := w.st.Document(w.ctx(), "k", "n")
		w.must(err)
		if host.Labels["k"] != "v" || string(got) != "content" {
			w.Fatalf("labels %v, document %q", host.Labels, got)
		}
	}},
	{"share/job", "a job that was returned is not changed by what happens to it", func(w *world) {
		w.gate("h")
		j := w.submit(in(queue("q")), label("k", "v"))
		waits := w.submit(in(queue("q")), label("k", "v"))
		got := []*store.Job{j, waits, w.job(j.ID), w.job(waits.ID)}
		page, err := w.st.List(w.ctx(), store.Filter{}, "")
		w.must(err)
		got = append(got, page.Jobs...)
		copies := make([]*store.Job, len(got))
		for n, j := range got {
			copies[n] = j.Clone()
		}
		w.apply(j, store.Started)
		w.append(j, 0, values(0, 2)...)
		e := w.event(j, store.End)
		e.Failure, e.Stopping = harp.Failure{Code: "remote", Data: harp.Value{1}}, &store.Stopping{Cause: "cause"}
		w.must(w.try(j, e).Err)
		_, err = w.st.CancelQueue(w.ctx(), queue("q"), store.Operation{Time: w.now})
		w.must(err)
		for n, had := range copies {
			if !reflect.DeepEqual(got[n], had) {
				w.Fatalf("it changed to\n%+v, from\n%+v", *got[n], *had)
			}
		}
	}},
	{"share/got", "what was returned, but for jobs, is the receiver's to change", func(w *world) {
		s := w.submission(in(queue("q")), label("k", "v"))
		w.gate("h")
		out, err := w.st.Submit(w.ctx(), []store.Submission{s}, w.now)
		w.must(err)
		before := out[0].Job
		req, err := w.st.Request(w.ctx(), s.Job.ID)
		w.must(err)
		req.Request[0] = 'X'
		if req, _ = w.st.Request(w.ctx(), s.Job.ID); string(req.Request) != "request" {
			w.Fatalf("request is %q", req.Request)
		}
		w.append(before, 0, values(0, 1)...)
		records, err := w.st.Read(w.ctx(), s.Job.ID, 0, store.ReadLimit{Bytes: 1})
		w.must(err)
		records[0].Value[0] = 0
		w.records(before, 1)

		status := w.status(queue("q"))
		status.Name[0] = 0
		w.status(queue("q"))

		e := w.event(before, store.End)
		e.Value = harp.Value{1, 2}
		w.must(w.try(before, e).Err)
		v, err := w.st.Value(w.ctx(), s.Job.ID)
		w.must(err)
		v[0] = 9
		if v, _ = w.st.Value(w.ctx(), s.Job.ID); v[0] != 1 {
			w.Fatalf("value is %v", []byte(v))
		}
		w.must(w.st.PutDocument(w.ctx(), "k", "n", []byte("content")))
		doc, err := w.st.Document(w.ctx(), "k", "n")
		w.must(err)
		doc[0] = 'X'
		if doc, _ = w.st.Document(w.ctx(), "k", "n"); string(doc) != "content" {
			w.Fatalf("document is %q", doc)
		}
	}},
}

// same checks that a job has not changed.
func (w *world) same(before *store.Job, id string) {
	w.Helper()
	if got := w.job(id); !reflect.DeepEqual(got, before) {
		w.Fatalf("it changed to\n%+v, from\n%+v", got, before)
	}
}
