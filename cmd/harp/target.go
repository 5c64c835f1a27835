package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/target"
)

func (c *cli) targetCommand() *cobra.Command {
	var host string
	var salt bool
	explain := &cobra.Command{
		Use:   "explain TARGET",
		Short: "Show how many hosts each part of a target selects",
		Long: `Show how many hosts each part of a target selects by itself; with --host, whether each
part selects that host, and the host's value.

  harp target explain 'role=web and not (fact.kernel<6.1,10.0.0.0/8)'
  harp target explain 'role=web and host.online=true' --host web01
  harp target explain --salt 'G@os:Debian and not E@db.*'

--salt translates a compound target of Salt without asking a dispatcher; stderr says what
may select differently. See harp help targets.`,
		Args: cobra.ExactArgs(1),
		RunE: c.does(func(ctx context.Context, args []string) error {
			if salt {
				return c.translateTarget(args[0])
			}
			if err := checkTarget(args[0]); err != nil {
				return err
			}
			return c.withCaller(ctx, func(caller *harp.Caller) error { return c.explainTarget(ctx, caller, args[0], host) })
		}),
	}
	explain.Flags().StringVar(&host, "host", "", "explain for this `host`")
	explain.Flags().BoolVar(&salt, "salt", false, "only translate a target of Salt")
	explain.MarkFlagsMutuallyExclusive("host", "salt")
	explain.ValidArgsFunction = c.completeOnly(listed(c.asksWords(targetWords)))
	c.completeFlag(explain, "host", c.asksWords(hostWords))
	return group("target", "Explain targets, which select hosts", explain)
}

// checkTarget reads a target as the dispatcher will; an empty one is none. Errors: *targetError.
func checkTarget(text string) error {
	var syntax *target.SyntaxError
	if _, err := target.Parse(text); text != "" && errors.As(err, &syntax) {
		return &targetError{text: text, err: syntax}
	}
	return nil
}

// targetError is a target that cannot be read. It is harp.ErrInvalid.
type targetError struct {
	text string
	err  *target.SyntaxError
}

func (e *targetError) Error() string { return e.Unwrap().Error() }

// Unwrap returns the error that the dispatcher would give.
func (e *targetError) Unwrap() error {
	return &harp.FieldError{Field: "target", Message: strings.TrimPrefix(e.err.Error(), "target: ")}
}

// place returns the part of the text in which the error is, and a line with a caret below it.
func (e *targetError) place() (text, caret string) { return placeIn(e.text, e.err.Offset) }

// placeIn returns the part of a text around an offset, and a line with a caret below that.
func placeIn(all string, offset int) (text, caret string) {
	const most = 60 // characters before the place, and behind it
	at := min(offset, len(all))
	before, behind := []rune(all[:at]), []rune(all[at:])
	if i := strings.LastIndexByte(all[:at], '\n'); i >= 0 {
		before = []rune(all[i+1 : at])
	}
	if i := strings.IndexByte(all[at:], '\n'); i >= 0 {
		behind = []rune(all[at : at+i])
	}
	if len(before) > most {
		before = append([]rune("…"), before[len(before)-most:]...)
	}
	if len(behind) > most {
		behind = append(behind[:most:most], '…')
	}
	shown := safeLine(string(before))
	return shown + safeLine(string(behind)), strings.Repeat(" ", utf8.RuneCountInString(shown)) + "^"
}

func (c *cli) translateTarget(text string) error {
	expr, notes, err := target.FromSalt(text)
	var syntax *target.SyntaxError
	if errors.As(err, &syntax) {
		return &targetError{text: text, err: syntax}
	}
	if err != nil {
		return err
	}
	if c.format == formatJSON {
		return c.printObject(object{{"target", expr}, {"notes", append([]string{}, notes...)}})
	}
	c.say("%s", expr)
	for _, note := range notes {
		c.notice("%s", note)
	}
	return nil
}

func (c *cli) explainTarget(ctx context.Context, caller *harp.Caller, text, host string) error {
	explained, err := caller.Target(text).Explain(ctx, host)
	if err != nil {
		return err
	}
	if c.format == formatJSON {
		return c.printNoun(explained)
	}
	var rows [][]string
	var add func(n target.Node, depth int)
	add = func(n target.Node, depth int) {
		row := []string{strconv.Itoa(n.Hosts), strings.Repeat("  ", depth) + n.Text}
		if host != "" {
			row = []string{yesText(n.Hosts > 0), row[1], n.Value}
		}
		rows = append(rows, row)
		for _, part := range n.Parts {
			add(part, depth+1)
		}
	}
	add(explained, 0)
	header := []string{"hosts", "part"}
	if host != "" {
		header = []string{"selected", "part", "value"}
	}
	c.table(header, rows)
	return nil
}

// countSelected counts the hosts that a target selects now.
func countSelected(ctx context.Context, caller *harp.Caller, text string) (int, error) {
	names, err := caller.Target(text).Hosts(ctx)
	return len(names), err
}

// listTargets are targets that list hosts, some each: one that a dispatcher takes is not much longer.
func listTargets(hosts []string) (targets []string) {
	const most = 32 << 10
	for _, name := range hosts {
		name = target.QuoteName(name)
		if last := len(targets) - 1; last >= 0 && len(targets[last])+len(name) < most {
			targets[last] += "," + name
		} else {
			targets = append(targets, name)
		}
	}
	return targets
}

func yesText(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}
