package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
)

func (c *cli) hostCommand() *cobra.Command {
	return group("host", "List, show, ping, label, pause and remove hosts",
		c.hostListCommand(),
		c.hostPingCommand(),
		c.hostLabelCommand(),
		c.hostPauseCommand(),
		c.hostUnpauseCommand(),
		&cobra.Command{
			Use:   "show HOST",
			Short: "Show what is known about a host",
			Args:  cobra.ExactArgs(1),
			RunE:  c.asks(c.showHost),

			ValidArgsFunction: c.completeOnly(c.asksWords(hostWords)),
		},
		c.hostRemoveCommand(),
		&cobra.Command{
			Use:   "refresh",
			Short: "Make the dispatcher read its hosts registry again",
			Args:  cobra.NoArgs,
			RunE:  c.asks(c.refreshHosts),
		})
}

func (c *cli) hostListCommand() *cobra.Command {
	var problems, watch bool
	cmd := &cobra.Command{
		Use:   "ls [TARGET]",
		Short: "List hosts: all, or those that a target selects",
		Long: `List hosts: all, or those that a target selects, by name, label, fact and more. See harp
help targets.`,
		Example: `  harp host ls 'web*'
  harp host ls 'role=web and host.proc=service.restart' -o id
  harp host ls host.online=false
  harp host ls --watch`,
		Args:        cobra.MaximumNArgs(1),
		Annotations: lists(),
		RunE: c.does(func(ctx context.Context, args []string) error {
			text := strings.Join(args, "")
			if err := checkTarget(text); err != nil {
				return err
			}
			return c.withCaller(ctx, func(caller *harp.Caller) error {
				return showList(ctx, c, watch, c.hostListing(), func(ctx context.Context) ([]harp.HostStatus, bool, error) {
					hosts, err := findHosts(ctx, caller, text, problems)
					if watch && harp.FailureOf(err).Type == "target" {
						err = nil // none is selected now; one may be later
					}
					return hosts, false, err
				})
			})
		}),

		ValidArgsFunction: c.completeOnly(listed(c.asksWords(targetWords))),
	}
	cmd.Flags().BoolVar(&problems, "problems", false, "only hosts with problems")
	bindWatch(cmd, &watch)
	return cmd
}

// findHosts asks for the hosts that a target selects, all if it is empty; if asked, only for
// those that have a problem.
func findHosts(ctx context.Context, caller *harp.Caller, text string, problems bool) ([]harp.HostStatus, error) {
	hosts := []harp.HostStatus{}
	for h, err := range caller.Hosts().List(ctx, text) {
		if err != nil {
			return nil, noHost(ctx, caller, err, text)
		}
		if len(problemTexts(h)) > 0 || !problems {
			hosts = append(hosts, h)
		}
	}
	return hosts, nil
}

// hostListing is a list of hosts as it is printed.
func (c *cli) hostListing() listing[harp.HostStatus] {
	return listing[harp.HostStatus]{
		name:   "hosts",
		header: []string{"name", "online", "procedures", "labels", "last heard", "problem"},
		row: func(h harp.HostStatus) []string {
			return []string{h.Name, yesText(h.Online), strconv.Itoa(len(h.Procedures)), labelText(h.Labels), c.clock(h.LastHeard), strings.Join(c.hostNotes(h), "; ")}
		},
		wraps: true,
		wider: []string{"address", "software"},
		widen: func(h harp.HostStatus) []string { return []string{h.Address, h.Software} },
		id:    func(h harp.HostStatus) string { return h.Name },
		changes: func(h harp.HostStatus) string {
			return strings.Join([]string{h.Name, yesText(h.Online), strings.Join(h.Procedures, " "), labelText(h.Labels), strings.Join(c.hostNotes(h), "\n")}, "\n")
		},
	}
}

// hostNotes is that a host is paused, and what is wrong with it.
func (c *cli) hostNotes(h harp.HostStatus) []string {
	if h.Pause == nil {
		return problemTexts(h)
	}
	return append([]string{"paused by " + c.hostPauseText(h.Pause)}, problemTexts(h)...)
}

// problemTexts is what is wrong with a host.
func problemTexts(h harp.HostStatus) (texts []string) {
	if h.Error != "" {
		texts = []string{h.Error}
	}
	for _, p := range h.Problems {
		texts = append(texts, p.Text)
	}
	return texts
}

func (c *cli) hostPingCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ping TARGET",
		Short: "Check whether the agents of hosts answer",
		Long: `Check whether the agents of the hosts that a target selects answer, all at once, within 3 s. A
host that does not answer is silent, one that could not be asked is away; either makes the
exit code 7. No procedure is called.`,
		Example: `  harp host ping web01
  harp host ping 'role=web' -o jsonl`,
		Args:        cobra.ExactArgs(1),
		Annotations: lists(),
		RunE: c.does(func(ctx context.Context, args []string) error {
			if err := checkTarget(args[0]); err != nil {
				return err
			}
			return c.withCaller(ctx, func(caller *harp.Caller) error { return c.pingHosts(ctx, caller, args[0]) })
		}),

		ValidArgsFunction: c.completeOnly(listed(c.asksWords(targetWords))),
	}
}

// pingHosts says which hosts answer. Errors: as the library; *saidError when one did not.
func (c *cli) pingHosts(ctx context.Context, caller *harp.Caller, text string) error {
	pings := []harp.HostPing{}
	missing := 0
	for p, err := range caller.Hosts().Ping(ctx, text) {
		if err != nil {
			return noHost(ctx, caller, err, text)
		}
		if pings = append(pings, p); !p.Answered {
			missing++
		}
	}
	err := printList(c, listing[harp.HostPing]{
		name:   "hosts",
		header: []string{"name", stateColumn, "rtt", "last heard"},
		row: func(p harp.HostPing) []string {
			if !p.Answered {
				return []string{p.Host, pingText(p), "", c.clock(p.LastHeard)}
			}
			return []string{p.Host, pingText(p), p.Took.Round(10 * time.Microsecond).String(), c.clock(p.LastHeard)}
		},
		id: func(p harp.HostPing) string { return p.Host },
	}, pings)
	if err != nil || missing == 0 {
		return err
	}
	c.notice("%d of %d hosts did not answer", missing, len(pings))
	return &saidError{exitUnreachable}
}

// pingText is what became of a ping.
func pingText(p harp.HostPing) string {
	switch {
	case p.Answered:
		return "answered"
	case p.Online:
		return "silent"
	}
	return "away"
}

func (c *cli) showHost(ctx context.Context, caller *harp.Caller, args []string) error {
	h, err := caller.Hosts().Get(ctx, args[0])
	if err != nil {
		return noHost(ctx, caller, err, args[0])
	}
	if c.format == formatJSON {
		return c.printNoun(h)
	}
	pairs := [][2]string{
		{"name", h.Name},
		{"online", yesText(h.Online)},
		{"address", h.Address},
	}
	if h.Pause != nil {
		pairs = append(pairs, [2]string{"paused by", c.hostPauseText(h.Pause)})
	}
	for _, s := range h.Drift {
		pairs = append(pairs, [2]string{"drift " + s.Name, string(s.Mark) + " since " + c.clock(s.Since) + ", checked " + c.clock(s.Checked)})
	}
	for _, text := range problemTexts(h) {
		pairs = append(pairs, [2]string{"problem", text})
	}
	c.pairs(append(pairs, [][2]string{
		{"labels", sourcedLabels(h)},
		{"procedures", strings.Join(h.Procedures, ", ")},
		{"last heard", c.clock(h.LastHeard)},
		{"software", h.Software},
		{"facts", valueText(h.Facts)},
	}...))
	return nil
}

func (c *cli) hostRemoveCommand() *cobra.Command {
	var sure, dry bool
	cmd := &cobra.Command{
		Use:   "rm HOST",
		Short: "Forget a host that is gone for good, and end its jobs",
		Long: `Forget a host that is gone for good. Jobs queued for it are cancelled. Jobs that were sent
to it are lost, since nobody can say whether they ran, and are not retried. Their reason
is host_removed. Ended jobs stay.

The agent must be stopped, and the host must not be in the hosts registry. An agent that
connects under the same name later is a new host.`,
		Example: `  harp host rm web07 --dry-run
  harp host rm web07 -y`,
		Args: cobra.ExactArgs(1),
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, args []string) error {
			return c.removeHost(ctx, caller, args[0], sure, dry)
		}),

		ValidArgsFunction: c.completeOnly(c.asksWords(awayHostWords)),
	}
	cmd.Flags().BoolVarP(&sure, "yes", "y", false, "do not ask")
	bindDryRun(cmd, &dry)
	return cmd
}

// removeHost removes a host, having said what that ends.
func (c *cli) removeHost(ctx context.Context, caller *harp.Caller, name string, sure, dry bool) error {
	h, err := caller.Hosts().Get(ctx, name)
	if err != nil {
		return noHost(ctx, caller, err, name)
	}
	queued, others, err := countUnended(ctx, caller, name)
	if err != nil {
		return err
	}
	ends := fmt.Sprintf("cancels %s queued for it and gives up %s that may be running on it", jobsText(queued), jobsText(others))
	switch {
	case dry && h.Online:
		return &wouldNotError{"the host's agent is connected; stop the agent first"}
	case dry:
		return c.would(object{{"host", name}, {"cancelled", queued}, {"lost", others}}, "removing %s %s", name, ends)
	}
	if !sure && !h.Online { // else it is refused, and there is nothing to ask
		if err := c.askSure(ctx, fmt.Sprintf("removing %s %s", name, ends), "Remove it?", "nothing was removed"); err != nil {
			return err
		}
	}
	n, err := caller.Hosts().Remove(ctx, name)
	if err != nil {
		return err
	}
	if c.format == formatJSON {
		return c.printObject(object{{"host", name}, {"ended", n}})
	}
	c.say("removed %s; %s ended", name, jobsText(n))
	return nil
}

// unended are the states of jobs that have not ended.
var unended = slices.DeleteFunc(slices.Clone(jobStates), harp.State.Ended)

// countUnended counts the jobs of a host that wait, and those that may run.
func countUnended(ctx context.Context, caller *harp.Caller, host string) (queued, others int, err error) {
	for job, err := range caller.Jobs(ctx, harp.JobFilter{Host: host, States: unended}) {
		switch {
		case err != nil:
			return 0, 0, err
		case job.State == harp.StateQueued:
			queued++
		default:
			others++
		}
	}
	return queued, others, nil
}

func (c *cli) refreshHosts(ctx context.Context, caller *harp.Caller, _ []string) error {
	n, err := caller.Hosts().Refresh(ctx)
	if err != nil {
		return err
	}
	if c.format == formatJSON {
		return c.printObject(object{{"count", n}})
	}
	c.say("%d hosts in the registry", n)
	return nil
}
