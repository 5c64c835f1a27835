package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/duration"
)

func (c *cli) scheduleAddCommand() *cobra.Command {
	var f scheduleFlags
	cmd := &cobra.Command{
		Use:   "add NAME TARGET PROCEDURE [NAME=VALUE | NAME:=JSON | @FILE | -]...",
		Short: "Make a schedule",
		Long: `Make a schedule, which calls a procedure on all hosts that a target selects. One of --cron,
--every and --at says when; --after makes it run when a run of another schedule has ended.
NAME TARGET -- COMMAND... runs a command where agents allow the procedure exec.

The arguments are checked against the procedure as the hosts offer it now. The target is
evaluated again at each run.`,
		Example: `  harp schedule add nightly --cron '30 2 * * *' --tz Europe/Madrid 'role=db' backup level=full
  harp schedule add beat --every 90m demo1 hello name=cron
  harp schedule add move --at '2027-03-01 02:00' 'role=web' service.restart service=nginx --rolling 1,10%
  harp schedule add disk --cron @daily --jitter 30m '*' -- df -h
  harp schedule add report --after nightly --within 6h demo1 hello name=report
  harp schedule add alarm --after nightly:failed demo1 hello name=alarm`,
		Args: func(cmd *cobra.Command, args []string) error {
			f.dash = cmd.ArgsLenAtDash() - 1 // without the schedule's name
			if f.stepsFile != "" {
				return cobra.ExactArgs(2)(cmd, args)
			}
			return cobra.MinimumNArgs(3)(cmd, args)
		},
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, args []string) error {
			return c.addSchedule(ctx, caller, &f, args[0], args[1], args[2:])
		}),
		ValidArgsFunction: c.completeRest(behindName(c.asksWords(targetArgumentWords)), noWords, behindName(listed(c.asksWords(targetWords))), behindName(c.asksWords(procedureWords))),
	}
	c.bindSchedule(cmd, &f)
	return cmd
}

// noWords are those of what people name themselves.
func noWords(context.Context, []string, string) []word { return nil }

// behindName are words for the arguments behind the first one.
func behindName(find words) words {
	return func(ctx context.Context, args []string, begun string) []word {
		return find(ctx, args[min(1, len(args)):], begun)
	}
}

// scheduleFlags are the options of a schedule as flags, with those of its batches.
type scheduleFlags struct {
	batchFlags
	cron, every, at string
	after           []string
	within          limit
	overlap         string
	schedule        harp.Schedule
	from, until     moment
	jitter, catchUp limit
	expect          limit
	scheduleLabels  []string
	replace         bool
}

func (c *cli) bindSchedule(cmd *cobra.Command, f *scheduleFlags) {
	f.several = true
	c.bindCallOptions(cmd, &f.callFlags)
	c.bindBatchOptions(cmd, &f.batchFlags)
	c.bindOnStop(cmd, &f.batchFlags, "`action` when --stop-after is reached: cancel the batch, the default, or pause it")
	f.describeCall()
	cmd.Flags().Lookup("drift").Usage = "make each run a dry run that marks each host under this `name` as clean or dirty"
	s, flags := &f.schedule, cmd.Flags()
	f.bindSteps(flags)
	flags.Lookup("label").Usage = "a label for each run and its jobs: `key=value` (repeatable)"
	flags.StringVar(&f.cron, "cron", "", "when, as a cron `expression`: '30 2 * * *', @daily, @hourly")
	flags.StringVar(&f.every, "every", "", "when, as an interval: a `duration` of at least 1s")
	flags.StringVar(&f.at, "at", "", "once, at this `time` in the zone: '2027-03-01 02:00'")
	flags.StringArrayVar(&f.after, "after", nil, "after a run of `NAME` has succeeded, or NAME:failed, or NAME:ended in whatever way (repeatable: after all of them)")
	flags.Var(&f.within, "within", "with --after: ignore runs that ended longer ago than this (default: no limit)")
	flags.StringVar(&s.TZ, "tz", "", "the time `zone`, such as Europe/Madrid (default: the dispatcher's time_zone)")
	flags.Var(&f.from, "from", "fire no earlier than this time; a duration counts from now")
	flags.Var(&f.until, "until", "fire only before this time; a duration counts from now")
	flags.Var(&f.jitter, "jitter", "delay each run by up to this, always the same for the same time")
	flags.StringVar((*string)(&s.Gap), "gap", "", "`rule` for a time that the clock skips: run after the gap, or skip it (default: depends on the expression)")
	flags.StringVar((*string)(&s.Repeat), "repeat", "", "`rule` for a time that the clock shows twice: run at the first, the last or both (default: depends on the expression)")
	flags.StringVar(&f.overlap, "overlap", "skip", "`policy` while the last run goes on: skip the time, queue it, cancel-old and then run, or allow both")
	flags.Var(&f.catchUp, "catch-up", "run a missed time if it is at most this late; none: however late (default 10m)")
	flags.IntVar(&s.CatchUpMost, "catch-up-most", 0, "of several late times run at most this `count`, the latest ones (default 1, at most 1000)")
	flags.IntVar(&s.PauseOnFailure, "pause-on-failure", 0, "pause the schedule after this `count` of runs in a row that did not succeed")
	flags.Var(&f.expect, "expect", "emit an event if a run takes longer than this")
	flags.StringVar(&s.Doc, "doc", "", "a `text` that describes it")
	flags.StringArrayVar(&f.scheduleLabels, "schedule-label", nil, "a label for the schedule: `key=value` (repeatable)")
	flags.BoolVar(&f.replace, "replace", false, "overwrite the schedule of this name, if there is one")
	c.completeFlag(cmd, "after", c.asksWords(scheduleWords))
	c.completeFlag(cmd, "overlap", fixed("skip", "queue", "cancel-old", "allow"))
	c.completeFlag(cmd, "gap", fixed(string(harp.GapAfter), string(harp.GapSkip)))
	c.completeFlag(cmd, "repeat", fixed(string(harp.RepeatFirst), string(harp.RepeatBoth), string(harp.RepeatLast)))
}

// when is the expression that says when; "" if it is after others.
func (f *scheduleFlags) when() (string, error) {
	var given, texts []string
	for _, flag := range []struct{ name, before, text string }{{"cron", "", f.cron}, {"every", "every ", f.every}, {"at", "at ", f.at}} {
		if f.set.Changed(flag.name) {
			given = append(given, flag.name)
			texts = append(texts, flag.before+strings.TrimSpace(flag.text))
		}
	}
	every, err := duration.Parse(f.every)
	switch {
	case f.set.Changed("every") && (err != nil || every < time.Second):
		return "", invalid("every", "must be %s, at least 1s", duration.Expected)
	case len(given) > 0 && len(f.after) > 0:
		return "", invalid("after", "cannot be combined with --%s: a schedule has times or comes after others", given[0])
	case f.set.Changed("within") && len(f.after) == 0:
		return "", invalid("within", "needs --after")
	case len(f.after) > 0:
		return "", nil
	case len(given) == 0:
		return "", invalid("cron", "give one of --cron, --every, --at and --after")
	case len(given) > 1:
		return "", invalid(given[1], "cannot be combined with --%s: a schedule has one of --cron, --every and --at", given[0])
	}
	return texts[0], nil
}

// dependencies are what --after says. A name may have colons.
func (f *scheduleFlags) dependencies() (all []harp.Dependency) {
	for _, text := range f.after {
		d := harp.Dependency{Schedule: text, Within: time.Duration(f.within)}
		for _, on := range []harp.Ending{harp.OnSucceeded, harp.OnFailed, harp.OnEnded} {
			if name, found := strings.CutSuffix(text, ":"+string(on)); found {
				d.Schedule, d.On = name, on
			}
		}
		all = append(all, d)
	}
	return all
}

// overlaps are the words of --overlap.
var overlaps = map[string]harp.Overlap{"skip": harp.OverlapSkip, "queue": harp.OverlapQueue, "cancel-old": harp.OverlapCancelOld, "allow": harp.OverlapAllow}

// named is the schedule that the flags say, without its request.
func (f *scheduleFlags) named(name string) (s harp.Schedule, err error) {
	s = f.schedule
	s.Name, s.From, s.Until = name, f.from.t.UTC(), f.until.t.UTC()
	s.Jitter, s.CatchUp, s.Expect = time.Duration(f.jitter), time.Duration(f.catchUp), time.Duration(f.expect)
	if s.Cron, err = f.when(); err != nil {
		return s, err
	}
	s.After = f.dependencies()
	var known bool
	if s.Overlap, known = overlaps[f.overlap]; !known {
		return s, invalid("overlap", "must be skip, queue, cancel-old or allow")
	}
	s.Labels, err = labels(f.scheduleLabels)
	return s, ofFlag("schedule-label", err)
}

// addSchedule makes a schedule or, for a dry run, says what it would be.
func (c *cli) addSchedule(ctx context.Context, caller *harp.Caller, f *scheduleFlags, name, text string, words []string) error {
	s, err := f.named(name)
	if err != nil {
		return err
	}
	var shown harp.Value
	if s.Request, shown, err = c.scheduledRequest(ctx, caller, f, text, words); err != nil {
		return err
	}
	if err := s.Check(); err != nil {
		return err
	}
	if err := checkTimes(s); err != nil {
		return err
	}
	old, err := caller.Schedules().Get(ctx, name)
	switch {
	case err == nil && !f.replace:
		return &existsError{fmt.Sprintf("schedule %s already exists (%s on %s); --replace overwrites it", name, old.Request.Procedure, old.Request.Target)}
	case err != nil && !errors.Is(err, harp.ErrNotFound):
		return err
	}
	if f.dryRun {
		s.Request.Args = shown
		if s.Request.Batch.Then, err = f.hideSteps(s.Request.Batch.Then); err != nil {
			return err
		}
		return c.would(object{{"schedule", s}}, "would make schedule %s: %s, %s on %s", name, whenText(s), s.Request.Procedure, s.Request.Target)
	}
	if err := caller.Schedules().Put(ctx, s); err != nil {
		return noDependency(ctx, caller, err, s.After)
	}
	return c.scheduleAdded(ctx, caller, name)
}

// scheduledRequest is the request of the batches, and its arguments without what is secret.
func (c *cli) scheduledRequest(ctx context.Context, caller *harp.Caller, f *scheduleFlags, text string, words []string) (req harp.Request, shown harp.Value, err error) {
	if err := checkTarget(text); err != nil {
		return req, nil, err
	}
	opts, err := f.batchOptions()
	if err != nil {
		return req, nil, err
	}
	if f.options.Drift != "" { // --dry-run is about the schedule
		opts = append(opts, harp.DryRun())
	}
	doc, args, err := c.targetArguments(ctx, caller, &f.batchFlags, text, words)
	if err != nil {
		return req, nil, err
	}
	if err := f.checkConcurrency(ctx, caller); err != nil {
		return req, nil, err
	}
	if len(f.steps) > 0 {
		req, err = harp.NewChainRequest(text, f.steps, opts...)
	} else {
		req, err = harp.NewBatchRequest(text, doc.Name, args, opts...)
	}
	if err != nil {
		return req, nil, err
	}
	req.ID = "" // each run has its own
	shown, err = withoutSecrets(doc, req.Args)
	return req, shown, err
}

// scheduleAdded says when a schedule that was just made fires first.
func (c *cli) scheduleAdded(ctx context.Context, caller *harp.Caller, name string) error {
	s, err := caller.Schedules().Get(ctx, name)
	if err != nil {
		return err
	}
	if c.format == formatJSON {
		return c.printNoun(s)
	}
	next := c.nextText(s)
	if note := c.noteText(s.Next); note != "" {
		next += ", " + note
	}
	if next = "next " + next; len(s.After) > 0 {
		next = whenText(s.Schedule)
	}
	c.notice("schedule %s: %s on %s; %s", name, s.Request.Procedure, s.Request.Target, next)
	return nil
}

// noDependency adds to the error of an unknown schedule that another comes after which may have been meant.
func noDependency(ctx context.Context, caller *harp.Caller, err error, after []harp.Dependency) error {
	var wrong *harp.FieldError
	if !errors.As(err, &wrong) || !strings.HasPrefix(wrong.Field, "after[") {
		return err
	}
	var known []string
	for _, w := range scheduleWords(ctx, caller, nil, "") {
		known = append(known, w.text, w.text+":"+string(harp.OnFailed), w.text+":"+string(harp.OnEnded))
	}
	for _, d := range after {
		if !slices.Contains(known, d.Schedule) {
			return hinted(err, d.Schedule, known)
		}
	}
	return err
}

// existsError says that there is one of that name.
type existsError struct{ text string }

func (e *existsError) Error() string { return e.text }

// Is reports whether target is harp.ErrConflict.
func (e *existsError) Is(target error) bool { return target == harp.ErrConflict }
