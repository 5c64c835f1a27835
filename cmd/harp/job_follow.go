package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
)

// recentByDefault is how many records that were there before follow shows, so that
// one sees what is going on.
const recentByDefault = 10

func (c *cli) jobFollowCommand() *cobra.Command {
	var (
		since, recent uint64
		noWait        bool
	)
	cmd := &cobra.Command{
		Use:   "follow ID",
		Short: "Print a job's records as they come, until it ends",
		Long: `Print a job's records as they come, until it ends; the exit code says how it ended.

A record of kind data is one JSON value a line, of the other kinds it is text. On a
terminal its time and number stand before it. Ctrl-C stops following, not the job.`,
		Example: `  harp job follow 0198f0c4-5a1e-7cc1-b2f0-33e7a1c3d2a5 --since 0
  harp job follow last -o jsonl`,
		Args:        cobra.ExactArgs(1),
		Annotations: streams(),
	}
	flags := cmd.Flags()
	flags.Uint64Var(&since, "since", 0, "from the record with this `number` on; 0: all")
	flags.Uint64Var(&recent, "recent", recentByDefault, "this `many` of those that are there")
	flags.BoolVar(&noWait, "no-wait", false, "stop at the end of what is there")
	cmd.MarkFlagsMutuallyExclusive("since", "recent")
	c.bindExit(cmd, exitMapped)
	c.bindRaw(cmd)
	cmd.RunE = c.asksJob(func(ctx context.Context, job *harp.Job) error {
		from := harp.Recent(recent)
		if flags.Changed("since") {
			from = harp.Since(since)
		}
		return c.followJob(ctx, job, from, noWait)
	})
	return cmd
}

// followJob prints records and returns how the job failed; without waiting, only if
// it has ended.
func (c *cli) followJob(ctx context.Context, job *harp.Job, from harp.StreamOption, noWait bool) error {
	p := recordPrinter{cli: c}
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
