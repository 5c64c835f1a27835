package main

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
)

// anyProcedure is asked about where no procedure is named: it is like no pattern of a window but those of
// every name.
const anyProcedure = "*"

func (c *cli) maintWhyCommand() *cobra.Command {
	var (
		procedure string
		at        moment
	)
	cmd := &cobra.Command{
		Use:   "why HOST",
		Short: "Show whether a call may start on a host, and what holds it back",
		Long: `Show whether a call may start on a host, now or at a time within the next day, and everything
that holds it back: windows, and a pause of the host. The answer is for a call, not for a
schedule. The exit code is 0 if it may start, and 6 if it would wait or be refused.

Without --proc the question is about a procedure that is not read_only and whose name no
window selects or exempts.`,
		Example: `  harp maint why db01
  harp maint why db01 --proc backup --at 02:30`,
		Args: cobra.ExactArgs(1),
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, args []string) error {
			v, err := caller.Maintenance().Why(ctx, args[0], procedure, at.t)
			if err != nil {
				return noHost(ctx, caller, err, args[0])
			}
			if procedure != anyProcedure { // else what it never offers would be said to start
				docs, err := caller.Hosts().Procedures(ctx, args[0])
				if err != nil {
					return err
				}
				var known []string
				for _, doc := range docs {
					known = append(known, doc.Name)
				}
				if len(known) > 0 && !slices.Contains(known, procedure) {
					return noProcedure(procedure, args[0], known)
				}
			}
			return c.printVerdict(args[0], procedure, v)
		}),

		ValidArgsFunction: c.completeOnly(c.asksWords(hostWords)),
	}
	flags := cmd.Flags()
	flags.StringVar(&procedure, "proc", anyProcedure, "ask about this `procedure`")
	flags.Var(&at, "at", "at this time, at most a day ahead; a duration counts from now")
	c.completeFlag(cmd, "proc", c.asksWords(procedureWords))
	return cmd
}

// printVerdict says what becomes of a start. Errors: *saidError if it is kept back.
func (c *cli) printVerdict(host, procedure string, v harp.Verdict) error {
	var kept error
	if !v.May {
		kept = &saidError{exitRefused}
	}
	if c.format != formatText {
		return cmp.Or(c.printNoun(v, field{"host", host}, field{"procedure", procedure}), kept)
	}
	what := procedure
	if procedure == anyProcedure {
		what = "a call"
	}
	until := ""
	if !v.Until.IsZero() {
		until = " " + c.untilText(v.Until)
	}
	switch {
	case v.May:
		c.say("%s may start on %s%s", what, host, until)
		return nil
	case v.Mode == harp.WindowRefuse:
		c.say("%s is refused on %s%s:", what, host, until)
	default:
		c.say("%s waits on %s%s:", what, host, until)
	}
	for _, o := range v.Obstacles {
		c.say("- the %s", c.windowText(o))
	}
	return kept
}

// windowText is a window, or the pause of a host, that keeps something from starting there.
func (c *cli) windowText(o harp.Obstacle) string {
	if o.Window == "" {
		return "host, which is paused" + c.pausedByText(o)
	}
	why := ""
	if o.Why != "" {
		why = ": " + o.Why
	}
	until := ", no end set"
	if !o.Until.IsZero() {
		until = ", " + c.untilText(o.Until)
	}
	switch {
	case o.Only && o.Until.IsZero():
		return "window " + o.Window + why + ", which lets start only within its spans, and none is known to come"
	case o.Only:
		return "window " + o.Window + why + ", which lets start only within its spans, next " + c.atText(o.Until)
	}
	return "window " + o.Window + why + until
}

func (c *cli) maintHeldCommand() *cobra.Command {
	var (
		most  int
		watch bool
	)
	cmd := &cobra.Command{
		Use:         "held",
		Short:       "List the jobs that wait for windows, or for pauses of their hosts, newest first",
		Long:        "List the jobs that wait for windows, or for pauses of their hosts, newest first. harp job why\nsays until when.",
		Args:        cobra.NoArgs,
		Annotations: lists(),
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, _ []string) error {
			return showList(ctx, c, watch, c.heldListing(), func(ctx context.Context) ([]harp.JobStatus, bool, error) {
				return firstOf(caller.Maintenance().Held(ctx), most)
			})
		}),
	}
	bindLimit(cmd, &most)
	bindWatch(cmd, &watch)
	return cmd
}

// heldListing is jobListing with what each job waits for in the place of how long it took.
func (c *cli) heldListing() listing[harp.JobStatus] {
	l := c.jobListing()
	last := len(l.header) - 1
	l.header[last] = "held by"
	row := l.row
	l.row = func(j harp.JobStatus) []string {
		cells := row(j)
		cells[last] = cmp.Or(strings.Join(j.HeldBy, ", "), "its host, which is paused")
		return cells
	}
	l.changes = func(j harp.JobStatus) string { return j.ID + " " + stateText(j) + " " + strings.Join(j.HeldBy, " ") }
	return l
}
