package rows

import (
	"errors"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// damage changes a bit of the first value that is stored under a prefix.
func (e *trial) damage(s *Store, prefix []byte) {
	e.poke(prefix, func(_, value []byte) []byte {
		value[len(value)-1] ^= 1
		return value
	})
	s.unlearn()
}

// works checks that a store goes on.
func works(t *testing.T, s *Store) {
	t.Helper()
	submitted(t, s, call("elsewhere"))
}

// TestDamagedEntriesOfPrune checks that what cannot be read of tombstones, idempotency keys
// and the feed keeps nothing else from being deleted, and the store works on.
func TestDamagedEntriesOfPrune(t *testing.T) {
	for name, prefix := range map[string][]byte{
		"tombstones":      indexKey(byPruned),
		"idempotency key": {prefixOnce},
		"first event":     keyFirstEvent,
	} {
		t.Run(name, func(t *testing.T) {
			e := newTrial()
			s := opened(t, e, Options{})
			openGate(s, "h")
			var jobs []store.Job
			for range 2 {
				c := call("h")
				c.Key, c.KeyUntil = c.Job.ID, noon.Add(time.Minute)
				jobs = append(jobs, submitted(t, s, c)...)
			}
			applied(t, s, about(jobs[0], store.End))
			later := noon.Add(time.Hour)
			first := store.Retention{EndedBefore: later, EventsBefore: later}
			if name == "idempotency key" {
				e.damage(s, prefix)
				first.EventsBefore = time.Time{}
			}
			prune(t, s, first, later)
			applied(t, s, about(jobs[1], store.End))
			if name != "idempotency key" {
				e.damage(s, prefix)
			}
			later = later.Add(store.TombstoneTime + time.Hour)
			prune(t, s, store.Retention{EndedBefore: later, EventsBefore: later}, later)
			if _, err := s.Job(t.Context(), jobs[1].ID); !errors.Is(err, harp.ErrPruned) {
				t.Errorf("a job after it: %v, want ErrPruned", err)
			}
			if n := e.count(prefixOnce); n > 0 {
				t.Errorf("%d idempotency keys are left", n)
			}
			works(t, s)
		})
	}
}

// TestDamagedQueue checks that jobs of a queue whose row cannot be read are refused, or left
// alone, and nothing else.
func TestDamagedQueue(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	inQ := func() store.Submission { return inQueue(call("h"), 0, 1) }
	submitted(t, s, inQ())
	if _, err := s.CancelQueue(t.Context(), inQ().Job.Queue, store.Operation{ID: harp.NewID(), Time: noon}); err != nil {
		t.Fatal(err)
	}
	e.damage(s, []byte{prefixQueue})
	keyed := inQ() // the queue is made anew by it
	keyed.Key, keyed.KeyUntil = "key", noon.Add(time.Hour)
	out, err := s.Submit(t.Context(), []store.Submission{call("h"), keyed}, noon)
	if err != nil || out[0].Err != nil || !errors.Is(out[1].Err, ErrDamaged) {
		t.Fatalf("submitting: %v, %+v", err, out)
	}
	if _, err := s.Advance(t.Context(), noon); err != nil {
		t.Errorf("writing the rows of what was cancelled: %v", err)
	}
	works(t, s)
}

// TestDamagedKey checks that a submission under an idempotency key that cannot be read is
// refused, and no other.
func TestDamagedKey(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	keyed := call("h")
	keyed.Key, keyed.KeyUntil = "key", noon.Add(time.Hour)
	submitted(t, s, keyed)
	e.damage(s, []byte{prefixOnce})
	keyed.Job.ID = harp.NewID()
	out, err := s.Submit(t.Context(), []store.Submission{call("h"), keyed}, noon)
	if err != nil || out[0].Err != nil || !errors.Is(out[1].Err, ErrDamaged) {
		t.Fatalf("submitting: %v, %+v", err, out)
	}
	works(t, s)
}

// TestDamagedJobHidesNoOther checks that a job whose row cannot be read is left out of those
// that a host has.
func TestDamagedJobHidesNoOther(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	jobs := onHost(t, s, 2, nil)
	i, _ := parseID(jobs[0].ID)
	e.damage(s, i.key(prefixLife))
	got, err := s.Active(t.Context(), "h")
	if err != nil || len(got) != 1 || got[0].ID != jobs[1].ID {
		t.Errorf("%d are active, %v", len(got), err)
	}
}
