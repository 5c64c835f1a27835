// Package demo holds the procedures of harp's demonstration hosts. They are real:
// they wait, count and fail as asked, and read the machine they run on.
package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
)

// Register offers the demonstration procedures. What disk.usage and log.follow
// read is whatever the agent's user may read.
func Register(a *agent.Agent) {
	agent.Handle(a, Hello, hello, agent.Idempotent())
	agent.HandleStream(a, Count, countNumbers, agent.Idempotent())
	agent.Handle(a, Fail, failOnPurpose, agent.Idempotent())
	agent.Handle(a, Sleep, sleep, agent.Idempotent())
	agent.Handle(a, HostFacts, hostFacts, agent.Idempotent(), agent.ReadOnly())
	agent.HandleStream(a, DiskUsage, diskUsage, agent.Idempotent(), agent.ReadOnly())
	// A log may be silent for long.
	agent.HandleStream(a, LogFollow, logFollow, agent.Idempotent(), agent.ReadOnly(), agent.SilenceTimeout(harp.NoLimit))
}

// Hello greets.
var Hello = harp.NewProc[HelloArgs, HelloResult]("hello", "Greet somebody")

// HelloArgs are the arguments of Hello.
type HelloArgs struct {
	Name string `json:"name,omitempty" jsonschema:"who to greet; nobody by name if it is left out"`
}

// HelloResult is what Hello returns.
type HelloResult struct {
	Msg string `json:"msg"`
}

func hello(ctx context.Context, in HelloArgs) (HelloResult, error) {
	if in.Name == "" {
		return HelloResult{Msg: "hello from " + hostName(ctx)}, nil
	}
	return HelloResult{Msg: fmt.Sprintf("hello %s from %s", in.Name, hostName(ctx))}, nil
}

// hostName is the name of the host a procedure runs on.
func hostName(ctx context.Context) string {
	info, _ := agent.FromContext(ctx)
	return info.Host
}

// Count counts.
var Count = harp.NewStreamProc[CountArgs, CountRecord, CountResult]("count", "Count up, one record per number")

// CountArgs are the arguments of Count.
type CountArgs struct {
	To    int           `json:"to" jsonschema:"how far to count, from 1"`
	Every time.Duration `json:"every,omitempty" jsonschema:"how long to wait before each number"`
}

// CountRecord is one number.
type CountRecord struct {
	I int `json:"i"`
}

// CountResult is what Count returns.
type CountResult struct {
	Counted int `json:"counted"`
}

func countNumbers(ctx context.Context, in CountArgs, emit func(CountRecord) error) (CountResult, error) {
	if in.To < 0 || in.Every < 0 {
		return CountResult{}, agent.Errorf("bad_arguments", nil, "to and every must not be negative")
	}
	for i := 1; i <= in.To; i++ {
		if err := waitFor(ctx, in.Every); err != nil {
			return CountResult{i - 1}, err
		}
		if err := emit(CountRecord{i}); err != nil {
			return CountResult{i - 1}, err
		}
	}
	return CountResult{in.To}, nil
}

// waitFor waits, or returns why the procedure shall stop.
func waitFor(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Fail fails.
var Fail = harp.NewProc[FailArgs, struct{}]("fail", "Fail with a type, a message and data of your choice")

// FailArgs are the arguments of Fail.
type FailArgs struct {
	Type    string `json:"type,omitempty" jsonschema:"the error's type; asked_to_fail if empty"`
	Message string `json:"message,omitempty" jsonschema:"the error's text"`
	Data    any    `json:"data,omitempty" jsonschema:"what the error carries; the host's name if empty"`
}

func failOnPurpose(ctx context.Context, in FailArgs) (struct{}, error) {
	if in.Type == "" {
		in.Type = "asked_to_fail"
	}
	if in.Data == nil {
		in.Data = map[string]string{"host": hostName(ctx)}
	}
	return struct{}{}, agent.Errorf(in.Type, in.Data, "%s", in.Message)
}

// Sleep sleeps.
var Sleep = harp.NewProc[SleepArgs, SleepResult]("sleep", "Do nothing for a while")

// SleepArgs are the arguments of Sleep.
type SleepArgs struct {
	For time.Duration `json:"for" jsonschema:"how long"`
}

// SleepResult is what Sleep returns.
type SleepResult struct {
	Slept string `json:"slept"`
}

func sleep(ctx context.Context, in SleepArgs) (SleepResult, error) {
	begin := time.Now()
	err := waitFor(ctx, in.For)
	return SleepResult{time.Since(begin).Round(time.Millisecond).String()}, err
}
