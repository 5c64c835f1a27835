package rows

import (
	"errors"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// TestSpaceLines checks what each operation needs.
func TestSpaceLines(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	j := started(t, s)
	waiting := submitted(t, s, call("away"))[0]
	e.space = SpaceCritical
	for name, err := range everything(t.Context(), s, j.ID) {
		switch name {
		case "Submit", "Claim", "Append", "OpenSession", "PutHost", "PutDocument", "ChangeDocuments", "StepSchedule", "StepSchedule/entry", "AppendEvents":
			if !errors.Is(err, harp.ErrNoSpace) {
				t.Errorf("%s: %v, want ErrNoSpace", name, err)
			}
		default:
			if errors.Is(err, harp.ErrNoSpace) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	out, err := s.Apply(t.Context(), about(j, store.End), about(waiting, store.CancelReq))
	if err != nil || !errors.Is(out[0].Err, harp.ErrNoSpace) || out[1].Err != nil {
		t.Errorf("an end and a cancel: %v, %+v", err, out)
	}
	e.space = SpaceLow
	if _, err := s.Submit(t.Context(), []store.Submission{call("h")}, noon); !errors.Is(err, harp.ErrNoSpace) {
		t.Errorf("Submit: %v, want ErrNoSpace", err)
	}
	again := call("h")
	again.Job.ID = waiting.ID
	got, err := s.Submit(t.Context(), []store.Submission{call("h"), again}, noon)
	if err != nil || !errors.Is(got[0].Err, harp.ErrNoSpace) || got[1].Err != nil || got[1].Job.ID != waiting.ID {
		t.Errorf("a new one and one that is there: %v, %+v", err, got)
	}
	applied(t, s, about(j, store.End))
}

// TestCancelledAtCritical checks that the rows of a cancelled queue are written
// though space is short.
func TestCancelledAtCritical(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	c := call("away")
	c.Job.Queue = harp.Value{0x80}
	submitted(t, s, c)
	e.space = SpaceCritical
	if _, err := s.CancelQueue(t.Context(), c.Job.Queue, store.Operation{Time: noon}); err != nil {
		t.Fatal(err)
	}
	did, err := s.Advance(t.Context(), noon)
	if err != nil || len(did.Ended) != 1 {
		t.Fatalf("%d ended, %v", len(did.Ended), err)
	}
}

// TestCancelledAndUnread checks that a queue that is cancelled is said to be, though its
// running jobs cannot be read, which are returned to a caller that asks again.
func TestCancelledAndUnread(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	openGate(s, "h")
	running := submitted(t, s, inQueue(call("h"), 0, 1), inQueue(call("h"), 0, 1))[0]
	s.unlearn()
	e.onGet = func(key, _ []byte) error {
		if key[0] == prefixLife {
			return errors.New("cannot be read")
		}
		return nil
	}
	op := store.Operation{ID: harp.NewID(), Time: noon}
	done, err := s.CancelQueue(t.Context(), running.Queue, op)
	if err != nil || done.Count != 2 || !done.More {
		t.Fatalf("cancelling: %+v, %v", done, err)
	}
	e.onGet = nil
	done, err = s.CancelQueue(t.Context(), running.Queue, op)
	if err != nil || done.Count != 2 || done.More {
		t.Fatalf("again: %+v, %v", done, err)
	}
	wantJobs(t, "to be told", done.Active, running.No)
}

// TestNothingLeft checks that what belongs to a job that is over is not kept: its
// queue, its place among those that have not ended, pieces of longer values.
func TestNothingLeft(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	s.SetGate("h", store.Gate{Open: true, Most: 5})
	c := call("h")
	c.Job.Queue = harp.Value{0x80}
	first := submitted(t, s, c)[0]
	c = call("h")
	c.Job.Queue, c.Job.NotBefore, c.Job.Expires = harp.Value{0x80}, noon.Add(time.Hour), noon.Add(2*time.Hour)
	second := submitted(t, s, c)[0]
	if e.count(prefixUnended) != 2 || e.count(prefixIndex, byEnded) != 0 || e.count(prefixQueue) != 1 {
		t.Errorf("%d cohorts, %d ended, %d queues", e.count(prefixUnended), e.count(prefixIndex, byEnded), e.count(prefixQueue))
	}
	applied(t, s, about(first, store.End), about(second, store.CancelReq))
	if e.count(prefixUnended) != 0 || e.count(prefixIndex, byEnded) != 1 || e.count(prefixIndex, byState) != 2 {
		t.Errorf("%d cohorts, %d commits of ends, %d by state", e.count(prefixUnended), e.count(prefixIndex, byEnded), e.count(prefixIndex, byState))
	}
	if e.count(prefixQueue)+e.count(prefixMarked) != 0 || s.sched.Len()+len(s.cohorts)+countQueues(s) != 0 {
		t.Error("the queue is still there")
	}
	if !s.NextDue().IsZero() {
		t.Errorf("something is due at %v", s.NextDue())
	}
	for _, size := range []int{300_000, 10} {
		if err := s.PutDocument(t.Context(), "k", "n", make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	if n := e.count(prefixPiece); n != 0 {
		t.Errorf("%d pieces of a longer document are left", n)
	}
}
