package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
)

func (c *cli) eventCommand() *cobra.Command {
	return group("event", "Follow what happens, and look at what has", c.eventListCommand(), c.eventFollowCommand())
}

// eventFlags say which events are wanted.
type eventFlags struct {
	filter harp.EventFilter
	since  moment
}

func (c *cli) bindEvents(cmd *cobra.Command, f *eventFlags) {
	f.since.past = true
	flags := cmd.Flags()
	flags.StringVar(&f.filter.After, "after", "", "only events after the one with this `cursor`; start: all that are kept")
	flags.StringSliceVar(&f.filter.Types, "type", nil, "only these `types`; job.* selects all that begin with job.")
	flags.StringVar(&f.filter.Job, "job", "", "only about this `job`")
	flags.StringVar(&f.filter.Batch, "batch", "", "only about this `batch` or its jobs")
	flags.StringVar(&f.filter.Host, "host", "", "only about this `host`")
	flags.Var(&f.since, "since", "only what happened since this time; a duration counts back from now")
	c.completeFlag(cmd, "job", c.asksWords(jobWords()))
	c.completeFlag(cmd, "batch", c.asksWords(batchWords()))
	c.completeFlag(cmd, "type", listed(fixed(eventTypes()...)))
	c.completeFlag(cmd, "host", c.asksWords(hostWords))
}

// check makes a filter of the flags.
func (f *eventFlags) check(ctx context.Context, c *cli, caller *harp.Caller) (harp.EventFilter, error) {
	filter := f.filter
	if err := checkPlainName("host", filter.Host); err != nil {
		return filter, err
	}
	if filter.Since = f.since.t; !filter.Since.IsZero() && filter.After == harp.EventsFromNow {
		filter.After = harp.EventsFromStart
	}
	var err error
	if filter.Job != "" {
		if filter.Job, err = c.jobID(ctx, caller, filter.Job); err != nil {
			return filter, ofFlag("job", err)
		}
	}
	if filter.Batch != "" {
		filter.Batch, err = c.findID(ctx, batchNames(caller), filter.Batch)
	}
	return filter, ofFlag("batch", err)
}

// eventTypes are the words that --type takes, but for beginnings of them.
func eventTypes() (types []string) {
	for _, t := range harp.EventTypes() {
		types = append(types, string(t))
	}
	return types
}

// noEventType adds to the error of types of events of which one is unknown which may have been meant.
func noEventType(err error, typed []string) error {
	var wrong *harp.FieldError
	if !errors.As(err, &wrong) || wrong.Field != "types" && wrong.Field != "on" {
		return err
	}
	for _, word := range typed {
		if harp.CheckEventType("", word) != nil {
			return hinted(err, word, eventTypes())
		}
	}
	return err
}

func (c *cli) eventListCommand() *cobra.Command {
	var f eventFlags
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "Print past events, oldest first",
		Long: `Print past events, oldest first: all that are kept, or what --since or --after selects.
harp event follow prints those to come.`,
		Example: `  harp event ls --since 06:00 --type 'host.*'
  harp event ls --job last -o jsonl`,
		Args:        cobra.NoArgs,
		Annotations: streams(),
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, _ []string) error {
			if f.filter.After == harp.EventsFromNow {
				f.filter.After = harp.EventsFromStart
			}
			filter, err := f.check(ctx, c, caller)
			if err != nil {
				return err
			}
			p := eventPrinter{cli: c, filter: filter, all: []harp.Event{}}
			if err := p.printAll(ctx, caller); err != nil || c.format != formatJSON {
				return err
			}
			return c.printObject(object{{"events", p.all}})
		}),
	}
	c.bindEvents(cmd, &f)
	return cmd
}

func (c *cli) eventFollowCommand() *cobra.Command {
	var (
		f      eventFlags
		noWait bool
	)
	cmd := &cobra.Command{
		Use:   "follow",
		Short: "Print events as they happen",
		Long: `Print events as they happen: jobs change state, hosts come and go, queues change. It
continues through restarts of the dispatcher.

Each event has a cursor: the field "cursor" in -o jsonl, also printed at Ctrl-C. --after
resumes after that event, without gaps or repeats. --since starts at a time.`,
		Example: `  harp event follow --type 'job.*' --host web01
  harp event follow --since 1h
  harp event follow --after start -o jsonl`,
		Args:        cobra.NoArgs,
		Annotations: streams(),
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, _ []string) (err error) {
			if c.format == formatJSON {
				return invalid("output", "events never end; this command takes text and jsonl")
			}
			filter, err := f.check(ctx, c, caller)
			if err != nil {
				return err
			}
			p := eventPrinter{cli: c, filter: filter}
			if noWait {
				return p.printAll(ctx, caller)
			}
			return p.printEvents(ctx, caller)
		}),
	}
	c.bindEvents(cmd, &f)
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "stop after the events so far")
	return cmd
}

// eventPrinter prints the events that a filter selects. Its After moves along.
type eventPrinter struct {
	cli    *cli
	filter harp.EventFilter
	all    []harp.Event // in JSON they are printed together
}

// printEvents prints events until it is interrupted.
func (p *eventPrinter) printEvents(ctx context.Context, caller *harp.Caller) error {
	for e, err := range caller.Events(ctx, p.filter) {
		if err == nil {
			err = p.printEvent(e)
		}
		if err != nil {
			return unless(ctx, noEventType(err, p.filter.Types), p.interruptedErr())
		}
	}
	return nil
}

// printAll prints the events there are.
func (p *eventPrinter) printAll(ctx context.Context, caller *harp.Caller) error {
	for {
		page, err := caller.EventsPage(ctx, p.filter, false)
		if err != nil {
			return noEventType(err, p.filter.Types)
		}
		for _, e := range page.Events {
			if err := p.printEvent(e); err != nil {
				return err
			}
		}
		if len(page.Events) == 0 && (p.filter.After == page.Cursor || p.filter.After == harp.EventsFromNow) {
			return nil
		}
		p.filter.After = page.Cursor
	}
}

func (p *eventPrinter) printEvent(e harp.Event) error {
	p.filter.After = e.Cursor
	if p.cli.format == formatJSON {
		p.all = append(p.all, e)
		return nil
	}
	if p.cli.format == formatLines {
		return p.cli.printLine(e)
	}
	line := func() string { return fmt.Sprintf("%s  %-18s  %s", p.cli.clock(e.Time), e.Type, eventText(e)) }
	if room := p.cli.room(); room > 0 && text.StringWidth(line()) > room {
		e.Job, e.Batch = shortened(e.Job), shortened(e.Batch)
	}
	p.cli.say("%s", line())
	return p.cli.stdout.err
}

// interruptedErr is what following ends with when it is interrupted.
func (p *eventPrinter) interruptedErr() error {
	e := &detachedError{resume: "harp event follow"}
	if p.filter.After != "" {
		e.at = " after " + p.filter.After
		e.resume += " --after " + p.filter.After
	}
	return e
}

// eventText is what an event says beside its time and type.
func eventText(e harp.Event) string {
	var words []string
	for _, f := range [][2]string{
		{"job", e.Job},
		{"schedule", e.Schedule},
		{"window", e.Window},
		{"notification", e.Notification},
		{"batch", e.Batch},
		{"host", e.Host},
		{"proc", e.Procedure},
		{"queue", valueText(e.Queue)},
		{"attempt", numberText(e.Attempt)},
		{"state", stateOf(e)},
		{"counts", countsText(e.Counts)},
		{"reason", e.Reason},
		{"until", timesISO.clock(e.Until, time.Time{})},
		{"by", strings.TrimSpace(e.By.Kind + " " + e.By.Name)},
		{"labels", labelText(e.Labels)},
	} {
		switch {
		case f[1] == "":
		case strings.ContainsAny(f[1], " \t\n"):
			words = append(words, fmt.Sprintf("%s=%s", f[0], strconv.Quote(f[1])))
		default:
			words = append(words, f[0]+"="+f[1])
		}
	}
	return strings.Join(words, " ")
}

// stateOf is the state of the event's job, unless its type says the same.
func stateOf(e harp.Event) string {
	if strings.TrimPrefix(string(e.Type), "job.") == string(e.State) {
		return ""
	}
	return string(e.State)
}
