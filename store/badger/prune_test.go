package badger_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/badger"
)

// longEnv makes long tests as long as they should be.
const longEnv = "HARP_LONG"

// TestPruneGivesBack checks that a directory in which many jobs were deleted takes at
// most 1.2 times the blocks of one that never had them, and 100 bytes for each
// tombstone. Badger's own files are the slack; they come once for each directory.
func TestPruneGivesBack(t *testing.T) {
	jobs, slack := 20_000, int64(1<<20)
	if os.Getenv(longEnv) != "" {
		jobs = 1_000_000
	} else if testing.Short() {
		t.Skip("writes much")
	}
	const kept = 2000
	plain := filling{kept: kept, rounds: 1}.dir(t)
	pruned := filling{deleted: jobs, kept: kept, rounds: 1}.dir(t)
	tombs := int64(jobs) * 100
	t.Logf("%d jobs deleted: %d bytes of %d", jobs, pruned, plain+tombs)
	if most := plain*12/10 + tombs + slack; pruned > most {
		t.Errorf("the directory takes %d bytes, at most %d", pruned, most)
	}
}

// TestPruneGivesBackRecords is the same for jobs with many records, which lie in the
// value log, those that are deleted between those that are kept.
func TestPruneGivesBackRecords(t *testing.T) {
	if testing.Short() {
		t.Skip("writes much")
	}
	const rounds, size, slack = 10, 1 << 20, 2 << 20
	plain := filling{kept: 3, rounds: rounds, records: size}.dir(t)
	pruned := filling{deleted: 20, kept: 3, rounds: rounds, records: size}.dir(t)
	t.Logf("%d bytes of %d", pruned, plain)
	if most := plain*12/10 + slack; pruned > most {
		t.Errorf("the directory takes %d bytes, at most %d", pruned, most)
	}
}

// filling is what a directory is filled with.
type filling struct {
	deleted, kept int // jobs in each round
	rounds        int
	records       int // bytes of records that each of the jobs has
}

// dir is how much a directory takes in which some jobs were deleted and some are
// left.
func (f filling) dir(t *testing.T) int64 {
	t.Helper()
	dir := t.TempDir()
	st := open(t, dir, badger.Options{})
	now := time.Now()
	later := now.Add(time.Hour)
	for range f.rounds {
		endJobs(t, st, f.deleted, f.records, now)
		endJobs(t, st, f.kept, f.records, later)
	}
	began := time.Now()
	for more := true; more; {
		did, err := st.Prune(t.Context(), store.Retention{EndedBefore: later, EventsBefore: later}, later)
		if err != nil {
			t.Fatal(err)
		}
		more = did.More
	}
	t.Logf("deleting %d jobs took %v", f.deleted*f.rounds, time.Since(began))
	for range 2 { // what is in the tables of memory comes to the disk by closing
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
		st = open(t, dir, badger.Options{})
		if err := st.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	size, err := st.Size()
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	return size
}

// endJobs stores jobs that have run, with what a usual one leaves, or each with so
// many bytes of records.
func endJobs(t *testing.T, st store.Store, n, records int, at time.Time) {
	t.Helper()
	const atOnce = 200
	st.SetGate("h", store.Gate{Open: true, Most: 2 * atOnce})
	for done := 0; done < n; done += atOnce {
		batch := make([]store.Submission, min(atOnce, n-done))
		for i := range batch {
			batch[i] = submission("h")
			batch[i].Request.Request = make([]byte, 300)
		}
		out, err := st.Submit(t.Context(), batch, at)
		if err != nil {
			t.Fatal(err)
		}
		ts := make([]store.Transition, len(out))
		for i, o := range out {
			a := store.Append{ID: o.Job.ID, Attempt: 1, Fence: o.Job.Fence, Records: []harp.Record{{Value: make(harp.Value, max(records, 200))}}, Arrived: at}
			if i == 0 || records > 0 {
				if _, err := st.Append(t.Context(), a); err != nil {
					t.Fatal(err)
				}
			}
			ts[i] = store.Transition{ID: o.Job.ID, Event: store.Event{Kind: store.End, At: at, Attempt: 1, Fence: o.Job.Fence, Value: harp.Value("value")}}
		}
		if _, err := st.Apply(t.Context(), ts...); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCompactGivesBackLongValues: values that were deleted kept their space for as long as the keys, which alone are in badger's tables of memory, did not
// fill these: of jobs with 64 KiB of records that was after more than 20 GB.
func TestCompactGivesBackLongValues(t *testing.T) {
	if testing.Short() {
		t.Skip("writes much")
	}
	const size, jobs, after = 64 << 10, 400, 16 << 20
	large := badger.Options{Disk: func(string) (free, total uint64, err error) { return 1 << 40, 1 << 40, nil }}
	st := open(t, t.TempDir(), badger.WithFlushAfter(large, after))
	now := time.Now()
	var most int64
	for round := range 6 {
		endJobs(t, st, jobs, size, now)
		for more := true; more; {
			did, err := st.Prune(t.Context(), store.Retention{EndedBefore: now.Add(time.Second), EventsBefore: now.Add(time.Second)}, now)
			if err != nil {
				t.Fatal(err)
			}
			more = did.More
		}
		if err := st.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
		stored, err := st.Size()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("after round %d: %d KiB", round, stored>>10)
		most = max(most, stored)
	}
	const files = 112 << 20 // the last file of the value log, most of one before it, and tables
	if most > files {
		t.Errorf("jobs of %d bytes in each round, all of which were deleted, take %d", size*jobs, most)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestCompactEnds gives up waiting for a compaction with its context, and closes the
// store while one may be under way.
func TestCompactEnds(t *testing.T) {
	st := open(t, t.TempDir(), badger.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := st.Compact(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("compacting with a context that has ended: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- st.Compact(t.Context()) }()
	if err := st.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil && !errors.Is(err, harp.ErrClosed) {
		t.Errorf("compacting while the store is closed: %v", err)
	}
	if err := st.Compact(t.Context()); !errors.Is(err, harp.ErrClosed) {
		t.Errorf("compacting after: %v, want ErrClosed", err)
	}
}
