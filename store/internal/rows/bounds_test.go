package rows

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// The largest that callers may make of a call, and a certificate of a name: what
// internal/wire allows.
const (
	mostName      = 255
	mostProcedure = 128
	mostQueue     = 1 << 10
	mostLabels    = 16
	mostLabelKey  = 64
	mostLabel     = 256
	mostAttempts  = 100
	mostMessage   = 2 << 20
)

// word is a text of this length, with a number in it.
func word(length, n int) string {
	s := fmt.Sprint(n)
	return s + strings.Repeat("x", length-len(s))
}

// largestCall is a call with everything as long as it may be, but for its arguments.
func largestCall() store.Submission {
	c := call(word(mostName, 0))
	j := &c.Job
	j.Procedure = word(mostProcedure, 0)
	j.Principal = harp.Principal{Kind: "caller", Name: word(mostName, 0), Auth: "certificate"}
	j.Labels = map[string]string{}
	for n := range mostLabels {
		j.Labels[word(mostLabelKey, n)] = word(mostLabel, n)
	}
	j.TraceParent, j.RetryOf = word(mostLabel, 0), harp.NewID()
	j.NotBefore, j.Expires = noon, noon.Add(24*time.Hour)
	j.Retry = harp.RetryPolicy{On: []harp.State{harp.StateLost, harp.StateFailed, harp.StateTimedOut}, Attempts: mostAttempts, Backoff: time.Minute, MaxBackoff: time.Minute}
	return c
}

func inQueue(c store.Submission, n, concurrency int) store.Submission {
	c.Job.Queue, c.Job.Concurrency = harp.Value(word(mostQueue, n)), concurrency
	return c
}

// manyLarge submits jobs, a few at a time.
func manyLarge(t testing.TB, s *Store, n int, make func(n int) store.Submission) []*store.Job {
	t.Helper()
	var jobs []*store.Job
	for len(jobs) < n {
		var calls []store.Submission
		for range min(20, n-len(jobs)) {
			calls = append(calls, make(len(jobs)+len(calls)))
		}
		jobs = append(jobs, submitted(t, s, calls...)...)
	}
	return jobs
}

// bounded is an engine that takes no larger commit than it has to, as badger does, and
// the store on it.
func bounded(t testing.TB) (*trial, *Store) {
	t.Helper()
	e := newTrial()
	e.onCommit = refuseTooBig
	return e, opened(t, e, Options{})
}

func refuseTooBig(writes []Write) error {
	size := 0
	for _, w := range writes {
		size += len(w.Key) + len(w.Value) + WriteCost
	}
	if size > MaxCommit {
		return fmt.Errorf("a commit of %d bytes, at most %d", size, MaxCommit)
	}
	return nil
}

func openGate(s *Store, host string) {
	s.SetGate(host, store.Gate{Open: true, Most: 1 << 20})
}

// age gives jobs as many earlier attempts as a job may have.
func age(t testing.TB, e *trial, s *Store, jobs []*store.Job) {
	t.Helper()
	var writes []Write
	for n := range jobs {
		j := jobs[n].Clone()
		had := j.Attempts
		j.Attempts, j.Attempt = nil, mostAttempts-2
		for n := range mostAttempts - 2 {
			j.Attempts = append(j.Attempts, store.Attempt{
				Number: n + 1, Base: 1 << 40, Next: 1 << 40, Fence: 1 << 40, Sent: noon, Started: noon, Ended: noon,
				Outcome: string(harp.StateTimedOut), Reason: "max_exec_time",
			})
		}
		if len(had) > 0 {
			j.Attempt++
			last := had[len(had)-1]
			last.Number = j.Attempt
			j.Attempts = append(j.Attempts, last)
		}
		i, _ := parseID(j.ID)
		first, more := split(i.key(prefixLife), encode(newLifeRow(&j.Life)))
		if len(more) > 0 {
			t.Fatal("a life of more than a piece")
		}
		writes = append(writes, Write{i.key(prefixLife), first})
		jobs[n] = j
	}
	e.mu.Lock()
	for _, w := range writes {
		e.tree.Set(Item(w))
	}
	e.mu.Unlock()
	s.unlearn()
}

// TestAttemptsLostAtOnce loses the attempts of a host's jobs at once, each the first of
// a queue where another waits: their commits are not larger than an engine takes.
func TestAttemptsLostAtOnce(t *testing.T) {
	e, s := bounded(t)
	host := largestCall().Job.Host
	openGate(s, host)
	jobs := manyLarge(t, s, 500, func(n int) store.Submission { return inQueue(largestCall(), n, 1) })
	manyLarge(t, s, 500, func(n int) store.Submission { return inQueue(largestCall(), n, 1) })
	age(t, e, s, jobs)
	var ts []store.Transition
	for _, j := range jobs {
		lose := about(j, store.Lose)
		lose.Event.Reason, lose.Event.Jitter = harp.LostJournalGone, 1
		ts = append(ts, lose)
	}
	claimed := 0
	for n, c := range applied(t, s, ts...) {
		if claimed += len(c.Claimed); c.Job.State != harp.StateQueued {
			t.Fatalf("job %d is %s", n, c.Job.State)
		}
	}
	if claimed != len(jobs) {
		t.Fatalf("%d were claimed by the slots of %d", claimed, len(jobs))
	}
}

// TestManyClaimed claims the jobs of a host at once.
func TestManyClaimed(t *testing.T) {
	e, s := bounded(t)
	host := largestCall().Job.Host
	jobs := manyLarge(t, s, 600, func(n int) store.Submission { return inQueue(largestCall(), n, 1) })
	age(t, e, s, jobs)
	openGate(s, host)
	got, err := s.Claim(t.Context(), []string{host}, len(jobs), noon)
	if err != nil || len(got) != len(jobs) {
		t.Fatalf("%d of %d were claimed, %v", len(got), len(jobs), err)
	}
}

// advanceAll advances a store until nothing is due.
func advanceAll(t testing.TB, s *Store, now time.Time) (all store.Advanced) {
	t.Helper()
	for {
		did, err := s.Advance(t.Context(), now)
		if err != nil {
			t.Fatal(err)
		}
		all.Ended, all.Claimed = append(all.Ended, did.Ended...), append(all.Claimed, did.Claimed...)
		if !did.More {
			return all
		}
	}
}

// TestManyDue has time do all that it does with many jobs at once: it wakes them, gives
// them up, ends them, and writes the rows of a queue that was cancelled.
func TestManyDue(t *testing.T) {
	const n = 500
	host := largestCall().Job.Host
	later := func(c store.Submission) store.Submission {
		c.Job.NotBefore = noon.Add(time.Hour)
		return c
	}
	for name, try := range map[string]func(t *testing.T, e *trial, s *Store) (got int){
		"woken": func(t *testing.T, e *trial, s *Store) int {
			jobs := manyLarge(t, s, n, func(n int) store.Submission { return later(inQueue(largestCall(), n, 1)) })
			age(t, e, s, jobs)
			openGate(s, host)
			return len(advanceAll(t, s, noon.Add(time.Hour)).Claimed)
		},
		"given up": func(t *testing.T, e *trial, s *Store) int {
			openGate(s, host)
			jobs := manyLarge(t, s, n, func(n int) store.Submission { return inQueue(largestCall(), n, 1) })
			manyLarge(t, s, n, func(n int) store.Submission { return inQueue(largestCall(), n, 1) })
			age(t, e, s, jobs)
			if _, err := s.Silence(t.Context(), host, noon, noon.Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			return len(advanceAll(t, s, noon.Add(time.Minute)).Claimed)
		},
		"expired": func(t *testing.T, _ *trial, s *Store) int {
			manyLarge(t, s, n, func(n int) store.Submission { return inQueue(largestCall(), n, 1) })
			return len(advanceAll(t, s, noon.Add(24*time.Hour)).Ended)
		},
		"cancelled": func(t *testing.T, _ *trial, s *Store) int {
			manyLarge(t, s, n, func(int) store.Submission { return inQueue(largestCall(), 0, 1) })
			if _, err := s.CancelQueue(t.Context(), inQueue(largestCall(), 0, 1).Job.Queue, store.Operation{Time: noon}); err != nil {
				t.Fatal(err)
			}
			return len(advanceAll(t, s, noon).Ended)
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, s := bounded(t)
			if got := try(t, e, s); got != n {
				t.Errorf("%d of %d", got, n)
			}
		})
	}
}

// TestLargeOutcomesExpire ends many jobs at once that each keep what an earlier attempt
// said of its failure.
func TestLargeOutcomesExpire(t *testing.T) {
	_, s := bounded(t)
	host := largestCall().Job.Host
	openGate(s, host)
	jobs := manyLarge(t, s, 8, func(int) store.Submission { return largestCall() })
	for _, j := range jobs {
		end := about(j, store.End)
		end.Event.Failure, end.Event.Jitter = harp.Failure{Code: "remote", Data: make([]byte, mostMessage)}, 1
		applied(t, s, end)
	}
	s.SetGate(host, store.Gate{Reason: harp.ReasonOffline})
	if did := advanceAll(t, s, noon.Add(24*time.Hour)); len(did.Ended) != len(jobs) {
		t.Fatalf("%d of %d ended", len(did.Ended), len(jobs))
	}
}

// TestRecordsOfAnyNumber stores as many records at a time as come, each as long as it may be.
func TestRecordsOfAnyNumber(t *testing.T) {
	_, s := bounded(t)
	j := started(t, s)
	in := store.Append{ID: j.ID, Attempt: 1, Fence: j.Fence, Arrived: noon}
	for range 3 {
		in.Records = append(in.Records, harp.Record{Kind: harp.KindData, Value: make([]byte, mostMessage)})
	}
	got, err := s.Append(t.Context(), in)
	if err != nil || got.Records != 3 {
		t.Fatalf("%d of 3 records, %v", got.Records, err)
	}
	read, err := s.Read(t.Context(), j.ID, 0, store.ReadLimit{Bytes: 8 << 20})
	if err != nil || len(read) != 3 {
		t.Fatalf("%d of 3 records are read, %v", len(read), err)
	}
}

// TestRecordsBesideALargeFailure stores the longest record of an attempt whose job keeps the
// longest that an earlier one said of its failure.
func TestRecordsBesideALargeFailure(t *testing.T) {
	_, s := bounded(t)
	openGate(s, "h")
	c := call("h")
	c.Job.Retry = largestCall().Job.Retry
	end := about(submitted(t, s, c)[0], store.End)
	end.Event.Failure, end.Event.Jitter = harp.Failure{Code: "remote", Data: make([]byte, mostMessage)}, 1
	applied(t, s, end)
	j := advanceAll(t, s, noon.Add(time.Hour)).Claimed[0]
	in := store.Append{
		ID: j.ID, Attempt: j.Attempt, Fence: j.Fence, Arrived: noon,
		Records: []harp.Record{{Kind: harp.KindData, Value: make([]byte, mostMessage)}},
	}
	if got, err := s.Append(t.Context(), in); err != nil || got.Records != 1 {
		t.Fatalf("%d of 1 record, %v", got.Records, err)
	}
}

// TestManyMarks cancels a queue again and again while its first job runs on: what is kept
// of the cancels does not grow.
func TestManyMarks(t *testing.T) {
	_, s := bounded(t)
	openGate(s, "h")
	c := inQueue(call("h"), 0, 1)
	submitted(t, s, c)
	for range 200 {
		submitted(t, s, inQueue(call("h"), 0, 1))
		if _, err := s.CancelQueue(t.Context(), c.Job.Queue, store.Operation{Time: noon}); err != nil {
			t.Fatal(err)
		}
		advanceAll(t, s, noon)
	}
	var row queueRow
	if err := s.view(func(snap Snapshot) error {
		_, err := read(snap, nameKey(prefixQueue, string(c.Job.Queue)), &row)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if len(row.Marks) > 2 {
		t.Errorf("%d marks are kept for one job", len(row.Marks))
	}
}

// TestLargeRestored restores a backup of many large jobs that had not ended.
func TestLargeRestored(t *testing.T) {
	e, s := bounded(t)
	openGate(s, largestCall().Job.Host)
	jobs := manyLarge(t, s, 500, func(int) store.Submission { return largestCall() })
	age(t, e, s, jobs)
	into := newTrial()
	into.onCommit = refuseTooBig
	did, err := Restore(into, backedUp(t, s), noon, Options{})
	if err != nil || did.Lost != len(jobs) {
		t.Fatalf("%d of %d jobs were lost, %v", did.Lost, len(jobs), err)
	}
}

// TestLargestRows does with the largest rows whatever can be done, in any order.
func TestLargestRows(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { largestRows(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

func largestRows(t *testing.T, r *rand.Rand) {
	_, s := bounded(t)
	host := largestCall().Job.Host
	now := noon
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 40 {
		now = now.Add(time.Duration(r.IntN(100)) * time.Second)
		active, err := s.Active(t.Context(), host)
		must(err)
		switch r.IntN(9) {
		case 0, 1:
			for range 1 + r.IntN(3) {
				var calls []store.Submission
				for n := r.IntN(4); len(calls) == 0 || r.IntN(200) > 0; {
					c := largestCall()
					if n > 0 {
						c = inQueue(c, n, 1+r.IntN(200))
					}
					c.Job.NotBefore = now.Add(time.Duration(r.IntN(200)) * time.Second)
					if calls = append(calls, c); submitSize(calls) > maxOp {
						calls = calls[:len(calls)-1]
						break
					}
				}
				_, err = s.Submit(t.Context(), calls, now)
				must(err)
			}
		case 2:
			if r.IntN(2) == 0 {
				openGate(s, host)
			} else {
				s.SetGate(host, store.Gate{Reason: harp.ReasonOffline})
			}
		case 3:
			_, err = s.Claim(t.Context(), []string{host}, 1000, now)
			must(err)
		case 4, 5:
			kinds := []store.Kind{store.Started, store.End, store.CancelReq, store.Silent, store.Lose, store.Alive}
			kind := kinds[r.IntN(len(kinds))]
			var ts []store.Transition
			for _, j := range active {
				e := store.Event{Kind: kind, At: now, Wake: now.Add(time.Minute), Attempt: j.Attempt, Fence: j.Fence, Jitter: r.Float64()}
				switch {
				case kind == store.Lose:
					e.Reason = harp.LostAgentRestarted
				case kind == store.End && r.IntN(100) == 0:
					e.Failure = harp.Failure{Code: "remote", Data: make([]byte, r.IntN(mostMessage))}
				case kind == store.End && r.IntN(100) == 0:
					e.Value = make(harp.Value, 1+r.IntN(mostMessage-1))
				}
				ts = append(ts, store.Transition{ID: j.ID, Event: e})
			}
			for len(ts) > 0 {
				n, size := 0, 0
				for ; n < len(ts) && size < mostMessage; n++ {
					size += len(ts[n].Event.Value) + len(ts[n].Event.Failure.Data)
				}
				_, err = s.Apply(t.Context(), ts[:n]...)
				must(err)
				ts = ts[n:]
			}
		case 6:
			_, err = s.Silence(t.Context(), host, now, now.Add(time.Minute))
			must(err)
		case 7:
			if _, err = s.CancelQueue(t.Context(), harp.Value(word(mostQueue, 1+r.IntN(3))), store.Operation{Time: now}); err != nil && !isNotFound(err) {
				t.Fatal(err)
			}
		case 8:
			_, err = s.Prune(t.Context(), store.Retention{EndedBefore: now}, now)
			must(err)
		}
		advanceAll(t, s, now)
	}
}

func isNotFound(err error) bool { return errors.Is(err, harp.ErrNotFound) }

// backedUp returns a backup of a store.
func backedUp(t testing.TB, s *Store) io.Reader {
	t.Helper()
	var out bytes.Buffer
	if err := s.Backup(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	return &out
}

// TestSubmissionsAreBoundedByAllTheirTexts: each text of a call counts towards what one commit takes.
func TestSubmissionsAreBoundedByAllTheirTexts(t *testing.T) {
	plain := submitSize([]store.Submission{call("h")})
	for name, with := range map[string]func(c *store.Submission, text string){
		"request":   func(c *store.Submission, text string) { c.Request.Request = []byte("request" + text) },
		"signature": func(c *store.Submission, text string) { c.Request.Signature = []byte(text) },
		"key id":    func(c *store.Submission, text string) { c.Request.KeyID = text },
		"host":      func(c *store.Submission, text string) { c.Job.Host += text },
		"procedure": func(c *store.Submission, text string) { c.Job.Procedure += text },
		"queue":     func(c *store.Submission, text string) { c.Job.Queue = harp.Value(text) },
		"principal": func(c *store.Submission, text string) { c.Job.Principal.Name = text },
		"label":     func(c *store.Submission, text string) { c.Job.Labels = map[string]string{"k": text} },
	} {
		c := call("h")
		with(&c, strings.Repeat("x", 200))
		if size := submitSize([]store.Submission{c}); size < plain+200 {
			t.Errorf("with a %s of 200 bytes more a call counts %d, without %d", name, size, plain)
		}
	}
}
