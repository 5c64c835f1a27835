package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/when"
)

func (c *cli) maintAddCommand() *cobra.Command {
	var f windowFlags
	cmd := &cobra.Command{
		Use:   "add NAME --target TARGET",
		Short: "Make a window",
		Long: `Make a window, which keeps procedures from starting on the hosts that a target selects. One of
these says when:

  --from TIME                once: until somebody ends it, or as --for or --to say
  --cron EXPR --for D        recurring: this long from each time of the cron expression
  --calendar FILE|URL        during the events of an iCalendar file; --event selects some. A
                             file is read once; a URL is fetched by the dispatcher, now and
                             every hour, and the last good copy stays in force

What would start waits, or with --mode refuse is refused. --only is the reverse: procedures
start within its spans and not outside them. Procedures declared read_only are exempt unless
--all is given.`,
		Example: `  harp maint add move --target 'rack=7' --from 22:00 --for 4h --reason 'moving the rack'
  harp maint add db-patching --target 'role=db' --cron '0 2 * * SUN' --for 2h --tz Europe/Madrid
  harp maint add change-hours --target 'env=prod' --only --cron '0 9 * * MON-FRI' --for 8h --exempt 'disk.*'
  harp maint add holidays --target '*' --calendar holidays.ics --mode refuse --schedules-only
  harp maint add holidays --target '*' --calendar https://cal.example.org/holidays.ics --mode refuse`,
		Args: cobra.ExactArgs(1),
		RunE: c.does(func(ctx context.Context, args []string) error {
			f.window.Name = args[0]
			if err := f.read(c); err != nil {
				return err
			}
			return c.withCaller(ctx, func(caller *harp.Caller) error { return c.addWindow(ctx, caller, &f) })
		}),

		ValidArgsFunction: cobra.NoFileCompletions,
	}
	c.bindWindow(cmd, &f)
	return cmd
}

// windowFlags are a window as flags.
type windowFlags struct {
	window          harp.Window
	from, to        moment
	length          limit
	calendar, event string
	zones           []string
	replace, dryRun bool
	set             *pflag.FlagSet
}

func (c *cli) bindWindow(cmd *cobra.Command, f *windowFlags) {
	w, flags := &f.window, cmd.Flags()
	f.set = flags
	flags.StringVar(&w.Target, "target", "", "the `target` that selects its hosts; looked up again whenever hosts change")
	flags.Var(&f.from, "from", "once, from this time on: now, 22:00, 2027-03-01T22:00:00Z; a duration counts from now")
	flags.Var(&f.to, "to", "until this time (default: until somebody ends it); a duration counts from now")
	flags.StringVar(&w.Cron, "cron", "", "recurring, at the times of this cron `expression`: '0 2 * * SUN', @daily")
	flags.Var(&f.length, "for", "how long each span lasts, with --from or --cron")
	flags.StringVar(&f.calendar, "calendar", "", "during the events of this iCalendar `file`, which is read once (- is stdin), or of a URL, which the dispatcher fetches")
	flags.StringVar(&f.event, "event", "", "only events whose summary matches this `pattern`: * is any text, ? one character")
	flags.StringArrayVar(&f.zones, "zone", nil, "what an unknown time zone in the file means: `name=zone`, 'Our time=Europe/Madrid' (repeatable)")
	flags.StringVar(&w.TZ, "tz", "", "the time `zone` of --cron and --calendar, such as Europe/Madrid (default: the dispatcher's time_zone)")
	flags.StringVar((*string)(&w.Mode), "mode", string(harp.WindowHold), "`mode`: hold makes what would start wait, refuse turns it away")
	flags.BoolVar(&w.Only, "only", false, "the reverse: let procedures start only within its spans; of several such windows one open is enough")
	flags.BoolVar(&w.SchedulesOnly, "schedules-only", false, "hold back only what schedules start, not what people and programs call")
	flags.StringArrayVar(&w.Procedures, "proc", nil, "only procedures that match this `pattern`: * is any text, ? one character (repeatable)")
	flags.StringArrayVar(&w.Exempt, "exempt", nil, "except procedures that match this `pattern` (repeatable)")
	flags.BoolVar(&w.All, "all", false, "include procedures declared read_only")
	flags.StringVar(&w.Reason, "reason", "", "a `text` for those whose jobs wait")
	flags.StringVar(&w.Doc, "doc", "", "a `text` that describes it")
	flags.BoolVar(&f.replace, "replace", false, "overwrite the window of this name, if there is one")
	bindDryRun(cmd, &f.dryRun)
	_ = cmd.MarkFlagRequired("target") // fails only for a flag that is not there
	c.completeFlag(cmd, "target", listed(c.asksWords(targetWords)))
	c.completeFlag(cmd, "mode", fixed(string(harp.WindowHold), string(harp.WindowRefuse)))
	c.completeFlag(cmd, "proc", c.asksWords(everyProcedureWords))
	c.completeFlag(cmd, "exempt", c.asksWords(everyProcedureWords))
}

// read makes a window of the flags, and checks it as the dispatcher will.
func (f *windowFlags) read(c *cli) error {
	if err := f.checkWays(); err != nil {
		return err
	}
	w := &f.window
	w.From, w.To, w.For = f.from.t.UTC(), f.to.t.UTC(), 0
	switch length := time.Duration(f.length); {
	case w.Cron != "":
		w.For = length
	case length > 0:
		w.To = w.From.Add(length)
	}
	if f.calendar != "" {
		if err := f.readCalendar(c); err != nil {
			return err
		}
	}
	if err := checkTarget(w.Target); err != nil {
		return err
	}
	if err := w.Check(); err != nil {
		return err
	}
	if w.Cron != "" {
		return checkTimes(harp.Schedule{Name: w.Name, Cron: w.Cron, TZ: w.TZ})
	}
	if w.Calendar == nil || w.Calendar.URL != "" {
		return nil // what a URL has is seen from where the dispatcher is
	}
	_, err := when.WindowSource(w, nil)
	return err
}

// checkWays refuses flags that do not go together. Errors: *harp.FieldError.
func (f *windowFlags) checkWays() error {
	var given []string
	for _, name := range []string{"from", "cron", "calendar"} {
		if f.set.Changed(name) {
			given = append(given, name)
		}
	}
	switch {
	case len(given) == 0:
		return invalid("from", "give one of --from, --cron and --calendar")
	case len(given) > 1:
		return invalid(given[1], "cannot be combined with --%s: a window has one of --from, --cron and --calendar", given[0])
	}
	way := given[0]
	switch {
	case f.set.Changed("to") && way != "from":
		return invalid("to", "needs --from")
	case f.set.Changed("to") && f.set.Changed("for"):
		return invalid("to", "cannot be combined with --for")
	case way == "cron" && f.length == 0:
		return invalid("for", "is required with --cron: how long each span lasts")
	case f.set.Changed("for") && way == "calendar":
		return invalid("for", "needs --from or --cron")
	case time.Duration(f.length) == harp.NoLimit:
		return invalid("for", "must be a duration; --from alone has no end")
	case f.set.Changed("event") && way != "calendar":
		return invalid("event", "needs --calendar")
	case f.set.Changed("zone") && way != "calendar":
		return invalid("zone", "needs --calendar")
	}
	return nil
}

// readCalendar reads the file of the events, if it is no URL.
func (f *windowFlags) readCalendar(c *cli) (err error) {
	calendar := &harp.WindowCalendar{URL: calendarURL(f.calendar), Event: f.event, Zones: map[string]string{}}
	if calendar.URL == "" {
		if calendar.Content, err = c.readInput(f.calendar); err != nil {
			return invalid("calendar", "%s", err)
		}
	}
	for _, word := range f.zones {
		at := strings.LastIndexByte(word, '=') // names in the database have none
		if at < 1 {
			return invalid("zone", "%q is not name=zone", word)
		}
		calendar.Zones[word[:at]] = word[at+1:]
	}
	f.window.Calendar = calendar
	return nil
}

// calendarURL is the URL that a word is, "" if it is a file. Programs write webcal for https.
func calendarURL(word string) string {
	scheme, rest, isURL := strings.Cut(word, "://")
	switch scheme = strings.ToLower(scheme); {
	case !isURL:
		return ""
	case scheme == "webcal", scheme == "webcals":
		scheme = "https"
	}
	return scheme + "://" + rest
}

// addWindow makes a window or, for a dry run, says what it would be.
func (c *cli) addWindow(ctx context.Context, caller *harp.Caller, f *windowFlags) (err error) {
	w := f.window
	if !w.From.IsZero() {
		if w.From, err = startOfWindow(ctx, caller, w.From); err != nil {
			return err
		}
	}
	old, err := caller.Maintenance().Get(ctx, w.Name)
	switch {
	case err == nil && !f.replace:
		return &existsError{fmt.Sprintf("window %s already exists (%s on %s); --replace overwrites it", w.Name, modeText(old.Window), old.Target)}
	case err != nil && !errors.Is(err, harp.ErrNotFound):
		return err
	}
	hosts, err := countConcerned(ctx, caller, w.Target)
	if err != nil {
		return err
	}
	if f.dryRun {
		return c.wouldAddWindow(ctx, caller, w, hosts)
	}
	if err := caller.Maintenance().Put(ctx, w); err != nil {
		return err
	}
	made, err := caller.Maintenance().Get(ctx, w.Name)
	if err != nil {
		return err
	}
	if c.format == formatJSON {
		return c.printNoun(made, field{"hosts", hosts})
	}
	c.notice("window %s: %s on %s, %s now; %s", w.Name, modeText(w), w.Target, hostCount(hosts), c.openText(made))
	return nil
}

// wouldAddWindow says what a window would be, and when in the next days: the dispatcher, which is asked, fetches what is at a URL.
func (c *cli) wouldAddWindow(ctx context.Context, caller *harp.Caller, w harp.Window, hosts int) error {
	begin := time.Now()
	spans, err := caller.Maintenance().Preview(ctx, w, begin, begin.AddDate(0, 0, spanDays))
	if err != nil {
		return err
	}
	err = c.would(object{{"window", w}, {"hosts", hosts}, {"spans", append([]harp.Span{}, spans...)}},
		"would make window %s: %s on %s, %s now; %s", w.Name, modeText(w), w.Target, hostCount(hosts), c.whenText(w))
	if err != nil || c.format != formatText {
		return err
	}
	if len(spans) == 0 {
		c.say("no span in the next %d days", spanDays)
		return nil
	}
	return c.printSpans(spans)
}
