package dispatcher_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
)

// Calls that are submitted together are as many single ones: each has a job, or an error of its own.
func TestCallsTogether(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		sys.agent("web01", greeter)
		known, key := harp.NewID(), harp.IdempotencyKey("k", time.Hour)
		hello := func(name string, opts ...harp.Option) harp.Call {
			return harp.Call{Host: "web01", Procedure: "hello", Args: harp.Args{"name": name}, Options: opts}
		}
		first := must[[]*harp.Job](t)(sys.caller.Submit(t.Context(), hello("Ada", harp.JobID(known)), hello("Bob", key), hello("Bob", key)))
		if first[0].ID() != known || first[0].Existed() || first[1].Existed() || !first[2].Existed() || first[1].ID() != first[2].ID() {
			t.Errorf("the jobs are %v", first)
		}
		jobs, err := sys.caller.Submit(t.Context(), hello("Ada", harp.JobID(known)), hello("Eve", harp.JobID(known)), harp.Call{Host: "nope", Procedure: "hello"}, hello("Cyd"))
		var failed *harp.SubmitError
		if !errors.As(err, &failed) || len(failed.Errs) != 2 || !errors.Is(failed.Errs[1], harp.ErrConflict) || !errors.Is(failed.Errs[2], harp.ErrNotFound) ||
			!errors.Is(err, harp.ErrConflict) || !errors.Is(err, harp.ErrNotFound) {
			t.Fatalf("the errors are %v", err)
		}
		if jobs[1] != nil || jobs[2] != nil || !jobs[0].Existed() || jobs[3].Existed() {
			t.Errorf("the jobs are %v", jobs)
		}
		if got := must[harp.Value](t)(jobs[3].Get(t.Context())); !strings.Contains(got.String(), "hello Cyd") {
			t.Errorf("the result is %s", got)
		}
	})
}

// Nothing is sent of calls one of which is wrong, nor of too many.
func TestCallsTogetherThatAreWrong(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		sys.agent("web01", greeter)
		id := harp.NewID()
		good := harp.Call{Host: "web01", Procedure: "hello", Args: harp.Args{"name": "Ada"}, Options: []harp.Option{harp.JobID(id)}}
		for name, wrong := range map[string]harp.Call{
			"no host":    {Procedure: "hello"},
			"nil option": {Host: "web01", Procedure: "hello", Options: []harp.Option{nil}},
		} {
			jobs, err := sys.caller.Submit(t.Context(), good, wrong)
			var failed *harp.SubmitError
			if jobs != nil || !errors.Is(err, harp.ErrInvalid) || !errors.As(err, &failed) || failed.Errs[1] == nil {
				t.Errorf("%s: %v, %v", name, jobs, err)
			}
		}
		_, err := sys.caller.Submit(t.Context(), slices.Repeat([]harp.Call{good}, harp.MaxCalls+1)...)
		isAbout(t, err, "calls")
		if _, err := sys.caller.Job(id).Status(t.Context()); !errors.Is(err, harp.ErrNotFound) {
			t.Errorf("the good one: %v", err)
		}
		if jobs, err := sys.caller.Submit(t.Context()); len(jobs) != 0 || err != nil {
			t.Errorf("no calls: %v, %v", jobs, err)
		}
	})
}

// waiter offers a procedure that returns what it is sent.
func waiter(release <-chan string) func(a *agent.Agent) {
	return func(a *agent.Agent) {
		agent.Handle(a, harp.NewProc[struct{}, string]("wait"), func(ctx context.Context, _ struct{}) (string, error) {
			select {
			case word := <-release:
				return word, nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		})
	}
}

// WaitAll yields each job when it has ended, and says of the others why there is no result.
func TestWaitAll(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		release := make(chan string)
		sys.agent("web01", waiter(release))
		var ids []string
		for range 5 {
			job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "wait", nil))
			ids = append(ids, job.ID())
		}
		gone := harp.NewID()
		asked := append([]string{gone, "no id", ids[0]}, ids...)
		left := map[string]bool{gone: true, "no id": true}
		for _, id := range ids {
			left[id] = true
		}
		values := 0
		for job, res := range sys.caller.WaitAll(t.Context(), asked) {
			if !left[job.ID()] {
				t.Fatalf("%s comes twice", job.ID())
			}
			delete(left, job.ID())
			switch {
			case job.ID() == gone && errors.Is(res.Err, harp.ErrNotFound) && !res.Done():
			case job.ID() == "no id" && errors.Is(res.Err, harp.ErrInvalid) && !res.Done():
			case res.State == harp.StateSucceeded && res.Value.String() == `"done"` && res.Procedure == "wait" && !res.EndTime.IsZero():
				values++
			default:
				t.Errorf("%s: %+v", job.ID(), res)
			}
			if len(left) <= len(ids) && len(left) > 0 {
				release <- "done" // the next
			}
		}
		if len(left) > 0 || values != len(ids) {
			t.Errorf("left are %v", left)
		}
	})
}

// Where the wait is given up, each job that is left says so; none is cancelled.
func TestWaitAllIsGivenUp(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		sys.agent("web01", waiter(nil))
		var ids []string
		for range 2 {
			job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "wait", nil))
			ids = append(ids, job.ID())
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		n := 0
		for job, res := range sys.caller.WaitAll(ctx, ids) {
			if n++; res.Done() || !errors.Is(res.Err, context.Canceled) {
				t.Errorf("%s: %+v", job.ID(), res)
			}
		}
		if n != len(ids) {
			t.Errorf("%d are told", n)
		}
		if s := must[harp.JobStatus](t)(sys.caller.Job(ids[0]).Status(t.Context())); s.State.Ended() {
			t.Errorf("the job is %s", s.State)
		}
	})
}

// An embedded service acts for its users: their jobs name them, and their keys are their own.
func TestCallerAs(t *testing.T) {
	sys := newSystem(t, embedded, nil, dispatcher.Config{})
	sys.agent("web01", greeter)
	ana, bob := harp.Principal{Kind: "user", Name: "ana"}, harp.Principal{Kind: "user", Name: "bob"}
	call := func(who harp.Principal) *harp.Job {
		return must[*harp.Job](t)(sys.d.CallerAs(who).Host("web01").Call(t.Context(), "hello", harp.Args{"name": "Ada"}, harp.IdempotencyKey("k", time.Hour)))
	}
	first, again, other := call(ana), call(ana), call(bob)
	if first.ID() != again.ID() || !again.Existed() || other.ID() == first.ID() || other.Existed() {
		t.Errorf("the jobs are %s, %s and %s", first.ID(), again.ID(), other.ID())
	}
	if s := must[harp.JobStatus](t)(first.Status(t.Context())); s.Principal != (harp.Principal{Kind: "user", Name: "ana", Auth: "process"}) {
		t.Errorf("it is called by %+v", s.Principal)
	}
	for field, who := range map[string]harp.Principal{"principal.kind": {Name: "ana"}, "principal.name": {Kind: "user"}} {
		caller := sys.d.CallerAs(who)
		_, err := caller.Host("web01").Call(t.Context(), "hello", nil)
		isAbout(t, err, field)
		_, err = caller.Job(first.ID()).Result(t.Context())
		isAbout(t, err, field)
	}
}

// What a dispatcher is configured with stands before all that it answers, in its process and over
// the network, and is told who asks.
func TestInterceptors(t *testing.T) {
	for _, wiring := range []wiring{embedded, inMemory, loopback} {
		t.Run(string(wiring), func(t *testing.T) {
			var mu sync.Mutex // guards asked
			var asked []string
			note := func(ctx context.Context, what string) {
				who, ok := dispatcher.PrincipalFrom(ctx)
				if !ok || who.Kind == "" {
					t.Errorf("%s: asked by %+v", what, who)
				}
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, what)
			}
			outer := harp.Interceptor{
				Submit: func(next harp.SubmitFunc) harp.SubmitFunc {
					return func(ctx context.Context, calls []harp.Submission) ([]harp.Submitted, error) {
						note(ctx, "submit")
						if req, err := harp.DecodeRequest(calls[0].Request); err != nil || req.Procedure != "hello" {
							return nil, harp.ErrDenied
						}
						return next(ctx, calls)
					}
				},
				Results: func(next harp.ResultFunc) harp.ResultFunc {
					return func(ctx context.Context, ids []string, wait bool) ([]harp.JobResult, error) {
						note(ctx, "results")
						got, err := next(ctx, ids, wait)
						for i := range got {
							got[i].Result.Value = nil
						}
						return got, err
					}
				},
			}
			inner := harp.Interceptor{
				Submit: func(next harp.SubmitFunc) harp.SubmitFunc {
					return func(ctx context.Context, calls []harp.Submission) ([]harp.Submitted, error) {
						note(ctx, "inner")
						return next(ctx, calls)
					}
				},
				Records: func(harp.RecordsFunc) harp.RecordsFunc {
					return func(ctx context.Context, _ string, _ harp.RecordQuery) (harp.RecordPage, error) {
						note(ctx, "records")
						return harp.RecordPage{}, harp.ErrDenied
					}
				},
			}
			sys := newSystem(t, wiring, nil, dispatcher.Config{Use: []harp.Interceptor{outer, inner}})
			sys.agent("web01", greeter)
			host := sys.caller.Host("web01")
			if _, err := host.Call(t.Context(), "nope", nil); !errors.Is(err, harp.ErrDenied) {
				t.Errorf("refused: %v", err)
			}
			job := must[*harp.Job](t)(host.Call(t.Context(), "hello", harp.Args{"name": "Ada"}))
			if v := must[harp.Value](t)(job.Get(t.Context())); !v.IsNil() {
				t.Errorf("the result is %s", v)
			}
			for _, res := range sys.caller.WaitAll(t.Context(), []string{job.ID(), job.ID()}) {
				if res.State != harp.StateSucceeded || !res.Value.IsNil() {
					t.Errorf("the result is %+v", res)
				}
			}
			for _, err := range job.Stream(t.Context()) {
				if !errors.Is(err, harp.ErrDenied) {
					t.Errorf("records: %v", err)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if want := []string{"submit", "submit", "inner", "results", "results", "records"}; !slices.Equal(asked, want) {
				t.Errorf("asked was %q, want %q", asked, want)
			}
		})
	}
}

// What a batch's members returned passes interceptors, too, which are told whose request it is.
func TestInterceptorsOfBatches(t *testing.T) {
	for _, wiring := range []wiring{embedded, inMemory, loopback} {
		t.Run(string(wiring), func(t *testing.T) {
			t.Parallel()
			var denies atomic.Bool
			sys := newSystem(t, wiring, nil, dispatcher.Config{Use: []harp.Interceptor{{
				BatchLog: func(next harp.BatchLogFunc) harp.BatchLogFunc {
					return func(ctx context.Context, id string, q harp.BatchQuery) (harp.BatchPage, error) {
						if who, ok := dispatcher.PrincipalFrom(ctx); !ok || who.Kind == "" {
							t.Errorf("asked by %+v", who)
						}
						if denies.Load() {
							return harp.BatchPage{}, harp.ErrDenied
						}
						page, err := next(ctx, id, q)
						for _, e := range page.Entries {
							if e.End != nil {
								e.End.Value = nil
							}
						}
						return page, err
					}
				},
			}}})
			sys.webs(2)
			b := must[*harp.Batch](t)(hostName.Run(t.Context(), sys.caller.Target("web*"), struct{}{}))
			for _, r := range allOf(t, b.Results(t.Context())) {
				if r.State != harp.StateSucceeded || !r.Value.IsNil() {
					t.Errorf("the result is %+v", r)
				}
			}
			denies.Store(true)
			for _, err := range b.Follow(t.Context(), harp.Since(0)) {
				if !errors.Is(err, harp.ErrDenied) {
					t.Errorf("the records: %v", err)
				}
			}
		})
	}
}
