package main

import (
	"context"
	"errors"
	"slices"

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

		Annotations: calls(),
	}
	c.bindCall(cmd, &f)
	c.bindExit(cmd, exitMapped)
	cmd.RunE = c.asks(func(ctx context.Context, caller *harp.Caller, args []string) error {
		id, err := c.jobID(ctx, caller, args[0])
		if err != nil {
			return err
		}
		return c.retryJob(ctx, caller, &f, id)
	})
	return cmd
}

// retryJob makes the call of a job again.
func (c *cli) retryJob(ctx context.Context, caller *harp.Caller, f *callFlags, id string) error {
	opts, err := f.options()
	if err != nil {
		return err
	}
	if f.dryRun || !f.sure {
		done, err := c.lookBeforeRetry(ctx, caller, f, id, opts)
		if err != nil || done {
			return err
		}
	}
	again, err := caller.Job(id).Retry(ctx, opts...)
	if err != nil {
		return didNotRun(err)
	}
	return c.called(ctx, again, f, "job "+again.ID()+" repeats "+id)
}

// lookBeforeRetry asks whether a dangerous procedure is meant or, for a dry run, says
// what would become of the call; then it is done.
func (c *cli) lookBeforeRetry(ctx context.Context, caller *harp.Caller, f *callFlags, id string, opts []harp.Option) (done bool, err error) {
	s, err := caller.Job(id).Status(ctx)
	if err != nil {
		return false, err
	}
	doc, err := findProcedure(ctx, caller, s.Host, s.Procedure)
	switch {
	case errors.Is(err, harp.ErrNotFound) && !f.dryRun:
		return false, nil // whoever is asked to make the call says it better
	case err != nil:
		return false, err
	case !f.dryRun:
		return false, c.confirm(ctx, doc, s.Host, f.sure)
	case !s.State.Ended():
		return true, &wouldNotError{"job " + id + " has not ended"}
	}
	first := harp.Options(harp.CallOptions{Queue: s.Queue, Timeout: s.Timeout, MaxExecTime: s.MaxExecTime, Info: s.Info, Labels: s.Labels})
	return true, c.rehearse(ctx, caller, f, doc, func(by *harp.Caller, more ...harp.Option) (*harp.Job, error) {
		if by == caller {
			return caller.Job(id).Retry(ctx, append(slices.Clone(opts), more...)...)
		}
		return by.Host(s.Host, first).Call(ctx, s.Procedure, s.Args, append(slices.Clone(opts), more...)...)
	})
}

func (c *cli) jobForceLostCommand() *cobra.Command {
	var why string
	cmd := &cobra.Command{
		Use:   "force-lost ID --reason TEXT",
		Short: "Give up a job that will never be said to have ended",
		Long: `End a job in state unknown, sent, running or cancelling as lost: its host is silent and
will not come back, or its agent does not do what it is asked, and what became of the
job will not be said. Its place in the queue is free then. Who did it and why is kept
with the job. What runs of it is not stopped by this: cancel it first.`,
		Args: cobra.ExactArgs(1),
		RunE: c.asksJob(func(ctx context.Context, job *harp.Job) error {
			if err := job.ForceLost(ctx, why); err != nil {
				return err
			}
			if c.format == formatJSON {
				return c.printObject(object{{"id", job.ID()}, {"state", harp.StateLost}})
			}
			c.notice("job %s is given up as lost", job.ID())
			return nil
		}),
	}
	cmd.Flags().StringVar(&why, "reason", "", "why, as a `text`")
	_ = cmd.MarkFlagRequired("reason") // fails only for a flag that is not there
	return cmd
}
