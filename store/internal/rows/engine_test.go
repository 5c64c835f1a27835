package rows

import (
	"bytes"
	"context"
	"encoding/binary"
	"iter"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/btree"
	"go.uber.org/goleak"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// trial is an engine in memory that tests can reach into.
type trial struct {
	mu       sync.Mutex
	tree     *btree.BTreeG[Item]           // guarded by mu
	commits  [][]Write                     // guarded by mu
	onCommit func(writes []Write) error    // before it is done
	onGet    func(key, value []byte) error // of a view
	space    Space
	closed   int
}

func newTrial() *trial {
	less := func(a, b Item) bool { return bytes.Compare(a.Key, b.Key) < 0 }
	return &trial{tree: btree.NewBTreeGOptions(less, btree.Options{NoLocks: true}), space: SpacePlenty}
}

func (e *trial) View() (Snapshot, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return &trialView{e.tree.Copy(), e}, nil
}

func (e *trial) Commit(writes []Write) error {
	if e.onCommit != nil {
		if err := e.onCommit(writes); err != nil {
			return err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.commits = append(e.commits, writes)
	for _, w := range writes {
		if w.Value == nil {
			e.tree.Delete(Item{Key: w.Key})
		} else {
			e.tree.Set(Item(w))
		}
	}
	return nil
}

func (e *trial) Space() Space { return e.space }

func (e *trial) Compact(context.Context) error { return nil }

func (e *trial) Size() (size int64, _ error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tree.Scan(func(item Item) bool {
		size += int64(len(item.Key) + len(item.Value))
		return true
	})
	return size, nil
}

func (e *trial) Close() error {
	e.closed++
	return nil
}

// poke changes a stored value behind the store's back.
func (e *trial) poke(prefix []byte, change func(key, value []byte) []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var found Item
	e.tree.Ascend(Item{Key: prefix}, func(item Item) bool {
		found = item
		return false
	})
	if value := change(found.Key, bytes.Clone(found.Value)); value != nil {
		e.tree.Set(Item{found.Key, value})
	} else {
		e.tree.Delete(found)
	}
}

// count is how many keys have a prefix.
func (e *trial) count(prefix ...byte) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	e.tree.Ascend(Item{Key: prefix}, func(item Item) bool {
		if !bytes.HasPrefix(item.Key, prefix) {
			return false
		}
		n++
		return true
	})
	return n
}

type trialView struct {
	tree *btree.BTreeG[Item]
	e    *trial
}

func (v *trialView) Get(key []byte) ([]byte, error) {
	item, _ := v.tree.Get(Item{Key: key})
	if v.e.onGet != nil {
		if err := v.e.onGet(key, item.Value); err != nil {
			return nil, err
		}
	}
	return item.Value, nil
}

func (v *trialView) Scan(prefix, from []byte, reverse bool) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		step := func(item Item) bool { return bytes.HasPrefix(item.Key, prefix) && yield(item, nil) }
		switch {
		case reverse && from == nil:
			v.tree.Descend(Item{Key: PrefixEnd(prefix)}, step)
		case reverse:
			v.tree.Descend(Item{Key: from}, step)
		case from == nil:
			v.tree.Ascend(Item{Key: prefix}, step)
		default:
			v.tree.Ascend(Item{Key: from}, step)
		}
	}
}

func (v *trialView) Keys(prefix []byte) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		v.tree.Ascend(Item{Key: prefix}, func(item Item) bool {
			return bytes.HasPrefix(item.Key, prefix) && yield(Entry{item.Key, len(item.Value)}, nil)
		})
	}
}

func (v *trialView) Close() {}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// opened opens a store on an engine and closes it with the test. What it then has in memory
// of its queues must be what their rows say.
func opened(t testing.TB, e Engine, opts Options) *Store {
	t.Helper()
	s, err := Open(e, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.usable() == nil {
			checkQueues(t, s)
			checkUnended(t, s)
			checkBatches(t, s)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// checkQueues compares each queue with its row.
func checkQueues(t testing.TB, s *Store) {
	t.Helper()
	err := s.do(context.Background(), SpaceFull, func(tx *tx) error {
		for q := range s.sched.Queues() {
			name := q.Name
			row, found, err := readQueue(tx.snap, name)
			if err != nil || !found || !bytes.Equal(encode(row), encode(rowOf(q))) {
				t.Errorf("the row of queue %q is %+v, %v, want %+v", name, row, err, rowOf(q))
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// checkBatches compares the batches that have not ended, and what classes count, with what is stored of them, as far as that can be read.
func checkBatches(t testing.TB, s *Store) {
	t.Helper()
	err := s.do(context.Background(), SpaceFull, func(tx *tx) error {
		for item, err := range tx.snap.Scan([]byte{prefixBatchLife}, nil, false) {
			if err != nil {
				return err
			}
			var row batchLifeRow
			i := id(item.Key[1:])
			b := s.batches[i]
			switch {
			case readItem(tx.snap, item, &row) != nil:
			case b == nil && !row.State.Ended():
				t.Errorf("batch %s is stored as %s, and nobody goes on with it", i, row.State)
			case b != nil && !bytes.Equal(encode(&batchLifeRow{BatchLife: b.life, Log: b.log}), encode(&row)):
				t.Errorf("batch %s is stored as %+v, not as %+v", i, row.BatchLife, b.life)
			}
		}
		for item, err := range tx.snap.Scan(keyClass, nil, false) {
			if err != nil {
				return err
			}
			var row store.RetentionClass
			c := s.classes[binary.BigEndian.Uint32(item.Key[len(keyClass):])]
			if readItem(tx.snap, item, &row) == nil && (c == nil || !c.IsLost() && c.Bytes != row.Bytes) {
				t.Errorf("a class is stored as %+v, not as %+v", row, c)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// checkUnended compares what is stored of which jobs have not ended, and what is at hand of their
// states for listings, with the jobs.
func checkUnended(t testing.TB, s *Store) {
	t.Helper()
	atHand := s.unended.copy()
	err := s.do(context.Background(), SpaceFull, func(tx *tx) error {
		stored := map[id]bool{}
		for item, err := range tx.snap.Scan([]byte{prefixUnended}, nil, false) {
			if err != nil {
				return err
			}
			c, err := openCohort(item)
			if err != nil {
				return nil //nolint:nilerr // the test has damaged it
			}
			for _, i := range c.ids[:c.n] {
				stored[i] = true
				if s.sched.Job(i) == nil || s.cohorts[i].first != c.first {
					t.Errorf("job %s is stored as one that has not ended", i)
				}
			}
		}
		listed := 0
		for _, tree := range atHand {
			listed += tree.Len()
		}
		if len(stored) != s.sched.Len() || len(s.cohorts) != s.sched.Len() || listed != len(stored) {
			t.Errorf("%d jobs have not ended, %d are stored as such and %d are at hand", s.sched.Len(), len(stored), listed)
		}
		for state, tree := range atHand {
			tree.Scan(func(at standing) bool {
				j, err := readJob(tx.snap, at.id)
				if err == nil && (j.State != state || submittedAt(j) != at.at) {
					t.Errorf("job %s is at hand as %s, is %s", at.id, state, j.State)
				}
				return true
			})
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// countQueues is how many queues the schedule has, and has names of.
func countQueues(s *Store) (n int) {
	names, _ := s.sched.QueueNames("", math.MaxInt)
	for range s.sched.Queues() {
		n++
	}
	return n + len(names)
}

// idAt is an id that was made at a time.
func idAt(at time.Time) string {
	i, _ := parseID(harp.NewID())
	copy(i[:6], binary.BigEndian.AppendUint64(nil, uint64(at.UnixMilli())<<16))
	return i.String()
}

func call(host string) store.Submission {
	return store.Submission{
		Job:     store.Job{ID: idAt(noon), Host: host, Procedure: "p", OfflineWait: harp.NoLimit, SubmitTime: noon},
		Request: harp.Submission{Request: []byte("request")},
	}
}

// submitted stores jobs, which must be new.
func submitted(t testing.TB, s *Store, calls ...store.Submission) []*store.Job {
	t.Helper()
	out, err := s.Submit(t.Context(), calls, noon)
	if err != nil {
		t.Fatal(err)
	}
	jobs := make([]*store.Job, len(out))
	for i, o := range out {
		if o.Err != nil || !o.New {
			t.Fatalf("submission %d: new %v, %v", i, o.New, o.Err)
		}
		jobs[i] = o.Job
	}
	return jobs
}

// started opens the gate of "h" and starts a job there.
func started(t testing.TB, s *Store) *store.Job {
	t.Helper()
	s.SetGate("h", store.Gate{Open: true, Most: 1 << 20})
	return submitted(t, s, call("h"))[0]
}

func about(j *store.Job, kind store.Kind) store.Transition {
	return store.Transition{ID: j.ID, Event: store.Event{Kind: kind, At: noon, Attempt: j.Attempt, Fence: j.Fence}}
}

func applied(t testing.TB, s *Store, ts ...store.Transition) []store.Change {
	t.Helper()
	out, err := s.Apply(t.Context(), ts...)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range out {
		if c.Err != nil {
			t.Fatal(c.Err)
		}
	}
	return out
}
