package rows

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// note lets so many events happen, a second after one another, in one operation. Each
// names its host: a word and its number, from 0.
func note(t *testing.T, s *Store, word string, n int, from time.Time) {
	t.Helper()
	events := make([]harp.Event, n)
	for i := range events {
		events[i] = harp.Event{Type: harp.EventHostForgot, Host: fmt.Sprint(word, i), Time: from.Add(time.Duration(i) * time.Second)}
	}
	if err := s.AppendEvents(t.Context(), events...); err != nil {
		t.Fatal(err)
	}
}

// page reads the hosts of a page of events.
func page(t *testing.T, s *Store, after string, maxBytes int) (hosts []string, cursor string) {
	t.Helper()
	got, err := s.Events(t.Context(), harp.EventFilter{After: after}, maxBytes)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range got.Events {
		hosts = append(hosts, e.Host)
	}
	return hosts, got.Cursor
}

// wants checks which events are left after a cursor.
func (s *Store) wants(t *testing.T, after, want string) {
	t.Helper()
	if got, _ := page(t, s, after, 1<<20); strings.Join(got, " ") != want {
		t.Errorf("the events are %q, want %q", got, want)
	}
}

// TestPagesWithinRows reads pages that begin and end in the middle of rows.
func TestPagesWithinRows(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	note(t, s, "a", 10, noon)
	note(t, s, "b", 3, noon)
	if n := e.count(prefixEvent); n != 2 {
		t.Fatalf("two groups of events are %d rows", n)
	}
	const all = "a0 a1 a2 a3 a4 a5 a6 a7 a8 a9 b0 b1 b2"
	one := len(encode(eventRow{At: nanos(noon), Type: harp.EventHostForgot, Host: "a0"}))
	for size := range 14 {
		var got []string
		for after := harp.EventsFromStart; ; {
			hosts, cursor := page(t, s, after, size*one)
			if len(hosts) == 0 {
				break
			}
			if len(hosts) > max(size, 1) {
				t.Errorf("a page for %d events has %d", size, len(hosts))
			}
			got, after = append(got, hosts...), cursor
		}
		if strings.Join(got, " ") != all {
			t.Errorf("by %d there are %q", size, got)
		}
	}
}

// TestPruneWholeRows deletes events up to the border of a row, and to its middle, which
// keeps it.
func TestPruneWholeRows(t *testing.T) {
	s := opened(t, newTrial(), Options{})
	note(t, s, "a", 3, noon)
	_, middle := page(t, s, harp.EventsFromStart, 1)
	_, border := page(t, s, harp.EventsFromStart, 1<<20)
	note(t, s, "b", 3, noon.Add(time.Hour))
	deletes := func(before time.Time, want int) {
		t.Helper()
		did, err := s.Prune(t.Context(), store.Retention{EventsBefore: before}, before)
		if err != nil || did.Events != want {
			t.Fatalf("it did %+v, %v; want %d events deleted", did, err, want)
		}
	}
	deletes(noon.Add(2*time.Second), 0)
	s.wants(t, middle, "a1 a2 b0 b1 b2")
	deletes(noon.Add(3*time.Second), 3)
	deletes(noon.Add(time.Hour+time.Second), 0)
	s.wants(t, harp.EventsFromStart, "b0 b1 b2")
	s.wants(t, border, "b0 b1 b2")
	if _, err := s.Events(t.Context(), harp.EventFilter{After: middle}, 1); !errors.Is(err, harp.ErrPruned) {
		t.Errorf("from the middle of what was deleted: %v", err)
	}
	deletes(noon.Add(2*time.Hour), 3)
	note(t, s, "c", 1, noon.Add(3*time.Hour))
	s.wants(t, harp.EventsFromStart, "c0")
}

// TestReopenRow opens a store anew whose last row has many events: numbers go on behind
// them all.
func TestReopenRow(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	note(t, s, "a", 5, noon)
	_, cursor := page(t, s, harp.EventsFromStart, 1<<20)
	s = opened(t, e, Options{})
	s.wants(t, cursor, "")
	s.wants(t, harp.EventsFromNow, "")
	note(t, s, "b", 2, noon)
	s.wants(t, cursor, "b0 b1")
	s.wants(t, harp.EventsFromStart, "a0 a1 a2 a3 a4 b0 b1")
}

// TestEventsOfManyRows has more happen in one group than one row takes, and at most one
// event that is longer than a row.
func TestEventsOfManyRows(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	note(t, s, "a", 1000, noon)
	long := map[string]string{"k": strings.Repeat("x", 2*feedRowMost)}
	if err := s.AppendEvents(t.Context(), harp.Event{Host: "short"}, harp.Event{Host: "long", Labels: long}, harp.Event{Host: "last"}); err != nil {
		t.Fatal(err)
	}
	rows := 0
	for item := range e.items() {
		if item.Key[0] == prefixEvent {
			if rows++; len(item.Value) > feedRowMost+crcSize+1 && len(item.Value) < 2*feedRowMost {
				t.Errorf("row %x has %d bytes", item.Key, len(item.Value))
			}
		}
	}
	if rows < 10 || rows > 30 {
		t.Errorf("they are %d rows", rows)
	}
	if got, _ := page(t, s, harp.EventsFromStart, 1<<20); len(got) != 1003 || got[500] != "a500" || got[1001] != "long" {
		t.Errorf("they are %d", len(got))
	}
}

// TestLongEvent tells an event that does not fit a piece, without what is long of it.
func TestLongEvent(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	for _, size := range []int{eventMost - 100, eventMost + 100} {
		labels := map[string]string{"k": strings.Repeat("x", size)}
		if err := s.AppendEvents(t.Context(), harp.Event{Type: harp.EventHostForgot, Host: "h", Labels: labels}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Events(t.Context(), harp.EventFilter{After: harp.EventsFromStart}, 1<<20)
	if err != nil || len(got.Events) != 2 || len(got.Events[0].Labels) != 1 || len(got.Events[1].Labels) != 0 {
		t.Fatalf("there are %d events, %v", len(got.Events), err)
	}
	if n := e.count(prefixPiece); n != 0 {
		t.Errorf("they have %d pieces", n)
	}
}

// TestEventsCount checks that a group is no smaller than what it writes of events.
func TestEventsCount(t *testing.T) {
	s := opened(t, newTrial(), Options{})
	err := s.do(t.Context(), SpaceLow, func(tx *tx) error {
		for n := range 500 {
			tx.emit(eventRow{Host: "h", Reason: strings.Repeat("x", n*n%9000)})
			size := 0
			for _, w := range tx.feedRows.writes() {
				size += len(w.Key) + len(w.Value) + WriteCost
			}
			if tx.size < size || tx.size > size+n*lengthMost+lengthMost {
				t.Errorf("with %d events it counts %d bytes, and they are %d", n+1, tx.size, size)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestHalfTold checks that an operation which fails after it has told something is not
// committed.
func TestHalfTold(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	err := s.do(t.Context(), SpaceLow, func(tx *tx) error {
		tx.emit(eventRow{Host: "h"})
		return errors.New("broken")
	})
	if n := e.count(prefixEvent); !errors.Is(err, store.ErrPoisoned) || n != 0 {
		t.Errorf("%v, and %d rows of events", err, n)
	}
}

// TestDamagedEvents passes over a row that cannot be read: opening goes on behind it, and
// it is deleted with those that are as old.
func TestDamagedEvents(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	note(t, s, "a", 3, noon)
	_, cursor := page(t, s, harp.EventsFromStart, 1<<20)
	e.poke([]byte{prefixEvent}, func(_, value []byte) []byte {
		value[len(value)-1]++
		return value
	})
	s = opened(t, e, Options{})
	if page, err := s.Events(t.Context(), harp.EventFilter{After: harp.EventsFromStart}, 1); err != nil || len(page.Events) != 1 || page.Events[0].Type != harp.EventsMissing {
		t.Errorf("reading it: %+v, %v", page, err)
	}
	note(t, s, "b", 2, noon.Add(time.Hour))
	s.wants(t, cursor, "b0 b1")
	did, err := s.Prune(t.Context(), store.Retention{EventsBefore: noon.Add(time.Minute)}, noon)
	if err != nil || did.Events != 3 {
		t.Errorf("it did %+v, %v", did, err)
	}
	s.wants(t, harp.EventsFromStart, "b0 b1")
}

// TestKeys holds how many keys a job writes, with others in its group.
func TestKeys(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	s.SetGate("h", store.Gate{Open: true, Most: 1 << 20})
	const jobs = 100
	wrote := func(what string, each, shared int) {
		t.Helper()
		if got, most := len(e.commits[len(e.commits)-1]), each*jobs+shared; got > most {
			t.Errorf("%s of %d jobs writes %d keys, at most %d expected", what, jobs, got, most)
		}
	}
	calls := make([]store.Submission, jobs)
	for n := range calls {
		calls[n] = call("h")
	}
	made := submitted(t, s, calls...)
	// Of each its call, request, life and four indexes; of all the number, what is stored
	// and a row of events for 25.
	wrote("the beginning", 7, 10)
	ends := make([]store.Transition, jobs)
	for n, j := range made {
		ends[n] = about(j, store.End)
		ends[n].Event.Value = harp.Value{1}
	}
	applied(t, s, ends...)
	wrote("the end", 5, 6) // life, value, two entries of indexes, one less
}
