package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
)

// verdicts of a check.
const (
	fine   = "ok"
	doubt  = "warn"
	broken = "FAIL"
)

// check is one thing that was looked at.
type check struct {
	Status string `json:"status"` // ok, warn or FAIL
	What   string `json:"what"`
	Detail string `json:"detail"`
	Todo   string `json:"todo,omitempty"` // what to do about it
}

// doctor looks at one thing after the other.
type doctor struct {
	cli        *cli
	showBounds bool
	checks     []check
	bounds     []harp.Bound // of the dispatcher
}

func (c *cli) doctorCommand() *cobra.Command {
	showBounds := false
	cmd := &cobra.Command{
		Use:   "doctor [HOST]",
		Short: "Find out why something does not work",
		Long: `Check everything between here and the dispatcher, and a host if one is named:
configuration, certificates, name, network, TLS, versions, clocks, what the host reports.
Each line is ok, warn or FAIL and says what to do; the exit code is 1 if one is FAIL.

--bounds adds the dispatcher's bounds on what callers and agents can make it hold: how
much of each is used, where that is counted, and what it is for. Those of an agent follow:
of one of this program's version, with defaults for what its configuration may change.`,
		Args: cobra.MaximumNArgs(1),
		RunE: c.does(func(ctx context.Context, args []string) error {
			d := doctor{cli: c, showBounds: showBounds}
			host := ""
			if len(args) > 0 {
				host = args[0]
			}
			d.examine(ctx, host)
			if err := ctx.Err(); err != nil {
				return err
			}
			return d.printReport()
		}),
		ValidArgsFunction: c.completeOnly(c.asksWords(hostWords)),
	}
	cmd.Flags().BoolVar(&showBounds, "bounds", false, "show the bounds of the dispatcher and of agents, too")
	return cmd
}

func (d *doctor) noteCheck(status, what, todo, format string, a ...any) bool {
	d.checks = append(d.checks, check{status, what, fmt.Sprintf(format, a...), todo})
	return status != broken
}

func (d *doctor) ok(what, format string, a ...any) bool {
	return d.noteCheck(fine, what, "", format, a...)
}

func (d *doctor) warn(what, todo, format string, a ...any) bool {
	return d.noteCheck(doubt, what, todo, format, a...)
}

func (d *doctor) failCheck(what, todo, format string, a ...any) bool {
	return d.noteCheck(broken, what, todo, format, a...)
}

// examine makes the checks, each only if those it rests on were good.
func (d *doctor) examine(ctx context.Context, host string) {
	to, ok := d.context()
	if !ok {
		return
	}
	tc, ok := d.certificates(to)
	if !ok || !d.network(ctx, to, tc) {
		return
	}
	caller, err := d.cli.dial(ctx, to)
	if err != nil {
		d.failCheck("dispatcher", "see the dispatcher's log", "%s", err)
		return
	}
	defer caller.Close()
	if !d.dispatcher(ctx, caller, to.Addr) {
		return
	}
	if host == "" {
		d.hosts(ctx, caller)
		return
	}
	d.checkHost(ctx, caller, host)
}

// failedChecksError is how many checks failed.
type failedChecksError int

func (n failedChecksError) Error() string {
	if n == 1 {
		return "a check failed"
	}
	return strconv.Itoa(int(n)) + " checks failed"
}

// printReport prints the checks. Errors: failedChecksError.
func (d *doctor) printReport() error {
	failed := 0
	for _, one := range d.checks {
		if one.Status == broken {
			failed++
		}
	}
	if d.cli.format == formatJSON {
		report := object{{"ok", failed == 0}, {"checks", d.checks}}
		if d.showBounds {
			report = append(report, object{{"bounds", d.bounds}, {"agent_bounds", agent.Bounds()}}...)
		}
		if err := d.cli.printObject(report); err != nil {
			return err
		}
	} else {
		d.printChecks()
		d.printBounds()
	}
	if failed > 0 {
		return failedChecksError(failed)
	}
	return nil
}

func (d *doctor) printChecks() {
	w := table.NewWriter()
	w.SetOutputMirror(d.cli.stdout)
	w.SetStyle(plainStyle)
	w.SuppressTrailingSpaces()
	out, _ := d.cli.painters()
	for _, one := range d.checks {
		text := safeLine(one.Detail)
		if one.Todo != "" {
			text += "  → " + safeLine(one.Todo)
		}
		colour := map[string]paint{fine: green, doubt: yellow, broken: red}[one.Status]
		w.AppendRow(table.Row{out.paintText(colour, one.Status), safeLine(one.What), text})
	}
	w.Render()
}

// nearBound is the part of a bound, in percent, from which on its use is worth a word.
const nearBound = 80

// checkBounds looks whether peers have nearly all that there is for them.
func (d *doctor) checkBounds(bounds []harp.Bound) {
	if d.bounds = bounds; len(bounds) == 0 {
		return // of an older dispatcher
	}
	near := false
	for _, b := range bounds {
		if b.Used > 0 && b.Used >= b.Most/100*nearBound {
			near = d.warn("bounds", "see docs/security.md, and find out who calls so much", "%s: %s of %s: %s", b.Name, quantity(b.Used, b.Unit), quantity(b.Most, b.Unit), b.Reason)
		}
	}
	if !near {
		d.ok("bounds", "less than %d %% of each is used", nearBound)
	}
}

// quantity is a number of something, bytes in larger units.
func quantity(n int64, unit string) string {
	value := float64(n)
	if unit != "bytes" || n < 1<<10 {
		if n == 1 {
			unit = strings.TrimSuffix(unit, "s")
		}
		return strconv.FormatInt(n, 10) + " " + unit
	}
	for _, unit = range []string{"KiB", "MiB", "GiB", "TiB"} {
		if value /= 1 << 10; value < 1<<10 {
			break
		}
	}
	return strconv.FormatFloat(math.Round(value*10)/10, 'f', -1, 64) + " " + unit
}

func (d *doctor) printBounds() {
	if !d.showBounds {
		return
	}
	if len(d.bounds) > 0 {
		d.printTable("bound", d.bounds)
	}
	d.printTable("bound of an agent", agent.Bounds())
}

func (d *doctor) printTable(title string, bounds []harp.Bound) {
	var rows [][]string
	for _, b := range bounds {
		used := ""
		if b.Used > 0 {
			used = quantity(b.Used, b.Unit)
		}
		rows = append(rows, []string{b.Name, used, quantity(b.Most, b.Unit), b.Reason})
	}
	_, _ = fmt.Fprintln(d.cli.stdout)
	d.cli.wrappedTable([]string{title, "used", "most", "what it is for"}, rows)
}

// hosts counts the hosts that are there and away.
func (d *doctor) hosts(ctx context.Context, caller *harp.Caller) {
	online, away, trouble := 0, 0, ""
	ailing := []string{}
	for h, err := range caller.Hosts().List(ctx, "") {
		switch {
		case err != nil:
			d.failCheck("hosts", "", "%s", err)
			return
		case h.Online:
			online++
			if len(h.Problems) > 0 {
				ailing = append(ailing, h.Name)
			}
		default:
			away++
			trouble = h.Name
		}
	}
	switch {
	case online+away == 0:
		d.warn("hosts", "start an agent: harp agent --help", "no host yet")
	case away > 0:
		d.warn("hosts", "harp doctor "+trouble, "%d online, %d away", online, away)
	default:
		d.ok("hosts", "%d online", online)
	}
	if n := len(ailing); n > 0 {
		const most = 5
		d.warn("problems", "harp host ls --problems", "of %s that are online: %s", hostCount(n), strings.Join(ailing[:min(n, most)], ", "))
	}
}

// problemTodos is what to do about the problems of a host.
var problemTodos = map[string]string{
	harp.ProblemProcedures:  "fix the file; harp agent --check-config on the host checks it",
	harp.ProblemCertificate: "give the agent a new certificate, and send it SIGHUP",
	harp.ProblemDuplicate:   "stop the other agent, or give it a certificate with a name of its own",
}

// problems tells what is wrong with a host that can be called.
func (d *doctor) problems(h harp.HostStatus) {
	for _, p := range h.Problems {
		d.warn(p.Code, problemTodos[p.Code], "%s", p.Text)
	}
}

// checkHost looks at what is known of one host.
func (d *doctor) checkHost(ctx context.Context, caller *harp.Caller, name string) {
	what := "host " + name
	h, err := caller.Hosts().Get(ctx, name)
	if err != nil {
		d.failCheck(what, "harp host ls lists known hosts; is its agent running, and does it dial this dispatcher?", "%s", err)
		return
	}
	heard := "never heard from"
	if !h.LastHeard.IsZero() {
		heard = "last heard from " + d.cli.clock(h.LastHeard)
	}
	if !h.Online {
		detail := "is away, " + heard
		if h.Error != "" {
			detail += ": " + h.Error
		}
		d.failCheck(what, "look at the agent's log on "+name+", and at the network from it", "%s", detail)
	} else {
		d.ok(what, "online, %s, %s", h.Software, heard)
	}
	d.offers(h)
	d.problems(h)
	d.supervised(h)
	d.survivors(ctx, caller, name)
}

// survivors looks for jobs of a host that do not end, as processes of them outlive KILL.
func (d *doctor) survivors(ctx context.Context, caller *harp.Caller, name string) {
	active := harp.JobFilter{Host: name, States: []harp.State{harp.StateRunning, harp.StateCancelling, harp.StateUnknown}}
	for s, err := range caller.Jobs(ctx, active) {
		if err != nil {
			d.failCheck("jobs", "", "%s", err)
			return
		}
		if len(s.Survivors) > 0 {
			d.warn("job "+s.ID, "look at the processes on "+name+": those that wait for a disk or network end with that; those of another user must be ended by that user or root",
				"does not end: processes survive KILL: %s", survivorsText(s))
		}
	}
}

// offers looks at a host's procedures.
func (d *doctor) offers(h harp.HostStatus) {
	if len(h.Procedures) == 0 {
		d.warn("procedures", "set procedures: in its agent's configuration", "offers none")
		return
	}
	d.ok("procedures", "%d offered", len(h.Procedures))
}

// supervised tells whether the host's commands survive a restart of its agent.
func (d *doctor) supervised(h harp.HostStatus) {
	facts, err := h.Facts.Any()
	known, ok := facts.(map[string]any)
	if err != nil || !ok {
		d.warn("facts", "", "reports none")
		return
	}
	switch known["supervised"] {
	case true:
		d.ok("commands", "survive a restart of the agent")
	case false:
		d.warn("commands", "call supervise.Main first in main, and set dir", "end with the agent")
	}
}
