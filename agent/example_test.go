package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/client"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/memnet"
)

// example runs an agent on an in-memory network and hands a direct caller to use.
func example(register func(*agent.Agent), use func(context.Context, *client.DirectHost)) {
	exampleOf(agent.Config{}, register, use)
}

// exampleOf is example of an agent with this configuration.
func exampleOf(cfg agent.Config, register func(*agent.Agent), use func(context.Context, *client.DirectHost)) {
	ctx, cancel := context.WithCancel(context.Background())
	network := memnet.New()
	l, err := network.Listen("web01:7442", transport.Identity{Fleet: "example", Role: transport.RoleAgent, Name: "web01"})
	if err != nil {
		panic(err)
	}
	cfg.Name, cfg.Logger = "web01", silent
	a := agent.New(cfg)
	register(a)
	served := make(chan error)
	go func() { served <- a.Serve(ctx, l) }()

	caller := transport.Identity{Fleet: "example", Role: transport.RoleCaller, Name: "ops"}
	direct, err := client.DialAgent(ctx, "web01:7442", client.Config{Dial: network.Dialer(caller)})
	if err != nil {
		panic(err)
	}
	use(ctx, direct)
	_ = direct.Close()
	cancel()
	if err := <-served; err != nil {
		panic(err)
	}
}

// call calls a procedure and prints what came of it.
func call(ctx context.Context, host *client.DirectHost, procedure string, args any, opts ...harp.Option) {
	c, err := host.Call(ctx, procedure, args, opts...)
	if err != nil {
		fmt.Println(err)
		return
	}
	got, err := c.Get()
	var remote *harp.RemoteError
	switch {
	case err == nil:
		fmt.Println(got)
	case errors.As(err, &remote):
		fmt.Println("failed:", remote)
	default:
		fmt.Println("timed out:", errors.Is(err, harp.ErrTimeout))
	}
}

type RestartArgs struct {
	Service string `json:"service" jsonschema:"systemd unit name"`
	Force   bool   `json:"force,omitempty"`
}

type RestartResult struct {
	PID int `json:"pid"`
}

var Restart = harp.NewProc[RestartArgs, RestartResult]("service.restart", "Restart a service")

func ExampleHandle() {
	example(func(a *agent.Agent) {
		agent.Handle(a, Restart, func(_ context.Context, in RestartArgs) (RestartResult, error) {
			if in.Service != "nginx" {
				return RestartResult{}, agent.Errorf("unit_not_found", nil, "no unit %s", in.Service)
			}
			return RestartResult{PID: 911}, nil
		}, agent.MaxExecTime(time.Minute))
	}, func(ctx context.Context, host *client.DirectHost) {
		call(ctx, host, "service.restart", harp.Args{"service": "nginx"})
		call(ctx, host, "service.restart", harp.Pos("apache"))
	})
	// Output:
	// {"pid":911}
	// failed: unit_not_found: no unit apache
}

func ExampleHandleStream() {
	count := harp.NewStreamProc[struct {
		To int `json:"to"`
	}, int, string]("count", "Count to a number")
	example(func(a *agent.Agent) {
		agent.HandleStream(a, count, func(_ context.Context, in struct {
			To int `json:"to"`
		}, emit func(int) error,
		) (string, error) {
			for i := range in.To {
				if err := emit(i + 1); err != nil {
					return "", err // the job was cancelled, or a limit exceeded
				}
			}
			return "done", nil
		})
	}, func(ctx context.Context, host *client.DirectHost) {
		c, err := host.Call(ctx, "count", harp.Args{"to": 3})
		if err != nil {
			fmt.Println(err)
			return
		}
		for record, err := range c.Records() {
			fmt.Println(record.Seq, record.Value, err)
		}
		fmt.Println(c.Get())
	})
	// Output:
	// 0 1 <nil>
	// 1 2 <nil>
	// 2 3 <nil>
	// "done" <nil>
}

// A procedure's context ends with the reason.
func ExampleSilenceTimeout() {
	example(func(a *agent.Agent) {
		hang := harp.NewProc[struct{}, string]("hang")
		agent.Handle(a, hang, func(ctx context.Context, _ struct{}) (string, error) {
			<-ctx.Done()
			fmt.Println("on the host:", context.Cause(ctx))
			return "", context.Cause(ctx)
		}, agent.SilenceTimeout(10*time.Millisecond))
	}, func(ctx context.Context, host *client.DirectHost) {
		call(ctx, host, "hang", nil)
	})
	// Output:
	// on the host: no record for 10ms (silence_timeout)
	// timed out: true
}

func ExampleFromContext() {
	example(func(a *agent.Agent) {
		agent.Handle(a, harp.NewProc[struct{}, string]("whoami"), func(ctx context.Context, _ struct{}) (string, error) {
			info, _ := agent.FromContext(ctx)
			return fmt.Sprintf("%s %s, ticket %s", info.Principal.Kind, info.Principal.Name, info.Info), nil
		})
	}, func(ctx context.Context, host *client.DirectHost) {
		call(ctx, host, "whoami", nil, harp.Info(map[string]int{"ticket": 812}))
	})
	// Output: "caller ops, ticket {\"ticket\":812}"
}

func ExampleErrorf() {
	example(func(a *agent.Agent) {
		agent.Handle(a, harp.NewProc[struct{}, string]("disk.check"), func(context.Context, struct{}) (string, error) {
			return "", agent.Errorf("disk_full", map[string]any{"free": 0}, "no space left on %s", "/var")
		})
	}, func(ctx context.Context, host *client.DirectHost) {
		c, err := host.Call(ctx, "disk.check", nil)
		if err == nil {
			_, err = c.Get()
		}
		var remote *harp.RemoteError
		if errors.As(err, &remote) {
			fmt.Println(remote.Type, remote.Message, remote.Data)
		}
	})
	// Output: disk_full no space left on /var {"free":0}
}

func ExampleAgent_Procedures() {
	a := agent.New(agent.Config{Name: "web01"})
	agent.Handle(a, Restart, func(context.Context, RestartArgs) (RestartResult, error) { return RestartResult{}, nil }, agent.Idempotent())
	for _, p := range a.Procedures() {
		fmt.Println(p.Name, strings.Join(p.Params, " "), "idempotent:", p.Idempotent)
		fmt.Println(p.Summary)
		fmt.Println(string(p.Args))
	}
	// Output:
	// service.restart service force idempotent: true
	// Restart a service
	// {"type":"object","properties":{"service":{"type":"string","description":"systemd unit name"},"force":{"type":"boolean"}},"required":["service"],"additionalProperties":false}
}

// An agent connects to its dispatcher and stays connected until its context ends.
func ExampleAgent_Connect() {
	tc, err := transport.LoadTLS("web01.crt", "web01.key", "ca.crt")
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	a := agent.New(agent.Config{Name: "web01", TLS: tc})
	agent.Handle(a, Restart, func(context.Context, RestartArgs) (RestartResult, error) { return RestartResult{}, nil })
	if err := a.Connect(ctx, "harp.example"); err != nil {
		fmt.Println(err)
	}
}

// A procedure's own limit is the default of its calls, and the most they may ask for.
func ExampleMaxExecTime() {
	example(func(a *agent.Agent) {
		hang := harp.NewProc[struct{}, string]("hang")
		agent.Handle(a, hang, func(ctx context.Context, _ struct{}) (string, error) {
			<-ctx.Done()
			return "", context.Cause(ctx)
		}, agent.MaxExecTime(10*time.Millisecond))
	}, func(ctx context.Context, host *client.DirectHost) {
		call(ctx, host, "hang", nil, harp.MaxExecTime(time.Hour))
	})
	// Output: timed out: true
}

// Of a procedure that does no harm when it is run again: after its outcome was lost it
// is, without the caller's asking.
func ExampleIdempotent() {
	a := agent.New(agent.Config{Name: "web01"})
	agent.Handle(a, Restart, func(context.Context, RestartArgs) (RestartResult, error) { return RestartResult{}, nil }, agent.Idempotent())
	fmt.Println(a.Procedures()[0].Idempotent)
	// Output: true
}

// What is told of a host, beside facts of your own.
func ExampleDefaultFacts() {
	facts, err := agent.DefaultFacts(context.Background())
	facts["rack"] = "b12"
	fmt.Println(facts["os"] != "", facts["rack"], err)
	// Output: true b12 <nil>
}
