package main

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
)

func (c *cli) jobCommand() *cobra.Command {
	cmd := group("job", "Show jobs, wait for them, cancel and retry them",
		c.jobListCommand(), c.jobShowCommand(), c.jobWhyCommand(), c.jobGetCommand(),
		c.jobFollowCommand(), c.jobWaitCommand(), c.jobCancelCommand(),
		c.jobRetryCommand(), c.jobForceLostCommand(), c.logsCommand())
	for _, sub := range cmd.Commands() {
		find := jobWords(usable[sub.Name()]...)
		switch {
		case strings.Contains(sub.Use, " ID..."):
			sub.ValidArgsFunction = c.completeRest(c.asksWords(find))
		case strings.Contains(sub.Use, " ID"):
			sub.ValidArgsFunction = c.completeOnly(c.asksWords(find))
		}
	}
	cmd.Long = `Look at jobs, wait for them, cancel and repeat them.

A job is named by its id. The beginning or the last 8 characters of an id will do if
they are those of one job among the newest thousand; "last" is the newest job there is,
and "-" reads ids from stdin, separated by spaces or newlines:

  harp job ls --state queued --proc backup -o id | harp job cancel -

show, get, wait, cancel and retry take several ids. They go on when one fails, -o json
prints an object for each, and the exit code is that of the worst (harp help exit-codes).`
	return cmd
}

// usable are the states of jobs that a command can do something with; of others all are.
var usable = map[string][]harp.State{
	"cancel":     jobStates[:5],
	"wait":       jobStates[:5],
	"why":        {harp.StateQueued},
	"retry":      jobStates[5:],
	"force-lost": {harp.StateSent, harp.StateRunning, harp.StateCancelling, harp.StateUnknown},
}

func (c *cli) jobShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show ID...",
		Short: "Show jobs",
		Args:  cobra.MinimumNArgs(1),
		RunE: c.asksJobs(func(ctx context.Context, _ *harp.Caller, jobs []*harp.Job) error {
			between := false
			return c.eachJob(ctx, jobs, func(ctx context.Context, job *harp.Job) error {
				if between && c.format == formatText {
					c.say("")
				}
				between = true
				return c.showJob(ctx, job)
			})
		}),
	}
}

func (c *cli) jobGetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get ID...",
		Short: "Wait for jobs and print their results",
		Args:  cobra.MinimumNArgs(1),
		RunE: c.asksJobs(func(ctx context.Context, _ *harp.Caller, jobs []*harp.Job) error {
			return c.eachJob(ctx, jobs, func(ctx context.Context, job *harp.Job) error {
				defer c.showWaiting(ctx, job)()
				return unless(ctx, c.printResult(ctx, job, nil), c.stillWaiting("get", job))
			})
		}),
	}
	c.bindExit(cmd, exitMapped)
	return cmd
}

func (c *cli) jobWaitCommand() *cobra.Command {
	var longest limit
	cmd := &cobra.Command{
		Use:   "wait ID...",
		Short: "Wait for jobs; the exit code says how they ended",
		Example: `  harp job wait last
  harp job wait last --timeout 5m || echo "exit code $?"
  harp job ls --state queued,running -o id | harp job wait -`,
		Args: cobra.MinimumNArgs(1),
		RunE: c.asksJobs(func(ctx context.Context, _ *harp.Caller, jobs []*harp.Job) error {
			begun := time.Now()
			return c.eachJob(ctx, jobs, func(ctx context.Context, job *harp.Job) error {
				defer c.showWaiting(ctx, job)()
				return unless(ctx, c.waitJob(ctx, job, begun, time.Duration(longest)), c.stillWaiting("wait", job))
			})
		}),
	}
	cmd.Flags().Var(&longest, "timeout", "wait no longer than this, for all together; then the exit code is 9, and the jobs go on")
	c.bindExit(cmd, exitMapped)
	return cmd
}

func (c *cli) jobCancelCommand() *cobra.Command {
	var dry, now bool
	cmd := &cobra.Command{
		Use:   "cancel ID...",
		Short: "Cancel jobs",
		Long: `Cancel jobs. A command gets TERM, and what is left of it after the procedure's grace gets
KILL. With --now it gets KILL at once, even if it was cancelled before. A job stays
cancelling until nothing of it runs any more.`,
		Example: "  harp job cancel last\n  harp job cancel last --now\n  harp job ls --state queued -o id | harp job cancel -",
		Args:    cobra.MinimumNArgs(1),
		RunE: c.asksJobs(func(ctx context.Context, _ *harp.Caller, jobs []*harp.Job) error {
			return c.eachJob(ctx, jobs, func(ctx context.Context, job *harp.Job) error {
				if dry {
					return c.wouldCancel(ctx, job)
				}
				return c.cancelJob(ctx, job, now)
			})
		}),
	}
	cmd.Flags().BoolVar(&now, "now", false, "kill what runs, without waiting for the (rest of the) grace")
	bindDryRun(cmd, &dry)
	return cmd
}

// wouldCancel says what cancelling a job would do.
func (c *cli) wouldCancel(ctx context.Context, job *harp.Job) error {
	s, err := job.Status(ctx)
	if err != nil {
		return err
	}
	live := !s.State.Ended()
	text := "job %s already ended: %s"
	if live {
		text = "job %s would be cancelled: %s"
	}
	return c.would(object{{"id", s.ID}, {"state", s.State}, {"cancelled", live}}, text, s.ID, stateText(s))
}

func (c *cli) stillWaiting(verb string, job *harp.Job) error {
	return &detachedError{jobs: []string{job.ID()}, resume: "harp job " + verb + " " + job.ID(), goesOn: c.line.goesOn()}
}

// waitJob waits for a job's end, from when the wait has begun for no longer than is said; 0: as
// long as it takes.
func (c *cli) waitJob(ctx context.Context, job *harp.Job, begun time.Time, longest time.Duration) error {
	waiting := ctx
	if longest > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithDeadline(ctx, begun.Add(longest))
		defer cancel()
	}
	_, failed := job.Get(waiting)
	if waiting.Err() != nil && ctx.Err() == nil {
		s, err := job.Status(ctx)
		switch {
		case err != nil:
			return err
		case !s.State.Ended():
			failed = &waitedError{job.ID(), stateText(s), longest}
		default: // at the last moment
			_, failed = job.Get(ctx)
		}
	}
	switch {
	case c.format == formatJSON:
		status, err := job.Status(ctx)
		if err == nil {
			err = c.printNoun(status)
		}
		return cmp.Or(failed, err)
	case failed == nil:
		c.notice("job %s %s", job.ID(), harp.StateSucceeded)
	}
	return failed
}

func (c *cli) cancelJob(ctx context.Context, job *harp.Job, now bool) error {
	var opts []harp.CancelOption
	if now {
		opts = append(opts, harp.KillNow())
	}
	live, err := job.Cancel(ctx, opts...)
	switch {
	case err != nil:
		return err
	case c.format == formatJSON:
		return c.printObject(object{{"id", job.ID()}, {"cancelled", live}})
	case live && now:
		c.notice("job %s: cancellation requested, without a grace", job.ID())
		return nil
	case live:
		c.notice("job %s: cancellation requested", job.ID())
		return nil
	}
	status, err := job.Status(ctx) // its end may be this cancel's, whose answer was lost
	if err == nil {
		c.notice("job %s already ended: %s", job.ID(), stateText(status))
	}
	return err
}

// took is how long a job has been running; "" if it has not begun.
func took(s harp.JobStatus, now time.Time) string {
	if s.StartTime.IsZero() {
		return ""
	}
	end := s.EndTime
	if end.IsZero() {
		end = now
	}
	return roughly(end.Sub(s.StartTime))
}

// roughly is a duration as exactly as people want to know it.
func roughly(d time.Duration) string {
	if d = max(d, 0); d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}
