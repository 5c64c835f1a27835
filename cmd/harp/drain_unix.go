//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
)

// drainSignal makes an agent drain.
const drainSignal = syscall.SIGUSR1

// drainPoll is how often is looked whether an agent that drains has ended.
const drainPoll = 100 * time.Millisecond

// drainAgent tells the agent of a directory to drain, and waits until it has ended.
func (c *cli) drainAgent(ctx context.Context, dir string) error {
	if dir == "" {
		return invalid("dir", "is missing: --drain finds the agent by its directory")
	}
	pid, err := agent.FindProcess(dir)
	if err != nil {
		return err
	}
	if !listensToDrain(pid) {
		return fmt.Errorf("process %d, which uses %s, does not handle SIGUSR1: it is not a harp agent", pid, dir)
	}
	if err := syscall.Kill(pid, drainSignal); err != nil {
		return fmt.Errorf("tell process %d to drain: %w", pid, err)
	}
	if c.format != formatJSON {
		c.say("agent %d takes no more calls and exits when idle", pid)
	}
	if err := awaitAgentEnd(ctx, dir, pid); err != nil {
		return unless(ctx, err, &detachedError{nothing: "the agent goes on draining"})
	}
	if err := wasIdle(dir, pid); err != nil {
		return err
	}
	if c.format == formatJSON {
		return c.printObject(object{{"pid", pid}, {"ended", true}})
	}
	c.say("agent %d has exited", pid)
	return nil
}

// wasIdle returns an error unless an agent that has ended was idle: it may have been killed, or
// stopped.
func wasIdle(dir string, pid int) error {
	found, err := agent.CheckJournal(dir)
	if err != nil {
		return fmt.Errorf("agent %d has exited; whether it was idle is unknown: %w", pid, err)
	}
	if n := countRunning(&found) + len(found.Partial); n > 0 {
		return fmt.Errorf("agent %d exited before it was idle; attempts still under way: %d", pid, n)
	}
	return nil
}

// awaitAgentEnd waits until a process has no agent with the directory any more.
func awaitAgentEnd(ctx context.Context, dir string, pid int) error {
	ticker := time.NewTicker(drainPoll)
	defer ticker.Stop()
	for {
		now, err := agent.FindProcess(dir)
		switch {
		case errors.Is(err, harp.ErrNotFound), err == nil && now != pid:
			return nil
		case err != nil:
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// listensToDrain reports whether a process handles the signal, which would end any other.
// Where the system does not say it is taken for one that does.
func listensToDrain(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return true
	}
	for line := range strings.Lines(string(status)) {
		if caught, is := strings.CutPrefix(line, "SigCgt:"); is {
			mask, err := strconv.ParseUint(strings.TrimSpace(caught), 16, 64)
			return err != nil || mask&(1<<(drainSignal-1)) != 0
		}
	}
	return true
}
