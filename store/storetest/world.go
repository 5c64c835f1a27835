package storetest

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// world is a store under test, a clock, and what a dispatcher would do with them.
type world struct {
	*testing.T
	st   store.Store
	open func() (store.Store, error) // of one that can be reopened
	now  time.Time
}

func newWorld(t *testing.T, rule string, st store.Store) *world {
	w := &world{T: t, st: st, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the rule: %s", rule)
		}
		if w.st == nil {
			return
		}
		if err := w.st.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return w
}

// reopen closes the store and opens it again.
func (w *world) reopen() {
	w.Helper()
	if w.st != nil {
		w.must(w.st.Close())
	}
	var err error
	w.st, err = w.open()
	if err != nil {
		w.st = nil
		w.Fatal(err)
	}
}

func (w *world) ctx() context.Context { return w.Context() }

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// wants checks that err is a given one.
func (w *world) wants(err, want error) {
	w.Helper()
	if !errors.Is(err, want) {
		w.Fatalf("error is %v, want %v", err, want)
	}
}

// pass lets time go by.
func (w *world) pass(d time.Duration) { w.now = w.now.Add(d) }

// A setting changes what is submitted.
type setting func(s *store.Submission)

func in(q harp.Value) setting     { return func(s *store.Submission) { s.Job.Queue = q } }
func on(host string) setting      { return func(s *store.Submission) { s.Job.Host = host } }
func of(procedure string) setting { return func(s *store.Submission) { s.Job.Procedure = procedure } }

func slots(n int) setting { return func(s *store.Submission) { s.Job.Concurrency = n } }

func priority(p int) setting { return func(s *store.Submission) { s.Job.Priority = p } }

func notBefore(t time.Time) setting       { return func(s *store.Submission) { s.Job.NotBefore = t } }
func expires(t time.Time) setting         { return func(s *store.Submission) { s.Job.Expires = t } }
func offlineWait(d time.Duration) setting { return func(s *store.Submission) { s.Job.OfflineWait = d } }

func label(k, v string) setting {
	return func(s *store.Submission) { s.Job.Labels = map[string]string{k: v} }
}

// id is an id that is made now.
func (w *world) id() string {
	i := uuid.MustParse(harp.NewID())
	ms := binary.BigEndian.AppendUint64(nil, uint64(w.now.UnixMilli())<<16) //nolint:gosec // not before 1970
	copy(i[:6], ms)
	return i.String()
}

// submission is a call of procedure "p" on host "h", as settings change it.
func (w *world) submission(settings ...setting) store.Submission {
	s := store.Submission{
		Job:     store.Job{ID: w.id(), Host: "h", Procedure: "p", OfflineWait: harp.NoLimit, SubmitTime: w.now},
		Request: harp.Submission{Request: []byte("request")},
	}
	for _, set := range settings {
		set(&s)
	}
	copy(s.Digest[:], s.Job.ID)
	return s
}

// submit stores one job.
func (w *world) submit(settings ...setting) *store.Job {
	w.Helper()
	out, err := w.st.Submit(w.ctx(), []store.Submission{w.submission(settings...)}, w.now)
	w.must(err)
	w.must(out[0].Err)
	if !out[0].New {
		w.Fatal("a new job came back as one that was there")
	}
	return out[0].Job
}

// gate opens a host for many attempts.
func (w *world) gate(hosts ...string) {
	for _, h := range hosts {
		w.st.SetGate(h, store.Gate{Open: true, Most: 1000})
	}
}

// away closes host "h", which has just been heard.
func (w *world) away() {
	w.st.SetGate("h", store.Gate{Reason: harp.ReasonOffline, LastHeard: w.now})
}

func (w *world) claim(n int, hosts ...string) []*store.Job {
	w.Helper()
	jobs, err := w.st.Claim(w.ctx(), hosts, n, w.now)
	w.must(err)
	return jobs
}

// running submits a job that starts at once.
func (w *world) running(settings ...setting) *store.Job {
	w.Helper()
	w.gate("h")
	j := w.submit(settings...)
	w.state(j, harp.StateSent)
	return w.apply(j, store.Started).Job
}

// event is one about the last attempt of a job.
func (w *world) event(j *store.Job, kind store.Kind) store.Event {
	e := store.Event{Kind: kind, At: w.now, Attempt: j.Attempt, Fence: j.Fence}
	if kind == store.Lose {
		e.Reason = harp.LostAgentRestarted
	}
	return e
}

// try applies one event to a job.
func (w *world) try(j *store.Job, e store.Event) store.Change {
	w.Helper()
	changes, err := w.st.Apply(w.ctx(), store.Transition{ID: j.ID, Event: e})
	w.must(err)
	if len(changes) != 1 {
		w.Fatalf("%d changes for one transition", len(changes))
	}
	return changes[0]
}

// apply is try of an event without more to it, which must succeed.
func (w *world) apply(j *store.Job, kind store.Kind) store.Change {
	w.Helper()
	c := w.try(j, w.event(j, kind))
	if c.Err != nil {
		w.Fatalf("%s in %s: %v", kind, j.State, c.Err)
	}
	return c
}

func (w *world) advance() store.Advanced {
	w.Helper()
	var all store.Advanced
	for {
		did, err := w.st.Advance(w.ctx(), w.now)
		w.must(err)
		all.Ended = append(all.Ended, did.Ended...)
		all.Claimed = append(all.Claimed, did.Claimed...)
		if !did.More {
			return all
		}
	}
}

// job reads a job back.
func (w *world) job(id string) *store.Job {
	w.Helper()
	j, err := w.st.Job(w.ctx(), id)
	w.must(err)
	return j
}

// state checks in which state a job is, by its row and in the store.
func (w *world) state(j *store.Job, want harp.State) *store.Job {
	w.Helper()
	got := w.job(j.ID)
	if got.State != want {
		w.Fatalf("job is %s(%s), want %s", got.State, got.Reason, want)
	}
	return got
}

// waits checks what a queued job waits for.
func (w *world) waits(j *store.Job, reason string) *store.Job {
	w.Helper()
	got := w.state(j, harp.StateQueued)
	if got.Reason != reason {
		w.Fatalf("job waits for %q, want %q", got.Reason, reason)
	}
	return got
}

// due checks when something is due next.
func (w *world) due(want time.Time) {
	w.Helper()
	if got := w.st.NextDue(); !got.Equal(want) {
		w.Fatalf("next due is %v, want %v", got, want)
	}
}

// ids checks which jobs these are, in their order.
func (w *world) ids(got []*store.Job, want ...*store.Job) {
	w.Helper()
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			w.Fatalf("job %d of %d is missing: number %d", i, len(want), want[i].No)
		case i >= len(want):
			w.Fatalf("%d jobs too many, the first of number %d in %s", len(got)-i, got[i].No, got[i].State)
		case got[i].ID != want[i].ID:
			w.Fatalf("job %d is number %d, want %d", i, got[i].No, want[i].No)
		}
	}
}

// queue makes the canonical name of a queue.
func queue(name string) harp.Value {
	v, err := harp.QueueName(map[string]string{"name": name})
	if err != nil {
		panic(err)
	}
	return v
}

func (w *world) status(q harp.Value) harp.QueueStatus {
	w.Helper()
	s, err := w.st.Queue(w.ctx(), q)
	w.must(err)
	return s
}

func (w *world) cancelQueue(q harp.Value) store.QueueCancelled {
	w.Helper()
	done, err := w.st.CancelQueue(w.ctx(), q, store.Operation{By: somebody, Time: w.now})
	w.must(err)
	return done
}

var somebody = harp.Principal{Kind: "caller", Name: "somebody", Auth: "certificate"}
