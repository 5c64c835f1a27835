package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
)

func (c *cli) jobWhyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "why ID...",
		Short: "Show what keeps queued jobs from starting",
		Long: `Show everything that keeps a queued job from starting right now: its queue and the jobs that
hold its slots, a pause and who asked for it, a host that is away or busy, maintenance
windows, its start time, the pause between two attempts, and its batch.`,
		Args: cobra.MinimumNArgs(1),
		RunE: c.asksJobs(func(ctx context.Context, _ *harp.Caller, jobs []*harp.Job) error {
			return c.eachJob(ctx, jobs, c.explainJob)
		}),
	}
}

func (c *cli) explainJob(ctx context.Context, job *harp.Job) error {
	s, err := job.Status(ctx)
	if err != nil {
		return err
	}
	if c.format != formatText {
		obstacles := s.Obstacles
		if obstacles == nil {
			obstacles = []harp.Obstacle{}
		}
		return c.printObject(object{{"id", s.ID}, {"state", s.State}, {"obstacles", obstacles}})
	}
	switch {
	case s.State != harp.StateQueued:
		c.say("job %s on %s is not waiting: %s", s.ID, s.Host, stateText(s))
		return nil
	case len(s.Obstacles) == 0:
		c.say("job %s on %s is about to start", s.ID, s.Host)
		return nil
	}
	c.say("job %s on %s waits:", s.ID, s.Host)
	for _, o := range s.Obstacles {
		c.say("- %s", c.obstacleText(s, o))
	}
	return nil
}

// obstacleText is an obstacle in the words of people.
func (c *cli) obstacleText(s harp.JobStatus, o harp.Obstacle) string {
	switch o.Reason {
	case harp.ReasonStartAfter:
		return "until its start time, " + c.clock(o.Until)
	case harp.ReasonBackoff:
		return "for its next attempt, " + c.untilText(o.Until)
	case harp.ObstacleLastAttempt:
		return "until " + s.Host + " has said what became of its last attempt, which may still run"
	case harp.ReasonPaused:
		return "because its queue is paused" + c.pausedByText(o)
	case harp.ReasonQueue:
		return "for its queue: " + slotsText(o) + aheadText(o)
	case harp.ReasonAgentBusy:
		return "for the agent of " + s.Host + ": " + c.busyText(o)
	case harp.ReasonOffline:
		text := "for " + s.Host + ", which is away"
		if !o.Since.IsZero() {
			text += " since " + c.clock(o.Since)
		}
		return text
	case harp.ReasonBatch:
		return "for its batch " + o.Batch + c.batchPauseText(o)
	case harp.ReasonWindow:
		if o.Window == "" {
			return "for its " + c.windowText(o)
		}
		return "for " + c.windowText(o)
	}
	return "for " + o.Reason
}

func slotsText(o harp.Obstacle) string {
	if len(o.Jobs) == 0 {
		return fmt.Sprintf("%d at a time; none is running", o.Slots)
	}
	text := fmt.Sprintf("%d at a time; running: %s", o.Slots, strings.Join(o.Jobs, ", "))
	if len(o.Jobs) == 10 && o.Slots > 10 {
		text += " and more" // only the first ten are named
	}
	return text
}

func aheadText(o harp.Obstacle) string {
	if o.Ahead == 0 {
		return "; it is next"
	}
	return fmt.Sprintf("; %d before it", o.Ahead)
}

func (c *cli) busyText(o harp.Obstacle) string {
	switch {
	case o.Slots > 0:
		return slotsText(o)
	case !o.Until.IsZero():
		return "it is busy, and is asked again by " + c.clock(o.Until)
	}
	return "it is busy"
}

func (c *cli) batchPauseText(o harp.Obstacle) string {
	if o.Since.IsZero() {
		return ", which has not come to it or has no slot for it"
	}
	text := ", which is paused since " + c.clock(o.Since) + byText(o.By)
	if o.Why != "" {
		text += ": " + o.Why
	}
	return text
}

// pausedByText is by whom something is paused, why and until when.
func (c *cli) pausedByText(o harp.Obstacle) string {
	text := byText(o.By)
	if o.Why != "" {
		text += ": " + o.Why
	}
	if !o.Until.IsZero() {
		return text + ", " + c.untilText(o.Until)
	}
	return text + ", no end set"
}

func byText(by harp.Principal) string {
	if by == (harp.Principal{}) {
		return ""
	}
	return ", by " + strings.TrimSpace(by.Kind+" "+by.Name)
}
