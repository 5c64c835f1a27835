package rows

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

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

// TestLostClass: what is of a class whose row cannot be read, or is gone, is kept until room is needed.
func TestLostClass(t *testing.T) {
	for name, lose := range map[string]func(e *trial){
		"damaged": func(e *trial) {
			e.poke(keyClass, func(_, value []byte) []byte { return append(value[:len(value)-1], value[len(value)-1]^1) })
		},
		"gone": func(e *trial) { e.poke(keyClass, func(_, _ []byte) []byte { return nil }) },
	} {
		t.Run(name, func(t *testing.T) {
			e := newTrial()
			s := opened(t, e, Options{})
			putRule(t, s, harp.RetentionRule{Name: "r", Procedure: "p", Keep: day})
			j := endAt(t, s, noon, "p")[0]
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			lose(e)
			s = opened(t, e, Options{})
			later := noon.Add(1000 * day)
			prune(t, s, store.Retention{EndedBefore: later, RulesAt: later}, later)
			if _, err := s.Job(t.Context(), j.ID); err != nil {
				t.Fatal(err)
			}
			other := endAt(t, s, later, "p")[0]
			if other.Class == j.Class {
				t.Error("what ends now is of the class that is lost")
			}
			prune(t, s, store.Retention{MaxBytes: 1}, later)
			if _, err := s.Job(t.Context(), j.ID); err == nil {
				t.Error("it is kept for ever, whatever room there is")
			}
		})
	}
}

// TestDamagedRowOfAClass: a row of what has ended that cannot be read keeps nothing else from being deleted, nor is its class forgotten.
func TestDamagedRowOfAClass(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	putRule(t, s, harp.RetentionRule{Name: "r", Procedure: "p", Keep: day})
	lost := endAt(t, s, noon, "p")[0]
	gone := endAt(t, s, noon.Add(time.Minute), "p")[0]
	putRule(t, s, harp.RetentionRule{Name: "r", Procedure: "p", Keep: 2 * day})
	endAt(t, s, noon.Add(time.Minute), "p")
	e.poke(endedPrefix(byEnded, lost.Class), func(_, value []byte) []byte { return append(value[:len(value)-1], value[len(value)-1]^1) })
	later := noon.Add(10 * day)
	for range 2 {
		prune(t, s, store.Retention{RulesAt: later}, later)
	}
	if _, err := s.Job(t.Context(), lost.ID); err != nil {
		t.Error(err)
	}
	if _, err := s.Job(t.Context(), gone.ID); err == nil {
		t.Error("the next is not deleted")
	}
	if n := len(s.RetentionClasses()); n != 2 {
		t.Errorf("there are %d classes, want that of what cannot be deleted and the last", n)
	}
}

// TestDamagedBatchOfAClass: a batch whose life cannot be read is deleted in its turn, and then no longer counts in its class: else
// what the rule keeps would go in its place.
func TestDamagedBatchOfAClass(t *testing.T) {
	for _, hosts := range []int{14, 1200} { // more than one Prune deletes
		e := newTrial()
		s := opened(t, e, Options{})
		putRule(t, s, harp.RetentionRule{Name: "r", Procedure: "p", Keep: day, MaxBytes: 5000})
		i, _ := parseID(endBatchAt(t, s, noon, "p", hosts).ID)
		e.poke(i.key(prefixBatchLife), func(_, value []byte) []byte { return append(value[:len(value)-1], value[len(value)-1]^1) })
		later := noon.Add(2 * day)
		kept := endAt(t, s, later, "p", "p")
		prune(t, s, store.Retention{RulesAt: later}, later)
		for _, j := range kept {
			if _, err := s.Job(t.Context(), j.ID); err != nil {
				t.Error(err)
			}
		}
		if got := s.RetentionClasses()[0].Bytes; got != kept[0].Counted+kept[1].Counted {
			t.Errorf("of a batch of %d hosts there are left %d bytes", hosts, got)
		}
	}
}

// TestDamagedBatchCountsNoMore: a batch that cannot be read, and so not be deleted, counts no more in its class from its turn on.
func TestDamagedBatchCountsNoMore(t *testing.T) {
	flip := func(_, value []byte) []byte { return append(value[:len(value)-1], value[len(value)-1]^1) }
	e := newTrial()
	s := opened(t, e, Options{})
	putRule(t, s, harp.RetentionRule{Name: "r", Procedure: "p", Keep: 100 * day, MaxBytes: 5000})
	bad := endBatchAt(t, s, noon, "p", 14)
	i, _ := parseID(bad.ID)
	e.poke(i.key(prefixBatch), flip)
	kept := endAt(t, s, noon.Add(time.Minute), "p", "p")
	later := noon.Add(time.Hour)
	check := func() {
		t.Helper()
		for _, j := range kept {
			if _, err := s.Job(t.Context(), j.ID); err != nil {
				t.Error(err)
			}
		}
		if got := s.RetentionClasses()[0].Bytes; got != kept[0].Counted+kept[1].Counted {
			t.Errorf("there are left %d bytes", got)
		}
	}
	for range 3 {
		prune(t, s, store.Retention{RulesAt: later}, later)
		check()
	}
	e.poke(i.key(prefixBatch), flip) // it can be read again, and goes in its turn, of no class
	for range 3 {
		prune(t, s, store.Retention{EndedBefore: later, RulesAt: later}, later)
	}
	if _, err := s.Batch(t.Context(), bad.ID); !errors.Is(err, harp.ErrPruned) {
		t.Errorf("then it is %v", err)
	}
	check()
}

// TestDamagedEntryOfABatchKeepsNoOther: of what ended first nobody can read which batch it is, and those that ended later are deleted all
// the same.
func TestDamagedEntryOfABatchKeepsNoOther(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	endBatchAt(t, s, noon, "p", 2)
	next := endBatchAt(t, s, noon.Add(time.Minute), "p", 2)
	var first []byte
	if err := s.view(func(snap Snapshot) error {
		for entry, err := range snap.Keys(indexKey(byBatchEnd)) {
			first = bytes.Clone(entry.Key)
			return err
		}
		return nil
	}); err != nil || first == nil {
		t.Fatal(err)
	}
	e.flip(first)
	later := noon.Add(time.Hour)
	prune(t, s, store.Retention{EndedBefore: later, RulesAt: later}, later)
	if _, err := s.Batch(t.Context(), next.ID); !errors.Is(err, harp.ErrPruned) {
		t.Errorf("the next is %v", err)
	}
}

// TestDamagedBatchWithoutALifeCountsNoMore: of a batch of which neither row can be read nobody knows what it counts: it is counted anew, and
// not all of one Prune. One member of it cannot be read either.
func TestDamagedBatchWithoutALifeCountsNoMore(t *testing.T) {
	flip := func(_, value []byte) []byte { return append(value[:len(value)-1], value[len(value)-1]^1) }
	gone := func(_, _ []byte) []byte { return nil }
	for name, c := range map[string]struct {
		hosts  int
		member byte // which row of one of them is damaged; 0: none
		spoil  func(key, value []byte) []byte
		slack  int64
	}{
		"damaged":                   {14, 0, flip, 0},
		"gone":                      {14, 0, gone, 0},
		"large":                     {2*maxSought + 100, 0, flip, 0},
		"with the life of a member": {14, prefixLife, flip, 500},
		"with the call of a member": {14, prefixCall, flip, 500},
	} {
		t.Run(name, func(t *testing.T) {
			e := newTrial()
			s := opened(t, e, Options{})
			putRule(t, s, harp.RetentionRule{Name: "r", Procedure: "p", Keep: 100 * day, MaxBytes: 5000})
			bad := endBatchAt(t, s, noon, "p", c.hosts)
			i, _ := parseID(bad.ID)
			e.poke(i.key(prefixBatch), flip)
			e.poke(i.key(prefixBatchLife), c.spoil)
			if c.member != 0 {
				e.poke(append([]byte{c.member}, i.ofMembers()...), flip)
			}
			s.unlearn()
			kept := endAt(t, s, noon.Add(time.Minute), "p", "p")
			later := noon.Add(time.Hour)
			for range 3 {
				prune(t, s, store.Retention{RulesAt: later}, later)
				wantKept(t, s, kept)
				if got, want := s.RetentionClasses()[0].Bytes, kept[0].Counted+kept[1].Counted; got < want-c.slack || got > want+c.slack {
					t.Errorf("of %d bytes there count %d", want, got)
				}
			}
		})
	}
}

// TestDamagedBatchBesideAnotherOfItsMoment: the ids of members begin as those of each batch that was made in the same moment, and
// what a damaged one counts is not found by those of another.
func TestDamagedBatchBesideAnotherOfItsMoment(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	putRule(t, s, harp.RetentionRule{Name: "r", Procedure: "p", Keep: 100 * day, MaxBytes: 5000})
	bad := endBatchAt(t, s, noon, "p", 14)
	i, _ := parseID(bad.ID)
	other := i
	other[15] ^= 1
	counted := s.RetentionClasses()[0].Bytes
	kept := endBatch(t, s, other.String(), noon.Add(time.Minute), "p", 5)
	want := s.RetentionClasses()[0].Bytes - counted
	if counted+want <= 5000 || want >= 5000 {
		t.Fatalf("they count %d and %d bytes", counted, want)
	}
	e.poke(i.key(prefixBatch), func(_, value []byte) []byte { return append(value[:len(value)-1], value[len(value)-1]^1) })
	e.poke(i.key(prefixBatchLife), func(_, _ []byte) []byte { return nil })
	s.unlearn()
	later := noon.Add(time.Hour)
	prune(t, s, store.Retention{RulesAt: later}, later)
	if _, err := s.Batch(t.Context(), kept.ID); err != nil {
		t.Errorf("a batch that the rule keeps: %v", err)
	}
	if got := s.RetentionClasses()[0].Bytes; got != want {
		t.Errorf("there count %d bytes, want %d", got, want)
	}
}

// wantKept checks that jobs which a rule keeps are there.
func wantKept(t *testing.T, s *Store, kept []*store.Job) {
	t.Helper()
	for _, j := range kept {
		if _, err := s.Job(t.Context(), j.ID); err != nil {
			t.Fatalf("a job that the rule keeps: %v", err)
		}
	}
}

// TestDamagedJobOfAClass: a job that cannot be read, and so not be deleted, counts no more in its class from its turn on: else what the
// rule keeps would go in its place.
func TestDamagedJobOfAClass(t *testing.T) {
	flip := func(_, value []byte) []byte { return append(value[:len(value)-1], value[len(value)-1]^1) }
	gone := func(_, _ []byte) []byte { return nil }
	for name, c := range map[string]struct {
		of      byte
		spoil   func(key, value []byte) []byte
		isAbout bool // what it counted is lost with it
	}{
		"call damaged": {prefixCall, flip, false},
		"call gone":    {prefixCall, gone, false},
		"life damaged": {prefixLife, flip, true},
		"life gone":    {prefixLife, gone, true},
	} {
		t.Run(name, func(t *testing.T) {
			e := newTrial()
			s := opened(t, e, Options{})
			size := endAt(t, opened(t, newTrial(), Options{}), noon, "p")[0]
			each := footprint(size) + int64(len("request"))
			putRule(t, s, harp.RetentionRule{Name: "r", Procedure: "p", Keep: 100 * day, MaxBytes: 2*each + each/2})
			bad := endAt(t, s, noon, "p")[0]
			i, _ := parseID(bad.ID)
			e.poke(i.key(c.of), c.spoil)
			s.unlearn()
			kept := endAt(t, s, noon.Add(time.Minute), "p", "p")
			later := noon.Add(time.Hour)
			for range 3 {
				prune(t, s, store.Retention{RulesAt: later}, later)
				wantKept(t, s, kept)
			}
			got := s.RetentionClasses()[0].Bytes
			if want := kept[0].Counted + kept[1].Counted; got != want && !c.isAbout || got < want-each/4 || got > want+each/4 {
				t.Errorf("of %d bytes there count %d", want, got)
			}
			if _, err := s.Job(t.Context(), bad.ID); !errors.Is(err, ErrDamaged) {
				t.Errorf("it is %v", err)
			}
			more := endAt(t, s, later, "p")[0] // now the first of those that are whole is too much
			prune(t, s, store.Retention{RulesAt: later}, later)
			for j, isKept := range map[*store.Job]bool{kept[0]: false, kept[1]: true, more: true} {
				if _, err := s.Job(t.Context(), j.ID); (err == nil) != isKept {
					t.Errorf("job %d is kept: %v, want %v", j.No, err == nil, isKept)
				}
			}
			if c.spoil(nil, []byte{1}) != nil { // it can be read again, and goes in its turn, of no class
				e.poke(i.key(c.of), c.spoil)
				before := s.RetentionClasses()[0].Bytes
				prune(t, s, store.Retention{EndedBefore: later, RulesAt: later}, later)
				if _, err := s.Job(t.Context(), bad.ID); !errors.Is(err, harp.ErrPruned) {
					t.Errorf("then it is %v", err)
				}
				if after := s.RetentionClasses()[0].Bytes; after != before {
					t.Errorf("it is counted twice: %d bytes, then %d", before, after)
				}
			}
		})
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

// TestDamagedRule: the document of a rule that cannot be read fits nothing, and may be put anew.
func TestDamagedRule(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	rule := harp.RetentionRule{Name: "r", Procedure: "p", Keep: day}
	putRule(t, s, rule)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	e.poke(documentKey(store.RetentionKind, "r"), func(_, value []byte) []byte { return append(value[:len(value)-1], value[len(value)-1]^1) })
	s = opened(t, e, Options{})
	if j := endAt(t, s, noon, "p")[0]; j.Class != 0 {
		t.Errorf("it is of class %d", j.Class)
	}
	putRule(t, s, rule)
	if j := endAt(t, s, noon, "p")[0]; j.Class == 0 {
		t.Error("it is of no class")
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

// retentionModel is what has ended, in the plainest way: a list.
type retentionModel struct {
	rules map[string]harp.RetentionRule
	kept  []*endedOf // by their ends
}

type endedOf struct {
	id      string
	isBatch bool
	at      time.Time
	rule    harp.RetentionRule // that held; the zero one: none
	bytes   int64              // that it counts in its class
}

// fits is the rule that holds for a procedure.
func (m *retentionModel) fits(procedure string, state harp.State) harp.RetentionRule {
	var found []harp.RetentionRule
	for _, r := range m.rules {
		if (r.Procedure == "" || r.Procedure == procedure) && (len(r.States) == 0 || r.States[0] == state) {
			found = append(found, r)
		}
	}
	if len(found) == 0 {
		return harp.RetentionRule{}
	}
	return slices.MinFunc(found, func(a, b harp.RetentionRule) int {
		if a.Order != b.Order {
			return a.Order - b.Order
		}
		return strings.Compare(a.Name, b.Name)
	})
}

// sameClass reports whether two rules keep alike.
func sameClass(a, b harp.RetentionRule) bool {
	return a.Name == b.Name && a.Keep == b.Keep && a.MaxBytes == b.MaxBytes
}

// prune forgets what a Prune without a limit of bytes deletes.
func (m *retentionModel) prune(r store.Retention) {
	m.kept = slices.DeleteFunc(m.kept, func(e *endedOf) bool {
		switch {
		case e.rule.Keep == 0:
			return !r.EndedBefore.IsZero() && e.at.Before(r.EndedBefore)
		case e.rule.Keep == harp.NoLimit || r.RulesAt.IsZero():
			return false
		}
		return e.at.Before(r.RulesAt.Add(-e.rule.Keep))
	})
	for n := 0; n < len(m.kept); { // of each class that takes too much what ended first
		e := m.kept[n]
		if e.rule.MaxBytes == 0 || m.bytes(e.rule) <= e.rule.MaxBytes {
			n++
			continue
		}
		m.kept = slices.Delete(m.kept, n, n+1)
	}
}

func (m *retentionModel) bytes(of harp.RetentionRule) (sum int64) {
	for _, e := range m.kept {
		if sameClass(e.rule, of) {
			sum += e.bytes
		}
	}
	return sum
}

// TestRetentionModel plays rules, ends and Prunes at random against a list of what has ended, over reopenings.
func TestRetentionModel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		e := newTrial()
		s := opened(t, e, Options{})
		defer func() { _ = s.Close() }()
		now := noon
		m := &retentionModel{rules: map[string]harp.RetentionRule{}}
		procedures := []string{"p", "q", "r"}
		check := func() {
			for _, one := range m.kept {
				var err error
				if one.isBatch {
					_, err = s.Batch(t.Context(), one.id)
				} else {
					_, err = s.Job(t.Context(), one.id)
				}
				if err != nil {
					r.Fatalf("%+v: %v", one, err)
				}
			}
			left := e.count(endedPrefix(byBatchEnd, 0)...) + e.count(prefixIndex, byClassBatchEnd)
			for _, kind := range [][]byte{endedPrefix(byEnded, 0), {prefixIndex, byClassEnded}} {
				for item := range e.items() {
					if strings.HasPrefix(string(item.Key), string(kind)) {
						left += (len(item.Value) - crcSize) / endedSize
					}
				}
			}
			if left != len(m.kept) {
				r.Fatalf("%d are left of what has ended, want %d", left, len(m.kept))
			}
			for _, c := range s.RetentionClasses() {
				want := m.bytes(harp.RetentionRule{Name: c.Rule, Keep: c.Keep, MaxBytes: c.MaxBytes})
				if c.MaxBytes > 0 && c.Bytes != want {
					r.Fatalf("%+v stores %d bytes", c, want)
				}
			}
		}
		r.Repeat(map[string]func(*rapid.T){
			"rule": func(r *rapid.T) {
				rule := harp.RetentionRule{
					Name: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(r, "name"), Order: rapid.IntRange(0, 2).Draw(r, "order"),
					Procedure: rapid.SampledFrom(append(procedures, "")).Draw(r, "procedure"),
					Keep:      rapid.SampledFrom([]time.Duration{0, day, 3 * day, harp.NoLimit}).Draw(r, "keep"),
					MaxBytes:  rapid.SampledFrom([]int64{0, 1, 2000, 5000}).Draw(r, "bytes"),
				}
				if rapid.Bool().Draw(r, "of a state") {
					rule.States = []harp.State{rapid.SampledFrom([]harp.State{harp.StateCancelled, harp.StateSucceeded}).Draw(r, "state")}
				}
				if rule.Keep == 0 && rule.MaxBytes == 0 {
					rule.Keep = day
				}
				putRule(t, s, rule)
				m.rules[rule.Name] = rule
			},
			"no rule": func(r *rapid.T) {
				name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(r, "name")
				content, err := s.Document(t.Context(), store.RetentionKind, name)
				if err != nil {
					return
				}
				change := store.DocumentChange{Kind: store.RetentionKind, Name: name, Old: content}
				if _, err := s.ChangeDocuments(t.Context(), store.DocumentChanges{Changes: []store.DocumentChange{change}}); err != nil {
					r.Fatal(err)
				}
				delete(m.rules, name)
			},
			"end": func(r *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 20).Draw(r, "hours")) * time.Hour)
				some := rapid.SliceOfN(rapid.SampledFrom(procedures), 1, 5).Draw(r, "procedures")
				for _, j := range endAt(t, s, now, some...) {
					m.kept = append(m.kept, &endedOf{id: j.ID, at: now, rule: m.fits(j.Procedure, j.State), bytes: j.Counted})
				}
			},
			"end batch": func(r *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 20).Draw(r, "hours")) * time.Hour)
				b := endBatchAt(t, s, now, rapid.SampledFrom(procedures).Draw(r, "procedure"), rapid.IntRange(1, 4).Draw(r, "hosts"))
				m.kept = append(m.kept, &endedOf{id: b.ID, isBatch: true, at: now, rule: m.fits(b.Member.Procedure, harp.State(b.State)), bytes: b.Counted})
			},
			"prune": func(r *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 40).Draw(r, "hours")) * time.Hour)
				var keep store.Retention
				if rapid.Bool().Draw(r, "by age") {
					keep.EndedBefore = now.Add(-2 * day)
				}
				if rapid.Bool().Draw(r, "by rules") {
					keep.RulesAt = now
				}
				m.prune(keep)
				prune(t, s, keep, now)
			},
			"prune for room": func(r *rapid.T) {
				keep := store.Retention{MaxBytes: rapid.Int64Range(1, max(1, s.stored.Load())).Draw(r, "bytes")}
				m.prune(keep)
				prune(t, s, keep, now)
				var gone time.Time // when the last ended that was deleted
				m.kept = slices.DeleteFunc(m.kept, func(one *endedOf) bool {
					_, err := s.Job(t.Context(), one.id)
					if one.isBatch {
						_, err = s.Batch(t.Context(), one.id)
					}
					if err != nil {
						gone = one.at
					}
					return err != nil
				})
				if len(m.kept) > 0 && (s.stored.Load() > keep.MaxBytes || gone.After(m.kept[0].at)) {
					r.Fatalf("%d bytes are left, at most %d are wanted, and what ended at %v is gone, not that at %v", s.stored.Load(), keep.MaxBytes, gone, m.kept[0].at)
				}
			},
			"reopen": func(r *rapid.T) {
				had := fmt.Sprint(s.RetentionClasses())
				if err := s.Close(); err != nil {
					r.Fatal(err)
				}
				s = opened(t, e, Options{})
				if got := fmt.Sprint(s.RetentionClasses()); got != had {
					r.Fatalf("the classes are %s after %s", got, had)
				}
			},
			"": func(*rapid.T) { check() },
		})
	})
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
