package rows

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// faulty is a writer that fails from the n-th write on.
type faulty struct {
	io.Writer
	n   int
	err error
}

func (f *faulty) Write(b []byte) (int, error) {
	if f.n--; f.n < 0 {
		return 0, f.err
	}
	return f.Writer.Write(b)
}

// TestBackupIsWholeOrFails restores all that a backup has that reports success, and has the
// writer fail at each write: each time the backup reports that.
func TestBackupIsWholeOrFails(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	started(t, s)
	did, err := Restore(newTrial(), backedUp(t, s), noon, Options{})
	if err != nil || did.Rows != e.count() || did.Lost != 1 {
		t.Fatalf("%d rows of %d and %d jobs of 1 were restored, %v", did.Rows, e.count(), did.Lost, err)
	}
	broken := errors.New("broken")
	for n := range 100 {
		var out bytes.Buffer
		err := s.Backup(t.Context(), &faulty{&out, n, broken})
		if err == nil {
			if _, err := Restore(newTrial(), &out, noon, Options{}); err != nil || n < 10 {
				t.Errorf("after %d writes it is whole: %v", n, err)
			}
			return
		}
		if !errors.Is(err, broken) {
			t.Errorf("write %d failed: %v", n, err)
		}
		if _, err := Restore(newTrial(), &out, noon, Options{}); err == nil {
			t.Errorf("what was written before write %d is restored", n)
		}
	}
	t.Error("it takes no end")
}

// TestRestoreWithoutSpace checks that nothing is restored where there is not even space for
// what ends the jobs.
func TestRestoreWithoutSpace(t *testing.T) {
	s := opened(t, newTrial(), Options{})
	started(t, s)
	for space, isEnough := range map[Space]bool{SpaceFull: false, SpaceCritical: false, SpaceLow: true, SpacePlenty: true} {
		e := newTrial()
		e.space = space
		_, err := Restore(e, backedUp(t, s), noon, Options{})
		if !isEnough && (!errors.Is(err, harp.ErrNoSpace) || e.count() > 0) || isEnough && err != nil {
			t.Errorf("space is %s: %v, %d rows", space, err, e.count())
		}
	}
}

// TestRestoreIntoAnother leaves alone the rows of a store that there is.
func TestRestoreIntoAnother(t *testing.T) {
	s := opened(t, newTrial(), Options{})
	started(t, s)
	e := newTrial()
	j := submitted(t, opened(t, e, Options{}), call("h"))[0]
	had := e.count()
	if _, err := Restore(e, backedUp(t, s), noon, Options{}); err == nil || e.count() != had {
		t.Errorf("restoring into it: %v, it has %d rows of %d", err, e.count(), had)
	}
	if _, err := opened(t, e, Options{}).Job(t.Context(), j.ID); err != nil {
		t.Error(err)
	}
}

// TestRestoreBesideADamagedQueue restores the backup of a store in which the row of a queue
// cannot be read: its jobs are lost as any other, and the queue is one that nobody has said
// anything of.
func TestRestoreBesideADamagedQueue(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	inQ := func() store.Submission { return inQueue(call("h"), 0, 1) }
	jobs := submitted(t, s, inQ(), inQ(), call("h"))
	paused := true
	op := func() store.Operation { return store.Operation{ID: harp.NewID(), Time: noon} }
	if err := s.ChangeQueue(t.Context(), jobs[0].Queue, harp.QueueChange{Paused: &paused}, op()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.CancelQueue(t.Context(), jobs[0].Queue, op()); err != nil {
		t.Fatal(err)
	}
	e.damage(s, []byte{prefixQueue})

	into := newTrial()
	if did, err := Restore(into, backedUp(t, s), noon, Options{}); err != nil || did.Lost != len(jobs) {
		t.Fatalf("%d jobs are lost, %.100v", did.Lost, err)
	}
	submitted(t, s, inQ()) // writes the row anew
	s = opened(t, into, Options{})
	page, err := s.List(t.Context(), store.Filter{States: []harp.State{harp.StateLost}}, "")
	if err != nil || len(page.Jobs) != len(jobs) {
		t.Errorf("%d are listed as lost, %v", len(page.Jobs), err)
	}
	if _, err := s.Queue(t.Context(), jobs[0].Queue); !errors.Is(err, harp.ErrNotFound) {
		t.Errorf("the queue: %v, want ErrNotFound", err)
	}
	submitted(t, s, inQ())
	works(t, s)
}

// TestRestoreBesideADamagedEntry restores the backup of a store in which it cannot be read
// which job it is that has not ended: that is lost as any other.
func TestRestoreBesideADamagedEntry(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	jobs := submitted(t, s, call("h"), call("h"))
	e.damage(s, []byte{prefixUnended})
	into := newTrial()
	if did, err := Restore(into, backedUp(t, s), noon, Options{}); err != nil || did.Lost != len(jobs) {
		t.Fatalf("%d jobs are lost, %v", did.Lost, err)
	}
	s = opened(t, into, Options{})
	for _, j := range jobs {
		if j, err := s.Job(t.Context(), j.ID); err != nil || j.State != harp.StateLost {
			t.Errorf("a job is %s, %v", j.State, err)
		}
	}
	works(t, s)
}

// TestRestoreBesideDamage restores the backup of a store in which jobs that had not ended
// cannot be read: all others are restored, and those are never taken for new ones.
func TestRestoreBesideDamage(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	openGate(s, "h")
	calls := []store.Submission{call("h"), call("h"), call("h"), call("h")}
	calls[2].Job.Retry = largestCall().Job.Retry
	jobs := submitted(t, s, calls...)
	ends := []store.Transition{about(jobs[0], store.End), about(jobs[2], store.End)}
	ends[0].Event.Value = harp.Value{1}
	ends[1].Event.Failure, ends[1].Event.Jitter = harp.Failure{Code: "remote"}, 1
	applied(t, s, ends...)
	var ids []id
	for _, j := range jobs {
		i, _ := parseID(j.ID)
		ids = append(ids, i)
	}
	e.damage(s, ids[1].key(prefixLife))
	e.damage(s, ids[2].key(prefixOutcome))
	e.poke(ids[3].key(prefixCall), func(_, _ []byte) []byte { return nil })

	into := newTrial()
	if _, err := Restore(into, backedUp(t, s), noon, Options{}); err != nil {
		t.Fatal(err)
	}
	s = opened(t, into, Options{})
	if v, err := s.Value(t.Context(), jobs[0].ID); err != nil || len(v) != 1 {
		t.Errorf("the result of a job that is whole is %v, %v", v, err)
	}
	out, err := s.Submit(t.Context(), calls[1:], noon)
	if err != nil {
		t.Fatal(err)
	}
	if j := out[1].Job; out[1].Err != nil || j.State != harp.StateLost || j.Reason != harp.LostRestored {
		t.Errorf("a job of which only what an attempt had said is damaged is %s, %s, %v", j.State, j.Reason, out[1].Err)
	}
	for n, again := range []store.Submitted{out[0], out[2]} {
		if again.New || again.Err == nil {
			t.Errorf("job %d, submitted again, is new %v, %v", n+1, again.New, again.Err)
		}
	}
	works(t, s)
}
