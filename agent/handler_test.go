package agent_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/client"
)

// What stands around each procedure sees its call, what it returned and its panic.
func ExampleHandler() {
	authorise := func(next agent.Handler) agent.Handler {
		return func(ctx context.Context, args harp.Value) (any, error) {
			if info, _ := agent.FromContext(ctx); info.Procedure == "wipe" {
				return nil, agent.Errorf("forbidden", nil, "%s may not", info.Principal.Name)
			}
			return next(ctx, args)
		}
	}
	log := func(next agent.Handler) agent.Handler {
		return func(ctx context.Context, args harp.Value) (result any, err error) {
			info, _ := agent.FromContext(ctx)
			defer func() {
				if p := recover(); p != nil {
					err = fmt.Errorf("recovered: %v", p)
				}
				fmt.Println(info.Procedure, result, err)
			}()
			return next(ctx, args)
		}
	}
	exampleOf(agent.Config{Use: []func(agent.Handler) agent.Handler{log, authorise}}, func(a *agent.Agent) {
		shout := harp.NewProc[map[string]string, string]("shout")
		agent.Handle(a, shout, func(_ context.Context, in map[string]string) (string, error) { return strings.ToUpper(in["word"]), nil })
		agent.Handle(a, harp.NewProc[struct{}, string]("wipe"), func(context.Context, struct{}) (string, error) { return "wiped", nil })
		agent.Handle(a, harp.NewProc[struct{}, string]("crash"), func(context.Context, struct{}) (string, error) { panic("oops") })
	}, func(ctx context.Context, host *client.DirectHost) {
		call(ctx, host, "shout", harp.Args{"word": "hey"})
		call(ctx, host, "wipe", nil)
		call(ctx, host, "crash", nil)
	})
	// Output:
	// shout HEY <nil>
	// "HEY"
	// wipe <nil> forbidden: ops may not
	// failed: forbidden: ops may not
	// crash <nil> recovered: oops
	// failed: error: recovered: oops
}
