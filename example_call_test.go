package harp_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/harpcaller/harp"
)

// A call answers at once with a job; its result is asked for by the job's id.
func ExampleHost_Call() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()

	job, err := caller.Host("web01").Call(ctx, "greet", harp.Args{"name": "Ada"}, harp.MaxExecTime(time.Minute))
	if err != nil {
		fmt.Println(err)
		return
	}
	id := job.ID() // to store, and to use in any process

	value, err := caller.Job(id).Get(ctx)
	fmt.Println(value, err)
	// Output: {"text":"hello Ada"} <nil>
}

// Arguments that do not fit are refused before anything is stored or run.
func ExampleHost_Call_invalid() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()

	_, err := caller.Host("web01").Call(ctx, "greet", harp.Args{"name": 7})
	var field *harp.FieldError
	fmt.Println(errors.As(err, &field), harp.RanOf(err), harp.FaultOf(err))

	_, err = caller.Host("web02").Call(ctx, "greet", harp.Args{"name": "Ada"})
	fmt.Println(errors.Is(err, harp.ErrNotFound))
	// Output:
	// true no caller
	// true
}

// Positional arguments are given to the parameters in their order.
func ExamplePos() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()

	job, err := caller.Host("web01").Call(ctx, "greet", harp.Pos("Grace"))
	must(err)
	fmt.Println(job.Get(ctx))
	// Output: {"text":"hello Grace"} <nil>
}

// A procedure is declared once, with its types, for those who offer and those who
// call it.
func ExampleNewProc() {
	type args struct {
		Name string `json:"name"`
	}
	type result struct {
		Text string `json:"text"`
	}
	greet := harp.NewProc[args, result]("greet", "Greet somebody")

	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	job, err := greet.Call(ctx, caller.Host("web01"), args{"Ada"})
	must(err)
	got, err := greet.Get(ctx, job)
	fmt.Println(got.Text, err)
	// Output: hello Ada <nil>
}

// Options stack: those of the Caller, of the Host, of the call; the last one wins.
func ExampleCaller_With() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()

	deploys := caller.With(harp.Label("team", "web"), harp.MaxExecTime(time.Hour))
	job, err := deploys.Host("web01").Call(ctx, "greet", harp.Args{"name": "Ada"}, harp.MaxExecTime(time.Minute))
	must(err)
	_, err = job.Wait(ctx)
	must(err)
	status, err := job.Status(ctx)
	must(err)
	fmt.Println(status.Labels["team"], status.MaxExecTime)
	// Output: web 1m0s
}

// Options that come from a file or a form.
func ExampleOptions() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()

	given := harp.CallOptions{Priority: 10, Queue: map[string]string{"host": "web01"}, Labels: map[string]string{"ticket": "812"}}
	job, err := caller.Host("web01").Call(ctx, "greet", harp.Args{"name": "Ada"}, harp.Options(given))
	must(err)
	status, err := job.Status(ctx)
	must(err)
	fmt.Println(status.Queue, status.Labels["ticket"])
	// Output: {"host":"web01"} 812
}

// With an id of your own choice you can save it first, and call again after a crash:
// the same id with the same request is the same job.
func ExampleJobID() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	web01 := caller.Host("web01")

	id := harp.NewID() // save it, with what it is for, before the call
	_, err := web01.Call(ctx, "greet", harp.Args{"name": "Ada"}, harp.JobID(id))
	must(err)
	again, err := web01.Call(ctx, "greet", harp.Args{"name": "Ada"}, harp.JobID(id))
	fmt.Println(again.ID() == id, err)

	_, err = web01.Call(ctx, "greet", harp.Args{"name": "Grace"}, harp.JobID(id))
	fmt.Println(errors.Is(err, harp.ErrConflict))
	// Output:
	// true <nil>
	// true
}

// Twice within ten minutes is once.
func ExampleIdempotencyKey() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()

	var ids []string
	for range 2 {
		job, err := caller.Host("web01").Call(ctx, "greet", harp.Args{"name": "Ada"}, harp.IdempotencyKey("ticket-812", 10*time.Minute))
		must(err)
		ids = append(ids, job.ID())
	}
	fmt.Println(ids[0] == ids[1])
	// Output: true
}

// A queue is named by any dictionary. Its first call says how many of its jobs may run
// at a time.
func ExampleQueue() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	web01 := caller.Host("web01", harp.Queue(map[string]string{"db": "main"}), harp.Concurrency(1))

	first, err := web01.Call(ctx, "hang", nil)
	must(err)
	next, err := web01.Call(ctx, "greet", harp.Args{"name": "Ada"}, harp.Priority(10))
	must(err)
	status, err := next.Status(ctx)
	must(err)
	fmt.Println(status.State, status.Reason, status.QueuePos)

	_, err = first.Cancel(ctx)
	must(err)
	fmt.Println(next.Get(ctx))
	// Output:
	// queued queue 1
	// {"text":"hello Ada"} <nil>
}

// A limit stops the procedure, and says which one it was.
func ExampleMaxExecTime() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()

	job, err := caller.Host("web01").Call(ctx, "hang", nil, harp.MaxExecTime(20*time.Millisecond))
	must(err)
	_, err = job.Get(ctx)
	var limit *harp.TimeoutError
	if errors.As(err, &limit) {
		fmt.Println(limit.Of, limit.Limit, harp.RanOf(err))
	}
	// Output: max_exec_time 20ms yes
}

// SilenceTimeout bounds the silence between two records, not the run.
func ExampleSilenceTimeout() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()

	job, err := caller.Host("web01").Call(ctx, "hang", nil, harp.SilenceTimeout(20*time.Millisecond))
	must(err)
	_, err = job.Get(ctx)
	fmt.Println(errors.Is(err, harp.ErrTimeout))
	// Output: true
}

// A call for later waits in the dispatcher.
func ExampleStartAfter() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()

	tonight := time.Now().Add(6 * time.Hour)
	job, err := caller.Host("web01").Call(ctx, "greet", harp.Args{"name": "Ada"}, harp.StartAfter(tonight))
	must(err)
	status, err := job.Status(ctx)
	must(err)
	fmt.Println(status.State, status.Reason)
	// Output: queued start_after
}

// What has not started by then never will.
func ExampleStartBefore() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()

	job, err := caller.Host("db01").Call(ctx, "greet", harp.Args{"name": "Ada"},
		harp.StartBefore(time.Now().Add(20*time.Millisecond)))
	must(err)
	_, err = job.Get(ctx)
	fmt.Println(errors.Is(err, harp.ErrExpired), harp.RanOf(err))
	// Output: true no
}

// A host that is away holds a call for 30 seconds, as long as OfflineWait says, or
// not at all.
func ExampleWhenOffline() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()

	_, err := caller.Host("db01").Call(ctx, "greet", harp.Args{"name": "Ada"}, harp.WhenOffline(harp.FailFast))
	fmt.Println(errors.Is(err, harp.ErrUnreachable), harp.RanOf(err))

	job, err := caller.Host("db01").Call(ctx, "greet", harp.Args{"name": "Ada"}, harp.OfflineWait(10*time.Millisecond))
	must(err)
	_, err = job.Get(ctx)
	fmt.Println(errors.Is(err, harp.ErrExpired), harp.RanOf(err))
	// Output:
	// true no
	// true no
}

// A procedure that fails is tried again, because the call says that it may be.
func ExampleRetry() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()

	job, err := caller.Host("web01").Call(ctx, "disk.check", nil,
		harp.Retry(harp.RetryPolicy{On: []harp.State{harp.StateFailed}, Attempts: 3, Backoff: time.Millisecond}))
	must(err)
	_, err = job.Wait(ctx)
	must(err)
	status, err := job.Status(ctx)
	must(err)
	fmt.Println(status.State, "after", status.Attempt, "attempts")
	// Output: failed after 3 attempts
}

// What belongs to the call travels with it: Info unread, labels to search by.
func ExampleInfo() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()

	job, err := caller.Host("web01").Call(ctx, "greet", harp.Args{"name": "Ada"},
		harp.Info(map[string]int{"ticket": 812}), harp.Label("team", "web"))
	must(err)
	status, err := job.Status(ctx)
	must(err)
	fmt.Println(status.Info, status.Labels)
	// Output: {"ticket":812} map[team:web]
}

// The first call of a queue says how many of its jobs may run at a time.
func ExampleConcurrency() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	web01 := caller.Host("web01", harp.Queue(map[string]string{"db": "main"}), harp.Concurrency(2))

	for range 3 {
		_, err := web01.Call(ctx, "hang", nil)
		must(err)
	}
	queue, err := caller.Queues().Get(ctx, map[string]string{"db": "main"})
	must(err)
	fmt.Println(queue.Running, "run,", queue.Waiting, "waits")
	// Output: 2 run, 1 waits
}

// Of those that wait in a queue the one with the highest priority is next.
func ExamplePriority() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	web01 := caller.Host("web01", harp.Queue(map[string]string{"db": "main"}))

	_, err := web01.Call(ctx, "hang", nil)
	must(err)
	ordinary, err := web01.Call(ctx, "greet", harp.Args{"name": "Ada"})
	must(err)
	urgent, err := web01.Call(ctx, "greet", harp.Args{"name": "Grace"}, harp.Priority(50))
	must(err)
	for _, job := range []*harp.Job{urgent, ordinary} {
		status, err := job.Status(ctx)
		must(err)
		fmt.Println(status.QueuePos)
	}
	// Output:
	// 1
	// 2
}

// Labels are what jobs are found by.
func ExampleLabel() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	for _, team := range []string{"web", "db"} {
		_, err := caller.Host("web01").Call(ctx, "greet", harp.Args{"name": team}, harp.Label("team", team))
		must(err)
	}
	for status, err := range caller.Jobs(ctx, harp.JobFilter{Labels: map[string]string{"team": "db"}}) {
		must(err)
		fmt.Println(status.Args)
	}
	// Output: {"name":"db"}
}

// What would be done, by a procedure that can say it; any other refuses, and does
// nothing.
func ExampleDryRun() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()

	job, err := caller.Host("web01").Call(ctx, "tmp.clean", nil, harp.DryRun())
	must(err)
	fmt.Println(job.Get(ctx))

	job, err = caller.Host("web01").Call(ctx, "greet", harp.Args{"name": "Ada"}, harp.DryRun())
	if err == nil {
		_, err = job.Get(ctx)
	}
	fmt.Println(harp.RanOf(err))
	// Output:
	// "would delete 3 files" <nil>
	// no
}
