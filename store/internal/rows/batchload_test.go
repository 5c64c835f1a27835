package rows

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// endedBatches makes batches of one host that end, some of them under a rule of retention, and then one that does not.
func endedBatches(t *testing.T, s *Store, n int) (over []id, open *store.Batch) {
	t.Helper()
	for m := range n {
		if m == n/2 {
			putRule(t, s, harp.RetentionRule{Name: "long", Procedure: "p", Keep: 90 * day})
		}
		b, first := begin(t, s, onHosts(1))
		applied(t, s, about(first[0], store.End))
		i, _ := parseID(b.ID)
		over = append(over, i)
	}
	open, _ = begin(t, s, onHosts(4))
	return over, open
}

// goesThrough checks that a batch goes on to its end.
func goesThrough(t *testing.T, s *Store, b *store.Batch) {
	t.Helper()
	for n := range b.Hosts {
		openGate(s, fmt.Sprintf("h%d", n))
	}
	advanceAll(t, s, noon)
	for range b.Hosts {
		active, err := s.Active(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range active {
			applied(t, s, about(j, store.End))
		}
	}
	if got, err := s.Batch(t.Context(), b.ID); err != nil || got.State != harp.BatchSucceeded {
		t.Errorf("the batch is %+v, %v", got, err)
	}
}

// TestOpenLooksAtNoBatchThatHasEnded opens a store with batches that have ended, as schedules make many: none of their lives is read.
func TestOpenLooksAtNoBatchThatHasEnded(t *testing.T) {
	var open *store.Batch
	e := closed(t, func(s *Store) { _, open = endedBatches(t, s, 20) })
	lives := 0
	e.onGet = func(key, _ []byte) error {
		if key[0] == prefixBatchLife {
			lives++
		}
		return nil
	}
	s := opened(t, e, Options{})
	if lives > 1 {
		t.Errorf("the lives of %d batches were read", lives)
	}
	e.onGet = nil
	goesThrough(t, s, open)
}

// TestDamagedLifeOfABatchThatHasEnded opens a store in which the life of a batch that has ended is damaged or lost: the others go on.
func TestDamagedLifeOfABatchThatHasEnded(t *testing.T) {
	for name, spoil := range map[string]func(e *trial, key []byte){
		"damaged": func(e *trial, key []byte) { e.flip(key) },
		"lost":    func(e *trial, key []byte) { e.lose(key) },
	} {
		t.Run(name, func(t *testing.T) {
			var over []id
			var open *store.Batch
			e := closed(t, func(s *Store) { over, open = endedBatches(t, s, 2) })
			for _, i := range over {
				spoil(e, i.key(prefixBatchLife))
			}
			s := opened(t, e, Options{})
			for _, i := range over {
				if _, err := s.Batch(t.Context(), i.String()); !errors.Is(err, ErrDamaged) {
					t.Errorf("it is read with %v", err)
				}
			}
			goesThrough(t, s, open)
		})
	}
}

// TestLostEntryOfABatch opens a store in which the index of batches lacks one that has not ended, or has an entry of it that is damaged: it
// goes on.
func TestLostEntryOfABatch(t *testing.T) {
	for name, spoil := range map[string]func(e *trial, key []byte){
		"damaged": func(e *trial, key []byte) { e.flip(key) },
		"lost":    func(e *trial, key []byte) { e.lose(key) },
	} {
		t.Run(name, func(t *testing.T) {
			var open *store.Batch
			e := closed(t, func(s *Store) { _, open = endedBatches(t, s, 2) })
			at := placeOf(nanos(open.Member.SubmitTime), open.No)
			spoil(e, append(indexKey(byBatch), at[:]...))
			goesThrough(t, opened(t, e, Options{}), open)
		})
	}
}

// TestOpenBesideABatchThatIsBeingPruned opens a store in which a batch is deleted in part: it stays what it was, and goes with the next
// Prune.
func TestOpenBesideABatchThatIsBeingPruned(t *testing.T) {
	var open *store.Batch
	later := noon.Add(40 * day)
	e := closed(t, func(s *Store) {
		b, first := begin(t, s, onHosts(2*maxPruned))
		for len(first) > 0 {
			c := applied(t, s, about(first[0], store.End))[0]
			first = append(first[1:], c.Claimed...)
		}
		open, _ = begin(t, s, onHosts(4))
		if did, err := s.Prune(t.Context(), store.Retention{EndedBefore: later.Add(-day)}, later); err != nil || !did.More {
			t.Fatalf("%+v, %v", did, err)
		}
		if _, err := s.Batch(t.Context(), b.ID); !errors.Is(err, harp.ErrPruned) {
			t.Fatal(err)
		}
	})
	s := opened(t, e, Options{})
	prune(t, s, store.Retention{EndedBefore: later.Add(-day)}, later)
	if n := e.count(prefixIndex, byBatch); n != 1 {
		t.Errorf("%d batches are left", n)
	}
	goesThrough(t, s, open)
}

// BenchmarkOpenEndedBatches opens a store with batches that have ended.
func BenchmarkOpenEndedBatches(b *testing.B) {
	const batches = 100_000
	e := newTrial()
	s := opened(b, e, Options{})
	for n := range batches {
		in := onHosts(1)
		in.Batch.Member.SubmitTime = noon.Add(time.Duration(n) * time.Second)
		out, err := s.SubmitBatch(b.Context(), in, noon)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.ChangeBatch(b.Context(), out.Batch.ID, store.BatchEvent{Kind: store.BatchCancel}, store.Operation{Time: noon}); err != nil {
			b.Fatal(err)
		}
	}
	advanceAll(b, s, noon)
	for b.Loop() {
		snap, err := e.View()
		if err != nil {
			b.Fatal(err)
		}
		if err := eachUnended(snap, func(id) error { return nil }); err != nil {
			b.Fatal(err)
		}
		snap.Close()
	}
}
