package storetest

import (
	"strings"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

var once = []rule{
	{"key/same", "a submission under a key that is known is the job of the first, whatever its id, and makes none", func(w *world) {
		first := w.submit(under("k", w.now.Add(time.Hour)))
		for range 2 {
			again := w.sameAs(first)
			if again.New || again.Err != nil || again.Job.ID != first.ID || again.Job.No != first.No {
				w.Fatalf("under the same key it is %+v", again)
			}
		}
		other := w.submit(under("other", w.now.Add(time.Hour)))
		if other.No != first.No+1 {
			w.Fatalf("the next job is number %d after %d", other.No, first.No)
		}
	}},
	{"key/conflict", "another request under a key is ErrConflict, which names the job of the key, and is not stored", func(w *world) {
		first := w.submit(under("k", w.now.Add(time.Hour)))
		s := w.submission(under("k", w.now.Add(time.Hour)))
		out, err := w.st.Submit(w.ctx(), []store.Submission{s}, w.now)
		w.must(err)
		w.wants(out[0].Err, harp.ErrConflict)
		w.ofKey(out[0].Err, "job "+first.ID)
		_, err = w.st.Job(w.ctx(), s.Job.ID)
		w.wants(err, harp.ErrNotFound)
	}},
	{"key/again", "a job that is submitted again under its id and key is itself, also when its key has come to stand for another", func(w *world) {
		s := w.submission(under("k", w.now.Add(time.Hour)))
		for n := range 2 {
			out, err := w.st.Submit(w.ctx(), []store.Submission{s}, w.now)
			w.must(err)
			if out[0].Err != nil || out[0].New != (n == 0) || out[0].Job.ID != s.Job.ID {
				w.Fatalf("submission %d is %+v", n, out[0])
			}
		}
		w.pass(time.Hour)
		w.submit(under("k", w.now.Add(time.Hour)))
		out, err := w.st.Submit(w.ctx(), []store.Submission{s}, w.now)
		w.must(err)
		if out[0].Err != nil || out[0].New || out[0].Job.ID != s.Job.ID {
			w.Fatalf("after its key's time it is %+v", out[0])
		}
	}},
	{"key/over", "a key whose time is over stands for nothing", func(w *world) {
		first := w.submit(under("k", w.now.Add(time.Hour)))
		w.pass(time.Hour - 1)
		if got := w.sameAs(first); got.New {
			w.Fatal("the key was over before its time")
		}
		w.pass(1)
		if got := w.sameAs(first); got.Err != nil || !got.New {
			w.Fatalf("after its time the key answers %+v", got)
		}
	}},
	{"key/batch", "two submissions of one commit under one key are one job", func(w *world) {
		a := w.submission(under("k", w.now.Add(time.Hour)))
		b := a
		b.Job.ID = harp.NewID()
		out, err := w.st.Submit(w.ctx(), []store.Submission{a, b}, w.now)
		w.must(err)
		if !out[0].New || out[1].New || out[1].Err != nil || out[1].Job.ID != a.Job.ID {
			w.Fatalf("they are %+v", out)
		}
	}},
	{"key/refused", "a call that must not be stored is answered by what is there under its id or key, and makes nothing", func(w *world) {
		first := w.submit(under("k", w.now.Add(time.Hour)))
		ask := func(of string, settings ...setting) store.Submitted {
			s := w.submission(settings...)
			s.Refused = true
			copy(s.Digest[:], of)
			out, err := w.st.Submit(w.ctx(), []store.Submission{s}, w.now)
			w.must(err)
			return out[0]
		}
		itself := func(s *store.Submission) { s.Job = store.Job{ID: first.ID} }
		for _, by := range []setting{itself, under("k", w.now.Add(time.Hour))} {
			if got := ask(first.ID, by); got.Err != nil || got.New || got.Job.ID != first.ID {
				w.Fatalf("what is there is %+v", got)
			}
		}
		w.wants(ask("other", under("k", w.now.Add(time.Hour))).Err, harp.ErrConflict)
		w.wants(ask("other", itself).Err, harp.ErrConflict)
		w.wants(ask("other").Err, harp.ErrNotFound)
		w.wants(ask("other", under("new", w.now.Add(time.Hour))).Err, harp.ErrNotFound)
		if next := w.submit(under("new", w.now.Add(time.Hour))); next.No != first.No+1 {
			w.Fatalf("the next job is number %d after %d", next.No, first.No)
		}
	}},
	{"key/race", "calls at once under one key make one job", func(w *world) {
		s := w.submission(under("k", w.now.Add(time.Hour)))
		const calls = 16
		got := make([]store.Submitted, calls)
		var all sync.WaitGroup
		for n := range calls {
			each := s
			each.Job.ID = harp.NewID()
			all.Go(func() {
				out, err := w.st.Submit(w.ctx(), []store.Submission{each}, w.now)
				if err != nil {
					w.Error(err)
					return
				}
				got[n] = out[0]
			})
		}
		all.Wait()
		made := 0
		for _, g := range got {
			if g.New {
				made++
			}
			if g.Job.ID != got[0].Job.ID {
				w.Errorf("two calls are jobs %s and %s", g.Job.ID, got[0].Job.ID)
			}
		}
		if made != 1 {
			w.Errorf("%d jobs were made", made)
		}
	}},
}

// ofKey checks that a conflict is of a key that belongs to this job or batch.
func (w *world) ofKey(err error, to string) {
	w.Helper()
	if f := harp.FailureOf(err); f.Type != harp.ConflictOfKey || !strings.HasSuffix(f.Message, to) {
		w.Fatalf("the conflict is %+v, want it to name %s", f, to)
	}
}

// under submits with an idempotency key.
func under(key string, until time.Time) setting {
	return func(s *store.Submission) { s.Key, s.KeyUntil = key, until }
}

// sameAs submits the request of a job under key "k" and a new id.
func (w *world) sameAs(first *store.Job) store.Submitted {
	w.Helper()
	s := w.submission(under("k", w.now.Add(time.Hour)))
	copy(s.Digest[:], first.ID)
	out, err := w.st.Submit(w.ctx(), []store.Submission{s}, w.now)
	w.must(err)
	return out[0]
}
