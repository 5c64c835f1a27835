package rows

import (
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// TestMembersAreReadOnceToBeAsked cancels a batch of many members that run: what each operation asks to stop it reads, and none of those
// that were asked before.
func TestMembersAreReadOnceToBeAsked(t *testing.T) {
	for name, isReopened := range map[string]bool{"cancelled": false, "opened again amid that": true} {
		t.Run(name, func(t *testing.T) {
			const hosts = 6 * maxDue
			e := newTrial()
			s := opened(t, e, Options{})
			in := onHosts(hosts)
			in.Batch.Plan.Parallel = hosts
			b, first := begin(t, s, in)
			if len(first) != hosts {
				t.Fatalf("%d of %d are sent", len(first), hosts)
			}
			if _, err := s.ChangeBatch(t.Context(), b.ID, store.BatchEvent{Kind: store.BatchCancel}, store.Operation{Time: noon}); err != nil {
				t.Fatal(err)
			}
			if isReopened {
				for range 2 {
					if _, err := s.Advance(t.Context(), noon); err != nil {
						t.Fatal(err)
					}
				}
				killed := newTrial()
				killed.tree = e.tree.Copy()
				e, s = killed, opened(t, killed, Options{})
			}
			reads := 0
			e.onGet = func(key, _ []byte) error {
				if key[0] == prefixLife {
					reads++
				}
				return nil
			}
			asked := 0
			for more := true; more; {
				s.unlearn()
				did, err := s.Advance(t.Context(), noon)
				if err != nil {
					t.Fatal(err)
				}
				asked, more = asked+len(did.Asked), did.More
				if len(did.Asked) > maxDue {
					t.Errorf("%d are asked at once", len(did.Asked))
				}
			}
			e.onGet = nil
			if want := hosts - map[bool]int{true: 2 * maxDue}[isReopened]; asked != want {
				t.Errorf("%d are asked, want %d", asked, want)
			}
			if reads > 2*hosts {
				t.Errorf("of %d members %d lives are read", hosts, reads)
			}
			for _, j := range first {
				if is, err := s.Job(t.Context(), j.ID); err != nil || is.State != harp.StateCancelling || is.Cancel == nil {
					t.Fatalf("it is %+v, %v", is, err)
				}
			}
		})
	}
}

// TestClockSetBesideManyBatches sets the clock while more batches are paused than one commit takes: their pauses last as long also when the
// store is opened again.
func TestClockSetBesideManyBatches(t *testing.T) {
	const batches = 1000
	for what, by := range sets {
		t.Run(what, func(t *testing.T) {
			var ids []string
			e := closed(t, func(s *Store) {
				for range batches {
					in := onHosts(1)
					in.Batch.Plan.ApproveFirst = true
					out, err := s.SubmitBatch(t.Context(), in, noon)
					if err != nil {
						t.Fatal(err)
					}
					ids = append(ids, out.Batch.ID)
				}
				s.ClockSet(by)
			})
			s := opened(t, e, Options{})
			for n, id := range ids {
				b, err := s.Batch(t.Context(), id)
				if err != nil || b.State != harp.BatchPaused || !b.Pause.Until.Equal(noon.Add(by+time.Hour)) {
					t.Fatalf("of %d batches number %d is %s until %v, %v", batches, n, b.State, b.Pause, err)
				}
			}
		})
	}
}
