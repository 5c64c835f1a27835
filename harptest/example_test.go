package harptest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/harptest"
)

// Package is what to upgrade.
type Package struct {
	Name string `json:"name"`
}

// Upgrade is a procedure, and rollOut is what is to be tested: it upgrades a host and
// says what somebody has to know.
var Upgrade = harp.NewProc[Package, string]("package.upgrade", "Upgrade a package")

func rollOut(ctx context.Context, c *harp.Caller, host string) string {
	job, err := Upgrade.Call(ctx, c.Host(host), Package{"nginx"})
	if err != nil {
		return "not called: " + err.Error()
	}
	text, err := harp.Get[string](ctx, job)
	switch {
	case errors.Is(err, harp.ErrLost):
		return "nobody knows how far it came: look at the host"
	case err != nil:
		return "failed: " + err.Error()
	}
	return text
}

// Testing your own code. A test calls New with its t, and its faults come while the
// procedure runs. In a bubble of testing/synctest hours would pass at once.
func Example() {
	faults := []struct {
		name string
		make func(*harptest.System)
	}{
		{"reset", func(sys *harptest.System) { sys.Reset("web01") }},
		{"restart", func(sys *harptest.System) { sys.RestartDispatcher() }},
		{"crash", func(sys *harptest.System) { sys.CrashAgent("web01"); sys.StartAgent("web01") }},
	}
	for _, fault := range faults {
		inTest(func(t testing.TB) { // func Test...(t *testing.T)
			begun, goOn := make(chan struct{}), make(chan struct{})
			var seen harptest.Witness
			upgrade := func(ctx context.Context, p Package) (string, error) {
				close(begun)
				select {
				case <-goOn:
					return p.Name + " is new", nil
				case <-ctx.Done():
					return "", context.Cause(ctx)
				}
			}
			sys := harptest.New(t, harptest.Options{
				Agents:   []string{"web01"},
				Register: func(a *agent.Agent) { agent.Handle(a, Upgrade, harptest.Watch(&seen, upgrade)) },
			})
			go func() {
				<-begun
				fault.make(sys)
				close(goOn)
			}()
			said := rollOut(t.Context(), sys.Caller(), "web01")
			fmt.Printf("%s: %s (ran %d time)\n", fault.name, said, len(seen.Executions()))
		})
	}

	// Output:
	// reset: nginx is new (ran 1 time)
	// restart: nginx is new (ran 1 time)
	// crash: nobody knows how far it came: look at the host (ran 1 time)
}
