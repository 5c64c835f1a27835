package harp_test

import (
	"context"
	"fmt"

	"github.com/harpcaller/harp"
)

// A batch is one call on many hosts. It is stored as a whole, and any process that has its id reads
// how its members end, as they do.
func ExampleTarget_Call() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	batch, err := caller.Target("*").Call(ctx, "greet", harp.Args{"name": "Ada"}, harp.Parallel(1), harp.WhenOffline(harp.SkipHost))
	must(err)
	for r, err := range caller.Batch(batch.ID()).Results(ctx) {
		must(err)
		fmt.Println(r.Seq, r.Host, r.State, r.Value)
	}
	status, err := batch.Wait(ctx)
	must(err)
	fmt.Println(status.State, status.Counts, status.Skipped)
	// Output:
	// 0 db01 expired null
	// 1 web01 succeeded {"text":"hello Ada"}
	// succeeded map[succeeded:1] map[offline:1]
}

// A chain calls several procedures on each host, one after the other. Each host has one result: that of its first step
// that did not succeed, or else of the last.
func ExampleTarget_Chain() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	batch, err := caller.Target("web*").Chain(ctx, []harp.Step{
		{Procedure: "disk.check"},
		{Procedure: "greet", Args: harp.Args{"name": "the operator"}, On: harp.OnFailed},
		{Procedure: "greet", Args: harp.Args{"name": "nobody"}, On: harp.OnFailed},
	})
	must(err)
	for r, err := range batch.Results(ctx) {
		must(err)
		fmt.Println(r.Host, "in step", r.Step, r.State)
	}
	for step := range 3 {
		s, err := batch.Job("web01", step+1).Status(ctx)
		must(err)
		fmt.Println(s.Step, s.Procedure, s.State, "ran:", s.Started)
	}
	// Output:
	// web01 in step 1 failed
	// 1 disk.check failed ran: yes
	// 2 greet succeeded ran: yes
	// 3 greet cancelled ran: no
}

// Too many failures stop a batch. What failed is made again by another batch.
func ExampleBatch_Retry() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	batch, err := caller.Target("web*").Call(ctx, "disk.check", nil, harp.Rolling("1", "10%"), harp.StopAfter("5%"))
	must(err)
	status, err := batch.Wait(ctx)
	must(err)
	fmt.Println(status.State, status.Reason, status.Counts)

	again, err := batch.Retry(ctx, []string{"failed"})
	must(err)
	status, err = again.Wait(ctx)
	must(err)
	fmt.Println(status.Hosts, "host again,", status.RetryOf == batch.ID())
	// Output:
	// failed failures map[failed:1]
	// 1 host again, true
}

// Hosts that end alike are told of together.
func ExampleFold() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	hello := greetArgs{Name: "all"}
	batch, err := greet.Run(ctx, caller.Target("web01,db01"), hello, harp.WhenOffline(harp.SkipHost))
	must(err)
	folded, err := harp.Fold(batch.Results(ctx))
	must(err)
	for _, f := range folded {
		fmt.Println(f.Hosts, f.Result.State, f.Result.Err)
	}
	// Output:
	// [db01] expired unreachable: the host was away (offline)
	// [web01] succeeded <nil>
}

// Following a batch yields the records of all its members, and how they end.
func ExampleBatch_Follow() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	batch, err := caller.Target("web*").Call(ctx, "count", harp.Args{"to": 2})
	must(err)
	for r, err := range batch.Follow(ctx, harp.Since(0)) {
		must(err)
		if r.End != nil {
			fmt.Println(r.Host, r.End.State, r.End.Value)
			continue
		}
		fmt.Println(r.Host, r.Record.Value)
	}
	// Output:
	// web01 1
	// web01 2
	// web01 succeeded "done"
}
