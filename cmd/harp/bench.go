package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
)

// benchLabel is the label of all jobs that a run of harp bench makes; its value is the
// run's own.
const benchLabel = "bench"

// benchFlags say how much is called.
type benchFlags struct {
	inFlight, most int
	length         limit
	sure           bool
}

func (c *cli) benchCommand() *cobra.Command {
	f := benchFlags{length: limit(10 * time.Second)}
	cmd := &cobra.Command{
		Use:   "bench HOST PROCEDURE [NAME=VALUE | NAME:=JSON | @FILE | -]...",
		Short: "Measure calls per second, and how long they take",
		Long: `Call a procedure on a host over and over, and report calls per second and how long they
took: until each was accepted, that is, on the dispatcher's disk, and until its end was
known here. The records of a streaming procedure are read as they come, and counted.

Every call is real: the procedure runs, and its job is stored. All jobs have the label
bench=ID, by which harp job ls finds them, and are deleted like any other, by the
dispatcher's retention or by harp prune. Jobs still under way at the end are waited for.
Ctrl-C cancels them, waits, and prints the figures so far.`,
		Example: `  harp bench demo1 hello name=Ada
  harp bench web01 uptime -c 256 --for 1m
  harp bench demo1 count to=10000 -c 4 -n 100 -o json`,
		Args: cobra.MinimumNArgs(2),
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, args []string) error {
			return c.bench(ctx, caller, &f, args[0], args[1], args[2:])
		}),
		ValidArgsFunction: c.completeRest(c.asksWords(argumentWords), c.asksWords(hostWords), c.asksWords(procedureWords)),
	}
	flags := cmd.Flags()
	flags.IntVarP(&f.inFlight, "in-flight", "c", 16, "`count` of calls under way at a time")
	flags.IntVarP(&f.most, "calls", "n", 0, "`count` of calls in all; 0: as many as fit the time")
	flags.Var(&f.length, "for", "how long to make calls; none: until -n or Ctrl-C")
	flags.BoolVarP(&f.sure, "yes", "y", false, "do not ask before a procedure that is declared dangerous")
	cmd.PreRun = func(*cobra.Command, []string) {
		if f.most > 0 && !flags.Changed("for") {
			f.length = limit(harp.NoLimit)
		}
	}
	return cmd
}

// bench measures calls and prints what was measured, also when something ended it.
func (c *cli) bench(ctx context.Context, caller *harp.Caller, f *benchFlags, host, procedure string, words []string) error {
	switch {
	case f.inFlight < 1 || f.inFlight > maxInFlight:
		return invalid("in-flight", "must be from 1 to %d", maxInFlight)
	case f.most < 0:
		return invalid("calls", "must not be negative")
	}
	doc, err := findProcedure(ctx, caller, host, procedure)
	if err != nil {
		return err
	}
	args, err := c.arguments(doc, words)
	if err != nil {
		return err
	}
	if err := c.confirm(ctx, doc, host, f.sure); err != nil {
		return err
	}
	m := newMeasurement(caller, host, doc, args, f)
	c.notice("calling %s on %s, %d at a time; each call is a job that is stored: harp job ls --label %s=%s",
		procedure, host, f.inFlight, benchLabel, m.run)
	m.measure(ctx)
	if m.ended.n > 0 || m.err == nil {
		if err := c.printMeasurement(m); err != nil {
			return err
		}
	}
	return m.outcome(ctx)
}

// maxInFlight is how many calls there may be at a time: more would measure this
// program.
const maxInFlight = 10_000
