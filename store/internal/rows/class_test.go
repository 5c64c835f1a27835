package rows

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

const day = 24 * time.Hour

// putRule makes a rule of retention, or puts it in the place of the one of its name.
func putRule(t testing.TB, s *Store, r harp.RetentionRule) {
	t.Helper()
	doc := store.RetentionDocument{Rule: r}
	if err := s.PutDocument(t.Context(), store.RetentionKind, r.Name, doc.Encode()); err != nil {
		t.Fatal(err)
	}
}

// endAt ends jobs of these procedures at a time, in one commit, and returns them.
func endAt(t testing.TB, s *Store, at time.Time, procedures ...string) []*store.Job {
	t.Helper()
	var calls []store.Submission
	for _, procedure := range procedures {
		c := call("away")
		c.Job.ID, c.Job.Procedure = idAt(at), procedure
		calls = append(calls, c)
	}
	var ts []store.Transition
	for _, j := range submitted(t, s, calls...) {
		cancel := about(j, store.CancelReq)
		cancel.Event.At = at
		ts = append(ts, cancel)
	}
	var out []*store.Job
	for _, c := range applied(t, s, ts...) {
		out = append(out, c.Job)
	}
	return out
}

// counting counts what a store looks at of what has ended.
type counting struct {
	*trial
	examined int // jobs and batches that the rows of the indices of what has ended are about, each time such a row is read
}

type countingView struct {
	Snapshot
	c *counting
}

func (c *counting) View() (Snapshot, error) {
	snap, err := c.trial.View()
	return &countingView{snap, c}, err
}

func (v *countingView) Scan(prefix, from []byte, reverse bool) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		for item, err := range v.Snapshot.Scan(prefix, from, reverse) {
			if err == nil && len(item.Key) > 1 && item.Key[0] == prefixIndex && strings.ContainsRune("eEdD", rune(item.Key[1])) {
				row, jobsErr := openEnded(item)
				if jobsErr != nil { // it is about a batch
					row = make([]ended, 1)
				}
				v.c.examined += len(row)
			}
			if !yield(item, err) {
				return
			}
		}
	}
}

// pruneByRules ends jobs, as many as it is told, over 100 days: of each ten, three are kept for 90 days by a rule, three for five by
// another, and the others for 30. Then it prunes at the end of these days. Exactly what is to be kept remains, and no more is looked at
// than is deleted, and 5,000.
func pruneByRules(t testing.TB, jobs int) {
	e := &counting{trial: newTrial()}
	s := opened(t, e, Options{})
	putRule(t, s, harp.RetentionRule{Name: "long", Order: 1, Procedure: "a*", Keep: 90 * day})
	putRule(t, s, harp.RetentionRule{Name: "short", Order: 2, Procedure: "?b", Keep: 5 * day})
	kinds := []string{"ab", "ac", "a", "bb", "cb", "db", "bc", "c", "d", "e"} // ab fits both, of which the first holds
	kept := map[id]bool{}
	now := noon.Add(100 * day)
	for n := range jobs / 100 {
		at := noon.Add(time.Duration(n) * (100 * day / time.Duration(jobs/100)))
		for n, j := range endAt(t, s, at, slices.Repeat(kinds, 10)...) {
			i, _ := parseID(j.ID)
			keep := []time.Duration{90 * day, 90 * day, 90 * day, 5 * day, 5 * day, 5 * day, 30 * day}[min(n%10, 6)]
			kept[i] = !at.Before(now.Add(-keep))
		}
	}
	e.examined = 0
	deleted := 0
	wanted := 0
	for _, want := range kept {
		if !want {
			wanted++
		}
	}
	for more := true; more; {
		did, err := s.Prune(t.Context(), store.Retention{EndedBefore: now.Add(-30 * day), RulesAt: now}, now)
		if err != nil {
			t.Fatal(err)
		}
		deleted, more = deleted+did.Jobs, did.More
	}
	examined := e.examined
	for i, want := range kept {
		if _, is := e.tree.Get(Item{Key: i.key(prefixLife)}); is != want {
			t.Fatalf("job %s remains: %v, want %v", i, is, want)
		}
	}
	if examined > deleted+5000 || deleted != wanted || deleted < jobs/3 || deleted > 2*jobs/3 {
		t.Errorf("%d were looked at to delete %d, want %d", examined, deleted, wanted)
	}
	t.Logf("%d of %d were deleted; %d were looked at", deleted, jobs, examined)
}

func TestPruneByRules(t *testing.T) { pruneByRules(t, 20_000) }

// BenchmarkPruneByRules is TestPruneByRules of 100,000 jobs.
func BenchmarkPruneByRules(b *testing.B) {
	for b.Loop() {
		pruneByRules(b, 100_000)
	}
}

// TestEarlyMembersCount: a member that is cancelled before its turn counts in its batch.
func TestEarlyMembersCount(t *testing.T) {
	s := opened(t, newTrial(), Options{})
	putRule(t, s, harp.RetentionRule{Name: "r", MaxBytes: 1 << 20})
	in := store.BatchSubmission{Batch: store.Batch{
		ID: idAt(noon), Target: "*", Classes: []store.BatchClass{{}}, Plan: store.BatchPlan{Parallel: 1, Waves: []int{3}},
		Member: store.Job{Procedure: "p", OfflineWait: harp.NoLimit},
	}}
	for n := range 3 {
		in.Hosts = append(in.Hosts, store.BatchHost{Name: fmt.Sprint("away", n)})
	}
	if _, err := s.SubmitBatch(t.Context(), in, noon); err != nil {
		t.Fatal(err)
	}
	var want int64
	for n := range 3 {
		_, i := memberOf(&in.Batch, n, in.Hosts[n])
		c := applied(t, s, about(&store.Job{ID: i.String()}, store.CancelReq))[0]
		want += footprint(c.Job)
	}
	for more := true; more; {
		did, err := s.Advance(t.Context(), noon)
		if err != nil {
			t.Fatal(err)
		}
		more = did.More
	}
	if b, err := s.Batch(t.Context(), in.Batch.ID); err != nil || !b.State.Ended() || b.Counted < want {
		t.Errorf("it is %s and counts %d bytes, %v; want %d and its request", b.State, b.Counted, err, want)
	}
}

// TestRestoredByRules: what a backup is restored to ends by the rules of the backup.
func TestRestoredByRules(t *testing.T) {
	s := opened(t, newTrial(), Options{})
	putRule(t, s, harp.RetentionRule{Name: "lost", States: []harp.State{harp.StateLost}, Keep: 100 * day})
	putRule(t, s, harp.RetentionRule{Name: "rest", Order: 9, Keep: day})
	had := endAt(t, s, noon, "p")[0]
	runs := started(t, s)
	into := newTrial()
	if _, err := Restore(into, backedUp(t, s), noon, Options{}); err != nil {
		t.Fatal(err)
	}
	s = opened(t, into, Options{})
	later := noon.Add(50 * day)
	prune(t, s, store.Retention{EndedBefore: later, RulesAt: later}, later)
	if _, err := s.Job(t.Context(), had.ID); err == nil {
		t.Error("what had ended is kept for longer")
	}
	if j, err := s.Job(t.Context(), runs.ID); err != nil || j.State != harp.StateLost {
		t.Error(j, err)
	}
}

// endBatchAt runs a batch of a procedure on so many hosts that ends at a time, as cancelled.
func endBatchAt(t testing.TB, s *Store, at time.Time, procedure string, hosts int) *store.Batch {
	t.Helper()
	return endBatch(t, s, idAt(at), at, procedure, hosts)
}

// endBatch is endBatchAt with an id.
func endBatch(t testing.TB, s *Store, id string, at time.Time, procedure string, hosts int) *store.Batch {
	t.Helper()
	in := store.BatchSubmission{Request: harp.Submission{Request: []byte("request")}, Batch: store.Batch{
		ID: id, Target: "*", Classes: []store.BatchClass{{}}, Plan: store.BatchPlan{Parallel: hosts, Waves: []int{hosts}},
		Member: store.Job{Procedure: procedure, OfflineWait: harp.NoLimit},
	}}
	for n := range hosts {
		in.Hosts = append(in.Hosts, store.BatchHost{Name: fmt.Sprint("away", n)})
	}
	if _, err := s.SubmitBatch(t.Context(), in, at); err != nil {
		t.Fatal(err)
	}
	advance := func() {
		for {
			did, err := s.Advance(t.Context(), at)
			if err != nil {
				t.Fatal(err)
			}
			if !did.More {
				return
			}
		}
	}
	advance()
	if _, err := s.ChangeBatch(t.Context(), in.Batch.ID, store.BatchEvent{Kind: store.BatchCancel}, store.Operation{Time: at}); err != nil {
		t.Fatal(err)
	}
	advance()
	b, err := s.Batch(t.Context(), in.Batch.ID)
	if err != nil || !b.State.Ended() {
		t.Fatalf("it is %+v, %v", b, err)
	}
	return b
}

// TestPruneGoesOnWithItsClass: while there is more to delete of one class, what is kept of those before it is looked at once, and
// afterwards each is walked through again.
func TestPruneGoesOnWithItsClass(t *testing.T) {
	e := &counting{trial: newTrial()}
	s := opened(t, e, Options{})
	putRule(t, s, harp.RetentionRule{Name: "kept", Order: 1, Procedure: "kept", Keep: 90 * day})
	putRule(t, s, harp.RetentionRule{Name: "gone", Order: 2, Procedure: "gone", Keep: day})
	kept := endAt(t, s, noon, slices.Repeat([]string{"kept"}, 100)...)
	for range 5 {
		endAt(t, s, noon, slices.Repeat([]string{"gone"}, 500)...)
	}
	e.examined = 0
	later := noon.Add(2 * day)
	if got := pruneWhole(t, s, store.Retention{RulesAt: later}, later); got != 2500 {
		t.Errorf("%d were deleted", got)
	}
	if most := 2500 + 5*endedMost + 100; e.examined > most {
		t.Errorf("%d were looked at, at most %d", e.examined, most)
	}
	later = noon.Add(91 * day)
	if got := pruneWhole(t, s, store.Retention{RulesAt: later}, later); got != len(kept) {
		t.Errorf("%d of the first class were deleted afterwards", got)
	}
}

// pruneWhole prunes as long as there is more, and returns how many jobs were deleted.
func pruneWhole(t testing.TB, s *Store, r store.Retention, now time.Time) (jobs int) {
	t.Helper()
	for more := true; more; {
		did, err := s.Prune(t.Context(), r, now)
		if err != nil {
			t.Fatal(err)
		}
		jobs, more = jobs+did.Jobs, did.More
	}
	return jobs
}
