//go:build !race

package rows

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
)

var errUnreadable = errors.New("the disk cannot be read")

// aCommit is what fails that is no read.
const aCommit = "a commit"

// unreadable is an engine of which one read fails, or each from one on: a view, a key, an entry of a scan or its end.
type unreadable struct {
	*trial
	left     atomic.Int64 // reads until then; below 1: none will
	failed   atomic.Value // what failed
	isReread atomic.Bool  // the next read was of the same
	isGone   atomic.Bool  // those behind it fail as well
}

func (e *unreadable) fails(what string) error {
	left := e.left.Add(-1)
	switch left {
	case 0:
		e.isReread.Store(false)
		e.failed.Store(what)
		return errUnreadable
	case -1:
		e.isReread.Store(e.failed.Load() == what && what != aCommit)
	}
	if left < 0 && e.isGone.Load() {
		return errUnreadable
	}
	return nil
}

func (e *unreadable) View() (Snapshot, error) {
	if err := e.fails("a view"); err != nil {
		return nil, err
	}
	snap, err := e.trial.View()
	return unreadableView{snap, e}, err
}

type unreadableView struct {
	Snapshot
	e *unreadable
}

func (v unreadableView) Get(key []byte) ([]byte, error) {
	if err := v.e.fails(string(key)); err != nil {
		return nil, err
	}
	return v.Snapshot.Get(key)
}

func (v unreadableView) Scan(prefix, from []byte, reverse bool) iter.Seq2[Item, error] {
	return failing(v.e, "scan "+string(prefix)+string(from), v.Snapshot.Scan(prefix, from, reverse))
}

func (v unreadableView) Keys(prefix []byte) iter.Seq2[Entry, error] {
	return failing(v.e, "keys "+string(prefix), v.Snapshot.Keys(prefix))
}

func failing[T any](e *unreadable, what string, all iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		for one, err := range all {
			if failed := e.fails(what); failed != nil {
				yield(none, failed)
				return
			}
			if !yield(one, err) {
				return
			}
		}
		if err := e.fails(what); err != nil {
			yield(none, err)
		}
	}
}

// eventful is a store with something of all that it can have, and what of it is asked for.
type eventful struct {
	*Store
	e                                *unreadable
	ended, sent, lost, late, waiting *store.Job
	batch                            *store.Batch // two of its three hosts are not reached
	q                                harp.Value
	op                               store.Operation
}

// later is when much is due of what an eventful store has.
var later = noon.Add(time.Hour)

func newEventful(t *testing.T) *eventful {
	t.Helper()
	e := &unreadable{trial: newTrial()}
	s := opened(t, e, Options{})
	v := &eventful{Store: s, e: e, op: store.Operation{ID: harp.NewID(), Time: noon}}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	putRule(t, s, harp.RetentionRule{Name: "r", MaxBytes: 1 << 30})
	v.ended = lived(t, s, noon)
	failedAtLength(t, s)
	gone := submitted(t, s, call("h"))[0]
	ended := about(gone, store.End)
	ended.Event.At = noon.Add(-2 * store.TombstoneTime)
	applied(t, s, ended)
	prune(t, s, store.Retention{EndedBefore: ended.Event.At.Add(1)}, ended.Event.At.Add(2))
	inQ := func() store.Submission { return inQueue(call("h"), 0, 2) }
	v.lost = submitted(t, s, inQ())[0]
	submitted(t, s, inQ(), inQ())
	v.q = v.lost.Queue
	paused := call("h")
	paused.Job.Retry = harp.RetryPolicy{On: []harp.State{harp.StateFailed, harp.StateLost}, Attempts: 3, Backoff: time.Second, MaxBackoff: time.Second}
	pauses := submitted(t, s, paused)[0]
	fails := about(pauses, store.End)
	fails.Event.Failure, fails.Event.Jitter = failures.New("remote", "it failed"), 1
	fails.Event.Failure.Data = make(harp.Value, 100_000)
	silent := about(v.lost, store.Silent)
	silent.Event.Wake = noon.Add(time.Minute)
	applied(t, s, fails, silent)
	_, err := s.CancelQueue(t.Context(), v.q, v.op)
	do(err)
	expires := inQ()
	expires.Job.Expires = noon.Add(time.Minute)
	v.waiting = submitted(t, s, expires)[0]
	submitted(t, s, inQ())
	key := call("away")
	key.Key, key.KeyUntil, key.Job.OfflineWait = "k", noon.Add(time.Minute), time.Second
	submitted(t, s, key)
	v.sent = submitted(t, s, call("h"))[0]
	v.late = submitted(t, s, call("h"))[0]
	lose, late := about(v.late, store.Lose), about(v.late, store.End)
	lose.Event.Reason, late.Event.Value = harp.LostAgentRestarted, harp.Value("late")
	applied(t, s, lose, late)
	_, err = s.OpenSession(t.Context(), store.Session{Host: "h", At: noon})
	do(err)
	do(s.PutDocument(t.Context(), "k", "n", make([]byte, 200_000)))
	inWaves := onHosts(3)
	inWaves.Batch.Plan.Parallel = 1
	v.batch, _ = begin(t, s, inWaves)
	return v
}

// record is the first of an attempt.
func (v *eventful) record(j *store.Job) store.Append {
	return store.Append{ID: j.ID, Attempt: 1, Fence: j.Fence, Records: []harp.Record{{Value: harp.Value{1}}}, Arrived: noon}
}

// afresh has the next operation read all that it needs.
func (v *eventful) afresh() {
	v.unlearn()
	l := &v.feed.cache
	l.last, l.events, l.size = 0, nil, 0
}

// TestUnreadable has each read fail, one at a time, that an operation needs of the engine: the
// operation fails by that; one that returns what it reads may come to the same without it. It succeeds when it is
// asked for again.
func TestUnreadable(t *testing.T) {
	submit := func(v *eventful, c store.Submission) error {
		out, err := v.Submit(v.open, []store.Submission{c}, noon)
		if err == nil {
			err = out[0].Err
		}
		return err
	}
	apply := func(v *eventful, tr store.Transition) error {
		out, err := v.Apply(v.open, tr)
		if err == nil {
			err = out[0].Err
		}
		return err
	}
	cancel := func(v *eventful, op store.Operation) error {
		done, err := v.CancelQueue(v.open, v.q, op)
		if err == nil && done.More {
			err = errUnreadable // which of its jobs run, and it says so
		}
		return err
	}
	type operations map[string]func(v *eventful) (any, error)
	reads := operations{
		"Job":        func(v *eventful) (any, error) { return v.Job(v.open, v.sent.ID) },
		"Job/queued": func(v *eventful) (any, error) { return v.Job(v.open, v.waiting.ID) },
		"Request":    func(v *eventful) (any, error) { return v.Request(v.open, v.ended.ID) },
		"Value":      func(v *eventful) (any, error) { return v.Value(v.open, v.ended.ID) },
		"Value/none": func(v *eventful) (any, error) { return v.Value(v.open, v.sent.ID) },
		"Read":       func(v *eventful) (any, error) { return v.Read(v.open, v.ended.ID, 1, store.ReadLimit{Bytes: 1 << 30}) },
		"Active":     func(v *eventful) (any, error) { return v.Active(v.open, "") },
		"Returning":  func(v *eventful) (any, error) { return v.Returning(v.open, "") },
		"List":       func(v *eventful) (any, error) { return v.List(v.open, store.Filter{}, "") },
		"List/labels": func(v *eventful) (any, error) {
			return v.List(v.open, store.Filter{Labels: v.ended.Labels, Host: "h"}, "")
		},
		"List/cancels": func(v *eventful) (any, error) {
			return v.List(v.open, store.Filter{States: []harp.State{harp.StateCancelled}, Queue: v.q}, "")
		},
		"Host":     func(v *eventful) (any, error) { return v.Host(v.open, "h") },
		"Document": func(v *eventful) (any, error) { return v.Document(v.open, "k", "n") },
		"ListDocuments": func(v *eventful) (any, error) {
			page, next, err := v.ListDocuments(v.open, "k", "", 10)
			return []any{page, next}, err
		},
		"DocumentsChanged": func(v *eventful) (any, error) {
			_, done, err := v.DocumentsChanged(v.open, store.Operation{ID: harp.NewID()})
			return done, err
		},
		"ListHosts": func(v *eventful) (any, error) {
			page, next, err := v.ListHosts(v.open, "", 10)
			return []any{page, next}, err
		},
		"Batch":        func(v *eventful) (any, error) { return v.Batch(v.open, v.batch.ID) },
		"BatchMembers": func(v *eventful) (any, error) { return v.BatchMembers(v.open, v.batch.ID, 0, 3) },
		"Events": func(v *eventful) (any, error) {
			return v.Events(v.open, harp.EventFilter{After: harp.EventsFromStart}, 1<<20)
		},
	}
	writes := operations{
		"Backup": func(v *eventful) (any, error) {
			return nil, v.Backup(v.open, io.Discard)
		},
		"Submit": func(v *eventful) (any, error) { return nil, submit(v, inQueue(call("h"), 0, 1)) },
		"Submit/again": func(v *eventful) (any, error) {
			c := call("h")
			c.Job.ID = v.sent.ID
			return nil, submit(v, c)
		},
		"Submit/key": func(v *eventful) (any, error) {
			c := call("h")
			c.Key, c.KeyUntil = "k", later
			return nil, submit(v, c)
		},
		"Submit/keys": func(v *eventful) (any, error) { // of which the time of the first is over
			c := call("h")
			c.Key, c.KeyUntil = "k", later
			out, err := v.Submit(v.open, []store.Submission{c}, noon.Add(2*time.Minute))
			if err == nil {
				err = out[0].Err
			}
			return nil, err
		},
		"SubmitBatch": func(v *eventful) (any, error) { return v.SubmitBatch(v.open, onHosts(2), noon) },
		"SubmitBatch/again": func(v *eventful) (any, error) {
			again := onHosts(3)
			again.Batch.ID = v.batch.ID
			return v.SubmitBatch(v.open, again, noon)
		},
		"ChangeBatch": func(v *eventful) (any, error) {
			return v.ChangeBatch(v.open, v.batch.ID, store.BatchEvent{Kind: store.BatchCancel, At: noon}, store.Operation{ID: harp.NewID(), Time: noon})
		},
		"Claim": func(v *eventful) (any, error) {
			openGate(v.Store, "away")
			return v.Claim(v.open, []string{"h", "away"}, 10, noon)
		},
		"Apply/end": func(v *eventful) (any, error) {
			end := about(v.sent, store.End)
			end.Event.Value = make(harp.Value, 2000)
			err := apply(v, end)
			if errors.Is(err, store.ErrIllegal) { // it had been, and the read was for something else
				err = nil
			}
			return nil, err
		},
		"Apply/cancel": func(v *eventful) (any, error) { return nil, apply(v, about(v.sent, store.CancelReq)) },
		"Apply/lose": func(v *eventful) (any, error) { // frees a slot of its queue
			lose := about(v.lost, store.Lose)
			lose.Event.Reason = harp.LostForced
			err := apply(v, lose)
			if errors.Is(err, store.ErrIllegal) {
				err = nil
			}
			return nil, err
		},
		"Advance":     func(v *eventful) (any, error) { return v.Advance(v.open, later) },
		"Silence":     func(v *eventful) (any, error) { return v.Silence(v.open, "h", noon, later) },
		"Append":      func(v *eventful) (any, error) { return v.Append(v.open, v.record(v.sent)) },
		"Append/late": func(v *eventful) (any, error) { return v.Append(v.open, v.record(v.late)) },
		"CancelQueue": func(v *eventful) (any, error) {
			return nil, cancel(v, store.Operation{ID: harp.NewID(), Time: noon})
		},
		"CancelQueue/again": func(v *eventful) (any, error) { return nil, cancel(v, v.op) },
		"ChangeQueue": func(v *eventful) (any, error) {
			return nil, v.ChangeQueue(v.open, v.q, harp.QueueChange{Concurrency: new(3)}, store.Operation{ID: harp.NewID(), Time: noon})
		},
		"OpenSession": func(v *eventful) (any, error) { return v.OpenSession(v.open, store.Session{Host: "h", At: noon}) },
		"PutHost":     func(v *eventful) (any, error) { return nil, v.PutHost(v.open, store.Host{Name: "h"}) },
		"PutDocument": func(v *eventful) (any, error) { return nil, v.PutDocument(v.open, "k", "n", []byte{1}) },
		"ChangeDocuments": func(v *eventful) (any, error) {
			return v.ChangeDocuments(v.open, store.DocumentChanges{
				Changes: []store.DocumentChange{{Kind: "k", Name: "n", Old: make([]byte, 200_000), New: []byte{1}}},
				Op:      store.Operation{ID: harp.NewID(), Time: noon},
			})
		},
		"Prune": func(v *eventful) (any, error) {
			return v.Prune(v.open, store.Retention{EndedBefore: later, EventsBefore: later}, later.Add(store.TombstoneTime))
		},
	}
	for name, do := range reads {
		t.Run(name, func(t *testing.T) {
			v := newEventful(t)
			eachReadFails(t, func() *eventful { return v }, do, reflect.DeepEqual)
		})
	}
	for name, do := range writes {
		t.Run(name, func(t *testing.T) {
			eachReadFails(t, func() *eventful { return newEventful(t) }, do, func(_, _ any) bool { return false })
		})
	}
}

// eachReadFails has an operation's first read fail, then its second, until there are no more. One that succeeds all the same must have read that
// again, or have come to what it comes to when it is asked for again.
func eachReadFails(t *testing.T, prepared func() *eventful, do func(v *eventful) (any, error), isSame func(got, again any) bool) {
	t.Helper()
	for n := int64(1); ; n++ {
		v := prepared()
		v.afresh()
		v.e.isReread.Store(false)
		v.e.left.Store(n)
		got, err := do(v)
		hasFailed, isReread := v.e.left.Swap(0) <= 0, v.e.isReread.Load()
		if !hasFailed && (err != nil || n == 1) {
			t.Errorf("after %d reads none fails: %v", n, err)
		}
		if !hasFailed {
			return
		}
		if v.usable() != nil {
			t.Errorf("read %d fails, and the store is not usable: %v", n, err)
			continue
		}
		again, failed := do(v)
		if failed != nil {
			t.Errorf("asked again after read %d failed: %v", n, failed)
		}
		if !errors.Is(err, errUnreadable) && (err != nil || !isReread && !isSame(got, again)) {
			t.Errorf("read %d fails and it says %v", n, err)
		}
	}
}

// TestUnreadableOnOpen has each read fail, one at a time, by which a store is opened.
func TestUnreadableOnOpen(t *testing.T) {
	v := newEventful(t)
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	for n := int64(1); ; n++ {
		e := &unreadable{trial: v.e.trial}
		e.left.Store(n)
		s, err := Open(e, Options{})
		if e.left.Load() > 0 {
			if err != nil || s.Close() != nil {
				t.Errorf("after %d reads none fails: %v", n, err)
			}
			return
		}
		if !errors.Is(err, errUnreadable) {
			t.Fatalf("read %d fails and it says %v", n, err)
		}
	}
}

// TestFailingRestore has each read and each commit of the engine fail, one at a time, into which a
// store is restored. Of that some rows are damaged.
func TestFailingRestore(t *testing.T) {
	v := newEventful(t)
	for _, prefix := range [][]byte{nameKey(prefixQueue, string(v.q)), {prefixUnended}, {prefixOutcome}} {
		v.e.damage(v.Store, prefix)
	}
	i, _ := parseID(v.sent.ID)
	v.e.damage(v.Store, i.key(prefixLife))
	var backup bytes.Buffer
	if err := errors.Join(v.Backup(t.Context(), &backup), v.Close()); err != nil {
		t.Fatal(err)
	}
	for n := int64(1); ; n++ {
		e := &unreadable{trial: newTrial()}
		e.onCommit = func([]Write) error { return e.fails(aCommit) }
		e.left.Store(n)
		_, err := Restore(e, bytes.NewReader(backup.Bytes()), noon, Options{})
		if e.left.Load() > 0 {
			if err != nil {
				t.Errorf("after %d reads and commits none fails: %v", n, err)
			}
			return
		}
		if err == nil && e.isReread.Load() {
			continue
		}
		if !errors.Is(err, errUnreadable) || e.closed != 1 {
			t.Errorf("read or commit %d fails and it says %v; it is closed %d times", n, err, e.closed)
		}
	}
}

// TestWokenAndUnread has the time of two jobs come, the second of which cannot be read for a moment: the
// first starts all the same, when that is done again.
func TestWokenAndUnread(t *testing.T) {
	e := &unreadable{trial: newTrial()}
	s := opened(t, e, Options{})
	openGate(s, "h")
	waits, expires := call("h"), call("away")
	waits.Job.NotBefore, expires.Job.Expires = noon.Add(time.Minute), noon.Add(time.Minute)
	j := submitted(t, s, waits, expires)[0]
	s.unlearn()
	e.left.Store(2)
	if _, err := s.Advance(t.Context(), noon.Add(time.Minute)); !errors.Is(err, errUnreadable) {
		t.Fatalf("it says %v", err)
	}
	did := advanceAll(t, s, noon.Add(time.Minute))
	if len(did.Ended) != 1 || len(did.Claimed) != 1 || did.Claimed[0].ID != j.ID {
		t.Errorf("%d ended and %d started", len(did.Ended), len(did.Claimed))
	}
}

// TestCancelledAndUnreadForAMoment has a job that its queue's cancel has ended not be readable for a
// moment: it is told that it ended, when that is done again.
func TestCancelledAndUnreadForAMoment(t *testing.T) {
	e := &unreadable{trial: newTrial()}
	s := opened(t, e, Options{})
	j := submitted(t, s, inQueue(call("h"), 0, 1))[0]
	if _, err := s.CancelQueue(t.Context(), j.Queue, store.Operation{ID: harp.NewID(), Time: noon}); err != nil {
		t.Fatal(err)
	}
	s.unlearn()
	e.left.Store(2)
	if _, err := s.Advance(t.Context(), noon); !errors.Is(err, errUnreadable) {
		t.Fatalf("it says %v", err)
	}
	if did := advanceAll(t, s, noon); len(did.Ended) != 1 {
		t.Errorf("%d ended, want 1", len(did.Ended))
	}
}

// TestEndsAndIsUnreadForAMoment has what is to be counted in a class not be readable for a moment, as a job or a batch ends: it ends when
// that is done again.
func TestEndsAndIsUnreadForAMoment(t *testing.T) {
	long := func(c *harp.Submission) { c.Request = make([]byte, 10_000) } // it is not in the row of its job
	for name, prepare := range map[string]func(t *testing.T, s *Store) (isEnded func() bool){
		"cancelled with its queue": func(t *testing.T, s *Store) func() bool {
			c := inQueue(call("h"), 0, 1)
			long(&c.Request)
			j := submitted(t, s, c)[0]
			if _, err := s.CancelQueue(t.Context(), j.Queue, store.Operation{ID: harp.NewID(), Time: noon}); err != nil {
				t.Fatal(err)
			}
			i, _ := parseID(j.ID)
			return func() bool { return s.sched.Job(i) == nil && s.sched.Queue(string(j.Queue)) == nil }
		},
		"expired": func(t *testing.T, s *Store) func() bool {
			c := call("away")
			long(&c.Request)
			c.Job.Expires = noon
			j := submitted(t, s, c)[0]
			i, _ := parseID(j.ID)
			return func() bool { return s.sched.Job(i) == nil }
		},
		"cancelled batch": func(t *testing.T, s *Store) func() bool {
			b := onHosts(2)
			b.Batch.Plan.StartAfter = noon.Add(time.Hour)
			long(&b.Request)
			out, err := s.SubmitBatch(t.Context(), b, noon)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.ChangeBatch(t.Context(), out.Batch.ID, store.BatchEvent{Kind: store.BatchCancel}, store.Operation{Time: noon}); err != nil {
				t.Fatal(err)
			}
			return func() bool {
				is, err := s.Batch(t.Context(), out.Batch.ID)
				return err == nil && is.State.Ended()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for n := int64(1); ; n++ {
				e := &unreadable{trial: newTrial()}
				s := opened(t, e, Options{})
				putRule(t, s, harp.RetentionRule{Name: "r", MaxBytes: 1 << 30})
				endAt(t, s, noon, "p") // of the class that there is then
				isEnded := prepare(t, s)
				s.unlearn()
				e.left.Store(n)
				_, err := s.Advance(t.Context(), noon)
				hasFailed := e.left.Swap(0) <= 0
				if (hasFailed && !e.isReread.Load()) != errors.Is(err, errUnreadable) {
					t.Fatalf("read %d fails: %v, and it says %v", n, hasFailed, err)
				}
				if s.usable() != nil {
					t.Fatalf("read %d fails, and the store is not usable: %v", n, err)
				}
				advanceAll(t, s, noon)
				if !isEnded() {
					t.Errorf("read %d fails, and it never ends", n)
				}
				if !hasFailed {
					return
				}
			}
		})
	}
}

// TestAppliedInPart has the second of two ends, which one commit has no room for, not be readable for a moment: what came of the first is
// returned, as what was claimed by it is to be sent, and of the second that nothing did.
func TestAppliedInPart(t *testing.T) {
	parts := 0
	for n, isOver := int64(1), false; !isOver; n++ {
		e := &unreadable{trial: newTrial()}
		s := opened(t, e, Options{})
		openGate(s, "h")
		jobs := submitted(t, s, inQueue(call("h"), 0, 1), inQueue(call("h"), 0, 1), call("h"))
		first, second := about(jobs[0], store.End), about(jobs[2], store.End)
		first.Event.Value, second.Event.Value = make(harp.Value, 2<<20), make(harp.Value, 2<<20)
		s.unlearn()
		e.left.Store(n)
		out, err := s.Apply(t.Context(), first, second)
		isOver = e.left.Swap(0) > 0
		if err := s.usable(); err != nil {
			t.Fatalf("read %d fails, and the store is not usable: %v", n, err)
		}
		if isOver || e.isReread.Load() {
			continue
		}
		if j, err := s.Job(t.Context(), jobs[0].ID); err != nil || !j.State.Ended() {
			continue
		}
		parts++
		if len(out) != 2 || out[0].Err != nil || len(out[0].Claimed) != 1 || out[0].Claimed[0].ID != jobs[1].ID || !out[0].Effect.Ends {
			t.Fatalf("of the first it says %+v, %v", out, err)
		}
		if err != nil && !errors.Is(err, errUnreadable) || !errors.Is(out[1].Err, errUnreadable) || out[1].Job != nil {
			t.Errorf("of the second it says %+v, %v", out[1], err)
		}
		if out := applied(t, s, second); !out[0].Effect.Ends {
			t.Errorf("then the second is %+v", out)
		}
	}
	if parts == 0 {
		t.Error("no read failed in the second commit")
	}
}

// TestAppliedAndNotStored: of a change whose commit fails nothing came about.
func TestAppliedAndNotStored(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	j := started(t, s)
	e.onCommit = func([]Write) error { return errUnreadable }
	out, err := s.Apply(t.Context(), about(j, store.End))
	if !errors.Is(err, store.ErrPoisoned) || len(out) != 1 || !errors.Is(out[0].Err, store.ErrPoisoned) || out[0].Job != nil || out[0].Effect.Ends {
		t.Errorf("it gives %+v, %v", out, err)
	}
}

// TestStopsAndIsUnreadForAMoment has what is to be counted in a class, which may be new, not be readable for a while, as a batch ends because it was
// paused for too long: nothing of that is written then, and it ends when that is done again.
func TestStopsAndIsUnreadForAMoment(t *testing.T) {
	for name, endsFirst := range map[string]bool{"of a class": false, "the first of a class": true} {
		t.Run(name, func(t *testing.T) {
			for n := int64(1); ; n++ {
				e := &unreadable{trial: newTrial()}
				s := opened(t, e, Options{})
				putRule(t, s, harp.RetentionRule{Name: "r", MaxBytes: 1 << 30})
				if !endsFirst {
					endAt(t, s, noon, "p")
				}
				b := onHosts(2)
				b.Batch.Plan.StartAfter, b.Batch.Plan.MaxPause = noon.Add(time.Hour), time.Minute
				b.Request.Request = make([]byte, 10_000)
				out, err := s.SubmitBatch(t.Context(), b, noon)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.ChangeBatch(t.Context(), out.Batch.ID, store.BatchEvent{Kind: store.BatchPaused}, store.Operation{Time: noon}); err != nil {
					t.Fatal(err)
				}
				hasFailed := advanceUnreadable(t, s, e, n, noon.Add(time.Minute))
				is, err := s.Batch(t.Context(), out.Batch.ID)
				if err != nil || is.Reason != harp.BatchReasonStopped || !is.State.Ended() {
					t.Fatalf("read %d fails, and the batch is %+v: %v", n, is, err)
				}
				log, err := s.BatchLog(t.Context(), out.Batch.ID, 0, 10)
				if err != nil || len(log.Entries) != 1 || log.End != 2 {
					t.Fatalf("read %d fails, and its log is %+v: %v", n, log, err)
				}
				if !hasFailed {
					return
				}
			}
		})
	}
}

// TestTheFirstOfAClassIsUnreadForAWhile has what is to be counted of a job that ends, the first of its class, not be readable for a while.
func TestTheFirstOfAClassIsUnreadForAWhile(t *testing.T) {
	for n := int64(1); ; n++ {
		e := &unreadable{trial: newTrial()}
		s := opened(t, e, Options{})
		putRule(t, s, harp.RetentionRule{Name: "r", MaxBytes: 1 << 30})
		c := call("away")
		c.Request.Request, c.Job.Expires = make([]byte, 10_000), noon
		j := submitted(t, s, c)[0]
		hasFailed := advanceUnreadable(t, s, e, n, noon)
		if is, err := s.Job(t.Context(), j.ID); err != nil || is.State != harp.StateExpired {
			t.Fatalf("read %d fails, and the job is %+v: %v", n, is, err)
		}
		if all := s.RetentionClasses(); len(all) != 1 || all[0].Bytes < 10_000 {
			t.Fatalf("read %d fails, and the classes are %+v", n, all)
		}
		if !hasFailed {
			return
		}
	}
}

// advanceUnreadable has nothing be readable from the nth read of an Advance on, which says so and leaves the store as it was, and then has that done again.
// It reports whether there were so many reads.
func advanceUnreadable(t *testing.T, s *Store, e *unreadable, n int64, now time.Time) (hasFailed bool) {
	t.Helper()
	s.unlearn()
	e.isGone.Store(true)
	e.left.Store(n)
	_, err := s.Advance(t.Context(), now)
	e.isGone.Store(false)
	hasFailed = e.left.Swap(0) <= 0
	if hasFailed != errors.Is(err, errUnreadable) {
		t.Fatalf("read %d fails: %v, and it says %v", n, hasFailed, err)
	}
	if err := s.usable(); err != nil {
		t.Fatalf("read %d fails, and the store is not usable: %v", n, err)
	}
	advanceAll(t, s, now)
	return hasFailed
}

// TestReadsAreTriedAgain: of a scan in an operation that has written nothing is yielded twice or left out, whichever read of it fails, and one that
// fails for good says so. Before anything is written nothing is tried again.
func TestReadsAreTriedAgain(t *testing.T) {
	e := &unreadable{trial: newTrial()}
	want := []string{"a1", "a2", "a3"}
	for _, key := range want {
		if err := e.Commit([]Write{{[]byte(key), []byte("v")}}); err != nil {
			t.Fatal(err)
		}
	}
	view, err := e.View()
	if err != nil {
		t.Fatal(err)
	}
	r := &rereader{view, &tx{wrote: true}}
	var got []string
	scans := map[string]func() error{
		"Scan": func() error {
			for item, err := range r.Scan([]byte("a"), nil, false) {
				if err != nil {
					return err
				}
				got = append(got, string(item.Key))
			}
			return nil
		},
		"Scan/reverse": func() error {
			for item, err := range r.Scan([]byte("a"), PrefixEnd([]byte("a")), true) {
				if err != nil {
					return err
				}
				got = slices.Insert(got, 0, string(item.Key))
			}
			return nil
		},
		"Keys": func() error {
			for entry, err := range r.Keys([]byte("a")) {
				if err != nil {
					return err
				}
				got = append(got, string(entry.Key))
			}
			return nil
		},
	}
	for name, scan := range scans {
		for n := int64(1); n <= 4; n++ {
			got = nil
			e.left.Store(n)
			if err := scan(); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: read %d fails, and it yields %q, %v", name, n, got, err)
			}
		}
	}
	r.t.wrote = false
	for name, scan := range scans {
		got = nil
		e.left.Store(2)
		if err := scan(); !errors.Is(err, errUnreadable) || len(got) != 1 {
			t.Errorf("%s: with nothing written it yields %q, %v", name, got, err)
		}
	}
	r.t.wrote = true
	e.isGone.Store(true)
	got = nil
	e.left.Store(3)
	if err := scans["Scan"](); !errors.Is(err, errUnreadable) || !slices.Equal(got, want[:2]) {
		t.Errorf("it yields %q, %v", got, err)
	}
	if _, err := r.Get([]byte("a1")); !errors.Is(err, errUnreadable) {
		t.Errorf("it says %v", err)
	}
}
