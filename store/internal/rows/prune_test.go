package rows

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
)

// keptBytes is what stored should be, from all that is there.
func (e *trial) keptBytes(t *testing.T, s *Store) (sum int64) {
	t.Helper()
	for item := range e.items() {
		if isCounted(item.Key) {
			sum += int64(len(item.Value))
		}
		if item.Key[0] != prefixCall {
			continue
		}
		err := s.view(func(snap Snapshot) error {
			j, call, life, err := readRows(snap, id(item.Key[1:]))
			sum += footprint(j) + int64(len(life.Value))
			if call.Request != nil {
				sum += int64(requestSize(call.Request))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return sum
}

func (e *trial) items() func(yield func(Item) bool) {
	e.mu.Lock()
	tree := e.tree.Copy()
	e.mu.Unlock()
	return func(yield func(Item) bool) { tree.Scan(yield) }
}

// lived is a job that has had all that a job can have: long labels, a queue, records
// of several chunks and pieces, a long request and a long value, and has ended.
func lived(t *testing.T, s *Store, now time.Time) *store.Job {
	t.Helper()
	s.SetGate("h", store.Gate{Open: true, Most: 100})
	in := store.Submission{
		Job: store.Job{
			ID: idAt(now), Host: "h", Procedure: "p", Queue: harp.Value("q"), Concurrency: 100, NotBefore: now,
			Labels: map[string]string{"a": "b", "c": "d"}, OfflineWait: harp.NoLimit,
		},
		Request: harp.Submission{Request: bytes.Repeat([]byte{1}, 200_000)},
		Key:     harp.NewID(), KeyUntil: now.Add(time.Hour),
	}
	out, err := s.Submit(t.Context(), []store.Submission{in}, now)
	if err != nil || out[0].Err != nil {
		t.Fatal(err, out[0].Err)
	}
	j := out[0].Job
	if j.State == harp.StateQueued {
		did, err := s.Advance(t.Context(), now.Add(1))
		if err != nil || len(did.Claimed) != 1 {
			t.Fatal(did, err)
		}
		j = did.Claimed[0]
	}
	records := []harp.Record{{Value: make(harp.Value, 300_000)}, {Value: harp.Value("short")}, {Value: make(harp.Value, 70_000)}}
	for n := range 3 {
		a := store.Append{ID: j.ID, Attempt: 1, Fence: j.Fence, First: uint64(n * len(records)), Records: records, Arrived: now}
		if _, err := s.Append(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	end := store.Event{Kind: store.End, At: now, Attempt: 1, Fence: j.Fence, Value: make(harp.Value, 150_000)}
	changes, err := s.Apply(t.Context(), store.Transition{ID: j.ID, Event: end})
	if err != nil || changes[0].Err != nil {
		t.Fatal(err, changes[0].Err)
	}
	return changes[0].Job
}

// failedAtLength is a job that has failed twice, and each time said more of it than is kept
// under one key.
func failedAtLength(t *testing.T, s *Store) {
	t.Helper()
	c := call("h")
	c.Job.Retry = harp.RetryPolicy{On: []harp.State{harp.StateFailed}, Attempts: 2, Backoff: time.Second, MaxBackoff: time.Second}
	j := submitted(t, s, c)[0]
	for j.State == harp.StateSent {
		end := about(j, store.End)
		end.Event.Failure, end.Event.Jitter = failures.New("remote", "it failed"), 1
		end.Event.Failure.Data = make(harp.Value, 150_000)
		if j = applied(t, s, end)[0].Job; j.State == harp.StateQueued {
			j = advanceAll(t, s, noon.Add(time.Minute)).Claimed[0]
		}
	}
}

// TestStoredBytes checks that what jobs are said to store is what is there, also after
// reopening, and nothing once they are deleted.
func TestStoredBytes(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	check := func(what string) {
		t.Helper()
		if got, want := s.stored.Load(), e.keptBytes(t, s); got != want {
			t.Fatalf("%s: %d bytes, there are %d", what, got, want)
		}
	}
	for n := range 3 {
		lived(t, s, noon.Add(time.Duration(n)*time.Hour))
		check("after a job")
		failedAtLength(t, s)
		check("after one that failed")
	}
	if s.stored.Load() < 3*1_200_000 {
		t.Fatalf("three jobs store %d bytes", s.stored.Load())
	}
	prune(t, s, store.Retention{EndedBefore: noon.Add(time.Minute)}, noon)
	check("after some were deleted")
	s = opened(t, e, Options{})
	check("after reopening")
	prune(t, s, store.Retention{MaxBytes: 1}, noon)
	check("after all were deleted")
	if s.stored.Load() != 0 {
		t.Fatalf("no job stores %d bytes", s.stored.Load())
	}
}

func prune(t *testing.T, s *Store, r store.Retention, now time.Time) {
	t.Helper()
	for {
		did, err := s.Prune(t.Context(), r, now)
		if err != nil {
			t.Fatal(err)
		}
		if !did.More {
			return
		}
	}
}

// TestPruneLeavesNothing deletes jobs that had all that a job can have, and looks at
// what is left behind: the tombstones, and in the end nothing.
func TestPruneLeavesNothing(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	const jobs = 10 // more than one commit deletes
	for range jobs {
		lived(t, s, noon)
		failedAtLength(t, s)
	}
	left := func() map[byte]int {
		count := map[byte]int{}
		for item := range e.items() {
			if item.Key[0] != prefixMeta {
				count[item.Key[0]]++
			}
		}
		return count
	}
	later := noon.Add(2 * time.Hour)
	prune(t, s, store.Retention{EndedBefore: later, EventsBefore: later}, later)
	if got := left(); got[prefixTomb] != 2*jobs || got[prefixIndex] == 0 || got[prefixEvent] == 0 || len(got) != 3 {
		t.Fatalf("after deleting there are %v by prefix, want tombstones, their index and the event", got)
	}
	later = later.Add(store.TombstoneTime + 1)
	prune(t, s, store.Retention{EventsBefore: later.Add(1)}, later)
	if got := left(); len(got) != 0 {
		t.Fatalf("in the end there are %v by prefix", got)
	}
}

// TestPruneGoesOn stops between two commits that delete one job and opens the store
// anew: the rest goes, too.
func TestPruneGoesOn(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	j := lived(t, s, noon)
	// Many small chunks, more than one commit deletes.
	var chunks []Write
	i, _ := parseID(j.ID)
	for n := range 20_000 {
		key := i.recordsKey(1, uint64(1000+n))
		chunks = append(chunks, Write{key, seal(key, []byte{0, 1})})
	}
	if err := e.Commit(chunks); err != nil {
		t.Fatal(err)
	}
	later := noon.Add(time.Hour)
	did, err := s.Prune(t.Context(), store.Retention{EndedBefore: later}, later)
	if err != nil || did.Jobs != 1 || !did.More {
		t.Fatalf("the first call did %+v, %v", did, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = opened(t, e, Options{})
	if _, err := s.Job(t.Context(), j.ID); !errors.Is(err, harp.ErrPruned) {
		t.Fatalf("half deleted it is %v, want ErrPruned", err)
	}
	prune(t, s, store.Retention{}, later)
	for item := range e.items() {
		if k := item.Key[0]; k == prefixRecords || k == prefixRest || k == prefixPiece {
			t.Fatalf("%q is left", item.Key)
		}
	}
}

// TestPruneDamaged passes over a job that cannot be read.
func TestPruneDamaged(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	bad := lived(t, s, noon)
	good := lived(t, s, noon.Add(time.Minute))
	i, _ := parseID(bad.ID)
	e.poke(i.key(prefixLife), func(_, value []byte) []byte {
		value[len(value)-1]++
		return value
	})
	s.unlearn()
	did, err := s.Prune(t.Context(), store.Retention{EndedBefore: noon.Add(time.Hour)}, noon.Add(time.Hour))
	if err != nil || did.Jobs != 1 {
		t.Fatalf("it did %+v, %v", did, err)
	}
	if _, err := s.Job(t.Context(), good.ID); !errors.Is(err, harp.ErrPruned) {
		t.Fatalf("the job after it: %v, want ErrPruned", err)
	}
}

// TestStoredIsWhatJobsTake compares what MaxBytes goes by with all that lies in the engine
// for jobs, short ones and such that failed at length, were labelled or made anew.
func TestStoredIsWhatJobsTake(t *testing.T) {
	for what, settle := range map[string]func(in *store.Submission, end *store.Event){
		"short": func(*store.Submission, *store.Event) {},
		"named": func(in *store.Submission, _ *store.Event) {
			in.Job.Host, in.Job.Procedure = "a.host.of.some.length.example", "service.restart.and.wait"
			in.Job.Queue = harp.Value("\x81\xa4name\xa5queue")
			in.Job.Labels = map[string]string{"team": "databases", "ticket": "OPS-12345"}
		},
		"valued": func(_ *store.Submission, end *store.Event) { end.Value = make(harp.Value, shortMost) },
		"valued at length": func(_ *store.Submission, end *store.Event) {
			end.Value = make(harp.Value, shortMost+1)
		},
		"failed": func(_ *store.Submission, end *store.Event) {
			end.Failure = failures.New("remote", "something went wrong that takes more than a line to be told, and some more words")
		},
	} {
		t.Run(what, func(t *testing.T) {
			e := newTrial()
			s := opened(t, e, Options{})
			for n := range 100 {
				in := store.Submission{
					Job:     store.Job{ID: harp.NewID(), Host: "h", Procedure: "p", OfflineWait: harp.NoLimit},
					Request: harp.Submission{Request: make([]byte, 100)},
				}
				end := store.Event{Kind: store.End}
				settle(&in, &end)
				s.SetGate(in.Job.Host, store.Gate{Open: true, Most: 1000})
				out, err := s.Submit(t.Context(), []store.Submission{in}, noon)
				if err != nil || out[0].Job.State != harp.StateSent {
					t.Fatal(out, err)
				}
				j := out[0].Job
				for _, e := range []store.Event{{Kind: store.Started}, end} {
					e.At, e.Attempt, e.Fence = noon.Add(time.Duration(n)*time.Second), j.Attempt, j.Fence
					if c, err := s.Apply(t.Context(), store.Transition{ID: j.ID, Event: e}); err != nil || c[0].Err != nil {
						t.Fatal(c, err)
					}
				}
			}
			s = opened(t, e, Options{})
			taken, events := int64(0), 0
			for item := range e.items() {
				switch item.Key[0] {
				case prefixEvent:
					events++
				case prefixMeta, prefixQueue, prefixMarked, prefixHost:
				default:
					taken += int64(len(item.Key) + len(item.Value))
				}
			}
			if got := s.stored.Load(); got < taken*9/10 || got > taken*11/10 {
				t.Errorf("it counts %d bytes a job, they take %d", got/100, taken/100)
			}
			prune(t, s, store.Retention{MaxBytes: s.stored.Load() / 2}, noon.Add(time.Hour))
			left, lost := 0, 0
			for item := range e.items() {
				switch item.Key[0] {
				case prefixLife:
					left++
				case prefixEvent:
					lost++
				}
			}
			if left < 48 || left > 50 {
				t.Errorf("%d of 100 jobs are left in half of what they take", left)
			}
			if lost > events*3/5+2 {
				t.Errorf("%d of %d rows of events are left", lost, events)
			}
			prune(t, s, store.Retention{MaxBytes: 1}, noon.Add(time.Hour))
			if n := s.stored.Load(); n != 0 {
				t.Errorf("no jobs take %d bytes", n)
			}
		})
	}
}

// TestPrunedUnderAKeyOfAnother: a call that was stored, ran and was pruned is asked for again,
// and its idempotency key stands for another call since. It is pruned, and no conflict, which
// would say that it did not run.
func TestPrunedUnderAKeyOfAnother(t *testing.T) {
	s := opened(t, newTrial(), Options{})
	s.SetGate("h", store.Gate{Open: true, Most: 1})
	first, other := call("h"), call("h")
	other.Digest = [32]byte{1}
	submit := func(c store.Submission, at time.Time) error {
		c.Key, c.KeyUntil = "once", at.Add(time.Minute)
		out, err := s.Submit(t.Context(), []store.Submission{c}, at)
		if err != nil {
			t.Fatal(err)
		}
		return out[0].Err
	}
	if err := submit(first, noon); err != nil {
		t.Fatal(err)
	}
	end := store.Event{Kind: store.End, At: noon, Attempt: 1, Fence: 1}
	if out, err := s.Apply(t.Context(), store.Transition{ID: first.Job.ID, Event: end}); err != nil || out[0].Err != nil {
		t.Fatal(out, err)
	}
	later := noon.Add(2 * time.Minute)
	if did, err := s.Prune(t.Context(), store.Retention{EndedBefore: later}, later); err != nil || did.Jobs != 1 {
		t.Fatal(did, err)
	}
	if err := submit(other, later); err != nil {
		t.Fatal(err)
	}
	if err := submit(first, later); !errors.Is(err, harp.ErrPruned) {
		t.Error(err)
	}
}
