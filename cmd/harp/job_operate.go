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
		Use:   "retry ID...",
		Short: "Repeat the calls of ended jobs, as new jobs",
		Long: `Repeat the call of an ended job as a new job, with the same host, procedure, arguments and
options, except for start times and idempotency key; flags override the original call.
With several jobs, all calls are made before waiting for the first.`,
		Example: `  harp job retry last -d --timeout 1h
  harp job ls --state failed --since 1h -o id | harp job retry -d -`,
		Args: cobra.MinimumNArgs(1),

		Annotations: calls(),
	}
	c.bindCall(cmd, &f)
	c.bindExit(cmd, exitMapped)
	cmd.RunE = c.asksJobs(func(ctx context.Context, caller *harp.Caller, jobs []*harp.Job) error {
		return c.retryJobs(ctx, caller, &f, jobs)
	})
	return cmd
}

// retryJobs makes the calls of jobs again and then, unless detached, waits for all of them.
func (c *cli) retryJobs(ctx context.Context, caller *harp.Caller, f *callFlags, jobs []*harp.Job) error {
	if len(jobs) > 1 {
		if err := f.checkForSeveral(); err != nil {
			return err
		}
	}
	var repeated []repetition
	failed := c.eachJob(ctx, jobs, func(ctx context.Context, job *harp.Job) error {
		again, err := c.retryJob(ctx, caller, f, job.ID())
		if err != nil || again == nil {
			return err
		}
		if len(jobs) > 1 && !f.detach {
			c.notice("job %s repeats %s", again.ID(), job.ID())
		}
		repeated = append(repeated, repetition{again, job.ID()})
		return nil
	})
	if len(jobs) == 1 {
		if len(repeated) == 0 {
			return failed
		}
		return c.called(ctx, repeated[0].job, f, "job "+repeated[0].job.ID()+" repeats "+repeated[0].of)
	}
	again := make([]*harp.Job, len(repeated))
	for i, r := range repeated {
		again[i] = r.job
	}
	return worse(failed, c.eachJob(ctx, again, func(ctx context.Context, job *harp.Job) error {
		if f.detach {
			return c.printID(job.ID())
		}
		return c.watchJob(ctx, job, false)
	}))
}

// repetition is a job and the one whose call it makes again.
type repetition struct {
	job *harp.Job
	of  string
}

// checkForSeveral refuses flags that are for one job.
func (f *callFlags) checkForSeveral() error {
	for _, name := range []string{"id", "idempotency-key", "cancel-on-interrupt"} {
		if f.set.Changed(name) && (name != "id" || f.id != newID) {
			return invalid(name, "is for one job, not for several")
		}
	}
	return nil
}

// retryJob makes the call of a job again; nil when a dry run has said what would become of it.
func (c *cli) retryJob(ctx context.Context, caller *harp.Caller, f *callFlags, id string) (*harp.Job, error) {
	opts, err := f.options()
	if err != nil {
		return nil, err
	}
	if err := f.checkConcurrency(ctx, caller); err != nil {
		return nil, err
	}
	if f.dryRun || !f.sure {
		done, err := c.lookBeforeRetry(ctx, caller, f, id, opts)
		if err != nil || done {
			return nil, err
		}
	}
	c.sayNewID(f)
	again, err := caller.Job(id).Retry(ctx, opts...)
	if err != nil {
		return nil, didNotRun(err)
	}
	return again, nil
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
	first := harp.Options(harp.CallOptions{Queue: s.Queue, SilenceTimeout: s.SilenceTimeout, MaxExecTime: s.MaxExecTime, Info: s.Info, Labels: s.Labels})
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
		Short: "Give up a job whose end will never be known",
		Long: `End a job in state unknown, sent, running or cancelling as lost: its host will not come
back, or its agent does not obey, and nobody will learn what became of the job. This frees
its place in the queue, and is kept with the job: who did it, and why. It does not stop
what still runs: cancel the job first.`,
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
	cmd.Flags().StringVar(&why, "reason", "", "a `text` that says why")
	_ = cmd.MarkFlagRequired("reason") // fails only for a flag that is not there
	return cmd
}
