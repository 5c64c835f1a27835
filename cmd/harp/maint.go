package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
)

// globalWindow is the window of harp maint on.
const globalWindow = "global"

func (c *cli) maintCommand() *cobra.Command {
	cmd := group("maint", "Keep procedures from starting: maintenance windows, and what they hold back",
		c.maintOnCommand(), c.maintOffCommand(), c.maintAddCommand(), c.maintListCommand(), c.maintShowCommand(), c.maintSpansCommand(),
		c.maintEndCommand(), c.maintRemoveCommand(), c.maintWhyCommand(), c.maintHeldCommand())
	for _, sub := range cmd.Commands() {
		if strings.Contains(sub.Use, " NAME") && sub.Name() != "add" {
			sub.ValidArgsFunction = c.completeNames(sub, windowWords)
		}
	}
	cmd.Long = `Keep procedures from starting, now or at given times. A window has a name, a target and spans
of time: within them, what would start on its hosts waits or is refused. What runs goes on.
See harp help maintenance.`
	cmd.Example = `  harp maint on --reason 'moving the rack'
  harp maint off
  harp maint add db-patching --target 'role=db' --cron '0 2 * * SUN' --for 2h --tz Europe/Madrid
  harp maint why db01`
	return cmd
}

// windowWords are the names of windows.
func windowWords(ctx context.Context, caller *harp.Caller, _ []string, _ string) (found []word) {
	for s, err := range caller.Maintenance().List(ctx) {
		if err != nil {
			break
		}
		found = append(found, word{s.Name, modeText(s.Window) + " on " + s.Target})
	}
	return found
}

func (c *cli) maintOnCommand() *cobra.Command {
	var (
		w         harp.Window
		sure, dry bool
	)
	cmd := &cobra.Command{
		Use:   "on",
		Short: "Hold everything that would start, from now on until harp maint off",
		Long: `Hold everything that would start, on all hosts or on those of a target, until harp maint off.
This makes or overwrites the window global. On a terminal it asks first if there is more
than one host, unless -y is given. Procedures declared read_only are not held: see harp help
maintenance.`,
		Example: "  harp maint on --reason 'moving the rack'\n  harp maint on --target 'rack=7'",
		Args:    cobra.NoArgs,
		RunE: c.does(func(ctx context.Context, _ []string) error {
			w.Name = globalWindow
			if err := checkTarget(w.Target); err != nil {
				return err
			}
			return c.withCaller(ctx, func(caller *harp.Caller) error { return c.holdNow(ctx, caller, w, sure, dry) })
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&w.Target, "target", "*", "hold only the hosts that this `target` selects")
	flags.StringVar(&w.Reason, "reason", "", "a `text` for those whose jobs wait")
	flags.BoolVarP(&sure, "yes", "y", false, "do not ask")
	bindDryRun(cmd, &dry)
	c.completeFlag(cmd, "target", listed(c.asksWords(targetWords)))
	return cmd
}

// holdNow makes a window that begins now and has no end, when somebody who can be asked agrees.
func (c *cli) holdNow(ctx context.Context, caller *harp.Caller, w harp.Window, sure, dry bool) error {
	var err error
	if w.From, err = startOfWindow(ctx, caller, time.Now()); err != nil {
		return err
	}
	if err := w.Check(); err != nil {
		return err
	}
	hosts, err := countConcerned(ctx, caller, w.Target)
	if err != nil {
		return err
	}
	if dry {
		return c.would(object{{"window", w}, {"hosts", hosts}}, "would hold what starts on %s, %s now", w.Target, hostCount(hosts))
	}
	if hosts > 0 {
		if _, err := c.askForSeveral(ctx, caller, w.Target, sure, "Hold what starts on", "nothing is held"); err != nil {
			return err
		}
	}
	if err := caller.Maintenance().Put(ctx, w); err != nil {
		return err
	}
	if c.format == formatJSON {
		return c.printObject(object{{"window", w}, {"hosts", hosts}})
	}
	c.notice("starts on %s are held from now on (%s); harp maint off ends this", w.Target, hostCount(hosts))
	return nil
}

// startOfWindow returns when a window begins: a time that has come here has come for the dispatcher, too, whatever its clock says.
func startOfWindow(ctx context.Context, caller *harp.Caller, from time.Time) (time.Time, error) {
	if from.After(time.Now()) {
		return from.UTC(), nil
	}
	info, err := caller.Ping(ctx)
	if err == nil && !info.Time.IsZero() && info.Time.Before(from) {
		from = info.Time
	}
	return from.UTC(), err
}

// countConcerned counts the hosts that a target selects now. That there are none is no error: a window may be
// about hosts to come.
func countConcerned(ctx context.Context, caller *harp.Caller, text string) (int, error) {
	n, err := countSelected(ctx, caller, text)
	if errors.Is(err, harp.ErrNotFound) {
		err = nil
	}
	return n, err
}

func (c *cli) maintOffCommand() *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use:   "off",
		Short: "End what harp maint on began",
		Long: `End what harp maint on began: what waited may start, unless another window holds it back.
This deletes the window global.`,
		Args: cobra.NoArgs,
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, _ []string) error { return c.endGlobal(ctx, caller, dry) }),
	}
	bindDryRun(cmd, &dry)
	return cmd
}

// endGlobal deletes the window of harp maint on or, for a dry run, looks whether there is one.
func (c *cli) endGlobal(ctx context.Context, caller *harp.Caller, dry bool) error {
	m, err := caller.Maintenance(), error(nil)
	if dry {
		_, err = m.Get(ctx, globalWindow)
	} else {
		err = m.Delete(ctx, globalWindow)
	}
	switch {
	case errors.Is(err, harp.ErrNotFound):
		return fmt.Errorf("maintenance is not on: %w", err)
	case err != nil:
		return err
	case dry:
		return c.would(object{{"name", globalWindow}}, "would turn maintenance off: delete window %s", globalWindow)
	case c.format == formatJSON:
		return c.printObject(object{{"name", globalWindow}})
	}
	c.notice("maintenance is off: deleted window %s", globalWindow)
	return nil
}

func (c *cli) maintListCommand() *cobra.Command {
	return listCommand(c, "List windows", c.windowListing, func(ctx context.Context, caller *harp.Caller) iter.Seq2[harp.WindowStatus, error] {
		return caller.Maintenance().List(ctx)
	})
}

// windowListing is a list of windows as it is printed.
func (c *cli) windowListing() listing[harp.WindowStatus] {
	return listing[harp.WindowStatus]{
		name:   "windows",
		header: []string{"name", "target", "mode", "when", "now"},
		row: func(s harp.WindowStatus) []string {
			return []string{s.Name, s.Target, modeText(s.Window), c.whenText(s.Window), c.openText(s)}
		},
		wider: []string{"procedures", "reason", "by"},
		widen: func(s harp.WindowStatus) []string { return []string{proceduresText(s.Window), s.Reason, s.By.Name} },
		id:    func(s harp.WindowStatus) string { return s.Name },
	}
}

// modeText is what a window does, in a few words.
func modeText(w harp.Window) string {
	text := string(cmp.Or(w.Mode, harp.WindowHold))
	if w.SchedulesOnly {
		text += " schedules"
	}
	if w.Only {
		text += " outside"
	}
	return text
}

// whenText is when the spans of a window are.
func (c *cli) whenText(w harp.Window) string {
	zone := ""
	if w.TZ != "" {
		zone = ", " + w.TZ
	}
	switch {
	case w.Cron != "":
		return w.Cron + " for " + limitWords(w.For) + zone
	case w.Calendar != nil && w.Calendar.Event != "":
		return "calendar, " + w.Calendar.Event + zone
	case w.Calendar != nil:
		return "calendar" + zone
	case w.To.IsZero():
		return "from " + c.clock(w.From)
	}
	return c.clock(w.From) + " to " + c.clock(w.To)
}

// openText is where a window is in its spans.
func (c *cli) openText(s harp.WindowStatus) string {
	text := c.spanText(s)
	if f := s.Fetch; f != nil && !f.Since.IsZero() {
		text += "; calendar not fetched since " + c.clock(f.Since) + ": " + f.Why
	}
	return text
}

// spanText is in which span a window is, or which is the next.
func (c *cli) spanText(s harp.WindowStatus) string {
	switch {
	case s.Err != nil:
		return "cannot be told: " + s.Err.Error()
	case s.Open && s.Span.To.IsZero():
		return "open, no end"
	case s.Open:
		return "open " + c.untilText(s.Span.To)
	case !s.Span.From.IsZero():
		return "next " + c.clock(s.Span.From)
	case s.From.IsZero():
		return "none within a year"
	case s.From.After(time.Now()):
		return "next " + c.clock(s.From)
	}
	return "over"
}

// proceduresText is which procedures a window is about; "" if it is all that change something.
func proceduresText(w harp.Window) string {
	words := slices.Clone(w.Procedures)
	for _, pattern := range w.Exempt {
		words = append(words, "not "+pattern)
	}
	if w.All {
		words = append(words, "read-only ones too")
	}
	return strings.Join(words, ", ")
}

func (c *cli) maintShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "Show a window",
		Args:  cobra.ExactArgs(1),
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, args []string) error {
			s, err := caller.Maintenance().Get(ctx, args[0])
			if err != nil {
				return err
			}
			if c.format == formatJSON {
				return c.printNoun(s)
			}
			c.pairs(c.windowPairs(s))
			return nil
		}),
	}
}

// windowPairs are what is to be said of a window.
func (c *cli) windowPairs(s harp.WindowStatus) [][2]string {
	calendar, event, zones := "", "", ""
	if k := s.Calendar; k != nil {
		calendar, event, zones = cmp.Or(k.URL, fmt.Sprintf("%d bytes", len(k.Content))), k.Event, labelText(k.Zones)
	}
	fetched, failed := c.fetchTexts(s.Fetch)
	return [][2]string{
		{"name", s.Name},
		{"doc", s.Doc},
		{"reason", s.Reason},
		{"target", s.Target},
		{"mode", modeText(s.Window)},
		{"procedures", strings.Join(s.Procedures, ", ")},
		{"exempt", strings.Join(s.Exempt, ", ")},
		{"read-only too", yes(s.All)},
		{"from", c.clock(s.From)},
		{"to", c.clock(s.To)},
		{"cron", s.Cron},
		{"for", limitWords(s.For)},
		{"calendar", calendar},
		{"fetched", fetched},
		{"not since", failed},
		{"event", event},
		{"zones", zones},
		{"zone", s.TZ},
		{"now", c.openText(s)},
		{"note", s.Span.Note},
		{"changed", c.clock(s.Changed)},
		{"by", strings.TrimSpace(s.By.Kind + " " + s.By.Name)},
		{"managed by", s.ManagedBy},
	}
}

// fetchTexts are when a calendar was fetched last, and since when it cannot be, and why.
func (c *cli) fetchTexts(f *harp.CalendarFetch) (fetched, failed string) {
	if f == nil {
		return "", ""
	}
	if !f.Since.IsZero() {
		failed = c.clock(f.Since) + ": " + f.Why
	}
	return fmt.Sprintf("%s, %d bytes", c.clock(f.At), f.Bytes), failed
}

func (c *cli) maintSpansCommand() *cobra.Command {
	var from, to moment
	cmd := &cobra.Command{
		Use:   "spans NAME",
		Short: "Show the spans of a window in the next 30 days",
		Example: `  harp maint spans db-patching
  harp maint spans db-patching --from 2027-03-01 --to 2027-04-01`,
		Args:        cobra.ExactArgs(1),
		Annotations: lists(),
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, args []string) error {
			begin, end := from.t, to.t
			if begin.IsZero() {
				begin = time.Now()
			}
			if end.IsZero() {
				end = begin.AddDate(0, 0, spanDays)
			}
			spans, err := caller.Maintenance().Spans(ctx, args[0], begin, end)
			if err != nil {
				return err
			}
			return c.printSpans(spans)
		}),
	}
	flags := cmd.Flags()
	flags.Var(&from, "from", "first time (default now); a duration counts from now")
	flags.Var(&to, "to", "last time (default 30 days later); a duration counts from now")
	return cmd
}

// spanDays is for how many days spans are shown.
const spanDays = 30

// printSpans prints the spans of a window.
func (c *cli) printSpans(spans []harp.Span) error {
	err := printList(c, listing[harp.Span]{
		name:   "spans",
		header: []string{"from", "to", "note"},
		row:    func(s harp.Span) []string { return []string{c.clock(s.From), c.spanEnd(s), s.Note} },
		id:     func(s harp.Span) string { return s.From.Format(time.RFC3339) },
		wraps:  true,
		exact:  true,
	}, append([]harp.Span{}, spans...))
	if err == nil && len(spans) == harp.MaxWindowSpans {
		c.notice("there may be more; see --from")
	}
	return err
}

// spanEnd is when a span ends.
func (c *cli) spanEnd(s harp.Span) string {
	return cmp.Or(c.clock(s.To), "no end")
}

func (c *cli) maintEndCommand() *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use:   "end NAME...",
		Short: "End a window made with --from early",
		Long: `End a window that was made with --from and is open now. What waited may start, unless another
window holds it back. A recurring one is deleted, or overwritten with --replace.`,
		Args: cobra.MinimumNArgs(1),
		RunE: c.changesWindow(&dry, endable, (*harp.Maintenance).End, "would end window %s", "ended window %s"),
	}
	bindDryRun(cmd, &dry)
	return cmd
}

// endable says whether a window can be ended. Errors: *wouldNotError.
func endable(w harp.WindowStatus) error {
	switch {
	case w.From.IsZero():
		return &wouldNotError{"window " + w.Name + " recurs, so it cannot be ended: delete or replace it"}
	case !w.Open:
		return &wouldNotError{"window " + w.Name + " is not open"}
	}
	return nil
}

func (c *cli) maintRemoveCommand() *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use:   "rm NAME...",
		Short: "Delete windows; what they held back may start",
		Args:  cobra.MinimumNArgs(1),
		RunE:  c.changesWindow(&dry, func(harp.WindowStatus) error { return nil }, (*harp.Maintenance).Delete, "would delete window %s", "deleted window %s"),
	}
	bindDryRun(cmd, &dry)
	return cmd
}

// changesWindow is the body of a command that changes the windows that it is given. The texts say of a name what would be
// done, and what was. check says whether a window is in a state for it.
func (c *cli) changesWindow(dry *bool, check func(harp.WindowStatus) error, change func(m *harp.Maintenance, ctx context.Context, name string) error, would, done string) func(*cobra.Command, []string) error {
	look := func(ctx context.Context, caller *harp.Caller, name string) error {
		w, err := caller.Maintenance().Get(ctx, name)
		if err == nil {
			err = byHand(harp.WindowDocument, name, w.ManagedBy)
		}
		if err != nil {
			return err
		}
		return check(w)
	}
	apply := func(ctx context.Context, caller *harp.Caller, name string) error {
		return change(caller.Maintenance(), ctx, name)
	}
	return c.changesNamed(dry, look, apply, would, done)
}
