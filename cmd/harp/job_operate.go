package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
)

func (c *cli) jobRetryCommand() *cobra.Command {
	var f callFlags
	cmd := &cobra.Command{
		Use:   "retry ID",
		Short: "Make the call of a job again, as a new job",
		Long: `Make the call of a job that has ended again, as a new job with the same host,
procedure, arguments and options; flags go over what the first call said. What it
said of when to start, and its idempotency key, are not taken over.`,
		Example: "  harp job retry last -d --timeout 1h",
		Args:    cobra.ExactArgs(1),
	}
	f.bind(cmd.Flags())
	c.bindExit(cmd)
	cmd.RunE = c.asksJob(func(ctx context.Context, job *harp.Job) error {
		opts, err := f.options()
		if err != nil {
			return err
		}
		again, err := job.Retry(ctx, opts...)
		if err != nil {
			return didNotRun(err)
		}
		return c.called(ctx, again, &f, "job "+again.ID()+" repeats "+job.ID())
	})
	return cmd
}

func (c *cli) jobForceLostCommand() *cobra.Command {
	var why string
	cmd := &cobra.Command{
		Use:   "force-lost ID --reason TEXT",
		Short: "Give up a job of which nothing is known",
		Long: `End a job in state unknown as lost: its host is silent and will not come back, and
what became of the job will never be said. Its place in the queue is free then. Who
did it and why is kept with the job.`,
		Args: cobra.ExactArgs(1),
		RunE: c.asksJob(func(ctx context.Context, job *harp.Job) error {
			if err := job.ForceLost(ctx, why); err != nil {
				return err
			}
			if c.format == formatJSON {
				return c.print(object{{"id", job.ID()}, {"state", harp.StateLost}})
			}
			c.notice("job %s is given up as lost", job.ID())
			return nil
		}),
	}
	cmd.Flags().StringVar(&why, "reason", "", "why, as a `text`")
	_ = cmd.MarkFlagRequired("reason") // fails only for a flag that is not there
	return cmd
}
