package rows

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// unlearn makes a store read the rows of jobs again.
func (s *Store) unlearn() {
	s.jobCache.mu.Lock()
	defer s.jobCache.mu.Unlock()
	s.jobCache.young, s.jobCache.old = nil, nil
}

// TestRecentIsBounded checks that jobs which have not changed for long are not at hand.
func TestRecentIsBounded(t *testing.T) {
	var r jobCache
	const groups = 3 * generation
	for n := range groups {
		r.addGroup(map[id]*store.Job{anID(): {No: uint64(n)}}, nil)
		if kept := len(r.young) + len(r.old); kept > 2*generation || kept < min(n+1, generation) {
			t.Fatalf("after %d jobs %d are at hand", n+1, kept)
		}
	}
	for _, j := range r.young {
		if j.No < groups-2*generation {
			t.Fatalf("job %d of %d is at hand", j.No, groups)
		}
	}
}

// TestRecentIsShort checks that what is long is not at hand, and read all the same.
func TestRecentIsShort(t *testing.T) {
	s := opened(t, newTrial(), Options{})
	j := started(t, s)
	i, _ := parseID(j.ID)
	const size = 1 << 20
	change, err := s.Apply(t.Context(), store.Transition{ID: j.ID, Event: store.Event{
		Kind: store.End, At: noon, Attempt: j.Attempt, Fence: j.Fence,
		Failure: harp.Failure{Code: "remote", Data: bytes.Repeat([]byte{1}, size)},
	}})
	if err != nil || change[0].Err != nil {
		t.Fatal(err, change[0].Err)
	}
	if s.jobCache.get(i) != nil {
		t.Error("it is at hand")
	}
	if j, err := s.Job(t.Context(), j.ID); err != nil || len(j.Failure.Data) != size {
		t.Errorf("%d bytes are read, %v", len(j.Failure.Data), err)
	}
}

func anID() id {
	i, _ := parseID(harp.NewID())
	return i
}

// committed is an engine that shows what a store says between a commit and its answer.
type committed struct {
	*trial
	look func()
}

func (e *committed) Commit(writes []Write) error {
	err := e.trial.Commit(writes)
	if e.look != nil {
		e.look()
	}
	return err
}

// TestRecentIsNotOlderThanTheView checks that a job which its queue's mark has cancelled
// is so while its row is written and the mark goes.
func TestRecentIsNotOlderThanTheView(t *testing.T) {
	e := &committed{trial: newTrial()}
	s, err := Open(e, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c := call("h")
	c.Job.Queue, c.Job.Concurrency = harp.Value("q"), 1
	j := submitted(t, s, c)[0]
	if _, err := s.CancelQueue(t.Context(), c.Job.Queue, store.Operation{Time: noon}); err != nil {
		t.Fatal(err)
	}
	looks := 0
	e.look = func() {
		looks++
		if got, err := s.Job(t.Context(), j.ID); err != nil || got.State != harp.StateCancelled {
			t.Errorf("it is %s again, %v", got.State, err)
		}
	}
	if _, err := s.Advance(t.Context(), noon); err != nil || looks == 0 {
		t.Fatal(looks, err)
	}
}

// lookedAt is an engine that counts how often it is looked at.
type lookedAt struct {
	*committed
	views atomic.Int64
}

func (e *lookedAt) View() (Snapshot, error) {
	e.views.Add(1)
	return e.committed.View()
}

// TestMembersAtHand checks that a member of a batch which runs is read without a look at the engine, and is
// shown as it is once the batch is cancelled: from that commit on, and when the store is opened anew.
func TestMembersAtHand(t *testing.T) {
	e := &lookedAt{committed: &committed{trial: newTrial()}}
	s, err := Open(e, Options{})
	if err != nil {
		t.Fatal(err)
	}
	b, first := begin(t, s, onHosts(4))
	before := e.views.Load()
	got, err := s.Job(t.Context(), first[0].ID)
	if looked := e.views.Load() - before; err != nil || got.State != harp.StateSent || got.Cancel != nil || looked != 0 {
		t.Errorf("it is %+v, %v, by %d looks", got, err, looked)
	}
	looks := 0
	check := func(s *Store) {
		looks++
		for _, j := range first {
			if got, err := s.Job(t.Context(), j.ID); err != nil || got.State != harp.StateCancelling || got.Cancel == nil {
				t.Errorf("%s is %s, %v", j.Host, got.State, err)
			}
		}
	}
	e.look = func() { check(s) }
	if _, err := s.ChangeBatch(t.Context(), b.ID, store.BatchEvent{Kind: store.BatchCancel}, store.Operation{Time: noon}); err != nil || looks != 1 {
		t.Fatal(looks, err)
	}
	e.look = nil
	check(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = opened(t, e.trial, Options{})
	applied(t, s, about(first[0], store.Started)) // which has it at hand again
	check(s)
	i, _ := parseID(b.ID)
	for _, j := range first {
		applied(t, s, about(j, store.End))
	}
	if _, kept := s.jobCache.cancelling[i]; kept {
		t.Error("the batch has ended and is kept in mind")
	}
}

// TestRecentCountsAllTexts checks that whatever text of a failure is long keeps it away.
func TestRecentCountsAllTexts(t *testing.T) {
	long := strings.Repeat("x", maxCachedJob+1)
	for name, f := range map[string]harp.Failure{
		"type": {Type: long}, "message": {Message: long}, "host": {Host: long}, "stage": {Stage: long},
		"field": {Field: long}, "limit of": {LimitOf: long}, "job": {JobID: long}, "data": {Data: harp.Value(long)},
	} {
		f.Code = "remote"
		j := store.Job{Life: store.Life{Failure: f}}
		if jobSize(&j) <= maxCachedJob {
			t.Errorf("%s does not count", name)
		}
	}
}

// TestTruncatedAtTheLimit checks that records stay readable, however much an agent says
// that it has dropped.
func TestTruncatedAtTheLimit(t *testing.T) {
	s := opened(t, newTrial(), Options{MaxStored: 100})
	j := started(t, s)
	_, err := s.Append(t.Context(), store.Append{ID: j.ID, Attempt: j.Attempt, Fence: j.Fence, Arrived: noon, Records: []harp.Record{
		{Time: noon, Kind: harp.KindData, Value: harp.Value{1}},
		{Time: noon, Kind: harp.KindData, Truncated: math.MaxInt64, Value: make(harp.Value, 100)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Read(t.Context(), j.ID, 0, store.ReadLimit{Bytes: 1 << 20}); err != nil || len(got) != 2 {
		t.Errorf("%d records, %v", len(got), err)
	}
}

// TestNoIDIsTakenForNewAgain checks that a job is found by its id, in whatever order ids come:
// when it is not at hand any more, when it was too long to be, when it was pruned, and when the
// store was opened anew, also where one of its rows is lost.
func TestNoIDIsTakenForNewAgain(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	const jobs, group = 3 * generation, 512
	calls := make([]store.Submission, jobs)
	for n := range calls {
		calls[n] = call("h")
	}
	calls[jobs/2].Job.TraceParent = strings.Repeat("x", maxCachedJob+1)
	for some := range slices.Chunk(calls, group) {
		var ends []store.Transition
		for _, j := range submitted(t, s, some...) {
			ends = append(ends, about(j, store.CancelReq))
		}
		applied(t, s, ends...)
	}
	check := func(what string, s *Store) {
		t.Helper()
		for some := range slices.Chunk(calls, group) {
			out, err := s.Submit(t.Context(), some, noon)
			if err != nil {
				t.Fatal(err)
			}
			for n, o := range out {
				if o.New {
					t.Fatalf("%s: job %s is new again", what, some[n].Job.ID)
				}
			}
		}
	}
	check("as it ended", s)
	if _, err := s.Prune(t.Context(), store.Retention{EndedBefore: noon.Add(time.Hour)}, noon); err != nil {
		t.Fatal(err)
	}
	check("some are pruned", s)
	last := call("h")
	last.Job.ID = idAt(noon.Add(time.Second))
	applied(t, s, about(submitted(t, s, last)[0], store.CancelReq))
	i, _ := parseID(last.Job.ID)
	e.poke(i.key(prefixCall), func(_, _ []byte) []byte { return nil })
	calls = append(calls, last)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	check("opened anew", opened(t, e, Options{}))
}

// TestWhatIsPrunedIsNotAtHand: a job that is deleted is not shown any more, however long ago it was at hand for the last time.
func TestWhatIsPrunedIsNotAtHand(t *testing.T) {
	s := opened(t, newTrial(), Options{})
	young := func(n int) []*store.Job { return endAt(t, s, noon, slices.Repeat([]string{"p"}, n)...) }
	jobs := young(1)
	for s.jobCache.old[idOf(t, jobs[0])] == nil {
		young(generation / 8)
	}
	jobs = append(jobs, young(1)...)
	for _, j := range jobs {
		if s.jobCache.get(idOf(t, j)) == nil {
			t.Fatal("a job is not at hand")
		}
	}
	later := noon.Add(time.Hour)
	prune(t, s, store.Retention{EndedBefore: later}, later)
	for _, j := range jobs {
		if _, err := s.Job(t.Context(), j.ID); !errors.Is(err, harp.ErrPruned) {
			t.Errorf("a job that was deleted: %v", err)
		}
	}
}

func idOf(t *testing.T, j *store.Job) id {
	t.Helper()
	i, ok := parseID(j.ID)
	if !ok {
		t.Fatal(j.ID)
	}
	return i
}
