package agent_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/client"
)

// declare makes a folder with one file of procedures, which must be closed to others.
func declare(text string) (dir string) {
	dir, err := os.MkdirTemp("", "harp-example-")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "procedures.yaml"), []byte(text), 0o600)
	}
	if err != nil {
		panic(err)
	}
	return dir
}

// Commands as procedures. Called again, as after a change, Load replaces what it
// loaded before; if a file is bad nothing changes.
func ExampleAgent_Load() {
	dir := declare(`
say:
  summary: Say something
  params:
    text: {type: string, required: true, max_length: 100}
  command: [echo, "{{.text}}"]
  result: {from: stdout}
`)
	defer func() { _ = os.RemoveAll(dir) }()
	example(func(a *agent.Agent) {
		if err := a.Load(dir); err != nil {
			fmt.Println(err)
		}
	}, func(ctx context.Context, host *client.DirectHost) {
		call(ctx, host, "say", harp.Args{"text": "; rm -rf $HOME"}) // no shell is between
	})
	// Output: "; rm -rf $HOME\n"
}

// What is wrong is said with file, line and field, all of it at once.
func ExampleCheckDir() {
	dir := declare(`
say:
  params:
    text: {typ: string}
  command: [echo, "{{.txt}}"]
`)
	defer func() { _ = os.RemoveAll(dir) }()
	err := agent.CheckDir(dir)
	fmt.Println(errors.Is(err, harp.ErrInvalid))
	// Output: true
}

// What a procedure logs is in its job's stream, as records of kind log.
func ExampleLog() {
	example(func(a *agent.Agent) {
		agent.Handle(a, harp.NewProc[struct{}, string]("migrate"), func(ctx context.Context, _ struct{}) (string, error) {
			agent.Log(ctx).Info("table is done", "table", "orders", "rows", 812)
			return "done", nil
		})
	}, func(ctx context.Context, host *client.DirectHost) {
		c, err := host.Call(ctx, "migrate", nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		for record, err := range c.Records() {
			fmt.Println(record.Kind, record.Value, err)
		}
		fmt.Println(c.Get())
	})
	// Output:
	// log "level=INFO msg=\"table is done\" table=orders rows=812" <nil>
	// "done" <nil>
}

// traits prints what a procedure declares of itself.
func traits(opts ...agent.ProcOption) {
	a := agent.New(agent.Config{Name: "web01"})
	agent.Handle(a, harp.NewProc[struct{}, string]("disk.format"), func(context.Context, struct{}) (string, error) { return "", nil }, opts...)
	for _, p := range a.Procedures() {
		fmt.Println(p.Name, p.Traits, p.Idempotent)
	}
}

// One at a time on this host; who comes meanwhile waits in the dispatcher.
func ExampleExclusive() {
	traits(agent.Exclusive())
	// Output: disk.format [exclusive] false
}

// The command line asks before it calls it.
func ExampleDangerous() {
	traits(agent.Dangerous(), agent.Idempotent())
	// Output: disk.format [dangerous] true
}

// Maintenance windows do not keep it back, unless they say so.
func ExampleReadOnly() {
	traits(agent.ReadOnly())
	// Output: disk.format [read_only] false
}

// A procedure that can say what it would do looks at CallInfo.DryRun.
func ExampleDryRun() {
	example(func(a *agent.Agent) {
		clean := func(ctx context.Context, _ struct{}) (string, error) {
			if info, _ := agent.FromContext(ctx); info.DryRun {
				return "would delete 3 files", nil
			}
			return "deleted 3 files", nil
		}
		agent.Handle(a, harp.NewProc[struct{}, string]("tmp.clean"), clean, agent.DryRun())
	}, func(ctx context.Context, host *client.DirectHost) {
		call(ctx, host, "tmp.clean", nil, harp.DryRun())
		call(ctx, host, "tmp.clean", nil)
	})
	// Output:
	// "would delete 3 files"
	// "deleted 3 files"
}
