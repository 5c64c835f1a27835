package rows

import (
	"errors"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// TestMissingRecordsOfAFullJob reads the records of a job that stores no more, some of which are not
// there any more.
func TestMissingRecordsOfAFullJob(t *testing.T) {
	big := make(harp.Value, 40<<10)
	setUp := func(t *testing.T) (*trial, *Store, *store.Job, id) {
		e := newTrial()
		s := opened(t, e, Options{MaxStored: 200 << 10})
		openGate(s, "h")
		c := call("h")
		c.Job.Retry = largestCall().Job.Retry
		j := submitted(t, s, c)[0]
		i, _ := parseID(j.ID)
		for range 3 { // attempts: the second is full
			for n := range uint64(3) {
				a := store.Append{ID: j.ID, Attempt: j.Attempt, Fence: j.Fence, First: n, Records: []harp.Record{{Value: big}}, Arrived: noon}
				if _, err := s.Append(t.Context(), a); err != nil {
					t.Fatal(err)
				}
			}
			end := about(j, store.End)
			end.Event.Failure = harp.Failure{Code: "remote"}
			c := applied(t, s, end)[0]
			if len(c.Claimed) == 1 {
				j = c.Claimed[0]
			}
		}
		return e, s, j, i
	}
	for name, want := range map[string]struct {
		attempt   int
		first     uint64
		isDamaged bool
	}{
		"all are there":             {9, 0, false},
		"the first attempt's end":   {1, 2, true},
		"what says that it is full": {2, 1, true},
		"the second attempt":        {2, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			e, s, j, i := setUp(t)
			e.lose(i.recordsKey(want.attempt, want.first))
			for from := range uint64(9) {
				next, err := readOn(t, s, j.ID, from)
				lost := uint64(want.attempt-1)*3 + want.first
				switch {
				case want.isDamaged && from <= lost && (!errors.Is(err, ErrDamaged) || next != lost):
					t.Errorf("from %d on: %v at %d, want ErrDamaged at %d", from, err, next, lost)
				case !want.isDamaged && err != nil:
					t.Errorf("from %d on: %v", from, err)
				}
			}
		})
	}
}

// readOn reads the records of a job from one on, until there are none, and returns the number behind the last.
func readOn(t *testing.T, s *Store, id string, from uint64) (next uint64, err error) {
	t.Helper()
	for {
		got, err := s.Read(t.Context(), id, from, store.ReadLimit{Bytes: 1 << 30})
		if err != nil || len(got) == 0 {
			return from, err
		}
		for _, r := range got {
			if r.Seq != from {
				t.Fatalf("record %d is read where %d was expected", r.Seq, from)
			}
			from = r.Seq + max(r.Missing, 1)
		}
	}
}

// TestMissingEndOfAFullJob reads the records of a job of which the one is gone that says that it is full, and the one before
// that says that some were lost at its agent: those behind it were not only counted.
func TestMissingEndOfAFullJob(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{MaxStored: 20 << 10})
	openGate(s, "h")
	j := submitted(t, s, call("h"))[0]
	i, _ := parseID(j.ID)
	for _, a := range []store.Append{
		{Missing: 5},
		{First: 5, Records: []harp.Record{{Value: make(harp.Value, 40<<10)}}},
		{First: 6, Records: []harp.Record{{Value: make(harp.Value, 10)}}},
	} {
		a.ID, a.Attempt, a.Fence, a.Arrived = j.ID, j.Attempt, j.Fence, noon
		if _, err := s.Append(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := s.Read(t.Context(), j.ID, 0, store.ReadLimit{Bytes: 1 << 30}); err != nil || len(got) != 2 {
		t.Errorf("%d records, %v, want 2", len(got), err)
	}
	e.lose(i.recordsKey(1, 5))
	if next, err := readOn(t, s, j.ID, 0); !errors.Is(err, ErrDamaged) || next != 5 {
		t.Errorf("%v at %d, want ErrDamaged at 5", err, next)
	}
}
