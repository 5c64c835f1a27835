package rows

import (
	"errors"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// onHost starts n jobs on "h".
func onHost(t *testing.T, s *Store, n int, change func(*store.Submission)) []*store.Job {
	t.Helper()
	s.SetGate("h", store.Gate{Open: true, Most: 1 << 20})
	var jobs []*store.Job
	for len(jobs) < n {
		var calls []store.Submission
		for range min(500, n-len(jobs)) {
			c := call("h")
			if change != nil {
				change(&c)
			}
			calls = append(calls, c)
		}
		jobs = append(jobs, submitted(t, s, calls...)...)
	}
	return jobs
}

func (e *trial) sizes(from int) (sizes []int) {
	for _, writes := range e.commits[from:] {
		size := 0
		for _, w := range writes {
			size += len(w.Key) + len(w.Value) + WriteCost
		}
		sizes = append(sizes, size)
	}
	return sizes
}

// TestSilenceCommits checks that the attempts of a host are unknown in one commit,
// and that even of one that has very many no commit is more than an engine takes.
func TestSilenceCommits(t *testing.T) {
	labelled := func(s *store.Submission) { s.Job.Labels = map[string]string{"label": string(make([]byte, 250))} }
	for n, most := range map[int]int{1024: 1, 6000: 6} {
		e := newTrial()
		s := opened(t, e, Options{})
		change := labelled
		if most == 1 {
			change = nil
		}
		jobs := onHost(t, s, n, change)
		before := len(e.commits)
		got, err := s.Silence(t.Context(), "h", noon, noon.Add(time.Hour))
		if err != nil || len(got) != n || got[n-1].ID != jobs[n-1].ID {
			t.Fatalf("%d of %d are unknown, %v", len(got), n, err)
		}
		sizes := e.sizes(before)
		if len(sizes) > most {
			t.Errorf("%d jobs took %d commits, want at most %d", n, len(sizes), most)
		}
		for _, size := range sizes {
			if size > MaxCommit {
				t.Errorf("a commit of %d bytes, at most %d", size, MaxCommit)
			}
		}
	}
}

// TestSilenceDamaged checks that a job whose row cannot be read is left out, be it
// silenced or given up.
func TestSilenceDamaged(t *testing.T) {
	flip := func(_, value []byte) []byte {
		value[len(value)-1] ^= 1
		return value
	}
	e := newTrial()
	s := opened(t, e, Options{})
	jobs := onHost(t, s, 3, nil)
	damage := func(j *store.Job) {
		i, _ := parseID(j.ID)
		e.poke(i.key(prefixLife), flip)
		s.unlearn()
	}
	damage(jobs[0])
	got, err := s.Silence(t.Context(), "h", noon, noon.Add(time.Hour))
	if err != nil || len(got) != 2 {
		t.Fatalf("%d are unknown, %v", len(got), err)
	}
	damage(jobs[1])
	did, err := s.Advance(t.Context(), noon.Add(time.Hour))
	if err != nil || len(did.Ended) != 1 || did.Ended[0].ID != jobs[2].ID {
		t.Fatalf("%d ended, %v", len(did.Ended), err)
	}
}

// TestOutcomeBeside checks that what an attempt left, however much, is written once
// while its job waits, and not with each claim; and that nothing of it stays behind.
func TestOutcomeBeside(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	jobs := onHost(t, s, 20, func(c *store.Submission) {
		c.Job.Retry = harp.RetryPolicy{On: []harp.State{harp.StateFailed}, Attempts: 2, Backoff: time.Minute, MaxBackoff: time.Minute}
	})
	for _, j := range jobs {
		end := about(j, store.End)
		end.Event.Failure = harp.Failure{Code: "remote", Data: make([]byte, 700_000)}
		end.Event.Value, end.Event.Jitter = make([]byte, 700_000), 1
		applied(t, s, end)
	}
	if n := e.count(prefixOutcome); n != len(jobs) {
		t.Errorf("%d outcomes of %d attempts", n, len(jobs))
	}
	before := len(e.commits)
	did, err := s.Advance(t.Context(), noon.Add(time.Minute))
	if err != nil || len(did.Claimed) != len(jobs) {
		t.Fatalf("%d claimed, %v", len(did.Claimed), err)
	}
	for _, size := range e.sizes(before) {
		if size > MaxCommit {
			t.Errorf("a commit of %d bytes, at most %d", size, MaxCommit)
		}
	}
	for n, j := range did.Claimed {
		kind := store.End
		if n%2 == 0 {
			kind = store.Refused
		}
		applied(t, s, about(j, kind))
	}
	if n := e.count(prefixOutcome) + e.count(prefixValue) + e.count(prefixPiece); n != 0 {
		t.Errorf("%d rows of attempts are left", n)
	}
}

// TestOlderPause opens a store in which an earlier version has paused a queue: of the row only that is known.
func TestOlderPause(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	name, ada := harp.Value{0x80}, harp.Principal{Kind: "caller", Name: "ada"}
	if err := s.ChangeQueue(t.Context(), name, harp.QueueChange{Paused: new(true)}, store.Operation{By: ada, Time: noon}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	first, _ := split(nameKey(prefixQueue, string(name)), encode(queueRow{Concurrency: 1, Paused: true, Keeper: ada}))
	if err := e.Commit([]Write{{nameKey(prefixQueue, string(name)), first}}); err != nil {
		t.Fatal(err)
	}
	s = opened(t, e, Options{})
	q, err := s.Queue(t.Context(), name)
	if err != nil || !q.Paused || q.Pause == nil || *q.Pause != (harp.QueuePause{}) || !s.NextDue().IsZero() {
		t.Errorf("it is %+v, %v, and due at %v", q, err, s.NextDue())
	}
	if used := s.QuotaUsed(ada); used.Queues != 1 {
		t.Errorf("%d queues count as those of who has paused it", used.Queues)
	}
	if err := s.ChangeQueue(t.Context(), name, harp.QueueChange{Paused: new(false)}, store.Operation{By: ada, Time: noon}); err != nil {
		t.Error(err)
	}
	if _, err := s.Queue(t.Context(), name); !errors.Is(err, harp.ErrNotFound) {
		t.Error(err)
	}
}

// TestPauseLeavesNothing checks that a queue which was paused is gone with its pause
// or its last job, whichever goes later, and its mark with it.
func TestPauseLeavesNothing(t *testing.T) {
	yes, no := true, false
	for _, unpauseFirst := range []bool{true, false} {
		e := newTrial()
		s := opened(t, e, Options{})
		name := harp.Value{0x80}
		pause := func(is *bool) {
			t.Helper()
			if err := s.ChangeQueue(t.Context(), name, harp.QueueChange{Paused: is}, store.Operation{Time: noon}); err != nil {
				t.Fatal(err)
			}
		}
		pause(&yes)
		if done, err := s.CancelQueue(t.Context(), name, store.Operation{Time: noon}); err != nil || done.Count != 0 || e.count(prefixMarked) != 0 {
			t.Errorf("cancelling it empty: %+v, %v, %d marks", done, err, e.count(prefixMarked))
		}
		c := call("h")
		c.Job.Queue = name
		submitted(t, s, c)
		if _, err := s.CancelQueue(t.Context(), name, store.Operation{Time: noon}); err != nil {
			t.Fatal(err)
		}
		if unpauseFirst {
			pause(&no)
		}
		if _, err := s.Advance(t.Context(), noon); err != nil {
			t.Fatal(err)
		}
		if !unpauseFirst {
			if e.count(prefixQueue) != 1 || e.count(prefixMarked) != 0 {
				t.Errorf("%d queues and %d marks, want the paused queue without", e.count(prefixQueue), e.count(prefixMarked))
			}
			pause(&no)
		}
		if n := e.count(prefixQueue) + e.count(prefixMarked) + countQueues(s); n != 0 {
			t.Errorf("unpaused first, %v: %d things are left", unpauseFirst, n)
		}
	}
}

// TestReturningLeavesNothing checks that a host keeps no job that waits for nothing
// on it any more.
func TestReturningLeavesNothing(t *testing.T) {
	s := opened(t, newTrial(), Options{})
	jobs := onHost(t, s, 3, func(c *store.Submission) {
		c.Job.Retry = harp.RetryPolicy{On: []harp.State{harp.StateLost}, Attempts: 2, Backoff: time.Minute, MaxBackoff: time.Minute}
	})
	for _, j := range jobs {
		lose := about(j, store.Lose)
		lose.Event.Reason, lose.Event.Jitter = harp.LostJournalGone, 1
		applied(t, s, lose)
	}
	if n := len(s.sched.Returning("h")); n != len(jobs) {
		t.Fatalf("%d wait for another attempt, want %d", n, len(jobs))
	}
	applied(t, s, about(jobs[0], store.End), about(jobs[1], store.CancelReq))
	if did, err := s.Advance(t.Context(), noon.Add(time.Minute)); err != nil || len(did.Claimed) != 1 {
		t.Fatalf("%d claimed, %v", len(did.Claimed), err)
	}
	if n := len(s.sched.Returning("h")); n != 0 {
		t.Errorf("%d still wait", n)
	}
}
