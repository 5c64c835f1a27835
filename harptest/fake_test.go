package harptest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/harptest"
)

type restartArgs struct {
	Service string `json:"service"`
}

var restart = harp.NewProc[restartArgs, int]("service.restart", "Restart a service")

// A unit test of what makes calls needs no host: the test itself answers.
func ExampleFake() {
	fake := harptest.NewFake()
	harptest.Answer(fake, restart, func(host string, args restartArgs) (int, error) {
		if args.Service != "nginx" {
			return 0, &harp.RemoteError{Type: "unit_not_found", Message: "no unit " + args.Service}
		}
		return 911, nil
	})
	ctx, web01 := context.Background(), fake.Caller().Host("web01")
	job, _ := restart.Call(ctx, web01, restartArgs{"nginx"})
	fmt.Println(restart.Get(ctx, job))
	job, _ = restart.Call(ctx, web01, restartArgs{"apache"})
	_, err := restart.Get(ctx, job)
	fmt.Println(errors.Is(err, harp.RemoteType("unit_not_found")))
	fake.Refuse(harp.ErrUnavailable)
	_, err = restart.Call(ctx, web01, restartArgs{"nginx"})
	fmt.Println(errors.Is(err, harp.ErrUnavailable))
	// Output:
	// 911 <nil>
	// true
	// true
}

// A Fake keeps to the rules of ids and keys, and its jobs end as the test says.
func TestFake(t *testing.T) {
	fake := harptest.NewFake()
	caller := fake.Caller()
	defer caller.Close()
	host, ctx := caller.Host("web01"), t.Context()
	if _, err := restart.Call(ctx, host, restartArgs{"nginx"}); !errors.Is(err, harp.ErrNotFound) {
		t.Errorf("what nobody answers: %v", err)
	}
	var failure error
	harptest.Answer(fake, restart, func(string, restartArgs) (int, error) { return 1, failure })
	key := harp.IdempotencyKey("k", time.Hour)
	first, err := restart.Call(ctx, host, restartArgs{"nginx"}, key)
	if err != nil {
		t.Fatal(err)
	}
	again, err := restart.Call(ctx, host, restartArgs{"nginx"}, key)
	if err != nil || again.ID() != first.ID() || !again.Existed() {
		t.Errorf("again: %v, %v", again, err)
	}
	if _, err := restart.Call(ctx, host, restartArgs{"redis"}, key); !errors.Is(err, harp.ErrConflict) || harp.FailureOf(err).Type != harp.ConflictOfKey {
		t.Errorf("another with the key: %v", err)
	}
	for state, is := range map[harp.State]error{
		harp.StateLost: harp.ErrLost, harp.StateTimedOut: harp.ErrTimeout, harp.StateCancelled: harp.ErrCancelled,
		harp.StateExpired: harp.ErrExpired, harp.StateRejected: harp.ErrRejected,
	} {
		failure = is
		job, err := restart.Call(ctx, host, restartArgs{"nginx"})
		if err != nil {
			t.Fatal(err)
		}
		if s := harptest.RequireState(t, job, state); !errors.Is(s.Err, is) {
			t.Errorf("%s: %v", state, s.Err)
		}
	}
	harptest.RequireCalled(t, fake, restart, func(a restartArgs) bool { return a.Service == "nginx" })
	if live, err := first.Cancel(ctx); live || err != nil {
		t.Errorf("cancel: %v, %v", live, err)
	}
	if _, err := caller.Hosts().Get(ctx, "web01"); !errors.Is(err, harp.ErrRefused) {
		t.Errorf("hosts: %v", err)
	}
}

// failing is a test that only notes that it has failed.
type failing struct {
	testing.TB
	failed bool
}

type stopped struct{}

func (f *failing) Helper() {}

func (f *failing) Fatal(...any) { f.Fatalf("") }

func (f *failing) Fatalf(string, ...any) {
	f.failed = true
	panic(stopped{})
}

// fails reports whether a function fails its test.
func fails(t *testing.T, f func(t testing.TB)) bool {
	t.Helper()
	inner := &failing{TB: t}
	func() {
		defer func() {
			if p := recover(); p != nil && p != (stopped{}) {
				panic(p)
			}
		}()
		f(inner)
	}()
	return inner.failed
}

// What a Fake returns is the test's own: a change of it changes no job.
func TestFakeSharesNothing(t *testing.T) {
	fake := harptest.NewFake()
	harptest.Answer(fake, restart, func(string, restartArgs) (int, error) { return 911, nil })
	caller, ctx := fake.Caller(), t.Context()
	defer caller.Close()
	job, err := restart.Call(ctx, caller.Host("web01"), restartArgs{"nginx"}, harp.Label("team", "web"))
	if err != nil {
		t.Fatal(err)
	}
	first, err := job.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	first.Labels["team"], first.Args[0] = "db", 0xc1
	again, err := job.Status(ctx)
	if err != nil || again.Labels["team"] != "web" || again.Args.String() != `{"service":"nginx"}` {
		t.Errorf("then it has labels %v and arguments %v, %v", again.Labels, again.Args, err)
	}
	listed := func(f harp.JobFilter) (n int, err error) {
		for _, err := range caller.Jobs(ctx, f) {
			if err != nil {
				return n, err
			}
			n++
		}
		return n, nil
	}
	for team, want := range map[string]int{"web": 1, "db": 0} {
		if n, err := listed(harp.JobFilter{Labels: map[string]string{"team": team}}); n != want || err != nil {
			t.Errorf("of team %s there are %d jobs, %v", team, n, err)
		}
	}
	if _, err := listed(harp.JobFilter{By: "ada"}); !errors.Is(err, harp.ErrRefused) {
		t.Errorf("a filter that a Fake does not have: %v", err)
	}
}

// What is required and is not so fails the test.
func TestRequirements(t *testing.T) {
	soon := func(c *agent.Config) { c.Limits.Grace = 10 * time.Millisecond }
	sys := harptest.New(t, harptest.Options{Agents: []string{"web01"}, Agent: soon, Register: func(a *agent.Agent) {
		agent.Handle(a, restart, func(ctx context.Context, in restartArgs) (int, error) {
			if in.Service == "hang" {
				<-ctx.Done()
				return 0, ctx.Err()
			}
			return 1, nil
		})
	}})
	job, err := restart.Call(t.Context(), sys.Caller().Host("web01"), restartArgs{"nginx"})
	if err != nil {
		t.Fatal(err)
	}
	if s := harptest.RequireState(t, job, harp.StateSucceeded); s.ID != job.ID() {
		t.Errorf("the status is that of %s", s.ID)
	}
	if s := harptest.RequireCalled(t, sys, restart, nil); s.ID != job.ID() {
		t.Errorf("called was %s", s.ID)
	}
	if !fails(t, func(t testing.TB) { harptest.RequireState(t, job, harp.StateFailed) }) {
		t.Error("a job that succeeded is not failed")
	}
	if !fails(t, func(t testing.TB) {
		harptest.RequireCalled(t, sys, restart, func(a restartArgs) bool { return a.Service == "redis" })
	}) {
		t.Error("it was not called so")
	}
	hanging, err := restart.Call(t.Context(), sys.Caller().Host("web01"), restartArgs{"hang"})
	if err != nil {
		t.Fatal(err)
	}
	harptest.RequireState(t, hanging, harp.StateRunning)
	// It is running when the test is over: its agent is stopped in order.
}
