package rows

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// stepped makes a step of a schedule, and returns the schedule.
func stepped(t *testing.T, s *Store, step store.ScheduleStep) *store.Schedule {
	t.Helper()
	if _, err := s.StepSchedule(t.Context(), step, noon); err != nil {
		t.Fatal(err)
	}
	got, err := s.Schedule(t.Context(), step.Name)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func firedAt(at time.Time) *harp.LedgerEntry {
	return &harp.LedgerEntry{Kind: harp.LedgerTime, Outcome: harp.TimeFired, From: at, To: at, Count: 1, At: noon}
}

// TestDamagedSchedule checks that a schedule of which something cannot be read is listed, that no step of before is made, that it is
// put anew, and that nothing before that counts as what is known not to have fired.
func TestDamagedSchedule(t *testing.T) {
	for name, prefix := range map[string][]byte{"document": documentKey(store.ScheduleKind, "s"), "state": scheduleKey("s")} {
		t.Run(name, func(t *testing.T) {
			e := newTrial()
			s := opened(t, e, Options{})
			put := store.ScheduleStep{Name: "s", Document: []byte("1"), State: store.ScheduleState{Version: 1, ScheduleLife: store.ScheduleLife{Through: noon}}}
			had := stepped(t, s, put)
			stepped(t, s, store.ScheduleStep{Name: "t", Document: []byte("2")})
			e.damage(s, prefix)
			page, _, err := s.ListSchedules(t.Context(), "", 10)
			if err != nil || len(page) != 2 || (page[0].Document == nil) != (name == "document") || (page[0].Revision == 0) != (name == "state") {
				t.Fatalf("listed are %+v, %v", page, err)
			}
			if name == "state" {
				if _, err := s.StepSchedule(t.Context(), store.ScheduleStep{Name: "s", Revision: had.Revision}, noon); !errors.Is(err, harp.ErrConflict) {
					t.Errorf("a step of before: %v", err)
				}
			}
			put.Revision = page[0].Revision
			got := stepped(t, s, put)
			if string(got.Document) != "1" || got.Revision == 0 || !got.Through.Equal(noon) || got.KeptFrom.Equal(noon) != (name == "state") {
				t.Errorf("put anew it is %+v", got)
			}
			works(t, s)
		})
	}
}

// TestLostScheduleState checks that a schedule whose state is gone with its table is put anew as one that is damaged.
func TestLostScheduleState(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	put := store.ScheduleStep{Name: "s", Document: []byte("1")}
	stepped(t, s, put)
	if err := e.Commit([]Write{{scheduleKey("s"), nil}}); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Schedule(t.Context(), "s"); err != nil || got.Revision != 0 {
		t.Fatalf("it is %+v, %v", got, err)
	}
	if got := stepped(t, s, put); !got.KeptFrom.Equal(noon) {
		t.Errorf("its ledger is whole from %v on", got.KeptFrom)
	}
}

// TestDamagedLedger checks that an entry that cannot be read is left out, that no backfill fires its time, and that it is deleted when others
// of its time are.
func TestDamagedLedger(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	is := stepped(t, s, store.ScheduleStep{Name: "s", Document: []byte("1")})
	for n := range 3 {
		at := noon.Add(time.Duration(n) * time.Hour)
		is = stepped(t, s, store.ScheduleStep{Name: "s", Revision: is.Revision, Entry: firedAt(at)})
	}
	e.damage(s, ledgerKey("s", nanos(noon), harp.LedgerTime))
	for _, f := range []harp.LedgerFilter{{}, {Schedule: "s"}} {
		page, err := s.ScheduleLedger(t.Context(), f, "")
		if err != nil || len(page.Items) != 2 {
			t.Errorf("listed are %+v, %v", page.Items, err)
		}
	}
	again := firedAt(noon)
	again.Kind = harp.LedgerBackfill
	if _, err := s.StepSchedule(t.Context(), store.ScheduleStep{Name: "s", Revision: is.Revision, Entry: again}, noon); !errors.Is(err, ErrDamaged) {
		t.Errorf("a backfill of it: %v", err)
	}
	if _, err := s.StepSchedule(t.Context(), store.ScheduleStep{Name: "s", Revision: is.Revision, Delete: true}, noon); err != nil {
		t.Fatal(err)
	}
	prune(t, s, store.Retention{EventsBefore: noon.Add(3 * time.Hour)}, noon)
	if n := e.count(prefixLedger) + e.count(prefixIndex, byLedger) + e.count(prefixSchedule); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	works(t, s)
}

// TestPruneManyLedgers checks that a Prune looks at some ledgers, and the ones after it at the others.
func TestPruneManyLedgers(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	for n := range 2*maxLedgers + 10 {
		name := string(rune('a'+n%26)) + harp.NewID()
		if _, err := s.StepSchedule(t.Context(), store.ScheduleStep{Name: name, Entry: firedAt(noon)}, noon); err != nil {
			t.Fatal(err)
		}
	}
	for _, left := range []int{maxLedgers + 10, 10, 0, 0} {
		if _, err := s.Prune(t.Context(), store.Retention{EventsBefore: noon.Add(time.Second)}, noon); err != nil {
			t.Fatal(err)
		}
		if n := e.count(prefixLedger); n != left {
			t.Errorf("%d are left, want %d", n, left)
		}
	}
}

// scanning counts the entries of ledgers that a store looks at.
type scanning struct {
	*trial
	entries int
}

type scanningView struct {
	Snapshot
	of *scanning
}

func (c *scanning) View() (Snapshot, error) {
	snap, err := c.trial.View()
	return &scanningView{snap, c}, err
}

func (v *scanningView) Scan(prefix, from []byte, reverse bool) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		for item, err := range v.Snapshot.Scan(prefix, from, reverse) {
			if err == nil && item.Key[0] == prefixLedger {
				v.of.entries++
			}
			if !yield(item, err) {
				return
			}
		}
	}
}

// TestPruneLooksAtNoYoungEntry checks that of a ledger in which nothing is old a Prune looks at the first entry, and of another one at what
// is old and what is kept in any case.
func TestPruneLooksAtNoYoungEntry(t *testing.T) {
	const schedules, entries, old = 5, 400, 10
	e := &scanning{trial: newTrial()}
	s := opened(t, e, Options{})
	for n := range schedules {
		step := store.ScheduleStep{Name: fmt.Sprint("s", n), Document: []byte("1")}
		for m := range entries {
			step.Entry = firedAt(noon.Add(time.Duration(m) * time.Minute))
			step.Entry.At = step.Entry.From.Add(time.Second)
			step.Revision, step.Document = stepped(t, s, step).Revision, nil
		}
	}
	for _, c := range []struct {
		before time.Time
		looked int // at most
		left   int
	}{
		{noon, schedules, schedules * entries},
		{noon.Add(old * time.Minute), schedules * (1 + store.LedgerKept + old + 1), schedules * (entries - old)},
		{noon.Add(old * time.Minute), schedules, schedules * (entries - old)},
	} {
		e.entries = 0
		prune(t, s, store.Retention{EventsBefore: c.before}, noon)
		if n := e.count(prefixLedger); e.entries > c.looked || n != c.left {
			t.Errorf("before %v it looks at %d entries, at most %d, and leaves %d, want %d", c.before, e.entries, c.looked, n, c.left)
		}
	}
}

// TestPruneLooksAtFewEntries checks that a Prune looks at so many entries that are old by their times and were made of late, as a backfill makes
// them, and the next ones at the others.
func TestPruneLooksAtFewEntries(t *testing.T) {
	const schedules, entries = 30, store.MaxExamined / 10
	e := &scanning{trial: newTrial()}
	s := opened(t, e, Options{})
	for n := range schedules {
		for m := range entries {
			entry := firedAt(noon.Add(time.Duration(m) * time.Minute))
			entry.Kind, entry.At = harp.LedgerBackfill, noon.Add(day)
			if m == entries/2 {
				entry.At = noon
			}
			if _, err := s.StepSchedule(t.Context(), store.ScheduleStep{Name: fmt.Sprintf("s%02d", n), Entry: entry}, noon); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 4 {
		e.entries = 0
		prune(t, s, store.Retention{EventsBefore: noon.Add(day / 2)}, noon)
		if e.entries > 2*store.MaxExamined {
			t.Errorf("it looks at %d entries", e.entries)
		}
	}
	if n := e.count(prefixLedger); n != schedules*(entries-1) {
		t.Errorf("%d entries are left", n)
	}
}

// TestKeptFromOfOneHash checks that of deleted schedules whose names have one hash the latest time counts since when a ledger is whole, and now
// where it cannot be read.
func TestKeptFromOfOneHash(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	other := ""
	for n := 0; !bytes.Equal(keptFromKey(other), keptFromKey("s")); n++ {
		other = fmt.Sprint("other", n)
	}
	for _, c := range []struct {
		name string
		at   time.Time
	}{{"s", noon.Add(-time.Hour)}, {other, noon.Add(-2 * time.Hour)}} {
		entry := firedAt(c.at)
		entry.At = c.at
		is := stepped(t, s, store.ScheduleStep{Name: c.name, Document: []byte("1"), Entry: entry})
		if _, err := s.StepSchedule(t.Context(), store.ScheduleStep{Name: c.name, Revision: is.Revision, Delete: true}, noon); err != nil {
			t.Fatal(err)
		}
		prune(t, s, store.Retention{EventsBefore: noon.Add(-time.Minute)}, noon)
	}
	put := store.ScheduleStep{Name: "s", Document: []byte("1")}
	is := stepped(t, s, put)
	if want := noon.Add(-time.Hour + 1); !is.KeptFrom.Equal(want) {
		t.Errorf("its ledger is whole from %v on, want %v", is.KeptFrom, want)
	}
	if _, err := s.StepSchedule(t.Context(), store.ScheduleStep{Name: "s", Revision: is.Revision, Delete: true}, noon); err != nil {
		t.Fatal(err)
	}
	e.damage(s, keptFromKey("s"))
	if is = stepped(t, s, put); !is.KeptFrom.Equal(noon) {
		t.Errorf("when that cannot be read it is whole from %v on", is.KeptFrom)
	}
}

// TestDeleteWithEntries checks that what a deleted schedule had to decide is written with that, where there is little space, too.
func TestDeleteWithEntries(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	is := stepped(t, s, store.ScheduleStep{Name: "s", Document: []byte("1")})
	gone := store.ScheduleStep{Name: "s", Revision: is.Revision, Delete: true, Entry: firedAt(noon), Entries: []*harp.LedgerEntry{firedAt(noon.Add(time.Hour)), firedAt(noon.Add(2 * time.Hour))}}
	long := gone
	long.Entries = []*harp.LedgerEntry{firedAt(noon), {Detail: strings.Repeat("x", maxDetail+1)}}
	if _, err := s.StepSchedule(t.Context(), long, noon); !errors.Is(err, harp.ErrInvalid) {
		t.Errorf("with a long entry: %v", err)
	}
	e.space = SpaceCritical
	if _, err := s.StepSchedule(t.Context(), store.ScheduleStep{Name: "s", Revision: is.Revision, Entries: gone.Entries}, noon); !errors.Is(err, harp.ErrNoSpace) {
		t.Errorf("entries alone: %v", err)
	}
	if _, err := s.StepSchedule(t.Context(), gone, noon); err != nil {
		t.Fatal(err)
	}
	page, err := s.ScheduleLedger(t.Context(), harp.LedgerFilter{Schedule: "s"}, "")
	if err != nil || len(page.Items) != 3 {
		t.Errorf("the ledger is %+v, %v", page.Items, err)
	}
}

// TestFireWithoutSpace checks that a time whose batch finds no space is not settled by that.
func TestFireWithoutSpace(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	is := stepped(t, s, store.ScheduleStep{Name: "s", Document: []byte("1")})
	step := store.ScheduleStep{Name: "s", Revision: is.Revision, Entry: firedAt(noon), Batch: &store.BatchSubmission{
		Batch: store.Batch{ID: harp.NewID(), Classes: []store.BatchClass{{}}, Plan: store.BatchPlan{Waves: []int{1}, Parallel: 1}},
		Hosts: []store.BatchHost{{Name: "h"}},
	}}
	for _, e.space = range []Space{SpaceLow, SpaceCritical, SpaceFull} {
		if _, err := s.StepSchedule(t.Context(), step, noon); !errors.Is(err, harp.ErrNoSpace) {
			t.Errorf("with space %s: %v", e.space, err)
		}
	}
	e.space = SpacePlenty
	if n := e.count(prefixLedger) + e.count(prefixBatch); n != 0 {
		t.Errorf("%d rows were written", n)
	}
	if got := stepped(t, s, step); got.Revision != 2 {
		t.Errorf("then it is %+v", got)
	}
}
