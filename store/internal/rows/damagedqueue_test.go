package rows

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// TestDamagedQueue checks that jobs of a queue whose row cannot be read are left out of those
// that are listed, and nothing else, until an operation meets the row and writes it anew.
func TestDamagedQueue(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	inQ := func() store.Submission { return inQueue(call("h"), 0, 1) }
	submitted(t, s, inQ())
	if _, err := s.CancelQueue(t.Context(), inQ().Job.Queue, store.Operation{ID: harp.NewID(), Time: noon}); err != nil {
		t.Fatal(err)
	}
	e.damage(s, []byte{prefixQueue})
	listed := func(want ...*store.Job) {
		t.Helper()
		page, err := s.List(t.Context(), store.Filter{States: []harp.State{harp.StateQueued}}, "")
		if err != nil || !slices.EqualFunc(page.Jobs, want, func(a, b *store.Job) bool { return a.ID == b.ID }) {
			t.Errorf("%d are listed, %v, want %d", len(page.Jobs), err, len(want))
		}
	}
	other := submitted(t, s, call("h"))[0]
	listed(other)
	keyed := inQ() // the queue is made anew by it
	keyed.Key, keyed.KeyUntil = "key", noon.Add(time.Hour)
	listed(submitted(t, s, keyed)[0], other)
	if did, err := s.Advance(t.Context(), noon); err != nil || len(did.Ended) != 1 {
		t.Errorf("of what was cancelled %d ended, %v", len(did.Ended), err)
	}
	works(t, s)
}

// TestDamagedQueueStaysDamaged checks that a queue whose row cannot be read is written anew by
// whatever meets it, as it was, and that what met it is done.
func TestDamagedQueueStaysDamaged(t *testing.T) {
	inQ := func(change func(*store.Job)) store.Submission {
		c := inQueue(call("h"), 0, 1)
		change(&c.Job)
		return c
	}
	usual := func(*store.Job) {}
	name := inQ(usual).Job.Queue
	key := nameKey(prefixQueue, string(name))
	ada := harp.Principal{Kind: "caller", Name: "ada"}
	later := noon.Add(time.Hour)
	for what, do := range map[string]func(t *testing.T, s *Store, sent, waits *store.Job){
		"given up": func(t *testing.T, s *Store, sent, waits *store.Job) {
			if did, err := s.Advance(t.Context(), later); err != nil || len(did.Ended) != 1 || did.Ended[0].ID != sent.ID || did.Ended[0].State != harp.StateLost {
				t.Errorf("ended are %+v, %v", did.Ended, err)
			}
		},
		"expires": func(t *testing.T, s *Store, sent, waits *store.Job) {
			if did, err := s.Advance(t.Context(), noon.Add(time.Minute)); err != nil || len(did.Ended) != 1 || did.Ended[0].ID != waits.ID || did.Ended[0].State != harp.StateExpired {
				t.Errorf("ended are %+v, %v", did.Ended, err)
			}
		},
		"ends": func(t *testing.T, s *Store, sent, waits *store.Job) {
			if c := applied(t, s, about(sent, store.End))[0]; c.Job.State != harp.StateSucceeded || len(c.Claimed) != 1 {
				t.Errorf("it is %s, and %d were claimed", c.Job.State, len(c.Claimed))
			}
		},
		"has records": func(t *testing.T, s *Store, sent, waits *store.Job) {
			a := store.Append{ID: sent.ID, Attempt: 1, Fence: sent.Fence, Records: []harp.Record{{Value: harp.Value{1}}}, Arrived: noon}
			a.Fence++
			if _, err := s.Append(t.Context(), a); !errors.Is(err, store.ErrFenced) {
				t.Errorf("with another's fence: %v", err)
			}
			a.Fence--
			if j, err := s.Append(t.Context(), a); err != nil || j.Records != 1 {
				t.Errorf("it has %d records, %v", j.Records, err)
			}
		},
		"is submitted again": func(t *testing.T, s *Store, sent, waits *store.Job) {
			again := inQ(usual)
			again.Job.ID = sent.ID
			if out, err := s.Submit(t.Context(), []store.Submission{again}, noon); err != nil || out[0].Err != nil || out[0].Job.ID != sent.ID {
				t.Errorf("it gives %+v, %v", out, err)
			}
		},
		"gets another": func(t *testing.T, s *Store, sent, waits *store.Job) { submitted(t, s, inQ(usual)) },
		"is cancelled": func(t *testing.T, s *Store, sent, waits *store.Job) {
			if did, err := s.CancelQueue(t.Context(), name, store.Operation{ID: harp.NewID(), Time: noon, By: ada}); err != nil || did.Count != 3 {
				t.Errorf("%d are cancelled, %v", did.Count, err)
			}
		},
		"is changed": func(t *testing.T, s *Store, sent, waits *store.Job) {
			c := harp.QueueChange{Concurrency: new(7), Paused: new(true), Reason: "disk", Until: later}
			if err := s.ChangeQueue(t.Context(), name, c, store.Operation{ID: harp.NewID(), Time: noon, By: ada}); err != nil {
				t.Error(err)
			}
		},
	} {
		eachDamage(t, what, func(t *testing.T, damage func(e *trial, s *Store, key []byte)) {
			e := newTrial()
			s := opened(t, e, Options{})
			openGate(s, "h")
			first := submitted(t, s, inQ(usual))[0] // runs on, though its queue is cancelled
			if err := s.ChangeQueue(t.Context(), name, harp.QueueChange{Concurrency: new(2)}, store.Operation{ID: harp.NewID(), Time: noon}); err != nil {
				t.Fatal(err)
			}
			if _, err := s.CancelQueue(t.Context(), name, store.Operation{ID: harp.NewID(), Time: noon, By: ada}); err != nil {
				t.Fatal(err)
			}
			sent := submitted(t, s, inQ(usual))[0]
			waits := submitted(t, s, inQ(func(j *store.Job) { j.Expires = noon.Add(time.Minute) }))[0]
			if what == "given up" {
				applied(t, s, store.Transition{ID: sent.ID, Event: store.Event{Kind: store.Silent, At: noon, Attempt: 1, Fence: sent.Fence, Wake: later}})
				applied(t, s, store.Transition{ID: waits.ID, Event: store.Event{Kind: store.CancelReq, At: noon}})
			}
			damage(e, s, key)
			do(t, s, sent, waits)
			had := *s.sched.Queue(string(name))
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = opened(t, e, Options{})
			if q := s.sched.Queue(string(name)); q.Concurrency != had.Concurrency || q.Fixed != had.Fixed || !reflect.DeepEqual(q.Pause, had.Pause) || q.Through() != had.Through() || !q.Fixed {
				t.Errorf("the queue was %+v, is %+v", had, *q)
			}
			if j, err := s.Job(t.Context(), first.ID); err != nil || j.Cancel == nil || j.Cancel.By != ada || !j.Cancel.Time.Equal(noon) {
				t.Errorf("of who has cancelled its first job is said %+v, %v", j.Cancel, err)
			}
		})
	}
}

// TestPauseOfDamagedQueueEnds checks that a pause ends at its time though the row of its queue cannot be read any more.
func TestPauseOfDamagedQueueEnds(t *testing.T) {
	eachDamage(t, "pause", func(t *testing.T, damage func(e *trial, s *Store, key []byte)) {
		e := newTrial()
		s := opened(t, e, Options{})
		openGate(s, "h")
		c := inQueue(call("h"), 0, 1)
		until := noon.Add(time.Hour)
		pause := harp.QueueChange{Paused: new(true), Until: until, Concurrency: new(2)}
		if err := s.ChangeQueue(t.Context(), c.Job.Queue, pause, store.Operation{ID: harp.NewID(), Time: noon}); err != nil {
			t.Fatal(err)
		}
		j := submitted(t, s, c)[0]
		damage(e, s, nameKey(prefixQueue, string(c.Job.Queue)))
		if did := advanceAll(t, s, until); len(did.Claimed) != 1 || did.Claimed[0].ID != j.ID {
			t.Errorf("%d are started", len(did.Claimed))
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = opened(t, e, Options{})
		if q, err := s.Queue(t.Context(), c.Job.Queue); err != nil || q.Paused || q.Concurrency != 2 || q.Running != 1 || !s.NextDue().IsZero() {
			t.Errorf("the queue is %+v, %v, and due at %v", q, err, s.NextDue())
		}
	})
}

// TestQueueIsWrittenWhenItChanges has jobs come, run and end in a queue, whose row is written with
// the first and deleted with the last.
func TestQueueIsWrittenWhenItChanges(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	openGate(s, "h")
	jobs := submitted(t, s, inQueue(call("h"), 0, 2), inQueue(call("h"), 0, 2))
	jobs = append(jobs, submitted(t, s, inQueue(call("h"), 0, 2))...)
	applied(t, s, about(jobs[0], store.Started), about(jobs[1], store.CancelReq), about(jobs[0], store.End))
	applied(t, s, about(jobs[1], store.End), store.Transition{ID: jobs[2].ID, Event: store.Event{Kind: store.End, At: noon, Attempt: 1, Fence: 1}})
	var values []string
	for _, writes := range e.commits {
		for _, w := range writes {
			if w.Key[0] == prefixQueue {
				values = append(values, fmt.Sprint(w.Value != nil))
			}
		}
	}
	if got := strings.Join(values, " "); got != "true false" {
		t.Errorf("its row was written %s", got)
	}
}

// TestDamagedQueueHoldsItsCancelled checks that the jobs that a cancel of their queue has ended
// end, though the row of the queue cannot be read, and are not shown as waiting before.
func TestDamagedQueueHoldsItsCancelled(t *testing.T) {
	eachDamage(t, "queue", func(t *testing.T, damage func(e *trial, s *Store, key []byte)) {
		e := newTrial()
		s := opened(t, e, Options{})
		job := submitted(t, s, inQueue(call("h"), 0, 1))[0]
		if _, err := s.CancelQueue(t.Context(), job.Queue, store.Operation{ID: harp.NewID(), Time: noon}); err != nil {
			t.Fatal(err)
		}
		damage(e, s, nameKey(prefixQueue, string(job.Queue)))
		if j, err := s.Job(t.Context(), job.ID); !errors.Is(err, ErrDamaged) {
			t.Errorf("the job is %+v, %v, want ErrDamaged", j, err)
		}
		if did, err := s.Advance(t.Context(), noon); err != nil || len(did.Ended) != 1 || did.Ended[0].State != harp.StateCancelled {
			t.Errorf("ended are %+v, %v", did.Ended, err)
		}
		if n := e.count(prefixQueue) + e.count(prefixMarked) + countQueues(s); n != 0 {
			t.Errorf("%d rows are left of the queue", n)
		}
		works(t, s)
	})
}
