package main

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/duration"
)

func (c *cli) scheduleCommand() *cobra.Command {
	cmd := group("schedule", "Run procedures at given times: schedules, their runs and their history",
		c.scheduleAddCommand(), c.scheduleListCommand(), c.scheduleShowCommand(), c.scheduleRemoveCommand(),
		c.schedulePauseCommand(), c.scheduleUnpauseCommand(), c.scheduleRunCommand(), c.scheduleSkipCommand(),
		c.scheduleNextCommand(), c.scheduleHistoryCommand(), c.scheduleBackfillCommand(),
		c.scheduleApplyCommand(), c.scheduleExportCommand(), c.scheduleImportCommand())
	for _, sub := range cmd.Commands() {
		if strings.Contains(sub.Use, " NAME") && sub.Name() != "add" || sub.Name() == "history" {
			sub.ValidArgsFunction = c.completeNames(sub, scheduleWords)
		}
	}
	cmd.Long = `Run procedures at given times. A schedule has a name and says when to call what: a procedure
on all hosts that a target selects, as harp run does. Each of its runs is a batch. See harp
help schedules.`
	cmd.Example = `  harp schedule add nightly --cron '30 2 * * *' --tz Europe/Madrid 'role=db' backup level=full
  harp schedule next nightly
  harp schedule history nightly`
	return cmd
}

// scheduleWords are the names of schedules.
func scheduleWords(ctx context.Context, caller *harp.Caller, _ []string, _ string) (found []word) {
	for s, err := range caller.Schedules().List(ctx) {
		if err != nil {
			break
		}
		found = append(found, word{s.Name, whenText(s.Schedule) + ": " + s.Request.Procedure + " on " + s.Request.Target})
	}
	return found
}

func (c *cli) scheduleListCommand() *cobra.Command {
	return listCommand(c, "List schedules", c.scheduleListing, func(ctx context.Context, caller *harp.Caller) iter.Seq2[harp.ScheduleStatus, error] {
		return caller.Schedules().List(ctx)
	})
}

// scheduleListing is a list of schedules as it is printed.
func (c *cli) scheduleListing() listing[harp.ScheduleStatus] {
	return listing[harp.ScheduleStatus]{
		name:   "schedules",
		header: []string{"name", "when", "zone", "procedure", "target", "next"},
		row: func(s harp.ScheduleStatus) []string {
			return []string{s.Name, whenText(s.Schedule), s.TZ, s.Request.Procedure, s.Request.Target, c.nextText(s)}
		},
		wider: []string{"last batch", "failures", "by", "managed by"},
		widen: func(s harp.ScheduleStatus) []string {
			return []string{s.LastBatch, numberText(s.Failures), s.By.Name, s.ManagedBy}
		},
		id: func(s harp.ScheduleStatus) string { return s.Name },
	}
}

// whenText is when a schedule runs: its expression, or what it comes after.
func whenText(s harp.Schedule) string {
	if len(s.After) == 0 {
		return s.Cron
	}
	var all []string
	for _, d := range s.After {
		text := d.Schedule
		if d.On != "" && d.On != harp.OnSucceeded {
			text += " " + string(d.On)
		}
		if d.Within > 0 && d.Within != harp.NoLimit {
			text += " within " + duration.Format(d.Within)
		}
		all = append(all, text)
	}
	return "after " + strings.Join(all, ", ")
}

// nextText is when a schedule fires next, or why it does not.
func (c *cli) nextText(s harp.ScheduleStatus) string {
	switch {
	case s.Err != nil:
		return "never: " + s.Err.Error()
	case s.Pause != nil && s.Pause.Until.IsZero():
		return "paused"
	case s.Pause != nil:
		return "paused " + c.untilText(s.Pause.Until)
	case !s.Waiting.IsZero():
		return "waits for " + s.LastBatch
	case len(s.After) == 1:
		return "when it ends"
	case len(s.After) > 1:
		return "when " + awaitedText(s) + " ended"
	case s.Next.Nominal.IsZero():
		return "none"
	case c.times != timesLocal:
		return c.clock(s.Next.Time)
	}
	return s.Next.Wall
}

// awaitedText names those of several schedules that one still waits for, where it has the ends of others.
func awaitedText(s harp.ScheduleStatus) string {
	if len(s.Ends) == 0 {
		return "all have"
	}
	var names []string
	for _, d := range s.After {
		if !slices.ContainsFunc(s.Ends, func(e harp.DependencyEnd) bool { return e.Schedule == d.Schedule }) {
			names = append(names, d.Schedule)
		}
	}
	if len(names) == 1 {
		return names[0] + " has"
	}
	return strings.Join(names, ", ") + " have"
}

// endedPairs are the runs of others that a schedule has the ends of.
func (c *cli) endedPairs(s harp.ScheduleStatus) (pairs [][2]string) {
	for _, e := range s.Ends {
		pairs = append(pairs, [2]string{"has ended", e.Schedule + ", " + cmp.Or(string(e.State), "nobody knows how") + " " + c.clock(e.At) + "  " + e.Batch})
	}
	return pairs
}

func (c *cli) scheduleShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "Show a schedule",
		Args:  cobra.ExactArgs(1),
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, args []string) error {
			s, err := caller.Schedules().Get(ctx, args[0])
			if err != nil {
				return err
			}
			if c.format == formatJSON {
				return c.printNoun(s)
			}
			c.pairs(slices.Concat(c.timePairs(s), c.runPairs(s)))
			return nil
		}),
	}
}

// timePairs are what is to be said of a schedule's times.
func (c *cli) timePairs(s harp.ScheduleStatus) [][2]string {
	next := c.nextText(s)
	if note := c.noteText(s.Next); note != "" {
		next += "  " + note
	}
	return slices.Concat([][2]string{
		{"name", s.Name},
		{"doc", s.Doc},
		{"when", whenText(s.Schedule)},
		{"zone", s.TZ},
		{"from", c.clock(s.From)},
		{"until", c.clock(s.Until)},
		{"jitter", limitWords(s.Jitter)},
		{"gap", string(s.Gap)},
		{"repeat", string(s.Repeat)},
		{"next", next},
	}, c.endedPairs(s), [][2]string{
		{"paused by", c.schedulePauseText(s.Pause)},
		{"last batch", s.LastBatch},
		{"failures", numberText(s.Failures)},
		{"overlap", string(s.Overlap)},
		{"catch up", limitWords(s.CatchUp)},
		{"catch up most", numberText(s.CatchUpMost)},
		{"pause on failure", numberText(s.PauseOnFailure)},
		{"expect", limitWords(s.Expect)},
		{"labels", labelText(s.Labels)},
		{"managed by", s.ManagedBy},
		{"version", fmt.Sprint(s.Version)},
		{"changed", c.clock(s.Changed)},
		{"by", strings.TrimSpace(s.By.Kind + " " + s.By.Name)},
	})
}

// runPairs are what is to be said of a schedule's runs.
func (c *cli) runPairs(s harp.ScheduleStatus) [][2]string {
	r, b := &s.Request, &s.Request.Batch
	pairs := [][2]string{
		{"target", r.Target},
		{"procedure", r.Procedure},
		{"args", valueText(r.Args)},
	}
	for _, step := range b.Then {
		pairs = append(pairs, [2]string{"then", stepWords(step)})
	}
	return append(pairs, [][2]string{
		{"dry run", yes(r.DryRun)},
		{"drift", b.Drift},
		{"queue", valueText(r.Queue)},
		{"queue per host", yes(b.QueuePerHost)},
		{"concurrency", numberText(r.Concurrency)},
		{"priority", numberText(r.Priority)},
		{"silence timeout", limitWords(r.SilenceTimeout)},
		{"max exec time", limitWords(r.MaxExecTime)},
		{"retry", retryWords(r.Retry)},
		{"offline wait", limitWords(r.OfflineWait)},
		{"when offline", string(r.WhenOffline)},
		{"reboot wait", limitWords(b.RebootWait)},
		{"each step", yes(b.EachStep)},
		{"parallel", numberText(b.Parallel)},
		{"rolling", strings.Join(b.Rolling, ",")},
		{"wave pause", limitWords(b.WavePause)},
		{"approve", yes(b.Approve)},
		{"approve first", yes(b.ApproveFirst)},
		{"subset", b.Subset},
		{"shuffle", yes(b.Shuffle)},
		{"rate", rateWords(b)},
		{"stop after", b.StopAfter},
		{"on stop", string(b.OnStop)},
		{"max hosts", numberText(b.MaxHosts)},
		{"when unfit", string(b.WhenUnfit)},
		{"when held", string(b.WhenHeld)},
		{"info", valueText(r.Info)},
		{"job labels", labelText(r.Labels)},
	}...)
}

// stepWords are what is to be said of a step of a chain behind the first.
func stepWords(s harp.ChainStep) string {
	text := s.Procedure + " if " + string(cmp.Or(s.On, harp.OnSucceeded))
	for _, more := range [][2]string{
		{"args", valueText(s.Args)}, {"silence timeout", limitWords(s.SilenceTimeout)}, {"max exec time", limitWords(s.MaxExecTime)}, {"retry", retryWords(s.Retry)},
	} {
		if more[1] != "" {
			text += ", " + more[0] + " " + more[1]
		}
	}
	return text
}

// retryWords are when there is another attempt; "" if it is the default.
func retryWords(p harp.RetryPolicy) string {
	var words []string
	if len(p.On) > 0 {
		words = append(words, "if "+statesText(p.On))
	}
	switch {
	case p.Attempts == 1:
		words = append(words, "never")
	case p.Attempts > 0:
		words = append(words, fmt.Sprint(p.Attempts, " attempts"))
	}
	if p.Backoff > 0 {
		words = append(words, "backoff "+limitWords(p.Backoff))
	}
	if p.MaxBackoff > 0 {
		words = append(words, "at most "+limitWords(p.MaxBackoff))
	}
	return strings.Join(words, ", ")
}

// rateWords are how many hosts are reached at most, and within how long; "" if there is no bound.
func rateWords(b *harp.BatchOptions) string {
	if b.Rate == 0 {
		return ""
	}
	return fmt.Sprint(b.Rate, " in ", limitWords(b.RatePer))
}

// limitWords is a limit; "" if it is the default.
func limitWords(d time.Duration) string {
	l := limit(d)
	return l.String()
}

// schedulePauseText is who paused a schedule and why, and until when.
func (c *cli) schedulePauseText(p *harp.SchedulePause) string {
	if p == nil {
		return ""
	}
	return c.pausedText(p.By, p.Since, p.Reason, p.Until)
}

// pausedText is who paused something, since when and why, and until when.
func (c *cli) pausedText(who harp.Principal, since time.Time, reason string, until time.Time) string {
	text := c.causeText(who, since, reason)
	if !until.IsZero() {
		text += "; " + c.untilText(until)
	}
	return text
}

func (c *cli) scheduleRemoveCommand() *cobra.Command {
	deleted := map[string]bool{} // as far as a dry run goes
	return c.removeCommand(removal{
		short: "Delete schedules; what they started goes on",
		words: scheduleWords,
		look: func(ctx context.Context, caller *harp.Caller, name string) error {
			s, err := caller.Schedules().Get(ctx, name)
			if err == nil {
				err = byHand(harp.ScheduleDocument, name, s.ManagedBy)
			}
			if err == nil {
				err = notNeeded(ctx, caller, name, deleted)
			}
			deleted[name] = err == nil
			return err
		},
		remove: func(ctx context.Context, caller *harp.Caller, name string) error {
			return caller.Schedules().Delete(ctx, name)
		},
		would: "would delete schedule %s", done: "deleted schedule %s",
	})
}

// notNeeded says whether a schedule can be deleted as far as others that come after it are concerned, but for those that are deleted
// before it. Errors: *wouldNotError.
func notNeeded(ctx context.Context, caller *harp.Caller, name string, deleted map[string]bool) error {
	var users []string
	for s, err := range caller.Schedules().List(ctx) {
		if err != nil {
			return err
		}
		if !deleted[s.Name] && slices.ContainsFunc(s.After, func(d harp.Dependency) bool { return d.Schedule == name }) {
			users = append(users, s.Name)
		}
	}
	if len(users) == 0 {
		return nil
	}
	return &wouldNotError{"schedule " + name + " cannot be deleted: it is needed by " + strings.Join(users, ", ")}
}

func (c *cli) schedulePauseCommand() *cobra.Command {
	var (
		dry    bool
		reason string
		until  moment
	)
	cmd := c.scheduleChangeCommand(&dry, "pause NAME...", "Keep schedules from firing; times that pass are skipped",
		func(schedules *harp.Schedules, ctx context.Context, name string) error {
			return schedules.Pause(ctx, name, reason, until.t)
		}, "would pause schedule %s", "paused schedule %s")
	cmd.Long = `Keep schedules from firing until they are unpaused, or until a time. Times that pass
meanwhile are skipped and not caught up. What they started goes on.`
	cmd.Example = "  harp schedule pause nightly --reason 'moving the database' --until 2027-03-01"
	flags := cmd.Flags()
	flags.StringVar(&reason, "reason", "", "a `text` that says why")
	flags.Var(&until, "until", "fire again from this time on; a duration counts from now")
	return cmd
}

func (c *cli) scheduleUnpauseCommand() *cobra.Command {
	var dry bool
	return c.scheduleChangeCommand(&dry, "unpause NAME...", "Let paused schedules fire again",
		(*harp.Schedules).Unpause, "would unpause schedule %s", "unpaused schedule %s")
}

// scheduleChangeCommand is a command that changes the schedules that it is given, or says what it would do. The texts say
// of a name what would be done, and what was.
func (c *cli) scheduleChangeCommand(dry *bool, use, short string, change func(s *harp.Schedules, ctx context.Context, name string) error, would, done string) *cobra.Command {
	look := func(ctx context.Context, caller *harp.Caller, name string) error {
		_, err := caller.Schedules().Get(ctx, name)
		return err
	}
	apply := func(ctx context.Context, caller *harp.Caller, name string) error {
		return change(caller.Schedules(), ctx, name)
	}
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.MinimumNArgs(1), RunE: c.changesNamed(dry, look, apply, would, done)}
	bindDryRun(cmd, dry)
	return cmd
}
