package harp_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/harpcaller/harp"
)

// begun calls hang and waits until it runs.
func begun(ctx context.Context, caller *harp.Caller) *harp.Job {
	job, err := caller.Host("web01").Call(ctx, "hang", nil)
	must(err)
	for event, err := range caller.Events(ctx, harp.EventFilter{After: harp.EventsFromStart, Job: job.ID()}) {
		must(err)
		if event.Type == harp.EventJobRunning {
			break
		}
	}
	return job
}

// What a stored id is good for: any process, any time later.
func ExampleCaller_Job() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	job, err := greet.Call(ctx, caller.Host("web01"), greetArgs{"Ada"})
	must(err)
	stored := job.ID()

	value, err := caller.Job(stored).Get(ctx)
	fmt.Println(value, err)

	_, err = caller.Job(harp.NewID()).Status(ctx)
	fmt.Println(errors.Is(err, harp.ErrNotFound))
	// Output:
	// {"text":"hello Ada"} <nil>
	// true
}

// Get waits, and returns a failure of the job as an error. What it is says what to do.
func ExampleJob_Get() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	job, err := caller.Host("web01").Call(ctx, "disk.check", nil)
	must(err)

	value, err := job.Get(ctx)
	var failed *harp.RemoteError
	switch {
	case err == nil:
		fmt.Println(value)
	case errors.As(err, &failed): // the procedure ran and said no
		fmt.Println(failed.Type, failed.Data)
	case harp.RanOf(err) == harp.DidNotRun: // safe to call again
		fmt.Println("again")
	case errors.Is(err, harp.ErrLost): // the outcome cannot be known: a person decides
		fmt.Println("look at the host")
	}
	// Output: disk_full {"free":0}
}

// Result does not wait, and how the job ended is data.
func ExampleJob_Result() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	job := begun(ctx, caller)

	result, err := job.Result(ctx)
	fmt.Println(result.Done(), err)
	_, err = job.Cancel(ctx)
	must(err)
	result, err = job.Wait(ctx)
	fmt.Println(result.Done(), result.State, err)
	// Output:
	// false <nil>
	// true cancelled <nil>
}

// Wait is Get for those who want to know how it ended, whatever it was.
func ExampleJob_Wait() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	job, err := caller.Host("web01").Call(ctx, "disk.check", nil)
	must(err)

	result, err := job.Wait(ctx)
	must(err)
	fmt.Println(result.State, harp.RanOf(result.Err))
	// Output: failed yes
}

// A context that ends ends the wait; the job goes on.
func ExampleJob_Wait_context() {
	caller, stop := fleet()
	defer stop()
	job := begun(context.Background(), caller)

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := job.Wait(ctx)
	fmt.Println(errors.Is(err, context.Canceled))
	status, err := job.Status(context.Background())
	must(err)
	fmt.Println(status.State)
	// Output:
	// true
	// running
}

// Cancel asks the job to stop; it has ended when nothing of it runs any more.
func ExampleJob_Cancel() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	job := begun(ctx, caller)

	live, err := job.Cancel(ctx)
	fmt.Println(live, err)
	_, err = job.Get(ctx)
	fmt.Println(errors.Is(err, harp.ErrCancelled), harp.RanOf(err))
	live, err = job.Cancel(ctx)
	fmt.Println(live, err)
	// Output:
	// true <nil>
	// true yes
	// false <nil>
}

// Status is all that is known of a job, as a plain struct, in one round trip.
func ExampleJob_Status() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	job, err := count.Call(ctx, caller.Host("web01"), countArgs{To: 3})
	must(err)
	_, err = job.Wait(ctx)
	must(err)

	status, err := job.Status(ctx)
	must(err)
	fmt.Println(status.Procedure, "on", status.Host, status.Args)
	fmt.Println(status.State, status.Records, "records, attempt", status.Attempt)
	fmt.Println(status.Principal.Kind)
	// Output:
	// count on web01 {"to":3}
	// succeeded 3 records, attempt 1
	// process
}

// Retry makes the call of a job that has ended again, as a new job.
func ExampleJob_Retry() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	job := begun(ctx, caller)
	_, err := job.Retry(ctx)
	fmt.Println(errors.Is(err, harp.ErrConflict)) // it runs

	_, err = job.Cancel(ctx)
	must(err)
	_, err = job.Wait(ctx)
	must(err)
	again, err := job.Retry(ctx)
	must(err)
	status, err := again.Status(ctx)
	must(err)
	fmt.Println(status.RetryOf == job.ID())
	// Output:
	// true
	// true
}

// A job whose end will never be told is given up by somebody who knows better.
func ExampleJob_ForceLost() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	job := begun(ctx, caller)

	must(job.ForceLost(ctx, "the machine has burnt down"))
	_, err := job.Get(ctx)
	fmt.Println(errors.Is(err, harp.ErrLost), harp.RanOf(err))
	// Output: true maybe
}

// A typed Get, where there is no Proc at hand.
func ExampleGet() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	job, err := caller.Host("web01").Call(ctx, "greet", harp.Args{"name": "Ada"})
	must(err)

	got, err := harp.Get[struct {
		Text string `json:"text"`
	}](ctx, job)
	fmt.Println(got.Text, err)
	// Output: hello Ada <nil>
}

// Jobs are listed newest first; pages are fetched as the loop goes on.
func ExampleCaller_Jobs() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	for _, name := range []string{"Ada", "Grace", "Edsger"} {
		job, err := greet.Call(ctx, caller.Host("web01"), greetArgs{name}, harp.Label("team", "web"))
		must(err)
		_, err = job.Wait(ctx)
		must(err)
	}

	for status, err := range caller.Jobs(ctx, harp.JobFilter{Labels: map[string]string{"team": "web"}}) {
		must(err)
		fmt.Println(status.State, status.Args)
	}
	// Output:
	// succeeded {"name":"Edsger"}
	// succeeded {"name":"Grace"}
	// succeeded {"name":"Ada"}
}

// A page at a time, for a web page that has a button for more.
func ExampleCaller_JobsPage() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	for range 3 {
		_, err := greet.Call(ctx, caller.Host("web01"), greetArgs{"Ada"})
		must(err)
	}

	cursor, jobs := "", 0
	for {
		page, err := caller.JobsPage(ctx, harp.JobFilter{Host: "web01"}, cursor)
		must(err)
		jobs += len(page.Items)
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	fmt.Println(jobs, "jobs")
	// Output: 3 jobs
}
