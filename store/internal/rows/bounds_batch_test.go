package rows

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// largestBatch is a batch on some hosts with everything as long as it may be, but for its arguments: a chain of so
// many steps, each of which begins however the one before it ended.
func largestBatch(steps int, hosts ...string) store.BatchSubmission {
	class := store.BatchClass{
		SilenceTimeout: time.Minute, MaxExecTime: time.Hour, Retry: harp.RetryPolicy{Attempts: 1},
		SecretArgs: []string{strings.Repeat("x", mostLabel)}, OfflineWait: time.Hour,
	}
	b := store.BatchSubmission{
		Batch: store.Batch{
			ID: idAt(noon), Target: word(mostQueue, 0), Classes: []store.BatchClass{class}, QueuePerHost: true,
			Plan:   store.BatchPlan{Waves: []int{len(hosts)}, Parallel: len(hosts), MaxPause: 24 * time.Hour},
			Member: largestCall().Job,
		},
		Request: harp.Submission{Request: []byte("request")},
	}
	m := &b.Batch.Member
	m.ID, m.Host, m.NotBefore, m.Expires, m.Retry = "", "", time.Time{}, time.Time{}, harp.RetryPolicy{}
	m.Drift, m.SubmitTime = word(30, 0), noon
	for n := 2; n <= steps; n++ {
		b.Batch.Steps = append(b.Batch.Steps, store.BatchStep{Procedure: word(mostProcedure, n), On: harp.OnEnded, Classes: []store.BatchClass{class}})
	}
	for _, h := range hosts {
		b.Hosts = append(b.Hosts, store.BatchHost{Name: h})
	}
	return b
}

// manyBatches submits batches and returns what was started of them.
func manyBatches(t testing.TB, s *Store, n int, make func(n int) store.BatchSubmission) []*store.Job {
	t.Helper()
	for i := range n {
		if _, err := s.SubmitBatch(t.Context(), make(i), noon); err != nil {
			t.Fatal(err)
		}
	}
	return advanceAll(t, s, noon).Claimed
}

// TestManyBatchesAtOnce ends members of very many batches at once, each with the labels and the steps that it may have: no commit
// is larger than an engine takes.
func TestManyBatchesAtOnce(t *testing.T) {
	const n = 400
	host := largestCall().Job.Host
	for name, try := range map[string]func(t *testing.T, s *Store, jobs []*store.Job){
		"lost": func(t *testing.T, s *Store, jobs []*store.Job) {
			var ts []store.Transition
			for _, j := range jobs {
				lose := about(j, store.Lose)
				lose.Event.Reason = harp.LostJournalGone
				ts = append(ts, lose)
			}
			applied(t, s, ts...)
		},
		"ended": func(t *testing.T, s *Store, jobs []*store.Job) {
			var ts []store.Transition
			for _, j := range jobs {
				end := about(j, store.End)
				end.Event.Failure = harp.Failure{Code: "remote", Message: strings.Repeat("x", 4<<10)}
				ts = append(ts, end)
			}
			applied(t, s, ts...)
		},
		"silent": func(t *testing.T, s *Store, _ []*store.Job) {
			if _, err := s.Silence(t.Context(), host, noon, noon.Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			advanceAll(t, s, noon.Add(time.Minute))
		},
		"removed": func(t *testing.T, s *Store, _ []*store.Job) {
			if _, err := s.OpenSession(t.Context(), store.Session{Host: host, Instance: "i", Journal: "j"}); err != nil {
				t.Fatal(err)
			}
			if _, err := s.RemoveHost(t.Context(), host, store.Operation{Time: noon}); err != nil {
				t.Fatal(err)
			}
		},
		"cancelled": func(t *testing.T, s *Store, jobs []*store.Job) {
			for _, j := range jobs {
				if _, err := s.ChangeBatch(t.Context(), j.Batch, store.BatchEvent{Kind: store.BatchCancel, Reason: strings.Repeat("x", maxPauseReason)}, store.Operation{Time: noon}); err != nil {
					t.Fatal(err)
				}
			}
			advanceAll(t, s, noon)
		},
		"restored": func(t *testing.T, s *Store, jobs []*store.Job) {
			into := newTrial()
			into.onCommit = refuseTooBig
			if did, err := Restore(into, backedUp(t, s), noon, Options{}); err != nil || did.Lost != len(jobs) {
				t.Fatalf("%d of %d jobs were lost, %v", did.Lost, len(jobs), err)
			}
		},
	} {
		for _, steps := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s/%d", name, steps), func(t *testing.T) {
				_, s := bounded(t)
				openGate(s, host)
				jobs := manyBatches(t, s, n, func(int) store.BatchSubmission { return largestBatch(steps, host) })
				if len(jobs) != n {
					t.Fatalf("%d of %d members were started", len(jobs), n)
				}
				try(t, s, jobs)
				if err := s.poisoned(); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// TestLargestBatches does with batches of the largest members whatever can be done, in any order.
func TestLargestBatches(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { largestBatches(t, rand.New(rand.NewPCG(seed, 12))) })
	}
}

func largestBatches(t *testing.T, r *rand.Rand) {
	_, s := bounded(t)
	now := noon
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	hosts := make([]string, 300)
	for n := range hosts {
		hosts[n] = word(mostName, n)
		openGate(s, hosts[n])
	}
	var batches []string
	for range 25 {
		now = now.Add(time.Duration(r.IntN(100)) * time.Second)
		switch r.IntN(6) {
		case 0, 1:
			b := largestBatch(1+r.IntN(3), hosts[:1+r.IntN(len(hosts))]...)
			b.Batch.Plan.StopAfter = r.IntN(2) * 100
			out, err := s.SubmitBatch(t.Context(), b, now)
			must(err)
			batches = append(batches, out.Batch.ID)
		case 2, 3:
			var ts []store.Transition
			for _, h := range hosts {
				active, err := s.Active(t.Context(), h)
				must(err)
				for _, j := range active {
					e := store.Event{Kind: store.End, At: now, Attempt: j.Attempt, Fence: j.Fence}
					switch r.IntN(4) {
					case 0:
						e.Kind, e.Reason = store.Lose, harp.LostAgentRestarted
					case 1:
						e.Failure = harp.Failure{Code: "remote", Message: strings.Repeat("x", r.IntN(4<<10))}
					case 2:
						e.Value = make(harp.Value, 1+r.IntN(8<<10))
					}
					ts = append(ts, store.Transition{ID: j.ID, Event: e})
				}
			}
			_, err := s.Apply(t.Context(), ts...)
			must(err)
		case 4:
			if len(batches) > 0 {
				_, err := s.ChangeBatch(t.Context(), batches[r.IntN(len(batches))], store.BatchEvent{Kind: store.BatchCancel}, store.Operation{Time: now})
				if err != nil && s.poisoned() != nil {
					t.Fatal(err)
				}
			}
		case 5:
			for more := true; more; {
				did, err := s.Prune(t.Context(), store.Retention{EndedBefore: now, EventsBefore: now}, now)
				must(err)
				more = did.More
			}
		}
		advanceAll(t, s, now)
		must(s.poisoned())
	}
}

// TestManyLargeSchedules restores very many schedules, each as large as it may be, and prunes a ledger of the longest entries.
func TestManyLargeSchedules(t *testing.T) {
	_, s := bounded(t)
	state := store.ScheduleState{Version: 1}
	for n := range 1000 {
		state.Runs = append(state.Runs, store.ScheduleRun{Batch: harp.NewID(), Since: noon.Add(time.Duration(n))})
	}
	for n := range 40 {
		step := store.ScheduleStep{Name: word(mostName, n), Document: make([]byte, 200<<10), State: state}
		if _, err := s.StepSchedule(t.Context(), step, noon); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 1000 {
		at := noon.Add(time.Duration(n) * time.Minute)
		step := store.ScheduleStep{
			Name: word(mostName, 0), Revision: uint64(n + 1), State: store.ScheduleState{Version: 1}, //nolint:gosec // small
			Entry: &harp.LedgerEntry{Kind: harp.LedgerTime, Outcome: harp.TimeSkipped, Detail: strings.Repeat("x", maxDetail), From: at, To: at, At: at},
		}
		if _, err := s.StepSchedule(t.Context(), step, noon); err != nil {
			t.Fatal(err)
		}
	}
	into := newTrial()
	into.onCommit = refuseTooBig
	if _, err := Restore(into, backedUp(t, s), noon, Options{}); err != nil {
		t.Fatal(err)
	}
	s = opened(t, into, Options{})
	for cursor := ""; ; {
		page, next, err := s.ListSchedules(t.Context(), cursor, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range page {
			if one.Restored.IsZero() {
				t.Fatalf("schedule %s does not know that it was restored", one.Name)
			}
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	for more := true; more; {
		did, err := s.Prune(t.Context(), store.Retention{EventsBefore: noon.Add(24 * time.Hour)}, noon.Add(48*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		more = did.More
	}
	page, err := s.ScheduleLedger(t.Context(), harp.LedgerFilter{Schedule: word(mostName, 0), Limit: 1000}, "")
	if err != nil || len(page.Items) != store.LedgerKept {
		t.Errorf("%d entries are kept, want %d, %v", len(page.Items), store.LedgerKept, err)
	}
}
