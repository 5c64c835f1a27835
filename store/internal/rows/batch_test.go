package rows

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// onHosts is a batch on so many hosts, two at a time.
func onHosts(n int) store.BatchSubmission {
	b := store.BatchSubmission{
		Batch: store.Batch{
			ID: idAt(noon), Target: "h*", Classes: []store.BatchClass{{}}, Plan: store.BatchPlan{Waves: []int{n}, Parallel: 2, MaxPause: time.Hour},
			Member: store.Job{Procedure: "p", OfflineWait: harp.NoLimit, SubmitTime: noon},
		},
		Request: harp.Submission{Request: []byte("request")},
	}
	for i := range n {
		b.Hosts = append(b.Hosts, store.BatchHost{Name: fmt.Sprintf("h%d", i)})
	}
	return b
}

// flip changes a bit of what lies under a key.
func (e *trial) flip(key []byte) {
	e.poke(key, func(_, value []byte) []byte {
		value[len(value)-1] ^= 1
		return value
	})
}

// readRaw is what is stored under a key.
func readRaw(t testing.TB, s *Store, key []byte) (value []byte) {
	t.Helper()
	err := s.view(func(snap Snapshot) (err error) {
		value, err = snap.Get(key)
		value = bytes.Clone(value)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// begin submits a batch and starts its first members.
func begin(t testing.TB, s *Store, in store.BatchSubmission) (*store.Batch, []*store.Job) {
	t.Helper()
	for _, h := range in.Hosts {
		openGate(s, h.Name)
	}
	out, err := s.SubmitBatch(t.Context(), in, noon)
	if err != nil {
		t.Fatal(err)
	}
	return out.Batch, advanceAll(t, s, noon).Claimed
}

// TestDamagedNamesPauseTheBatch damages the names of the hosts of a batch: what runs goes on, nothing
// is started any more, and the store works.
func TestDamagedNamesPauseTheBatch(t *testing.T) {
	eachDamage(t, "names", func(t *testing.T, damage func(e *trial, s *Store, key []byte)) {
		e := newTrial()
		s := opened(t, e, Options{})
		b, first := begin(t, s, onHosts(4))
		i, _ := parseID(b.ID)
		s.mu.Lock()
		s.batches[i].names = nil
		s.mu.Unlock()
		damage(e, s, namesKey(i, 0))
		if c := applied(t, s, about(first[0], store.End))[0]; len(c.Claimed) != 0 {
			t.Errorf("started is %+v", c.Claimed)
		}
		got, err := s.Batch(t.Context(), b.ID)
		if err != nil || got.State != harp.BatchPaused || got.Pause == nil || got.Pause.Reason == "" {
			t.Errorf("the batch is %+v, %v, want it paused", got, err)
		}
		applied(t, s, about(first[1], store.End))
	})
}

// TestDamagedNamesHideNoOtherMember damages the names of some hosts of a batch: a member that is not reached, on another host, is found.
func TestDamagedNamesHideNoOtherMember(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	out, err := s.SubmitBatch(t.Context(), onHosts(3*namesMost), noon)
	if err != nil {
		t.Fatal(err)
	}
	i, _ := parseID(out.Batch.ID)
	e.flip(namesKey(i, 1))
	for n, want := range map[int]error{0: nil, namesMost: ErrDamaged, 2 * namesMost: nil} {
		host := fmt.Sprintf("h%d", n)
		j, err := s.Job(t.Context(), harp.MemberID(out.Batch.ID, host, 1))
		if !errors.Is(err, want) || want == nil && (err != nil || j.Host != host) {
			t.Errorf("the member on %s is %+v, %v, want %v", host, j, err, want)
		}
	}
}

// TestOlderLifeReachesNoHostTwice opens a store in which the life of a batch is one that it had before
// some of its hosts were reached: none of them is called a second time.
func TestOlderLifeReachesNoHostTwice(t *testing.T) {
	var b *store.Batch
	e := closed(t, func(s *Store) {
		var first []*store.Job
		b, first = begin(t, s, onHosts(4))
		i, _ := parseID(b.ID)
		old := readRaw(t, s, i.key(prefixBatchLife))
		applied(t, s, about(first[0], store.End), about(first[1], store.End))
		if err := s.engine.Commit([]Write{{i.key(prefixBatchLife), old}}); err != nil {
			t.Fatal(err)
		}
	})
	s := opened(t, e, Options{}) // as many members have not ended as the older life says
	for n := range 4 {
		openGate(s, fmt.Sprintf("h%d", n))
	}
	var running []store.Transition
	active, err := s.Active(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range active {
		running = append(running, about(j, store.End))
	}
	if c := applied(t, s, running...); len(running) != 2 || len(c[1].Claimed) != 0 {
		t.Errorf("the ends of %d members start %+v", len(running), c)
	}
	if did := advanceAll(t, s, noon); len(did.Claimed) != 0 {
		t.Errorf("started is %+v", did.Claimed)
	}
	if got, err := s.Batch(t.Context(), b.ID); err != nil || got.State != harp.BatchPaused {
		t.Errorf("the batch is %+v, %v, want it paused", got, err)
	}
}

// TestOlderLifeBesideACancelledMember is TestOlderLifeReachesNoHostTwice where the next host by the older life is one
// whose member was cancelled since: it was not cancelled before its turn, and the store goes on.
func TestOlderLifeBesideACancelledMember(t *testing.T) {
	var b *store.Batch
	e := closed(t, func(s *Store) {
		var first []*store.Job
		b, first = begin(t, s, onHosts(5))
		s.SetGate("h2", store.Gate{Reason: harp.ReasonOffline, LastHeard: noon})
		i, _ := parseID(b.ID)
		old := readRaw(t, s, i.key(prefixBatchLife))
		applied(t, s, about(first[0], store.End), about(first[1], store.End))
		members, err := s.BatchMembers(t.Context(), b.ID, 2, 1)
		if err != nil {
			t.Fatal(err)
		}
		applied(t, s, about(members[0], store.CancelReq))
		if err := s.engine.Commit([]Write{{i.key(prefixBatchLife), old}}); err != nil {
			t.Fatal(err)
		}
	})
	s := opened(t, e, Options{})
	advanceAll(t, s, noon)
	active, err := s.Active(t.Context(), "")
	if err != nil || len(active) != 2 {
		t.Fatalf("%d members are under way, %v", len(active), err)
	}
	if c := applied(t, s, about(active[0], store.End))[0]; len(c.Claimed) != 0 {
		t.Errorf("started is %+v", c.Claimed)
	}
	advanceAll(t, s, noon)
	if got, err := s.Batch(t.Context(), b.ID); err != nil || got.State != harp.BatchPaused {
		t.Errorf("the batch is %+v, %v, want it paused", got, err)
	}
}

// TestOlderLifeOfOtherCounts opens a store in which the life of a batch is one that it had before a member ended, and fewer
// have not ended than that says: which those are nobody can know.
func TestOlderLifeOfOtherCounts(t *testing.T) {
	e := closed(t, func(s *Store) {
		b, first := begin(t, s, onHosts(4))
		i, _ := parseID(b.ID)
		if _, err := s.ChangeBatch(t.Context(), b.ID, store.BatchEvent{Kind: store.BatchPaused}, store.Operation{Time: noon}); err != nil {
			t.Fatal(err)
		}
		old := readRaw(t, s, i.key(prefixBatchLife))
		applied(t, s, about(first[0], store.End))
		if err := s.engine.Commit([]Write{{i.key(prefixBatchLife), old}}); err != nil {
			t.Fatal(err)
		}
	})
	if s, err := Open(e, Options{}); !errors.Is(err, ErrDamaged) {
		t.Errorf("it opens with %v", err)
		if err == nil {
			_ = s.Close()
		}
	}
}

// TestLostLifeOfABatch opens a store in which a batch has no life any more: nobody can know which of its
// hosts were reached.
func TestLostLifeOfABatch(t *testing.T) {
	for name, spoil := range map[string]func(e *trial, key []byte){
		"damaged": func(e *trial, key []byte) { e.flip(key) },
		"lost":    func(e *trial, key []byte) { e.lose(key) },
	} {
		t.Run(name, func(t *testing.T) {
			var i id
			e := closed(t, func(s *Store) {
				b, _ := begin(t, s, onHosts(4))
				i, _ = parseID(b.ID)
			})
			spoil(e, i.key(prefixBatchLife))
			if s, err := Open(e, Options{}); !errors.Is(err, ErrDamaged) {
				t.Errorf("it opens with %v", err)
				if err == nil {
					_ = s.Close()
				}
			}
		})
	}
}

// TestRestoreBatches restores a backup of a store with a batch: it has failed, whatever may have been
// done since, and so do its members say.
func TestRestoreBatches(t *testing.T) {
	for name, spoil := range map[string]func(e *trial, i id){
		"whole":       func(*trial, id) {},
		"damaged":     func(e *trial, i id) { e.flip(i.key(prefixBatchLife)) },
		"member lost": func(e *trial, i id) { e.flip(memberKey(i, 0)) },
	} {
		t.Run(name, func(t *testing.T) {
			e := newTrial()
			s := opened(t, e, Options{})
			in := onHosts(4)
			b, first := begin(t, s, in)
			applied(t, s, about(first[1], store.End))
			i, _ := parseID(b.ID)
			spoil(e, i)
			into := newTrial()
			if _, err := Restore(into, backedUp(t, s), noon, Options{}); err != nil {
				t.Fatal(err)
			}
			restored := opened(t, into, Options{})
			got, err := restored.Batch(t.Context(), b.ID)
			if err != nil || got.State != harp.BatchFailed || got.Reason != harp.BatchReasonRestored {
				t.Fatalf("the batch is %+v, %v", got, err)
			}
			if name != "whole" {
				return
			}
			var states []string
			members, err := restored.BatchMembers(t.Context(), b.ID, 0, 10)
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range members {
				states = append(states, string(j.State)+" "+j.Reason)
			}
			want := []string{"lost restored", "succeeded ", "lost restored", "lost restored"}
			if !slices.Equal(states, want) {
				t.Errorf("its members are %q, want %q", states, want)
			}
		})
	}
}

// TestRestoreOfABatchThatHadEnded restores a backup of a store with a batch that had ended, and whose life cannot be read: it does not run
// again, for ever, and goes in its turn, with all that it counts for its rule.
func TestRestoreOfABatchThatHadEnded(t *testing.T) {
	s := opened(t, newTrial(), Options{})
	putRule(t, s, harp.RetentionRule{Name: "r", Procedure: "p", Keep: 100 * day, MaxBytes: 5000})
	had := endBatchAt(t, s, noon, "p", 14)
	i, _ := parseID(had.ID)
	s.engine.(*trial).flip(i.key(prefixBatchLife))
	into := newTrial()
	if _, err := Restore(into, backedUp(t, s), noon.Add(time.Minute), Options{}); err != nil {
		t.Fatal(err)
	}
	s = opened(t, into, Options{})
	if got, err := s.Batch(t.Context(), had.ID); !errors.Is(err, ErrDamaged) {
		t.Errorf("the batch is %+v, %v", got, err)
	}
	kept := endAt(t, s, noon.Add(2*time.Minute), "p", "p")
	later := noon.Add(time.Hour)
	prune(t, s, store.Retention{RulesAt: later}, later)
	wantKept(t, s, kept)
	if _, err := s.Batch(t.Context(), had.ID); !errors.Is(err, harp.ErrPruned) {
		t.Errorf("then it is %v", err)
	}
}

// TestRestoreOfACancelledBatch restores a backup of a store with a batch that was being cancelled: what had ended
// by that before is not lost by the restore.
func TestRestoreOfACancelledBatch(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	b, _ := begin(t, s, onHosts(4))
	cancelled(t, s, b)
	was := statesOf(t, s, b)
	into := newTrial()
	if _, err := Restore(into, backedUp(t, s), noon.Add(time.Hour), Options{}); err != nil {
		t.Fatal(err)
	}
	restored := opened(t, into, Options{})
	got, err := restored.Batch(t.Context(), b.ID)
	if err != nil || got.State != harp.BatchFailed || got.Reason != harp.BatchReasonRestored {
		t.Fatalf("the batch is %+v, %v", got, err)
	}
	want := append([]string{"lost restored", "lost restored"}, was[2:]...)
	if is := statesOf(t, restored, b); !slices.Equal(is, want) || is[3] != "cancelled batch" {
		t.Errorf("its members are %q, want %q", is, want)
	}
}

// TestRestoreBeginsNoStep restores a backup that was made when the first step of a chain was cancelled with its queue, and no
// row said so yet: the next one, which would follow that, does not begin.
func TestRestoreBeginsNoStep(t *testing.T) {
	s := opened(t, newTrial(), Options{})
	in := onHosts(1)
	in.Batch.Member.Queue, in.Batch.Member.Concurrency = inQueue(call("h0"), 0, 1).Job.Queue, 1
	in.Batch.Steps = []store.BatchStep{{Procedure: "next", On: harp.OnEnded, Classes: []store.BatchClass{{}}}}
	out, err := s.SubmitBatch(t.Context(), in, noon)
	if err != nil {
		t.Fatal(err)
	}
	if started := advanceAll(t, s, noon).Claimed; len(started) > 0 {
		t.Fatalf("started are %+v", started)
	}
	if _, err := s.CancelQueue(t.Context(), in.Batch.Member.Queue, store.Operation{Time: noon}); err != nil {
		t.Fatal(err)
	}
	into := newTrial()
	did, err := Restore(into, backedUp(t, s), noon.Add(time.Hour), Options{})
	if err != nil || did.Lost != 0 {
		t.Errorf("%d jobs are lost, %v", did.Lost, err)
	}
	members, err := opened(t, into, Options{}).BatchMembers(t.Context(), out.Batch.ID, 0, 2)
	if err != nil || len(members) != 2 || members[0].State != harp.StateCancelled || members[1].State != harp.StateCancelled || members[1].Reason != harp.ReasonChain {
		t.Errorf("its steps are %+v, %v", members, err)
	}
}

// memberKey is the key of the row of a member's life.
func memberKey(i id, host int) []byte {
	member, _ := parseID(harp.MemberID(i.String(), fmt.Sprintf("h%d", host), 1))
	return member.key(prefixLife)
}

// TestWritesOfAMember counts what a member costs from when its host is reached to its end.
func TestWritesOfAMember(t *testing.T) {
	const most = 7
	e := newTrial()
	s := opened(t, e, Options{})
	in := onHosts(200)
	in.Batch.Plan.Parallel = 200
	for _, h := range in.Hosts {
		openGate(s, h.Name)
	}
	if _, err := s.SubmitBatch(t.Context(), in, noon); err != nil {
		t.Fatal(err)
	}
	before := len(e.commits)
	jobs := advanceAll(t, s, noon).Claimed
	var ts []store.Transition
	for _, j := range jobs {
		end := about(j, store.End)
		end.Event.Value = harp.Value{0xc0}
		ts = append(ts, end)
	}
	applied(t, s, ts...)
	writes := 0
	for _, commit := range e.commits[before:] {
		writes += len(commit)
	}
	if each := float64(writes) / float64(len(jobs)); len(jobs) != 200 || each > most {
		t.Errorf("%d members cost %.2f writes each, at most %d", len(jobs), each, most)
	}
}

// TestBatchIsOneCommit counts what a large batch costs besides its members: it is stored in one commit, its state is read from a
// few rows, and nothing is read for each host that is reached.
func TestBatchIsOneCommit(t *testing.T) {
	const hosts, parallel, few = 10_000, 1000, 10
	e := newTrial()
	s := opened(t, e, Options{})
	in := onHosts(hosts)
	in.Batch.Plan.Parallel = parallel
	for _, h := range in.Hosts {
		openGate(s, h.Name)
	}
	var reads atomic.Int64
	e.onGet = func(_, _ []byte) error { reads.Add(1); return nil }
	before := len(e.commits)
	out, err := s.SubmitBatch(t.Context(), in, noon)
	if n := len(e.commits) - before; err != nil || n != 1 {
		t.Errorf("it is stored in %d commits, %v", n, err)
	}
	reads.Store(0)
	if b, err := s.Batch(t.Context(), out.Batch.ID); err != nil || b.Hosts != hosts || reads.Load() > few {
		t.Errorf("its state is read from %d rows, %v", reads.Load(), err)
	}
	reads.Store(0)
	if jobs := advanceAll(t, s, noon).Claimed; len(jobs) != parallel || reads.Load() > few*2 {
		t.Errorf("%d hosts are reached, for which %d rows are read", len(jobs), reads.Load())
	}
}

// TestCancelledBeforeItsTurn cancels a member of a batch that was just submitted: its host is passed over.
func TestCancelledBeforeItsTurn(t *testing.T) {
	s := opened(t, newTrial(), Options{})
	b, first := begin(t, s, onHosts(4))
	third := harp.MemberID(b.ID, "h2", 1)
	if c := applied(t, s, store.Transition{ID: third, Event: store.Event{Kind: store.CancelReq, At: noon}}); c[0].Err != nil || c[0].Job.State != harp.StateCancelled {
		t.Fatalf("the cancel makes %+v", c[0])
	}
	var hosts []string
	for _, c := range applied(t, s, about(first[0], store.End), about(first[1], store.End)) {
		for _, j := range c.Claimed {
			hosts = append(hosts, j.Host)
		}
	}
	if !slices.Equal(hosts, []string{"h3"}) {
		t.Errorf("the next hosts are %v", hosts)
	}
}
