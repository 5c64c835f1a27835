package harptest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/harptest"
)

// A host that nothing is heard of: its job is unknown, and what became of it is known
// when it can be heard again.
func ExampleSystem_Cut() {
	inTest(func(t testing.TB) { // func Test...(t *testing.T)
		ctx := t.Context()
		begun, goOn := make(chan struct{}), make(chan struct{})
		sys := harptest.New(t, harptest.Options{
			Agents:     []string{"web01"},
			Dispatcher: dispatcher.Config{Heartbeat: 100 * time.Millisecond}, // silence is three of them
			Register: func(a *agent.Agent) {
				agent.Handle(a, Upgrade, func(context.Context, Package) (string, error) {
					close(begun)
					<-goOn
					return "done", nil
				})
			},
		})
		caller := sys.Caller()
		job, err := Upgrade.Call(ctx, caller.Host("web01"), Package{"nginx"})
		if err != nil {
			t.Fatal(err)
		}
		<-begun
		sys.Cut("web01")
		for event, err := range caller.Events(ctx, harp.EventFilter{After: harp.EventsFromStart, Job: job.ID()}) {
			if err != nil {
				t.Fatal(err)
			}
			if event.Type == harp.EventJobUnknown {
				break
			}
		}
		fmt.Println("the host is silent, and the job is unknown")
		close(goOn)
		sys.Heal("web01")
		fmt.Println(job.Get(ctx))
	})
	// Output:
	// the host is silent, and the job is unknown
	// "done" <nil>
}

// A Witness tells what was really executed, whatever harp says.
func ExampleWatch() {
	inTest(func(t testing.TB) {
		var seen harptest.Witness
		upgrade := func(context.Context, Package) (string, error) { return "", errors.New("no such package") }
		sys := harptest.New(t, harptest.Options{
			Agents:   []string{"web01"},
			Register: func(a *agent.Agent) { agent.Handle(a, Upgrade, harptest.Watch(&seen, upgrade)) },
		})
		fmt.Println(rollOut(t.Context(), sys.Caller(), "web01") != "")
		for _, x := range seen.Executions() {
			fmt.Println(x.Procedure, "on", x.Host, "attempt", x.Attempt, "ended with:", x.Err)
		}
	})
	// Output:
	// true
	// package.upgrade on web01 attempt 1 ended with: no such package
}

// Options change the configuration of what the system is made of.
func ExampleNew() {
	inTest(func(t testing.TB) {
		sys := harptest.New(t, harptest.Options{
			Agents: []string{"web01", "web02"},
			Agent:  func(c *agent.Config) { c.Labels = map[string]string{"role": "web"} },
			Register: func(a *agent.Agent) {
				agent.Handle(a, Upgrade, func(ctx context.Context, _ Package) (string, error) {
					<-ctx.Done()
					return "", context.Cause(ctx)
				})
			},
		})
		job, err := Upgrade.Call(t.Context(), sys.Caller().Host("web02"), Package{"nginx"}, harp.MaxExecTime(10*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		_, err = job.Get(t.Context())
		fmt.Println(errors.Is(err, harp.ErrTimeout))
	})
	// Output: true
}
