package rows

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

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

// TestDamagedRowOfAClass: jobs of which nobody can read that they have ended are looked for in their turn, and deleted as any other; then their
// class is forgotten.
func TestDamagedRowOfAClass(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	putRule(t, s, harp.RetentionRule{Name: "r", Procedure: "p", Keep: day})
	lost := endAt(t, s, noon, "p")[0]
	gone := endAt(t, s, noon.Add(time.Minute), "p")[0]
	putRule(t, s, harp.RetentionRule{Name: "r", Procedure: "p", Keep: 2 * day})
	endAt(t, s, noon.Add(time.Minute), "p")
	e.flip(endedPrefix(byEnded, lost.Class))
	later := noon.Add(day)
	prune(t, s, store.Retention{RulesAt: later}, later)
	wantKept(t, s, []*store.Job{lost, gone})
	later = noon.Add(10 * day)
	for range 2 {
		prune(t, s, store.Retention{RulesAt: later}, later)
	}
	for _, j := range []*store.Job{lost, gone} {
		if _, err := s.Job(t.Context(), j.ID); !errors.Is(err, harp.ErrPruned) {
			t.Errorf("a job is %v", err)
		}
	}
	if n := len(s.RetentionClasses()); n != 1 {
		t.Errorf("there are %d classes, want the last", n)
	}
}

// TestDamagedRowCountsNoMore: jobs of which nobody can read that they have ended go in their turn, and not what their rule keeps in their place. They are
// looked for among others: of other classes and times, of batches, one that has not ended and one that cannot be read.
func TestDamagedRowCountsNoMore(t *testing.T) {
	for name, others := range map[string]int{"few": 2, "more than one Prune looks at": maxSought + 100} {
		t.Run(name, func(t *testing.T) {
			e := newTrial()
			s := opened(t, e, Options{})
			each := footprint(endAt(t, opened(t, newTrial(), Options{}), noon, "p")[0]) + int64(len("request"))
			putRule(t, s, harp.RetentionRule{Name: "r", Procedure: "p", Keep: 100 * day, MaxBytes: 5*each + each/2})
			for done := 0; done < others; done += 100 {
				kept := slices.Repeat([]string{"other"}, 100)
				endAt(t, s, noon.Add(-time.Minute), kept...)
			}
			lost := endAt(t, s, noon, slices.Repeat([]string{"p"}, 20)...)
			e.flip(endedPrefix(byEnded, lost[0].Class))
			endBatchAt(t, s, noon, "other", 3)
			submitted(t, s, call("away"))
			damaged := endAt(t, s, noon, "other")[0]
			i, _ := parseID(damaged.ID)
			e.flip(i.key(prefixLife))
			kept := endAt(t, s, noon.Add(time.Second), slices.Repeat([]string{"p"}, 5)...)
			later := noon.Add(time.Hour)
			for range 3 {
				prune(t, s, store.Retention{RulesAt: later}, later)
				wantKept(t, s, kept)
				if got, want := s.RetentionClasses()[0].Bytes, 5*kept[0].Counted; got != want {
					t.Errorf("of %d bytes there count %d", want, got)
				}
			}
			for _, j := range lost {
				if _, err := s.Job(t.Context(), j.ID); !errors.Is(err, harp.ErrPruned) {
					t.Errorf("a job that was lost sight of is %v", err)
				}
			}
			later = noon.Add(200 * day)
			prune(t, s, store.Retention{EndedBefore: later, RulesAt: later}, later)
			if n := e.count(prefixLife); n != 2 {
				t.Errorf("%d jobs are left, want the one that has not ended, and the one that cannot be read", n)
			}
		})
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

// TestDamagedEntryOfABatch: of what ended first nobody can read which batch it is: it is found among all, and goes in its turn. Where it is not, those
// that ended later are deleted all the same.
func TestDamagedEntryOfABatch(t *testing.T) {
	for _, isListed := range []bool{true, false} {
		e := newTrial()
		s := opened(t, e, Options{})
		putRule(t, s, harp.RetentionRule{Name: "r", Procedure: "p", Keep: 100 * day, MaxBytes: 5000})
		endBatchAt(t, s, noon.Add(-time.Minute), "other", 2) // is not taken for it
		bad := endBatchAt(t, s, noon, "p", 14)
		e.poke(endedPrefix(byBatchEnd, bad.Class), func(_, value []byte) []byte { return append(value[:len(value)-1], value[len(value)-1]^1) })
		if !isListed {
			at := placeOf(nanos(bad.Member.SubmitTime), bad.No)
			e.flip(append(indexKey(byBatch), at[:]...))
		}
		later := noon.Add(time.Hour)
		kept := endAt(t, s, later, "p", "p")
		prune(t, s, store.Retention{RulesAt: later}, later)
		if isListed {
			wantKept(t, s, kept)
			if _, err := s.Batch(t.Context(), bad.ID); !errors.Is(err, harp.ErrPruned) {
				t.Errorf("the batch is %v", err)
			}
			continue
		}
		next := endBatchAt(t, s, later, "p", 2)
		later = later.Add(101 * day)
		prune(t, s, store.Retention{RulesAt: later}, later)
		if _, err := s.Batch(t.Context(), next.ID); !errors.Is(err, harp.ErrPruned) {
			t.Errorf("the next is %v", err)
		}
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
