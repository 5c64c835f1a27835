package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
)

// tailByDefault is how many records that are there follow begins with while the job runs, so
// that one sees what is going on.
const tailByDefault = 10

// logsCommand is job follow under the name that many type: without -f it prints what is there.
func (c *cli) logsCommand() *cobra.Command {
	cmd := c.jobFollowCommand()
	cmd.Use, cmd.Short, cmd.Hidden = "logs ID", "Print a job's records: harp job follow", true
	cmd.Aliases = []string{"log"}
	cmd.ValidArgsFunction = c.completeOnly(c.asksWords(jobWords()))
	follow, run := cmd.Flags().Lookup("follow"), cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if follow.Value.String() != "true" {
			_ = cmd.Flags().Set("no-wait", "true") // it is there
			if !cmd.Flags().Changed("since") && !cmd.Flags().Changed("tail") {
				_ = cmd.Flags().Set("since", "0")
			}
		}
		return run(cmd, args)
	}
	return cmd
}

func (c *cli) jobFollowCommand() *cobra.Command {
	var (
		since  recordPlace
		tail   uint64
		noWait bool
	)
	cmd := &cobra.Command{
		Use:   "follow ID",
		Short: "Print a job's records as they come, until it ends",
		Long: `Print a job's records as they come, until it ends; the exit code says how it ended.

Records of kind data are one JSON value per line, other kinds are text. On a terminal
each has its time and number. All records of an ended job are printed; of a live job the
last ten, then those to come. A line on stderr says how many were left out, and --since 0
prints all. Ctrl-C stops following, not the job.`,
		Example: `  harp job follow 0198f0c4-5a1e-7cc1-b2f0-33e7a1c3d2a5 --since 0
  harp job follow last --since 5m -o jsonl`,
		Args:        cobra.ExactArgs(1),
		Annotations: streams(),
	}
	flags := cmd.Flags()
	flags.Var(&since, "since", "start at the record with this number, 0: all; or at this time, a duration counts back from now")
	flags.Uint64Var(&tail, "tail", tailByDefault, "start with the last `n` records; of a job that has ended, all unless this is given")
	flags.BoolVar(&noWait, "no-wait", false, "stop after the records so far")
	flags.BoolP("follow", "f", false, "follow until the job ends, which is the default")
	_ = flags.MarkHidden("follow") // it is there
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
			from, err := since.find(ctx, job)
			if err != nil {
				return err
			}
			return c.followJob(ctx, job, recordPrinter{cli: c}, harp.Since(from), noWait)
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
	} else {
		defer c.showWaiting(ctx, job)()
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

// recordPlace is a flag that says from which record on: a number, or a time.
type recordPlace struct {
	number uint64
	time   time.Time // zero: by number
}

// String returns the flag's value.
func (p *recordPlace) String() string {
	if p.time.IsZero() {
		return strconv.FormatUint(p.number, 10)
	}
	return p.time.Format(time.RFC3339)
}

// Set reads the flag.
func (p *recordPlace) Set(text string) (err error) {
	if strings.Trim(text, "0123456789") == "" {
		p.number, err = strconv.ParseUint(text, 10, 64)
		if err != nil {
			return errors.New("must be the number of a record")
		}
		return nil
	}
	p.time, err = parseMoment(text, time.Now(), true)
	if err != nil {
		return errors.New("must be the number of a record, a time such as 2026-01-31, 06:00 or 2026-01-31T12:00:00Z, or a duration such as 5m")
	}
	return nil
}

// Type names the flag's type in the help.
func (p *recordPlace) Type() string { return "number|time" }

// find is the number of the first record of the time or later, by its agent's clock. Where that
// was set it may be another one near by.
func (p *recordPlace) find(ctx context.Context, job *harp.Job) (uint64, error) {
	if p.time.IsZero() {
		return p.number, nil
	}
	s, err := job.Status(ctx)
	if err != nil {
		return 0, err
	}
	low, high := uint64(0), s.Records // the first one is within, or high
	for low < high {
		middle := low + (high-low)/2
		at, err := recordTime(ctx, job, middle)
		if err != nil {
			return 0, err
		}
		if at.Before(p.time) {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low, nil
}

// recordTime is when a record was made.
func recordTime(ctx context.Context, job *harp.Job, number uint64) (time.Time, error) {
	for r, err := range job.Stream(ctx, harp.Since(number)) {
		return r.Time, err
	}
	return time.Time{}, nil
}
