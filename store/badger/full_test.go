//go:build linux && !race

package badger_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/badger"
)

// TestFullDisk fills disks with what jobs emit and end with, as fast as the store takes
// it, with the lines that there are by default. Jobs that wait are cancelled, jobs that
// have ended are pruned, and the store is closed and opened again, all on the full disk,
// and once more when another has taken it to the last byte. Whatever was acknowledged is
// there, and with room again all goes on.
func TestFullDisk(t *testing.T) {
	type filled struct {
		disk disk
		load load
	}
	all := []filled{
		{disk{"tmpfs", 256}, rowsLoad},
		{disk{"tmpfs", 400}, recordsLoad},
		{disk{"tmpfs", 400}, resultsLoad},
		{disk{"ext4", 400}, rowsLoad},
	}
	if os.Getenv(longEnv) != "" {
		all = append(all, []filled{
			{disk{"tmpfs", 400}, rowsLoad},
			{disk{"tmpfs", 700}, rowsLoad},
			{disk{"tmpfs", 700}, resultsLoad},
			{disk{"ext4", 868}, rowsLoad},
			{disk{"tmpfs", 2048}, rowsLoad},
			{disk{"tmpfs", 4096}, recordsLoad},
		}...)
	}
	for _, c := range all {
		t.Run(c.disk.String()+"-"+c.load.name, func(t *testing.T) {
			if inNamespace(t) {
				(&fullDisk{t: t, dir: c.disk.mount(t), load: c.load, jobs: map[string]*told{}}).run()
			}
		})
	}
}

// load is what each job has.
type load struct {
	name    string
	appends int
	record  int // bytes
	value   int // bytes
}

var (
	rowsLoad    = load{"rows", 40, 3 << 10, 100}     // lies in the tables
	recordsLoad = load{"records", 10, 60 << 10, 100} // lies in the value log
	resultsLoad = load{"results", 1, 100, 300 << 10} // in pieces
)

// told is what the store has acknowledged of a job.
type told struct {
	records int
	ended   bool
	pruned  bool
}

type fullDisk struct {
	t    *testing.T
	dir  string
	load load
	st   store.Store

	mu    sync.Mutex
	jobs  map[string]*told
	bytes int
}

func (f *fullDisk) run() {
	t := f.t
	f.open()
	began := time.Now()
	var waiting []*store.Job
	for range 200 {
		waiting = append(waiting, submit(t, f.st, "away"))
	}
	f.fill()
	t.Logf("full after %d jobs, %d MiB, %v", len(f.jobs), f.bytes>>20, time.Since(began))
	for _, j := range waiting[:100] {
		f.cancel(j)
	}
	f.prune(len(f.jobs) / 20)
	f.close()
	f.open()
	f.check()
	f.close()
	rest := takeRest(t, f.dir) // and nothing is left but the ballast
	f.open()
	f.check()
	for _, j := range waiting[100:] {
		f.cancel(j)
	}
	f.prune(len(f.jobs) / 20)
	f.close()
	if err := os.Remove(rest); err != nil {
		t.Fatal(err)
	}
	f.open()
	f.check()
	f.prune(len(f.jobs))
	if err := f.st.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	size, _ := f.st.Size()
	t.Logf("after pruning all: %d MiB", size>>20)
	submit(t, f.st, "h")
	f.close()
}

func (f *fullDisk) open() {
	f.t.Helper()
	st, err := badger.Open(filepath.Join(f.dir, "store"), &badger.Options{MaxStored: 1 << 40})
	if err != nil {
		f.t.Fatal(err)
	}
	st.SetGate("h", store.Gate{Open: true, Most: 10_000})
	f.st = st
}

func (f *fullDisk) close() {
	f.t.Helper()
	if err := f.st.Close(); err != nil {
		f.t.Fatal(err)
	}
}

// fill makes jobs until none is taken any more, and then lets one that runs go on until
// its records are not either.
func (f *fullDisk) fill() {
	var workers sync.WaitGroup
	for range 64 {
		workers.Go(func() {
			last, err := f.submit()
			for err == nil {
				err = f.work()
			}
			for err = f.wanted(err); err == nil; {
				err = f.append(last)
			}
			f.wanted(err) //nolint:errcheck // it has told the test
		})
	}
	workers.Wait()
	if f.t.Failed() {
		f.t.FailNow()
	}
}

// wanted returns nil for what a full disk is answered with.
func (f *fullDisk) wanted(err error) error {
	if errors.Is(err, harp.ErrNoSpace) {
		return nil
	}
	f.t.Error(err)
	return err
}

func (f *fullDisk) submit() (*store.Job, error) {
	out, err := f.st.Submit(f.t.Context(), []store.Submission{submission("h")}, time.Now())
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.jobs[out[0].Job.ID] = &told{}
	return out[0].Job, nil
}

// append adds a record to a job.
func (f *fullDisk) append(j *store.Job) error {
	f.mu.Lock()
	seen := f.jobs[j.ID]
	f.mu.Unlock()
	_, err := f.st.Append(f.t.Context(), store.Append{
		ID: j.ID, Attempt: 1, Fence: j.Fence, First: uint64(seen.records),
		Records: []harp.Record{{Value: f.value(j.ID, seen.records, f.load.record)}}, Arrived: time.Now(),
	})
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	seen.records, f.bytes = seen.records+1, f.bytes+f.load.record
	return nil
}

// work takes a job through its life.
func (f *fullDisk) work() error {
	j, err := f.submit()
	if err != nil {
		return err
	}
	for range f.load.appends {
		if err := f.append(j); err != nil {
			return err
		}
	}
	changes, err := f.st.Apply(f.t.Context(), store.Transition{ID: j.ID, Event: store.Event{
		Kind: store.End, At: time.Now(), Attempt: 1, Fence: j.Fence, Value: f.value(j.ID, 0, f.load.value),
	}})
	if err = errors.Join(err, outcome(changes)); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.jobs[j.ID].ended = true
	f.bytes += f.load.value
	return nil
}

func (f *fullDisk) value(id string, i, size int) harp.Value {
	word := fmt.Appendf(nil, "%s %d ", id, i)
	return bytes.Repeat(word, size/len(word)+1)[:size]
}

func (f *fullDisk) cancel(j *store.Job) {
	f.t.Helper()
	changes, err := f.st.Apply(f.t.Context(), store.Transition{ID: j.ID, Event: store.Event{Kind: store.CancelReq, At: time.Now()}})
	if err = errors.Join(err, outcome(changes)); err != nil {
		f.t.Fatalf("cancel on a full disk: %v", err)
	}
}

// prune deletes at least so many jobs, those that ended first.
func (f *fullDisk) prune(n int) {
	f.t.Helper()
	for n > 0 {
		did, err := f.st.Prune(f.t.Context(), store.Retention{EndedBefore: time.Now()}, time.Now())
		if err != nil {
			f.t.Fatalf("pruning: %v", err)
		}
		if n -= did.Jobs; !did.More {
			break
		}
	}
	for id, seen := range f.jobs {
		if _, err := f.st.Job(f.t.Context(), id); errors.Is(err, harp.ErrPruned) {
			seen.pruned = true
		}
	}
}

// check reads all that was acknowledged and not pruned.
func (f *fullDisk) check() {
	t := f.t
	t.Helper()
	for id, seen := range f.jobs {
		if seen.pruned {
			continue
		}
		j, err := f.st.Job(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for n < seen.records {
			records, err := f.st.Read(t.Context(), id, uint64(n), store.ReadLimit{Bytes: 1 << 20})
			if err != nil || len(records) == 0 {
				t.Fatalf("job %s has %d of %d records: %v", id, n, seen.records, err)
			}
			for _, r := range records {
				if !bytes.Equal(r.Value, f.value(id, n, f.load.record)) {
					t.Fatalf("record %d of job %s is not what was stored", n, id)
				}
				n++
			}
		}
		if !seen.ended {
			continue
		}
		if v, err := f.st.Value(t.Context(), id); err != nil || j.State != harp.StateSucceeded || !bytes.Equal(v, f.value(id, 0, f.load.value)) {
			t.Fatalf("job %s is %s with %d bytes of value: %v", id, j.State, len(v), err)
		}
	}
}

// TestCloseAgain checks that a store that could not be closed for want of space is closed when
// there is some, and can be opened again in the same process.
func TestCloseAgain(t *testing.T) {
	dir := t.TempDir()
	var free atomic.Uint64
	free.Store(50 << 30)
	opts := badger.Options{Ballast: -1, Disk: func(string) (uint64, uint64, error) { return free.Load(), 100 << 30, nil }}
	st := open(t, dir, opts)
	j := submit(t, st, "h")
	free.Store(0)
	refused(t, "closing", st.Close())
	free.Store(50 << 30)
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	st = open(t, dir, opts)
	if _, err := st.Job(t.Context(), j.ID); err != nil {
		t.Error(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}
