package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/cmd/harp/internal/contexts"
	"github.com/harpcaller/harp/internal/failures"
)

// benched is a dispatcher whose jobs take their time.
type benched struct {
	*fake
	accepts, runs time.Duration
	endless       bool                   // jobs end only when they are cancelled
	deaf          bool                   // and not even then
	refuse        func(n int) error      // what becomes of the n-th submission, from 1
	failure       func(harp.State) error // of a job that ends

	mu        sync.Mutex // guards what follows
	live      map[string]chan struct{}
	submitted []harp.Request
}

func newBenched(t *testing.T) *benched {
	t.Helper()
	return &benched{fake: ended(t, nil), accepts: time.Millisecond, runs: 9 * time.Millisecond, live: map[string]chan struct{}{}}
}

// Submit implements harp.Service.
func (b *benched) Submit(_ context.Context, calls []harp.Submission) (done []harp.Submitted, _ error) {
	for _, call := range calls {
		id, err := b.submitOne(call)
		done = append(done, harp.Submitted{ID: id, Err: err})
	}
	return done, nil
}

func (b *benched) submitOne(s harp.Submission) (string, error) {
	time.Sleep(b.accepts)
	req, err := harp.DecodeRequest(s.Request)
	if err != nil {
		return "", err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.submitted = append(b.submitted, req)
	var refused error
	if b.refuse != nil {
		refused = b.refuse(len(b.submitted))
	}
	var uncertain *harp.CallError
	if refused == nil || errors.As(refused, &uncertain) {
		b.live[req.ID] = make(chan struct{})
	}
	if uncertain != nil {
		uncertain.JobID = req.ID
	}
	return req.ID, refused
}

// JobResult implements harp.Service: a job is waited for once.
func (b *benched) JobResult(ctx context.Context, id string, _ bool) (harp.Result, error) {
	b.mu.Lock()
	cancelled := b.live[id]
	b.mu.Unlock()
	var over <-chan time.Time
	if !b.endless {
		over = time.After(b.runs)
	}
	r := harp.Result{State: harp.StateSucceeded}
	select {
	case <-ctx.Done():
		return harp.Result{}, ctx.Err()
	case <-cancelled:
		r.State = harp.StateCancelled
	case <-over:
	}
	if b.failure != nil {
		r.Err = b.failure(r.State)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.live, id)
	return r, nil
}

// CancelJob implements harp.Service.
func (b *benched) CancelJob(_ context.Context, id string, _ bool) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.live[id] == nil {
		return false, failures.NotFound("job", id)
	}
	if !b.deaf {
		close(b.live[id])
	}
	return true, nil
}

// Records implements harp.Service: each job has three.
func (b *benched) Records(context.Context, string, harp.RecordQuery) (harp.RecordPage, error) {
	return harp.RecordPage{Records: b.records[firstID], Next: 3, End: 3, Ended: true}, nil
}

// run runs harp bench in virtual time.
func (b *benched) run(t *testing.T, ctx context.Context, args ...string) said { //nolint:revive // t goes first in tests
	t.Helper()
	return runFake(t, ctx, b.fake, func(c *cli) {
		c.dial = func(context.Context, contexts.Context) (*harp.Caller, error) { return harp.NewCaller(b), nil }
	}, append([]string{"bench", "demo1", "hello", "name=Ada"}, args...)...)
}

// figures are those of the JSON that these tests look at.
type figures struct {
	Label            string
	Calls, Cancelled int
	NotSucceeded     int `json:"not_succeeded"`
	Records          int
	Rate             float64 `json:"calls_per_second"`
	RecordRate       float64 `json:"records_per_second"`
	Accepted, Ended  struct {
		P50 float64 `json:"p50_ms"`
		Max float64 `json:"max_ms"`
	}
	Histogram []struct {
		UpTo  float64 `json:"up_to_ms"`
		Calls int
	}
}

func figuresOf(t *testing.T, got said) (f figures) {
	t.Helper()
	if err := json.Unmarshal([]byte(got.stdout), &f); err != nil {
		t.Fatalf("%v: %+v", err, got)
	}
	return f
}

// Four at a time of 10 ms each are 400 a second.
func TestBench(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBenched(t)
		b.procedures[1].Streams = true // hello
		got := b.run(t, t.Context(), "-c", "4", "--for", "1s", "-o", "json")
		f := figuresOf(t, got)
		if got.code != 0 || f.Calls != 400 || f.Rate != 400 || f.Accepted.P50 != 1 || f.Ended.P50 != 10 || f.Ended.Max != 10 {
			t.Errorf("got %+v", got)
		}
		if f.Records != 1200 || f.RecordRate != 1200 || len(f.Histogram) != 1 || f.Histogram[0].UpTo != 10 || f.Histogram[0].Calls != 400 {
			t.Errorf("got %+v", f)
		}
		for _, r := range b.submitted {
			if f.Label != "bench="+r.Labels["bench"] || r.WhenOffline != harp.FailFast {
				t.Fatalf("%+v was submitted, the label is said to be %s", r, f.Label)
			}
		}
		if !strings.Contains(got.stderr, "harp job ls --label "+f.Label+"\n") {
			t.Errorf("said %q", got.stderr)
		}
	})
}

// So many calls as are asked for, and what people are shown of them.
func TestBenchCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBenched(t)
		b.runs = 20 * time.Second
		got := b.run(t, t.Context(), "-c", "4", "-n", "10")
		for _, want := range []string{
			"calls  10 in 1m0s, 4 at a time\n", "rate   0.2 calls/s\n", "accepted  1ms  1ms  1ms  1ms\n", "ended     20s  20s  20s  20s\n",
			"\n20s           10     ########################################\n",
		} {
			if !strings.Contains(got.stdout, want) {
				t.Errorf("%q is not in\n%s", want, got.stdout)
			}
		}
		if got.code != 0 || len(b.submitted) != 10 {
			t.Errorf("got %+v after %d calls", got, len(b.submitted))
		}
	})
}

// However a run ends, no job is left that waits or runs.
func TestBenchLeavesNothing(t *testing.T) {
	noSpace := func(n int) error {
		if n == 6 {
			return harp.ErrNoSpace
		}
		return nil
	}
	uncertain := func(n int) error {
		if n == 6 {
			return &harp.CallError{Err: harp.ErrUnavailable}
		}
		return nil
	}
	failed := func(harp.State) error { return &harp.RemoteError{Type: "oops", Message: "no"} }
	for _, test := range []struct {
		name   string
		change func(*benched)
		args   []string
		code   int
		calls  int
		stops  int
		stderr string
	}{
		{"the time is over", func(*benched) {}, []string{"--for", "25ms"}, exitOK, 9, 0, "calling hello"},
		{"interrupted", func(b *benched) { b.endless = true }, nil, exitDetached, 0, 3, "interrupted; 3 jobs cancelled\n"},
		{"a call is refused", func(b *benched) { b.refuse = noSpace }, nil, exitRefused, 5, 0, "no space"},
		{"a call may have arrived", func(b *benched) { b.refuse = uncertain }, nil, exitUnknown, 5, 1, "may have run"},
		{"jobs fail", func(b *benched) { b.failure = failed }, []string{"-n", "4"}, exitFailed, 4, 0, "4 of 4 jobs did not succeed; the first, job "},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBenched(t)
				test.change(b)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				got := b.run(t, ctx, append(test.args, "-c", "3", "-o", "json")...)
				f := figuresOf(t, got)
				if got.code != test.code || f.Calls != test.calls || f.Cancelled != test.stops || !strings.Contains(got.stderr, test.stderr) {
					t.Errorf("got %+v", got)
				}
				if len(b.live) > 0 {
					t.Errorf("%d jobs go on", len(b.live))
				}
			})
		})
	}
}

// A job that does not end though it was cancelled is not waited for without end.
func TestBenchSaysWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBenched(t)
		b.endless, b.deaf = true, true
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		got := b.run(t, ctx, "-c", "2")
		if got.code != exitDetached || !strings.Contains(got.stderr, "; 2 jobs may not have ended: harp job ls --label bench=") {
			t.Errorf("got %+v", got)
		}
	})
}

func TestBenchRefuses(t *testing.T) {
	for _, args := range [][]string{{"-c", "0"}, {"-c", "10001"}, {"-n", "-1"}, {"--for", "0s"}, {"age=3"}} {
		f := ended(t, nil)
		got := runFake(t, t.Context(), f, nil, append([]string{"bench", "demo1", "hello", "name=Ada"}, args...)...)
		if got.code != exitUsage || len(f.submitted) > 0 {
			t.Errorf("%q: got %+v", args, got)
		}
	}
	f := offering(t, harp.TraitDangerous)
	got := runFake(t, t.Context(), f, nil, "bench", "demo1", "count", "to=1", "-n", "1")
	if got.code != exitUsage || len(f.submitted) > 0 {
		t.Errorf("of a dangerous procedure: got %+v", got)
	}
}

func TestLatencies(t *testing.T) {
	var l latencies
	if l.quantile(0.5) != 0 || len(l.bars()) > 0 {
		t.Errorf("of nothing: %v, %v", l.quantile(0.5), l.bars())
	}
	for i := range 1000 {
		l.addLatency(time.Duration(i+1) * time.Millisecond)
	}
	for q, want := range map[float64]time.Duration{0.5: 500, 0.9: 900, 0.99: 990, 1: 1000} {
		want *= time.Millisecond
		if got := l.quantile(q); got < want || got > want+want/100 {
			t.Errorf("%v: %v, want %v", q, got, want)
		}
	}
	var ends []time.Duration
	n := uint64(0)
	for _, b := range l.bars() {
		ends = append(ends, b.upTo/time.Millisecond)
		n += b.n
	}
	if !slices.Equal(ends, []time.Duration{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000}) || n != 1000 {
		t.Errorf("%d in the bars at %d", n, ends)
	}
	l.addLatency(0)
	l.addLatency(1000 * time.Hour)
	if got := l.quantile(0); got > time.Microsecond || l.quantile(1) > l.most {
		t.Errorf("from %v to %v", got, l.quantile(1))
	}
}
