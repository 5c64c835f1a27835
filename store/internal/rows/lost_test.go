package rows

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// lose takes rows away behind the store's back, as a damaged table hides them.
func (e *trial) lose(keys ...[]byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, key := range keys {
		e.tree.Delete(Item{Key: key})
	}
}

// closed is the engine of a store that did something and was closed.
func closed(t *testing.T, do func(s *Store)) *trial {
	t.Helper()
	e := newTrial()
	s, err := Open(e, Options{})
	if err != nil {
		t.Fatal(err)
	}
	do(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestLostNumberCancelsNothingNew opens a store of which the last submit number is not there any
// more, with a queue that was cancelled: what is submitted afterwards comes behind that cancel.
func TestLostNumberCancelsNothingNew(t *testing.T) {
	inQ := func() store.Submission { return inQueue(call("h"), 0, 5) }
	op := store.Operation{ID: harp.NewID(), Time: noon}
	e := closed(t, func(s *Store) {
		openGate(s, "h")
		running := submitted(t, s, inQ())[0]
		for range 5 {
			applied(t, s, about(submitted(t, s, call("h"))[0], store.End))
		}
		if _, err := s.CancelQueue(t.Context(), running.Queue, op); err != nil {
			t.Fatal(err)
		}
	})
	e.lose(keyNumber)
	s := opened(t, e, Options{})
	openGate(s, "h")
	j := submitted(t, s, inQ())[0]
	if got, err := s.Job(t.Context(), j.ID); err != nil || got.State != harp.StateSent || got.Cancel != nil {
		t.Errorf("a new job is %s, cancelled %v, %v", got.State, got.Cancel, err)
	}
	did, err := s.CancelQueue(t.Context(), j.Queue, op)
	if err != nil || slices.ContainsFunc(did.Active, func(a *store.Job) bool { return a.ID == j.ID }) {
		t.Errorf("the cancel, asked for again, is one of a new job, %v", err)
	}
}

// TestLostNumberOfEnded opens a store of which the last submit number is not there any more, nor
// any job that has not ended.
func TestLostNumberOfEnded(t *testing.T) {
	var last *store.Job
	e := closed(t, func(s *Store) {
		openGate(s, "h")
		for range 3 {
			last = submitted(t, s, call("h"))[0]
			applied(t, s, about(last, store.End))
		}
	})
	e.lose(keyNumber)
	s := opened(t, e, Options{})
	if j := submitted(t, s, call("h"))[0]; j.No <= last.No {
		t.Errorf("job %d follows on %d", j.No, last.No)
	}
}

// TestLostCountsAndCohort opens a store of which neither the counts nor a row of those that have not
// ended are there any more.
func TestLostCountsAndCohort(t *testing.T) {
	e := closed(t, func(s *Store) { submitted(t, s, call("h"), call("h")) })
	e.lose(keyNumber, cohortKey(1))
	s := opened(t, e, Options{})
	openGate(s, "h")
	if got, err := s.Claim(t.Context(), []string{"h"}, 10, noon); err != nil || len(got) != 2 {
		t.Errorf("%d are started, %v, want 2", len(got), err)
	}
}

// TestLostCountsAreCountedAgain opens a store of which it is lost how much its jobs store: that is counted.
func TestLostCountsAreCountedAgain(t *testing.T) {
	var had int64
	e := closed(t, func(s *Store) {
		openGate(s, "h")
		end := about(submitted(t, s, call("h"))[0], store.End)
		end.Event.Value = make(harp.Value, 5000)
		applied(t, s, end)
		submitted(t, s, call("away"))
		had = s.stored.Load()
	})
	e.lose(keyNumber)
	if got := opened(t, e, Options{}).stored.Load(); got != had || got < 5000 {
		t.Errorf("they store %d bytes, and stored %d", got, had)
	}
}

// TestLostQueue opens a store of which the row of a queue is not there any more, that was
// cancelled, paused, or given another concurrency: its jobs do not start as if none of that had been.
func TestLostQueue(t *testing.T) {
	inQ := func() store.Submission { return inQueue(call("h"), 0, 5) }
	name := inQ().Job.Queue
	op := store.Operation{ID: harp.NewID(), Time: noon}
	for what, do := range map[string]func(s *Store) error{
		"cancelled": func(s *Store) error {
			_, err := s.CancelQueue(t.Context(), name, op)
			return err
		},
		"paused": func(s *Store) error { return s.ChangeQueue(t.Context(), name, harp.QueueChange{Paused: new(true)}, op) },
		"one": func(s *Store) error {
			return s.ChangeQueue(t.Context(), name, harp.QueueChange{Concurrency: new(1)}, op)
		},
	} {
		t.Run(what, func(t *testing.T) {
			e := closed(t, func(s *Store) {
				submitted(t, s, inQ(), inQ())
				if err := do(s); err != nil {
					t.Fatal(err)
				}
			})
			e.lose(nameKey(prefixQueue, string(name)))
			s, err := Open(e, Options{})
			if errors.Is(err, ErrDamaged) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			openGate(s, "h")
			if got, err := s.Claim(t.Context(), []string{"h"}, 10, noon); err != nil || len(got) > 0 {
				t.Errorf("%d are started, %v", len(got), err)
			}
		})
	}
}

// TestRestoreBesideDamagedNumbers restores the backup of a store of which a number that it is
// opened with cannot be read.
func TestRestoreBesideDamagedNumbers(t *testing.T) {
	for name, key := range map[string][]byte{"counts": keyNumber, "first event": keyFirstEvent, "clock": keyAhead, "forgotten": keyForgotten} {
		t.Run(name, func(t *testing.T) {
			e := newTrial()
			s := opened(t, e, Options{})
			openGate(s, "h")
			ended := submitted(t, s, call("h"))[0]
			end := about(ended, store.End)
			end.Event.At = noon.Add(-2 * store.TombstoneTime)
			applied(t, s, end)
			long := noon.Add(3 * store.TombstoneTime)
			prune(t, s, store.Retention{EndedBefore: noon, EventsBefore: noon}, noon)
			prune(t, s, store.Retention{EventsBefore: noon.Add(time.Hour)}, long)
			s.ClockSet(time.Minute)
			waits := call("h")
			waits.Job.ID = harp.NewID()
			submitted(t, s, waits)
			found := false
			e.poke(key, func(k, value []byte) []byte {
				found = bytes.Equal(k, key)
				value[len(value)-1] ^= 1
				return value
			})
			if !found {
				t.Fatal("there is none")
			}
			into := newTrial()
			if did, err := Restore(into, backedUp(t, s), noon, Options{}); err != nil || did.Lost != 1 {
				t.Fatalf("%d are lost, %v", did.Lost, err)
			}
			if name == "first event" { // which can be looked for
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = opened(t, e, Options{})
				if page, err := s.Events(t.Context(), harp.EventFilter{After: harp.EventsFromStart}, 1<<20); err != nil || len(page.Events) == 0 || page.Events[0].Type == harp.EventsMissing {
					t.Errorf("the feed begins with %+v, %v", page.Events, err)
				}
			}
			s = opened(t, into, Options{})
			c := call("h")
			c.Job.ID = harp.NewID()
			submitted(t, s, c)
		})
	}
}

// TestOlderCohort opens a store in which a row of those that have not ended is as it was before one
// of them ended, and was deleted.
func TestOlderCohort(t *testing.T) {
	for name, forget := range map[string]bool{"pruned": false, "forgotten": true} {
		t.Run(name, func(t *testing.T) {
			e := newTrial()
			s, err := Open(e, Options{})
			if err != nil {
				t.Fatal(err)
			}
			openGate(s, "h")
			j := submitted(t, s, call("h"))[0]
			var older Item
			e.poke([]byte{prefixUnended}, func(key, value []byte) []byte {
				older = Item{key, value}
				return value
			})
			applied(t, s, about(j, store.End))
			prune(t, s, store.Retention{EndedBefore: noon.Add(1)}, noon)
			if forget {
				prune(t, s, store.Retention{}, noon.Add(2*store.TombstoneTime))
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if err := e.Commit([]Write{Write(older)}); err != nil {
				t.Fatal(err)
			}
			s = opened(t, e, Options{})
			c := call("h")
			c.Job.ID = harp.NewID()
			submitted(t, s, c)
		})
	}
}

// TestOlderRowsStartNothingAgain opens a store in which the rows of a job are as they were before it
// was started, and ended: it is not started again.
func TestOlderRowsStartNothingAgain(t *testing.T) {
	for name, keepsCohort := range map[string]bool{"its rows": true, "its life, and no cohort": false} {
		t.Run(name, func(t *testing.T) {
			e := newTrial()
			s, err := Open(e, Options{})
			if err != nil {
				t.Fatal(err)
			}
			j := submitted(t, s, call("h"))[0]
			i, _ := parseID(j.ID)
			older := []Write{}
			for item, err := range must(t)(e.View()).Scan(nil, nil, false) {
				if err != nil {
					t.Fatal(err)
				}
				if bytes.Equal(item.Key, i.key(prefixLife)) || item.Key[0] == prefixUnended && keepsCohort {
					older = append(older, Write{bytes.Clone(item.Key), bytes.Clone(item.Value)})
				}
			}
			openGate(s, "h")
			got, err := s.Claim(t.Context(), []string{"h"}, 1, noon)
			if err != nil || len(got) != 1 {
				t.Fatal(err)
			}
			applied(t, s, about(got[0], store.End))
			if !keepsCohort {
				submitted(t, s, call("away"))
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if err := e.Commit(older); err != nil {
				t.Fatal(err)
			}
			if !keepsCohort {
				e.lose(cohortKey(2))
			}
			if s, err = Open(e, Options{}); err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			openGate(s, "h")
			if got, err := s.Claim(t.Context(), []string{"h"}, 10, noon); err != nil || len(got) > 0 {
				t.Errorf("%d are started, %v", len(got), err)
			}
			for _, when := range []string{"now", "when it is opened again"} {
				if got, err := s.Job(t.Context(), j.ID); !errors.Is(err, ErrDamaged) {
					t.Errorf("%s the job is %+v, %v", when, got, err)
				}
				s = opened(t, e, Options{})
			}
		})
	}
}

func must(t *testing.T) func(Snapshot, error) Snapshot {
	return func(s Snapshot, err error) Snapshot {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// TestRestoreLooksForWhatIsMissing restores the backup of a store in which one row of those that have
// not ended names a job that has, and another is not there any more.
func TestRestoreLooksForWhatIsMissing(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	openGate(s, "h")
	ends := submitted(t, s, call("h"), call("h"))[0]
	lost := submitted(t, s, call("h"))[0]
	var older Item
	e.poke(cohortKey(1), func(key, value []byte) []byte {
		older = Item{key, value}
		return value
	})
	applied(t, s, about(ends, store.End))
	row := must(t)(e.View())
	now, _ := row.Get(cohortKey(1))
	third, _ := row.Get(cohortKey(lost.No))
	if err := e.Commit([]Write{Write(older)}); err != nil {
		t.Fatal(err)
	}
	e.lose(cohortKey(lost.No))
	backup := backedUp(t, s)
	if err := e.Commit([]Write{{cohortKey(1), now}, {cohortKey(lost.No), third}}); err != nil {
		t.Fatal(err)
	}
	into := newTrial()
	if did, err := Restore(into, backup, noon, Options{}); err != nil || did.Lost != 2 {
		t.Errorf("%d are lost, %v, want 2", did.Lost, err)
	}
	s = opened(t, into, Options{})
	if j, err := s.Job(t.Context(), lost.ID); err != nil || j.State != harp.StateLost {
		t.Errorf("the other is %s, %v", j.State, err)
	}
}
