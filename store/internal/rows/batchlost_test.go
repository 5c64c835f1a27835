package rows

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// cancelled has a batch be cancelled.
func cancelled(t testing.TB, s *Store, b *store.Batch) {
	t.Helper()
	if _, err := s.ChangeBatch(t.Context(), b.ID, store.BatchEvent{Kind: store.BatchCancel}, store.Operation{Time: noon}); err != nil {
		t.Fatal(err)
	}
}

// statesOf is how the members of a batch stand.
func statesOf(t testing.TB, s *Store, b *store.Batch) (states []string) {
	t.Helper()
	members, err := s.BatchMembers(t.Context(), b.ID, 0, b.Hosts)
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range members {
		states = append(states, strings.TrimSpace(string(j.State)+" "+j.Reason))
	}
	return states
}

// TestCancelOfASilentMemberOnAFullDisk cancels a batch one of whose members is unknown, as there is room for
// cancels only: the store works on.
func TestCancelOfASilentMemberOnAFullDisk(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	b, first := begin(t, s, onHosts(1))
	if _, err := s.Silence(t.Context(), first[0].Host, noon, noon.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	e.space = SpaceCritical
	cancelled(t, s, b)
	_, err := s.Advance(t.Context(), noon)
	if err != nil && !errors.Is(err, harp.ErrNoSpace) || s.poisoned() != nil {
		t.Fatalf("it fails with %v, %v", err, s.poisoned())
	}
	if j, err := s.Job(t.Context(), first[0].ID); err != nil || j.Cancel == nil || j.State != harp.StateUnknown {
		t.Errorf("the member is %+v, %v", j, err)
	}
	e.space = SpacePlenty
	advanceAll(t, s, noon)
}

// TestFullDiskReachesNoHost cancels a member whose slot comes free by that, as there is room for cancels only:
// the next host is reached when there is more.
func TestFullDiskReachesNoHost(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	in := onHosts(4)
	in.Batch.Member.Queue, in.Batch.Member.Concurrency = inQueue(call("h"), 0, 1).Job.Queue, 1
	b, first := begin(t, s, in)
	if len(first) != 1 {
		t.Fatalf("%d are started", len(first))
	}
	members, err := s.BatchMembers(t.Context(), b.ID, 0, 4)
	if err != nil {
		t.Fatal(err)
	}
	e.space = SpaceCritical
	applied(t, s, about(members[1], store.CancelReq))
	got, err := s.Batch(t.Context(), b.ID)
	if err != nil || got.Reached != 2 {
		t.Errorf("reached are %d, %v", got.Reached, err)
	}
	e.space = SpacePlenty
	advanceAll(t, s, noon)
	if got, err = s.Batch(t.Context(), b.ID); err != nil || got.Reached != 3 {
		t.Errorf("with room reached are %d, %v", got.Reached, err)
	}
}

// TestLastMemberOfACancelledQueueOnAFullDisk has the last member of a batch end by the cancel of its queue,
// which is written while there is room for that only: the batch ends when there is more.
func TestLastMemberOfACancelledQueueOnAFullDisk(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	in := onHosts(1)
	in.Batch.Member.Queue, in.Batch.Member.Concurrency = inQueue(call("h"), 0, 1).Job.Queue, 1
	out, err := s.SubmitBatch(t.Context(), in, noon) // whose host is away, so that it holds no slot
	if err != nil {
		t.Fatal(err)
	}
	advanceAll(t, s, noon)
	e.space = SpaceCritical
	if _, err := s.CancelQueue(t.Context(), in.Batch.Member.Queue, store.Operation{Time: noon}); err != nil {
		t.Fatal(err)
	}
	if did, err := s.Advance(t.Context(), noon); err != nil || len(did.Ended) != 1 {
		t.Fatalf("ended is %+v, %v", did, err)
	}
	e.space = SpacePlenty
	advanceAll(t, s, noon)
	if got, err := s.Batch(t.Context(), out.Batch.ID); err != nil || !got.State.Ended() {
		t.Errorf("the batch is %+v, %v, want it ended", got, err)
	}
}

// TestDamagedMemberHidesNoOther damages the rows of one member of a batch, or loses them: the others are
// read.
func TestDamagedMemberHidesNoOther(t *testing.T) {
	eachDamage(t, "member", func(t *testing.T, damage func(e *trial, s *Store, key []byte)) {
		for _, kind := range []byte{prefixCall, prefixLife} {
			e := newTrial()
			s := opened(t, e, Options{})
			b, first := begin(t, s, onHosts(2))
			applied(t, s, about(first[0], store.End), about(first[1], store.End))
			i, _ := parseID(first[0].ID)
			damage(e, s, i.key(kind))
			s.unlearn()
			if got, want := statesOf(t, s, b), []string{"lost", "succeeded"}; !slices.Equal(got, want) {
				t.Errorf("without %c the members are %q, want %q", kind, got, want)
			}
		}
	})
}

// TestRestoreWithoutALife restores a batch whose life cannot be read: its members say what it was, and none of
// their ends is lost.
func TestRestoreWithoutALife(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	in := onHosts(7)
	in.Hosts[0].Unfit = harp.ReasonUnfit
	b, first := begin(t, s, in)
	third := applied(t, s, about(first[0], store.End))[0].Claimed
	applied(t, s, about(third[0], store.End))
	members, err := s.BatchMembers(t.Context(), b.ID, 0, 7)
	if err != nil {
		t.Fatal(err)
	}
	applied(t, s, about(members[6], store.CancelReq)) // before its turn
	i, _ := parseID(b.ID)
	e.flip(i.key(prefixBatchLife))
	into := newTrial()
	if _, err := Restore(into, backedUp(t, s), noon, Options{}); err != nil {
		t.Fatal(err)
	}
	restored := opened(t, into, Options{})
	want := []string{"rejected unfit", "succeeded", "lost restored", "succeeded", "lost restored", "lost restored", "cancelled"}
	if got := statesOf(t, restored, b); !slices.Equal(got, want) {
		t.Errorf("its members are %q, want %q", got, want)
	}
	got, err := restored.Batch(t.Context(), b.ID)
	if err != nil || got.State != harp.BatchFailed || got.Reason != harp.BatchReasonRestored || got.Reached != 5 || got.Early != 1 ||
		got.Counts != (store.MemberCounts{Succeeded: 2, Lost: 2, Cancelled: 1}) || got.Skipped[harp.ReasonUnfit] != 1 {
		t.Errorf("it is %+v, %v", got, err)
	}
	ends := map[int]int{}
	for from, isOver := uint64(0), false; !isOver; {
		log, err := restored.BatchLog(t.Context(), b.ID, from, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range log.Entries {
			if e.Kind == store.BatchGap {
				continue
			}
			for n := range e.Count {
				ends[e.Index+n]++
			}
		}
		from, isOver = log.Next, log.Ended
	}
	for n := range 7 {
		if ends[n] != 1 {
			t.Errorf("the end of member %d is told %d times", n, ends[n])
		}
	}
}

// TestRestoreCountsWhatCannotBeRead restores a batch one member of which cannot be read: it counts as lost.
func TestRestoreCountsWhatCannotBeRead(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	b, _ := begin(t, s, onHosts(4))
	i, _ := parseID(b.ID)
	e.flip(memberKey(i, 0))
	into := newTrial()
	if _, err := Restore(into, backedUp(t, s), noon, Options{}); err != nil {
		t.Fatal(err)
	}
	restored := opened(t, into, Options{})
	got, err := restored.Batch(t.Context(), b.ID)
	if err != nil || got.Counts != (store.MemberCounts{Lost: 2}) {
		t.Errorf("it counts %+v, %v", got, err)
	}
	if got, want := statesOf(t, restored, b), []string{"lost restored", "lost restored", "lost restored", "lost restored"}; !slices.Equal(got, want) {
		t.Errorf("its members are %q, want %q", got, want)
	}
}

// TestRestoreCancelledBatch restores a batch that was cancelled and whose members had not all been told.
func TestRestoreCancelledBatch(t *testing.T) {
	s := opened(t, newTrial(), Options{})
	in := onHosts(5)
	in.Batch.Plan.Parallel = 1
	for n := range 2 {
		openGate(s, fmt.Sprintf("h%d", n))
	}
	out, err := s.SubmitBatch(t.Context(), in, noon)
	if err != nil {
		t.Fatal(err)
	}
	advanceAll(t, s, noon)
	cancelled(t, s, out.Batch)
	into := newTrial()
	if _, err := Restore(into, backedUp(t, s), noon, Options{}); err != nil {
		t.Fatal(err)
	}
	states := statesOf(t, opened(t, into, Options{}), out.Batch)
	if states[0] != "lost restored" {
		t.Errorf("its members are %q", states)
	}
}

// TestMissingEntriesOfALog loses a row of a batch's log: what is behind it is not taken for what follows.
func TestMissingEntriesOfALog(t *testing.T) {
	for name, lost := range map[string]int{"first": 0, "middle": 1, "last": 2} {
		t.Run(name, func(t *testing.T) {
			e := newTrial()
			s := opened(t, e, Options{})
			b, members := begin(t, s, onHosts(3))
			for n := range 3 {
				c := applied(t, s, about(members[n], store.End))[0]
				members = append(members, c.Claimed...)
			}
			i, _ := parseID(b.ID)
			e.lose(logKey(i, uint64(lost))) //nolint:gosec // small
			read := 0
			for from := uint64(0); ; {
				log, err := s.BatchLog(t.Context(), b.ID, from, 10)
				if errors.Is(err, ErrDamaged) {
					break // nobody looks at what comes with an error
				}
				read += len(log.Entries)
				if err != nil || len(log.Entries) == 0 || log.Ended {
					t.Fatalf("from %d on it is %+v, %v", from, log, err)
				}
				from = log.Next
			}
			if read != lost {
				t.Errorf("%d entries are read, want %d", read, lost)
			}
		})
	}
}

// TestEndOfADamagedLog damages the first row of a batch's log: who follows it from now on is told where that is.
func TestEndOfADamagedLog(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	b, first := begin(t, s, onHosts(3))
	applied(t, s, about(first[0], store.End))
	i, _ := parseID(b.ID)
	e.flip(logKey(i, 0))
	if log, err := s.BatchLog(t.Context(), b.ID, 0, 0); err != nil || log.End != 1 || len(log.Entries) > 0 {
		t.Errorf("it is %+v, %v", log, err)
	}
}

// TestMembersInOtherStates opens a store in which the life of a batch is one that it had before some members
// went on: the store works, and what happens to them is counted.
func TestMembersInOtherStates(t *testing.T) {
	var b *store.Batch
	e := closed(t, func(s *Store) {
		var first []*store.Job
		b, first = begin(t, s, onHosts(2))
		i, _ := parseID(b.ID)
		old := readRaw(t, s, i.key(prefixBatchLife))
		applied(t, s, about(first[0], store.Started), about(first[1], store.Started))
		if err := s.engine.Commit([]Write{{i.key(prefixBatchLife), old}}); err != nil {
			t.Fatal(err)
		}
	})
	s := opened(t, e, Options{})
	active, err := s.Active(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range active {
		applied(t, s, about(j, store.End))
	}
	if got, err := s.Batch(t.Context(), b.ID); err != nil || got.State != harp.BatchSucceeded || got.Counts.Succeeded != 2 {
		t.Errorf("it is %+v, %v", got, err)
	}
}

// TestPruneWithoutNames deletes a batch whose names are damaged: its members go with it, of which there are more than one
// operation deletes.
func TestPruneWithoutNames(t *testing.T) {
	eachDamage(t, "names", func(t *testing.T, damage func(e *trial, s *Store, key []byte)) {
		e := newTrial()
		s := opened(t, e, Options{})
		other := submitted(t, s, call("h"))[0]
		in, beside := onHosts(maxPruned+10), onHosts(1)
		in.Batch.Plan.Parallel = len(in.Hosts)
		beside.Batch.ID = in.Batch.ID[:18] + beside.Batch.ID[18:] // of the same moment
		b, first := begin(t, s, in)
		var ends []store.Transition
		for _, j := range first {
			ends = append(ends, about(j, store.End))
		}
		applied(t, s, ends...)
		_, second := begin(t, s, beside)
		late := about(second[0], store.End)
		late.Event.At = noon.Add(2 * time.Hour) // so that its time is not over
		applied(t, s, late)
		i, _ := parseID(b.ID)
		damage(e, s, namesKey(i, 0))
		for more := true; more; {
			did, err := s.Prune(t.Context(), store.Retention{EndedBefore: noon.Add(time.Hour)}, noon.Add(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			more = did.More
		}
		for kind, want := range map[byte]int{prefixBatch: 2, prefixBatchLife: 1, prefixBatchLog: 1, prefixRequest: 1, prefixCall: 2} { // of the other batch, and the job in none
			if n := e.count(kind); n != want {
				t.Errorf("%d rows of kind %c are left, want %d", n, kind, want)
			}
		}
		for _, j := range []*store.Job{other, second[0]} {
			if _, err := s.Job(t.Context(), j.ID); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestPruneLooksForFew deletes a batch of many hosts that was cancelled before any was reached: no operation
// looks for all of its members.
func TestPruneLooksForFew(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	in := onHosts(20_000)
	in.Batch.Plan.StartAfter = noon.Add(time.Hour)
	out, err := s.SubmitBatch(t.Context(), in, noon)
	if err != nil {
		t.Fatal(err)
	}
	cancelled(t, s, out.Batch)
	advanceAll(t, s, noon)
	most := 0
	for more := true; more; {
		looked := 0
		e.onGet = func(key, _ []byte) error {
			if key[0] == prefixCall {
				looked++
			}
			return nil
		}
		did, err := s.Prune(t.Context(), store.Retention{EndedBefore: noon.Add(time.Hour)}, noon.Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		more, most = did.More, max(most, looked)
	}
	if e.onGet = nil; most > maxSought || e.count(prefixBatch) > 0 {
		t.Errorf("one operation looks for %d members, %d rows are left", most, e.count(prefixBatch))
	}
}

// TestClockSetDuringAPause sets the clock while a batch is paused, and opens the store anew: as much of the
// pause is left as before.
func TestClockSetDuringAPause(t *testing.T) {
	var b *store.Batch
	e := closed(t, func(s *Store) {
		b, _ = begin(t, s, onHosts(3))
		if _, err := s.ChangeBatch(t.Context(), b.ID, store.BatchEvent{Kind: store.BatchPaused}, store.Operation{Time: noon}); err != nil {
			t.Fatal(err)
		}
		s.ClockSet(48 * time.Hour)
	})
	s := opened(t, e, Options{})
	advanceAll(t, s, noon.Add(48*time.Hour+59*time.Minute))
	if got, err := s.Batch(t.Context(), b.ID); err != nil || got.State != harp.BatchPaused {
		t.Errorf("the batch is %+v, %v, want it paused", got, err)
	}
	advanceAll(t, s, noon.Add(49*time.Hour))
	if got, err := s.Batch(t.Context(), b.ID); err != nil || got.State != harp.BatchCancelling {
		t.Errorf("the batch is %+v, %v, want it stopped", got, err)
	}
}

// TestMillionMembers has as many members not have ended as a store may have.
func TestMillionMembers(t *testing.T) {
	s := opened(t, newTrial(), Options{})
	large := onHosts(store.MaxBatchHosts)
	large.Batch.Plan.StartAfter = noon.Add(time.Hour)
	submit := func(in store.BatchSubmission) (*store.Batch, error) {
		in.Batch.ID = idAt(noon)
		out, err := s.SubmitBatch(t.Context(), in, noon)
		return out.Batch, err
	}
	var last *store.Batch
	for n := range store.MaxMembers / store.MaxBatchHosts {
		var err error
		if last, err = submit(large); err != nil {
			t.Fatalf("batch %d: %v", n, err)
		}
	}
	if _, err := submit(onHosts(1)); !errors.Is(err, harp.ErrRefused) {
		t.Errorf("one more is answered with %v", err)
	}
	cancelled(t, s, last)
	advanceAll(t, s, noon)
	small := onHosts(2)
	for range 2 {
		b, err := submit(small)
		if err != nil {
			t.Fatal(err)
		}
		openGate(s, "h0")
		openGate(s, "h1")
		for _, j := range advanceAll(t, s, noon).Claimed {
			applied(t, s, about(j, store.End))
		}
		if got, err := s.Batch(t.Context(), b.ID); err != nil || got.State != harp.BatchSucceeded {
			t.Errorf("it is %+v, %v", got, err)
		}
		small = onHosts(2)
	}
	if _, err := submit(large); err != nil {
		t.Errorf("a large one in the place of that which ended: %v", err)
	}
}

// TestStepWhoseLifeIsLost loses the life of a step that has begun: it is not shown as one that has not, which did not run.
func TestStepWhoseLifeIsLost(t *testing.T) {
	eachDamage(t, "step", func(t *testing.T, damage func(e *trial, s *Store, key []byte)) {
		e := newTrial()
		s := opened(t, e, Options{})
		in := onHosts(1)
		in.Batch.Steps = []store.BatchStep{{Procedure: "p", Classes: []store.BatchClass{{}}}, {Procedure: "p", On: harp.OnFailed, Classes: []store.BatchClass{{}}}}
		b, first := begin(t, s, in)
		second := applied(t, s, about(first[0], store.End))[0].Claimed
		applied(t, s, about(second[0], store.End))
		i, _ := parseID(second[0].ID)
		damage(e, s, i.key(prefixLife))
		s.unlearn()
		members, err := s.BatchMembers(t.Context(), b.ID, 0, 3)
		if err != nil || members[0].State != harp.StateSucceeded || members[1].State != harp.StateLost || members[1].Started == harp.DidNotRun {
			t.Errorf("the steps are %+v, %v", members, err)
		}
	})
}

// TestRestoresWithTheClockSetBack restores a backup a second time, with a clock that was set back since the first, or is far behind both
// times: whoever has followed a batch in the first store is told all that the second one has made of it.
func TestRestoresWithTheClockSetBack(t *testing.T) {
	for name, c := range map[string]struct{ first, second time.Time }{
		"set back":   {noon, noon.Add(-time.Hour)},
		"far behind": {time.Unix(60, 0), time.Unix(60, 0)},
	} {
		s := opened(t, newTrial(), Options{})
		b, first := begin(t, s, onHosts(6))
		applied(t, s, about(first[0], store.End))
		restoredAt := func(at time.Time) *Store {
			into := newTrial()
			if _, err := Restore(into, backedUp(t, s), at, Options{}); err != nil {
				t.Fatal(err)
			}
			return opened(t, into, Options{})
		}
		endsFrom := func(s *Store, from uint64, n int) (ends []store.BatchEntry) {
			for isOver := false; !isOver; {
				log, err := s.BatchLog(t.Context(), b.ID, from, n)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range log.Entries {
					if e.Kind != store.BatchGap {
						ends = append(ends, e)
					}
				}
				from, isOver = log.Next, log.Ended
			}
			return ends
		}
		was := endsFrom(restoredAt(c.first), 0, 100)
		for at, e := range was[1:] { // the first had ended before the backup
			again := restoredAt(c.second)
			if got := endsFrom(again, e.No+e.Numbers(), 2); len(got) != len(was)-1 {
				t.Errorf("%s: who was told of %d ends in the first store is told of %d of %d in the second", name, at+1, len(got), len(was)-1)
			}
		}
	}
}
