package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
)

func (c *cli) pruneCommand() *cobra.Command {
	before := moment{past: true}
	var dry bool
	cmd := &cobra.Command{
		Use:   "prune --older-than TIME",
		Short: "Delete jobs that ended long ago",
		Long: `Delete jobs that ended before a time, with their records and results, and events from
before that time, without waiting for the dispatcher's retention, and free their disk
space. Job ids are remembered as pruned for a month. A follower of events that has not
read all of the deleted ones is told so: harp event follow ends with exit code 5, and
--after start resumes with the first that is kept.

What a rule of harp retain keeps stays until the rule says otherwise.`,
		Example: "  harp prune --older-than 90d",
		Args:    cobra.NoArgs,
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, _ []string) error {
			if dry {
				return c.wouldPrune(ctx, caller, before.t)
			}
			n, err := caller.Prune(ctx, before.t)
			if err != nil {
				return err
			}
			if c.format == formatJSON {
				return c.printObject(object{{"pruned", n}, {"ended_before", before.t.UTC().Format(time.RFC3339)}})
			}
			c.say("%s deleted", jobsText(n))
			return nil
		}),
	}
	cmd.Flags().Var(&before, "older-than", "only jobs that ended before this time; a duration counts back from now")
	_ = cmd.MarkFlagRequired("older-than") // fails only for a flag that is not there
	bindDryRun(cmd, &dry)
	return cmd
}

// wouldPrune counts the jobs that ended before a time. Errors: *wouldNotError for a time
// in the future, as the dispatcher refuses it.
func (c *cli) wouldPrune(ctx context.Context, caller *harp.Caller, before time.Time) error {
	if before.After(time.Now()) {
		return &wouldNotError{"the time is in the future"}
	}
	n := 0
	for job, err := range caller.Jobs(ctx, harp.JobFilter{Until: before}) {
		if err != nil {
			return err
		}
		if job.State.Ended() && job.EndTime.Before(before) {
			n++
		}
	}
	if rules, err := caller.Retention().List(ctx); err == nil && len(rules) > 0 { // an older dispatcher knows none
		c.notice("fewer may be deleted, as rules keep some: see harp retain ls")
	}
	return c.would(object{{"pruned", n}, {"ended_before", before.UTC().Format(time.RFC3339)}}, "%s would be deleted", jobsText(n))
}
