package dispatcher_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/harpcaller/harp"
)

// endsOfSteps are how the steps of a batch on a host ended.
func endsOfSteps(t *testing.T, b *harp.Batch, host string, steps int) (ends []string) {
	t.Helper()
	for n := range steps {
		s := must[harp.JobStatus](t)(b.Job(host, n+1).Status(t.Context()))
		if s.Step != n+1 || s.Host != host || s.Batch != b.ID() {
			t.Errorf("step %d on %s is %+v", n+1, host, s)
		}
		end := string(s.State)
		if s.Reason != "" {
			end += "(" + s.Reason + ")"
		}
		ends = append(ends, end)
	}
	return ends
}

// A chain calls its steps on each host one after the other, by itself, and has one result for each host.
func TestChain(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		ctx := t.Context()
		sys.webs(3)
		failing := failArgs{Hosts: []string{"web02"}}
		id := harp.NewID()
		steps := []harp.Step{
			{Procedure: "fail.on", Args: failing, Options: []harp.Option{harp.MaxExecTime(harp.NoLimit - 1)}},
			{Procedure: "hello", Args: helloArgs{Name: "rollback"}, On: harp.OnFailed},
			{Procedure: "host.name"},
		}
		_, err := sys.caller.Target("web*").Chain(ctx, append(slices.Clone(steps), harp.Step{Procedure: "nothing.of.it"}), harp.JobID(id))
		if !errors.Is(err, harp.ErrNotFound) {
			t.Fatalf("a step that no host has gives %v", err)
		}
		_, err = sys.caller.Target("web*").Chain(ctx, append(slices.Clone(steps), harp.Step{Procedure: "hello", Args: harp.Args{"name": 7}}), harp.JobID(id))
		var field *harp.FieldError
		if !errors.As(err, &field) || field.Field != "steps[3].args.name" && field.Field != "steps[3].name" && field.Field != "steps[3].args" {
			t.Fatalf("arguments that do not fit give %v", err)
		}
		b := must[*harp.Batch](t)(sys.caller.Target("web*").Chain(ctx, steps, harp.JobID(id), harp.OnStop(harp.CancelBatch)))
		again := must[*harp.Batch](t)(sys.caller.Target("web*").Chain(ctx, steps, harp.JobID(id), harp.OnStop(harp.CancelBatch)))
		if !again.Existed() {
			t.Error("the same chain is another")
		}
		other := slices.Clone(steps)
		other[2].On = harp.OnEnded
		if _, err := sys.caller.Target("web*").Chain(ctx, other, harp.JobID(id)); !errors.Is(err, harp.ErrConflict) {
			t.Errorf("another chain under its id gives %v", err)
		}
		if _, err := b.Job("web01", 2).Wait(ctx); err != nil {
			t.Errorf("waiting for a step that is left out gives %v", err)
		}
		s := ended(t, b, harp.BatchFailed, "")
		if !slices.Equal(s.Steps, []string{"fail.on", "hello", "host.name"}) || s.Counts[harp.StateSucceeded] != 2 || s.Counts[harp.StateFailed] != 1 {
			t.Errorf("the status is %+v", s)
		}
		if got := endsOfSteps(t, b, "web01", 3); !slices.Equal(got, []string{"succeeded", "cancelled(chain)", "succeeded"}) {
			t.Errorf("the steps on web01 are %v", got)
		}
		if got := endsOfSteps(t, b, "web02", 3); !slices.Equal(got, []string{"failed", "succeeded", "succeeded"}) {
			t.Errorf("the steps on web02 are %v", got)
		}
		for _, r := range allOf(t, b.Results(ctx)) {
			want := 3
			if r.Host == "web02" {
				want = 1
			}
			if r.Step != want || r.Job != harp.MemberID(id, r.Host, want) || (r.Err != nil) != (want == 1) {
				t.Errorf("the result is %+v", r)
			}
		}
		args := must[harp.JobStatus](t)(b.Job("web02", 2).Status(ctx)).Args
		if args.String() != `{"name":"rollback"}` {
			t.Errorf("the arguments of the second step are %s", args)
		}
		var members []string
		for _, j := range allOf(t, sys.caller.Jobs(ctx, harp.JobFilter{Batch: id, States: []harp.State{harp.StateCancelled}})) {
			members = append(members, j.Host)
		}
		if !slices.Equal(members, []string{"web01", "web03"}) {
			t.Errorf("steps are left out on %v", members)
		}
		testChainAgain(t, b)
	})
}

// testChainAgain makes a chain again where it failed, and a step of it alone.
func testChainAgain(t *testing.T, b *harp.Batch) {
	ctx := t.Context()
	made := must[*harp.Batch](t)(b.Retry(ctx, nil))
	s := ended(t, made, harp.BatchFailed, "")
	if s.Hosts != 1 || len(s.Steps) != 3 || s.RetryOf != b.ID() {
		t.Errorf("again it is %+v", s)
	}
	if got := endsOfSteps(t, made, "web02", 3); !slices.Equal(got, []string{"failed", "succeeded", "succeeded"}) {
		t.Errorf("again the steps are %v", got)
	}
	job := must[*harp.Job](t)(b.Job("web03", 3).Retry(ctx))
	if got := must[string](t)(harp.Get[string](ctx, job)); got != "web03" {
		t.Errorf("the third step alone returned %q", got)
	}
}
