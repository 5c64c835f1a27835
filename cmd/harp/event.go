package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
)

func (c *cli) eventCommand() *cobra.Command {
	var (
		f      harp.EventFilter
		noWait bool
	)
	follow := &cobra.Command{
		Use:   "follow",
		Short: "Print what happens, as it happens",
		Long: `Print what happens, as it happens: jobs that change their state, hosts that come and
go, queues that are changed. It goes on through restarts of the dispatcher.

Each event has a cursor, its field "cursor" in -o jsonl, which Ctrl-C says, too:
--after goes on behind it, without gap or repeat.`,
		Example: `  harp event follow --type 'job.*' --host web01
  harp event follow --after start -o jsonl`,
		Args:        cobra.NoArgs,
		Annotations: streams(),
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, _ []string) (err error) {
			if c.format == formatJSON {
				return invalid("output", "events have no end; this command knows text and jsonl")
			}
			if err := checkPlainName("host", f.Host); err != nil {
				return err
			}
			if f.Job != "" {
				if f.Job, err = c.jobID(ctx, caller, f.Job); err != nil {
					return err
				}
			}
			p := eventPrinter{cli: c, filter: f}
			if noWait {
				return p.printAll(ctx, caller)
			}
			return p.printEvents(ctx, caller)
		}),
	}
	flags := follow.Flags()
	flags.StringVar(&f.After, "after", "", "from behind the event with this `cursor` on; start: from the first that is kept")
	flags.StringSliceVar(&f.Types, "type", nil, "only of these `types`; job.* is all that begin so")
	flags.StringVar(&f.Job, "job", "", "only of this `job`")
	flags.StringVar(&f.Host, "host", "", "only of this `host`")
	c.completeFlag(follow, "job", c.asksWords(jobWords))
	c.completeFlag(follow, "host", c.asksWords(hostWords))
	flags.BoolVar(&noWait, "no-wait", false, "stop at the end of what is there")
	return group("event", "Follow what happens", follow)
}

// eventPrinter prints the events that a filter selects. Its After moves along.
type eventPrinter struct {
	cli    *cli
	filter harp.EventFilter
}

// printEvents prints events until it is interrupted.
func (p *eventPrinter) printEvents(ctx context.Context, caller *harp.Caller) error {
	for e, err := range caller.Events(ctx, p.filter) {
		if err == nil {
			err = p.printEvent(e)
		}
		if err != nil {
			return unless(ctx, err, p.interruptedErr())
		}
	}
	return nil
}

// printAll prints the events there are.
func (p *eventPrinter) printAll(ctx context.Context, caller *harp.Caller) error {
	for {
		page, err := caller.EventsPage(ctx, p.filter, false)
		if err != nil {
			return err
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
	if p.cli.format == formatLines {
		return p.cli.printLine(e)
	}
	p.cli.say("%s  %-18s  %s", p.cli.clock(e.Time), e.Type, eventText(e))
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
		{"host", e.Host},
		{"proc", e.Procedure},
		{"queue", valueText(e.Queue)},
		{"attempt", numberText(e.Attempt)},
		{"state", stateOf(e)},
		{"reason", e.Reason},
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
