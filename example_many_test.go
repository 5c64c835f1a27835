package harp_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store/memory"
)

// Many calls, on many hosts, are one exchange and one commit.
func ExampleCaller_Submit() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	var calls []harp.Call
	for _, name := range []string{"Ada", "Bob", "Cyd"} {
		calls = append(calls, harp.Call{Host: "web01", Procedure: "greet", Args: harp.Args{"name": name}})
	}
	jobs, err := caller.Submit(ctx, calls...)
	must(err)
	for _, job := range jobs {
		_, err := job.Get(ctx)
		must(err)
	}
	fmt.Println(len(jobs))

	jobs, err = caller.Submit(ctx, calls[0], harp.Call{Host: "nowhere", Procedure: "greet"})
	fmt.Println(jobs[0] != nil, jobs[1] != nil, errors.Is(err, harp.ErrNotFound))
	// Output:
	// 3
	// true false true
}

// Results come as jobs end; one request waits for all of them.
func ExampleCaller_WaitAll() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	jobs, err := caller.Submit(ctx, greet.For("web01", greetArgs{Name: "Ada"}), greet.For("web01", greetArgs{Name: "Bob"}))
	must(err)
	var ids []string
	for _, job := range jobs {
		ids = append(ids, job.ID())
	}
	for job, result := range caller.WaitAll(ctx, ids) {
		fmt.Println(job.ID() != "", result.State, result.Err)
	}
	// Output:
	// true succeeded <nil>
	// true succeeded <nil>
}

// The whole of how a job ended, in types and in one read.
func ExampleProc_Wait() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	job, err := greet.Call(ctx, caller.Host("web01"), greetArgs{Name: "Ada"})
	must(err)
	outcome, err := greet.Wait(ctx, job)
	must(err)
	fmt.Println(outcome.State, outcome.Value.Text, outcome.Err, outcome.EndTime.Before(outcome.SubmitTime))
	// Output: succeeded hello Ada <nil> false
}

func ExampleJob_Existed() {
	caller, stop := fleet()
	defer stop()
	for range 2 { // as when the answer to the first was lost
		job, err := greet.Call(context.Background(), caller.Host("web01"), greetArgs{Name: "Ada"}, harp.IdempotencyKey("release-7", time.Hour))
		must(err)
		fmt.Println(job.Existed())
	}
	// Output:
	// false
	// true
}

// An interceptor looks at what is called, for whom, and may refuse it.
func ExampleInterceptor() {
	ctx := context.Background()
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	d, err := dispatcher.Open(ctx, memory.Open(nil), dispatcher.Config{
		Logger: quiet, Hosts: dispatcher.StaticHosts{{Name: "web01"}},
		Use: []harp.Interceptor{{Submit: func(next harp.SubmitFunc) harp.SubmitFunc {
			return func(ctx context.Context, calls []harp.Submission) ([]harp.Submitted, error) {
				who, _ := dispatcher.PrincipalFrom(ctx)
				for _, call := range calls {
					req, err := harp.DecodeRequest(call.Request)
					if err != nil {
						return nil, err
					}
					log.Info("call", "who", who.Name, "procedure", req.Procedure)
					if req.Procedure == "disk.wipe" && who.Name != "ana" {
						return nil, fmt.Errorf("%w: %s may not", harp.ErrDenied, who.Name)
					}
				}
				return next(ctx, calls)
			}
		}}},
	})
	must(err)
	for _, user := range []string{"ana", "bob"} {
		_, err := d.CallerAs(harp.Principal{Kind: "user", Name: user}).Host("web01").Call(ctx, "disk.wipe", nil)
		fmt.Println(errors.Is(err, harp.ErrDenied))
	}
	must(d.Shutdown(ctx))
	// Output:
	// level=INFO msg=call who=ana procedure=disk.wipe
	// false
	// level=INFO msg=call who=bob procedure=disk.wipe
	// true
}

// A job is part of the trace that its call was made in: its procedure finds it in
// agent.CallInfo.
func ExampleTraceParent() {
	caller, stop := fleet()
	defer stop()
	_, err := caller.Host("web01").Call(context.Background(), "greet", harp.Args{"name": "Ada"},
		harp.TraceParent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"))
	fmt.Println(err)
	// Output: <nil>
}
