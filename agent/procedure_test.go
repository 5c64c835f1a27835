package agent_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sort"
	"strings"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
)

// TestBrokenProcedures checks that a program that declares what cannot be is told
// so when it starts.
func TestBrokenProcedures(t *testing.T) {
	fine := func(context.Context, none) (int, error) { return 0, nil }
	declare := func(name string, opts ...agent.ProcOption) func(*agent.Agent) {
		return func(a *agent.Agent) { agent.Handle(a, harp.NewProc[none, int](name), fine, opts...) }
	}
	for name, c := range map[string]struct {
		declare func(*agent.Agent)
		says    string
	}{
		"no name":    {declare(""), "name"},
		"a space":    {declare("a b"), "name"},
		"a newline":  {declare("a\n"), "name"},
		"no text":    {declare("a\xff"), "name"},
		"a long one": {declare(strings.Repeat("x", 129)), "name"},
		"twice":      {func(a *agent.Agent) { declare("x")(a); declare("x")(a) }, "already exists"},
		"no limit":   {declare("x", agent.SilenceTimeout(0)), "SilenceTimeout must be more than zero"},
		"below none": {declare("x", agent.MaxExecTime(-1)), "MaxExecTime must be more than zero"},
		"no function": {func(a *agent.Agent) {
			agent.Handle[none, int](a, harp.NewProc[none, int]("x"), nil)
		}, "nil"},
		"arguments": {func(a *agent.Agent) {
			agent.Handle(a, harp.NewProc[chan int, int]("x"), func(context.Context, chan int) (int, error) { return 0, nil })
		}, "chan int"},
		"result": {func(a *agent.Agent) {
			agent.Handle(a, harp.NewProc[none, func()]("x"), func(context.Context, none) (func(), error) { return nil, nil })
		}, "func()"},
		"record": {func(a *agent.Agent) {
			agent.HandleStream(a, harp.NewStreamProc[none, complex128, int]("x"),
				func(context.Context, none, func(complex128) error) (int, error) { return 0, nil })
		}, "complex128"},
		"description": {func(a *agent.Agent) {
			agent.Handle(a, harp.NewProc[none, int]("x", strings.Repeat("x", 64<<10)), fine)
		}, "bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if text, ok := recover().(string); !ok || !strings.Contains(text, c.says) || !strings.HasPrefix(text, "agent: procedure ") {
					t.Errorf("panic %q, want %q", text, c.says)
				}
			}()
			c.declare(agent.New(agent.Config{Name: "web01"}))
		})
	}
}

// TestLongestDescription checks that a description of as many bytes as can be told is taken.
func TestLongestDescription(t *testing.T) {
	declare := func(doc int) (refused string) {
		defer func() {
			if p := recover(); p != nil {
				refused = fmt.Sprint(p)
			}
		}()
		p := harp.NewProc[none, int]("x", strings.Repeat("x", doc))
		agent.Handle(agent.New(agent.Config{Name: "web01"}), p, func(context.Context, none) (int, error) { return 0, nil })
		return ""
	}
	first := sort.Search(64<<10, func(doc int) bool { return declare(doc) != "" })
	var is, most int
	_, text, _ := strings.Cut(declare(first), "description: ")
	if _, err := fmt.Sscanf(text, "is %d bytes, at most %d", &is, &most); err != nil || is != most+1 {
		t.Errorf("the first that is refused %s, %v", text, err)
	}
}

func TestErrorf(t *testing.T) {
	cause := errors.New("no such file")
	err := agent.Errorf("not_found", map[string]int{"n": 5}, "open %s: %w", "x", cause)
	var remote *harp.RemoteError
	if !errors.As(err, &remote) || remote.Type != "not_found" || remote.Message != "open x: no such file" || remote.Data.String() != `{"n":5}` {
		t.Errorf("%+v", remote)
	}
	if !errors.Is(err, cause) || err.Error() != "not_found: open x: no such file" {
		t.Errorf("%v", err)
	}
	if !errors.As(agent.Errorf("x", make(chan int), "y"), &remote) || !strings.HasPrefix(remote.Message, "y [data left out") {
		t.Errorf("%+v", remote)
	}
}

func TestDefaultFacts(t *testing.T) {
	facts, err := agent.DefaultFacts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"os", "arch", "cpus", "hostname", "agent"}
	if runtime.GOOS == "linux" {
		names = append(names, "kernel", "memory", "booted")
	}
	for _, name := range names {
		if facts[name] == nil {
			t.Errorf("no %s in %v", name, facts)
		}
	}
	if _, err := harp.NewValue(facts); err != nil {
		t.Error(err)
	}
}
