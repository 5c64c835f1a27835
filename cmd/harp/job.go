package main

import (
	"bufio"
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
)

func (c *cli) jobCommand() *cobra.Command {
	cmd := group("job", "Look at jobs, wait for them, cancel and repeat them",
		c.jobListCommand(), c.jobShowCommand(), c.jobGetCommand(),
		c.jobFollowCommand(), c.jobWaitCommand(), c.jobCancelCommand(),
		c.jobRetryCommand(), c.jobForceLostCommand())
	for _, sub := range cmd.Commands() {
		if strings.Contains(sub.Use, " ID") {
			sub.ValidArgsFunction = c.completeOnly(c.asksWords(jobWords))
		}
	}
	cmd.Long = `Look at jobs, wait for them, cancel and repeat them.

A job is named by its id. The beginning of an id will do if it is that of one job
among the newest thousand; "last" is the newest job there is, and "-" reads the id
from stdin.`
	return cmd
}

func (c *cli) jobShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show the state of a job",
		Args:  cobra.ExactArgs(1),
		RunE:  c.asksJob(c.showJob),
	}
}

func (c *cli) jobGetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get ID",
		Short: "Wait for a job and print its result",
		Args:  cobra.ExactArgs(1),
		RunE: c.asksJob(func(ctx context.Context, job *harp.Job) error {
			return unless(ctx, c.printResult(ctx, job, nil), c.stillWaiting("get", job))
		}),
	}
	c.bindExit(cmd, exitMapped)
	return cmd
}

func (c *cli) jobWaitCommand() *cobra.Command {
	var longest limit
	cmd := &cobra.Command{
		Use:   "wait ID",
		Short: "Wait for a job; the exit code says how it ended",
		Example: `  harp job wait last
  harp job wait last --timeout 5m || echo "exit code $?"`,
		Args: cobra.ExactArgs(1),
		RunE: c.asksJob(func(ctx context.Context, job *harp.Job) error {
			return unless(ctx, c.waitJob(ctx, job, time.Duration(longest)), c.stillWaiting("wait", job))
		}),
	}
	cmd.Flags().Var(&longest, "timeout", "wait no longer than this; the job goes on, and the exit code is 9")
	c.bindExit(cmd, exitMapped)
	return cmd
}

func (c *cli) jobCancelCommand() *cobra.Command {
	var dry, now bool
	cmd := &cobra.Command{
		Use:   "cancel ID",
		Short: "Ask a job to stop",
		Long: `Ask a job to stop. A command gets TERM, and what is there of it after the procedure's
grace gets KILL. With --now that is at once, also when the job was asked before. The
job is cancelling until nothing of it runs any more.`,
		Example: "  harp job cancel last\n  harp job cancel last --now",
		Args:    cobra.ExactArgs(1),
		RunE: c.asksJob(func(ctx context.Context, job *harp.Job) error {
			if dry {
				return c.wouldCancel(ctx, job)
			}
			return c.cancelJob(ctx, job, now)
		}),
	}
	cmd.Flags().BoolVar(&now, "now", false, "kill what runs, without a grace or the rest of it")
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
	text := "job %s has ended: %s"
	if live {
		text = "job %s would be asked to stop: %s"
	}
	return c.would(object{{"id", s.ID}, {"state", s.State}, {"cancelled", live}}, text, s.ID, stateText(s))
}

// asksJob is asks for a job, named by the first argument.
func (c *cli) asksJob(fn func(ctx context.Context, job *harp.Job) error) func(*cobra.Command, []string) error {
	return c.asks(func(ctx context.Context, caller *harp.Caller, args []string) error {
		id, err := c.jobID(ctx, caller, args[0])
		if err != nil {
			return err
		}
		return fn(ctx, caller.Job(id))
	})
}

// newest is how many jobs the beginning of an id is looked for in.
const newest = 1000

// jobID makes an id of what the user wrote: an id, the beginning of one, "last" or
// "-".
func (c *cli) jobID(ctx context.Context, caller *harp.Caller, word string) (string, error) {
	if word == "-" {
		line, err := bufio.NewReader(c.stdin).ReadString('\n')
		if word = strings.TrimSpace(line); word == "" {
			return "", invalid("id", "there is none on stdin: %v", err)
		}
	}
	switch {
	case harp.CheckID(word) == nil:
		return word, nil
	case word == "last":
		return lastJob(ctx, caller)
	case strings.Trim(word, "0123456789abcdef-") == "" && word != "":
		return jobBeginning(ctx, caller, word)
	}
	return "", invalid("id", "%s is no job's id", word)
}

func lastJob(ctx context.Context, caller *harp.Caller) (string, error) {
	for job, err := range caller.Jobs(ctx, harp.JobFilter{}) {
		return job.ID, err
	}
	return "", harp.NotFound("job", "there is none yet")
}

func jobBeginning(ctx context.Context, caller *harp.Caller, beginning string) (string, error) {
	var found []string
	examined := 0
	for job, err := range caller.Jobs(ctx, harp.JobFilter{}) {
		if err != nil {
			return "", err
		}
		if strings.HasPrefix(job.ID, beginning) {
			found = append(found, job.ID)
		}
		if examined++; examined == newest {
			break
		}
	}
	switch len(found) {
	case 0:
		return "", harp.NotFound("job", beginning+" (looked at the newest "+strconv.Itoa(examined)+")")
	case 1:
		return found[0], nil
	}
	return "", invalid("id", "%d jobs begin with %s, as %s and %s", len(found), beginning, found[0], found[1])
}

func (c *cli) stillWaiting(verb string, job *harp.Job) error {
	return &detachedError{job: job.ID(), again: "harp job " + verb + " " + job.ID()}
}

// waitJob waits for a job's end, for no longer than is said; 0: as long as it takes.
func (c *cli) waitJob(ctx context.Context, job *harp.Job, longest time.Duration) error {
	waiting := ctx
	if longest > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, longest)
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
		c.notice("job %s is asked to stop, without a grace", job.ID())
		return nil
	case live:
		c.notice("job %s is asked to stop", job.ID())
		return nil
	}
	status, err := job.Status(ctx) // its end may be this cancel's, whose answer was lost
	if err == nil {
		c.notice("job %s has ended: %s", job.ID(), stateText(status))
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
	d := max(end.Sub(s.StartTime), 0)
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}
