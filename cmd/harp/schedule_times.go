package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
)

func (c *cli) scheduleNextCommand() *cobra.Command {
	var (
		most int
		from moment
	)
	cmd := &cobra.Command{
		Use:   "next NAME",
		Short: "Show when a schedule fires next, and the effects of clock changes and maintenance",
		Example: `  harp schedule next nightly -n 3
  harp schedule next nightly --from 2027-03-27`,
		Args:        cobra.ExactArgs(1),
		Annotations: lists(),
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, args []string) error {
			times, err := caller.Schedules().NextFrom(ctx, args[0], from.t, most)
			if err != nil {
				return err
			}
			if len(times) == 0 {
				if s, err := caller.Schedules().Get(ctx, args[0]); err == nil && len(s.After) > 0 {
					c.notice("schedule %s runs %s, and has no times", s.Name, whenText(s.Schedule))
				}
			}
			return printList(c, listing[harp.Upcoming]{
				name:   "times",
				header: []string{"time", "jitter", "note"},
				row:    func(u harp.Upcoming) []string { return []string{u.Wall, jitterText(u), c.noteText(u)} },
				id:     func(u harp.Upcoming) string { return u.Nominal.Format(time.RFC3339) },
				wraps:  true,
			}, slices.Concat([]harp.Upcoming{}, times))
		}),
	}
	flags := cmd.Flags()
	flags.IntVarP(&most, "limit", "n", 10, "print at most this `count`, up to 1000")
	flags.Var(&from, "from", "only times after this one; a duration counts from now")
	return cmd
}

// jitterText is by how much later than its nominal time a time fires.
func jitterText(u harp.Upcoming) string {
	if d := u.Time.Sub(u.Nominal); d > 0 {
		return "+" + durationText(d.Round(time.Second))
	}
	return ""
}

// noteText is what a change of the clock does to a time, and what maintenance does.
func (c *cli) noteText(u harp.Upcoming) string {
	if u.Held == 0 {
		return u.Note
	}
	text := fmt.Sprintf("%d of %s held", u.Held, hostCount(u.Hosts))
	if !u.HeldUntil.IsZero() {
		text += " " + c.untilText(u.HeldUntil)
	}
	if u.HeldBy != "" {
		text += " by " + u.HeldBy
	} else {
		text += " by pauses"
	}
	if u.Note != "" {
		text = u.Note + "; " + text
	}
	return text
}

func (c *cli) scheduleSkipCommand() *cobra.Command {
	var (
		text string
		dry  bool
	)
	cmd := &cobra.Command{
		Use:   "skip NAME",
		Short: "Leave out one future time: the next, or one as harp schedule next prints it",
		Example: `  harp schedule skip nightly
  harp schedule skip nightly --at '2027-03-28 03:00'`,
		Args: cobra.ExactArgs(1),
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, args []string) error {
			at, err := timeToSkip(ctx, caller, args[0], text)
			if err != nil {
				return err
			}
			shown := object{{"name", args[0]}, {"time", at.Nominal}}
			if dry {
				return c.would(shown, "would skip %s of schedule %s", at.Wall, args[0])
			}
			if err := caller.Schedules().Skip(ctx, args[0], at.Nominal); err != nil {
				return err
			}
			if c.format == formatJSON {
				return c.printObject(shown)
			}
			c.notice("schedule %s skips %s", args[0], at.Wall)
			return nil
		}),
	}
	cmd.Flags().StringVar(&text, "at", "", "skip this `time` (default the next one)")
	bindDryRun(cmd, &dry)
	return cmd
}

// timeToSkip finds the time of a schedule that a text names, as it is printed or in RFC 3339; no text is
// the next one.
func timeToSkip(ctx context.Context, caller *harp.Caller, name, text string) (harp.Upcoming, error) {
	times, err := caller.Schedules().Next(ctx, name, harp.MaxNextTimes)
	if err != nil {
		return harp.Upcoming{}, err
	}
	if text == "" && len(times) > 0 {
		return times[0], nil
	}
	exact, err := time.Parse(time.RFC3339, text)
	found := slices.DeleteFunc(times, func(u harp.Upcoming) bool {
		return !u.Nominal.Equal(exact) && (err == nil || text == "" || !strings.Contains(u.Wall+" ", text+" ") && !strings.Contains(u.Wall, text+":"))
	})
	switch {
	case len(found) == 0 && text == "":
		return harp.Upcoming{}, invalid("at", "the schedule has no future times: harp schedule show %s says when it runs", name)
	case len(found) == 0:
		return harp.Upcoming{}, invalid("at", "%s is not one of the next %d times of %s; harp schedule next %s shows them", text, harp.MaxNextTimes, name, name)
	case len(found) > 1:
		return harp.Upcoming{}, invalid("at", "%s is ambiguous: %s or %s", text, found[0].Wall, found[1].Wall)
	}
	return found[0], nil
}

func (c *cli) scheduleRunCommand() *cobra.Command {
	var (
		f       batchFlags
		trigger harp.Trigger
	)
	cmd := &cobra.Command{
		Use:   "run NAME",
		Short: "Run a schedule now, in addition to its times, and wait for the batch",
		Long: `Run a schedule now, in addition to its times, and wait for the batch as harp run does. This
is refused while the last run is not over, and while the schedule is paused.`,
		Example:     "  harp schedule run nightly\n  harp schedule run nightly -d --even-if-paused",
		Args:        cobra.ExactArgs(1),
		Annotations: runs(),
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, args []string) error {
			var opts []harp.TriggerOption
			if trigger.EvenIfRunning {
				opts = append(opts, harp.EvenIfRunning())
			}
			if trigger.EvenIfPaused {
				opts = append(opts, harp.EvenIfPaused())
			}
			batch, err := caller.Schedules().Trigger(ctx, args[0], opts...)
			if err != nil {
				return didNotRun(err)
			}
			return c.batchMade(ctx, batch, &f, "batch "+batch.ID())
		}),
	}
	flags := cmd.Flags()
	f.set = flags
	f.bindWaiting(flags)
	f.bindWatching(flags)
	f.describeCall()
	flags.BoolVar(&trigger.EvenIfRunning, "even-if-running", false, "also while the last run is not over")
	flags.BoolVar(&trigger.EvenIfPaused, "even-if-paused", false, "also while the schedule is paused")
	c.bindRaw(cmd)
	c.bindExit(cmd, exitMapped)
	return cmd
}

func (c *cli) scheduleHistoryCommand() *cobra.Command {
	var (
		f            harp.LedgerFilter
		outcomes     []string
		since, until = moment{past: true}, moment{past: true}
		most         int
	)
	cmd := &cobra.Command{
		Use:   "history [NAME]",
		Short: "Show what became of the times of a schedule, or of all, newest first",
		Long: `Show what became of the times of a schedule, or of all schedules, newest first: fired, skipped,
missed or failed, and why. Consecutive times with the same outcome are one line.`,
		Example:     "  harp schedule history nightly\n  harp schedule history --outcome missed,failed --since 1w",
		Args:        cobra.MaximumNArgs(1),
		Annotations: map[string]string{knows: "jsonl,wide"},
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, args []string) error {
			f.Schedule, f.From, f.To = strings.Join(args, ""), since.t, until.t
			for _, word := range outcomes {
				f.Outcomes = append(f.Outcomes, harp.TimeOutcome(word))
			}
			entries, more, err := firstOf(caller.Schedules().Ledger(ctx, f), most)
			if err == nil && len(entries) == 0 && f.Schedule != "" { // that of a deleted schedule is kept for a time
				_, err = caller.Schedules().Get(ctx, f.Schedule)
			}
			if err != nil {
				return err
			}
			return printFirst(c, c.ledgerListing(f.Schedule == ""), entries, more)
		}),
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&outcomes, "outcome", nil, "only these `outcomes`: fired, skipped, missed, failed")
	flags.Var(&since, "since", "only times from this one on; a duration counts back from now")
	flags.Var(&until, "until", "only times before this one; a duration counts back from now")
	bindLimit(cmd, &most)
	c.completeFlag(cmd, "outcome", listed(fixed(string(harp.TimeFired), string(harp.TimeSkipped), string(harp.TimeMissed), string(harp.TimeFailed))))
	return cmd
}

// ledgerListing is a list of entries as it is printed; of several schedules each says of which it is.
func (c *cli) ledgerListing(several bool) listing[harp.LedgerEntry] {
	l := listing[harp.LedgerEntry]{
		name:   "entries",
		header: []string{"time", "outcome", "batch", "why"},
		row: func(e harp.LedgerEntry) []string {
			return []string{c.timesText(e), string(e.Outcome), e.Batch, c.whyText(e)}
		},
		wraps: true,
		wider: []string{"written", "late"},
		widen: func(e harp.LedgerEntry) []string {
			return []string{c.clock(e.At), limitWords(e.Late.Round(time.Millisecond))}
		},
	}
	if several {
		row := l.row
		l.header = append([]string{"schedule"}, l.header...)
		l.row = func(e harp.LedgerEntry) []string { return append([]string{e.Schedule}, row(e)...) }
	}
	return l
}

// timesText is the time of an entry, or those between which it tells of several.
func (c *cli) timesText(e harp.LedgerEntry) string {
	switch {
	case e.Count == 0 && e.AtLeast:
		return fmt.Sprintf("%s to %s", c.clock(e.From), c.clock(e.To))
	case e.Count < 2:
		return c.clock(e.From)
	}
	count := fmt.Sprint(e.Count)
	if e.AtLeast {
		count = "at least " + count
	}
	return fmt.Sprintf("%s to %s, %s times", c.clock(e.From), c.clock(e.To), count)
}

// reasonTexts are the reasons of skipped and missed times in words.
var reasonTexts = map[string]string{
	harp.TimeOverlap:    "the last run was not over",
	harp.TimePaused:     "paused",
	harp.TimeNoHosts:    "the target selected no host",
	harp.TimeWindow:     "maintenance",
	harp.TimeByHand:     "by hand",
	harp.TimeDependency: "its condition was not met",
	harp.TimeDown:       "no dispatcher was running",
	harp.TimeRestored:   "the store was restored: it may have fired since the backup",
	harp.TimeTooLate:    "too late to catch up",
	harp.TimeClock:      "the clock was set past it",
	harp.TimeNoSpace:    "no space left",
	harp.TimeZone:       "its times were not known",
}

// whyText is why the times of an entry had that outcome.
func (c *cli) whyText(e harp.LedgerEntry) string {
	var words []string
	add := func(text string) {
		if text != "" {
			words = append(words, text)
		}
	}
	by := ""
	if e.By.Name != "" {
		by = " by " + e.By.Name
	}
	switch e.Kind {
	case harp.LedgerTime:
	case harp.LedgerAfter:
		if e.Outcome == harp.TimeFired {
			add("after")
		}
	case harp.LedgerManual:
		add("run now" + by)
	case harp.LedgerBackfill:
		add("backfill" + by)
	}
	if text, known := reasonTexts[e.Reason]; known {
		add(text)
	} else {
		add(e.Reason)
	}
	if e.Reason == harp.TimeByHand && e.By.Name != "" {
		add(e.By.Name)
	}
	add(e.Detail)
	if e.Err != nil {
		add(e.Err.Error())
	}
	if e.Late >= time.Second {
		add(durationText(e.Late.Truncate(time.Second)) + " late")
	}
	return strings.Join(words, ": ")
}

func (c *cli) scheduleBackfillCommand() *cobra.Command {
	var (
		dry      bool
		from, to = moment{past: true}, moment{past: true}
	)
	cmd := &cobra.Command{
		Use:   "backfill NAME --from TIME --to TIME",
		Short: "Run a schedule for times that passed and did not fire",
		Long: `Run a schedule for its times from --from until before --to that did not fire, at most 1000,
oldest first, one run after another. Each procedure is told the time it runs for. Times that
passed while the schedule was paused are included.`,
		Example: "  harp schedule backfill nightly --from 2027-03-01 --to 2027-03-08",
		Args:    cobra.ExactArgs(1),
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, args []string) error {
			span := object{{"name", args[0]}, {"from", from.t}, {"to", to.t}}
			if dry {
				return c.would(span, "would run schedule %s for its times from %s to %s", args[0], c.clock(from.t), c.clock(to.t))
			}
			n, err := caller.Schedules().Backfill(ctx, args[0], from.t, to.t)
			if err != nil {
				return err
			}
			if c.format == formatJSON {
				return c.printObject(append(span, field{"runs", n}))
			}
			c.notice("schedule %s runs for %s, one after another", args[0], timeCount(n))
			return nil
		}),
	}
	flags := cmd.Flags()
	flags.Var(&from, "from", "first time; a duration counts back from now")
	flags.Var(&to, "to", "run only times before this one; a duration counts back from now")
	for _, name := range []string{"from", "to"} {
		_ = cmd.MarkFlagRequired(name) // fails only for a flag that is not there
	}
	bindDryRun(cmd, &dry)
	return cmd
}

// timeCount is a number of times.
func timeCount(n int) string {
	if n == 1 {
		return "1 time"
	}
	return fmt.Sprint(n, " times")
}
