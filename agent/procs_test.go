package agent_test

import (
	"context"
	"errors"
	"runtime"
	"strings"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/internal/failures"
)

type greetArgs struct {
	Name string `json:"name" jsonschema:"whom to greet"`
	Loud bool   `json:"loud,omitempty"`
}

type greeting struct {
	Text string `json:"text"`
}

var greet = harp.NewProc[greetArgs, greeting]("greet", "Greet somebody", "by name")

// offerGreet registers greet.
func offerGreet(a *agent.Agent) {
	agent.Handle(a, greet, func(_ context.Context, in greetArgs) (greeting, error) {
		text := "hello " + in.Name
		if in.Loud {
			text = strings.ToUpper(text)
		}
		return greeting{text}, nil
	})
}

type none struct{}

// offer registers a procedure without arguments.
func offer[R any](a *agent.Agent, name string, fn func(context.Context) (R, error), opts ...agent.ProcOption) {
	agent.Handle(a, harp.NewProc[none, R](name), func(ctx context.Context, _ none) (R, error) { return fn(ctx) }, opts...)
}

// offerStream registers a procedure that yields numbers and has no arguments.
func offerStream(a *agent.Agent, name string, fn func(ctx context.Context, emit func(int) error) error, opts ...agent.ProcOption) {
	agent.HandleStream(a, harp.NewStreamProc[none, int, int](name), func(ctx context.Context, _ none, emit func(int) error) (int, error) {
		return 0, fn(ctx, emit)
	}, opts...)
}

// offerHang registers a procedure that runs until its context ends and returns the
// cause as an error.
func offerHang(a *agent.Agent, opts ...agent.ProcOption) (causes <-chan error) {
	c := make(chan error, 16)
	offer(a, "hang", func(ctx context.Context) (int, error) {
		<-ctx.Done()
		c <- context.Cause(ctx)
		return 0, context.Cause(ctx)
	}, opts...)
	return c
}

type diskFullError struct{ free int }

func (diskFullError) Error() string { return "the disk is full" }
func (diskFullError) Type() string  { return "disk_full" }

// offerFaults registers procedures that fail in every way.
func offerFaults(a *agent.Agent) {
	fails := map[string]func() (any, error){
		"plain": func() (any, error) { return nil, errors.New("no luck") },
		"typed": func() (any, error) { return nil, errors.Join(diskFullError{3}) },
		"errorf": func() (any, error) {
			return nil, agent.Errorf("unit_not_found", map[string]any{"unit": "x"}, "unit %s", "x")
		},
		"untyped": func() (any, error) { return nil, &harp.RemoteError{Message: "as it is"} },
		"torn":    func() (any, error) { return nil, &harp.RemoteError{Message: "no value", Data: harp.Value{0xc1}} },
		"fits":    func() (any, error) { return nil, agent.Errorf("full", make([]byte, 1<<20-5), "all of it") },
		"bulky":   func() (any, error) { return nil, agent.Errorf("full", make([]byte, 1<<20-4), "too much") },
		"exit": func() (any, error) {
			code := 3
			return nil, &harp.RemoteError{Type: "exit", Message: "no", ExitCode: &code}
		},
		"nested":  func() (any, error) { return nil, failures.NotFound("host", "web02") },
		"badtext": func() (any, error) { return nil, errors.New("a\xffb") },
		"long":    func() (any, error) { return nil, errors.New(strings.Repeat("é", 200_000)) },
		"panic":   func() (any, error) { panic("out of cheese") },
		"nilerr":  func() (any, error) { var e *harp.RemoteError; return nil, e },
		"goexit":  func() (any, error) { runtime.Goexit(); return nil, nil },
		"whole":   func() (any, error) { return make([]byte, 1<<20-5), nil }, // as much as may be, encoded
		"large":   func() (any, error) { return make([]byte, 1<<20-4), nil },
		"odd":     func() (any, error) { return make(chan int), nil },
		"binary":  func() (any, error) { return "a\xffb", nil },
	}
	for name, fn := range fails {
		offer(a, name, func(context.Context) (any, error) { return fn() })
	}
}
