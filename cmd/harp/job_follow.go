package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
)

// tailByDefault is how many records that are there follow begins with while the job runs, so
// that one sees what is going on.
const tailByDefault = 10

func (c *cli) jobFollowCommand() *cobra.Command {
	var (
		since, tail uint64
		noWait      bool
	)
	cmd := &cobra.Command{
		Use:   "follow ID",
		Short: "Print a job's records as they come, until it ends",
		Long: `Print a job's records as they come, until it ends; the exit code says how it ended.

A record of kind data is one JSON value a line, of the other kinds it is text. On a
terminal its time and number stand before it. Of a job that has ended all records are
printed, of one that has not those that come and the last ten before them; a line on
stderr says how many were left out, and --since 0 prints all of any job. Ctrl-C stops following, not the job.`,
		Example: `  harp job follow 0198f0c4-5a1e-7cc1-b2f0-33e7a1c3d2a5 --since 0
  harp job follow last -o jsonl`,
		Args:        cobra.ExactArgs(1),
		Annotations: streams(),
	}
	flags := cmd.Flags()
	flags.Uint64Var(&since, "since", 0, "from the record with this `number` on; 0: all")
	flags.Uint64Var(&tail, "tail", tailByDefault, "start with the last `n` records; of a job that has ended, all unless this is given")
	flags.BoolVar(&noWait, "no-wait", false, "stop at the end of what is there")
	cmd.MarkFlagsMutuallyExclusive("since", "tail")
	c.bindExit(cmd, exitMapped)
	c.bindRaw(cmd)
	cmd.RunE = c.asksJob(func(ctx context.Context, job *harp.Job) error {
		if !flags.Changed("since") && !flags.Changed("tail") {
			s, err := job.Status(ctx)
			if err != nil {
				return err
			}
			if s.State.Ended() {
				return c.followJob(ctx, job, recordPrinter{cli: c}, harp.Since(0), noWait)
			}
		}
		if flags.Changed("since") {
			return c.followJob(ctx, job, recordPrinter{cli: c}, harp.Since(since), noWait)
		}
		return c.followJob(ctx, job, recordPrinter{cli: c, tail: true}, harp.Recent(tail), noWait)
	})
	return cmd
}

// followJob prints records and returns how the job failed; without waiting, only if
// it has ended.
func (c *cli) followJob(ctx context.Context, job *harp.Job, p recordPrinter, from harp.StreamOption, noWait bool) error {
	records := job.Follow(ctx, from)
	if noWait {
		records = job.Stream(ctx, from)
	}
	if err := p.printRecords(records); err != nil {
		return unless(ctx, err, p.detached(job))
	}
	if noWait {
		res, err := job.Result(ctx)
		if err != nil || !res.Done() {
			return err
		}
	}
	_, err := job.Get(ctx)
	return unless(ctx, err, p.detached(job))
}
