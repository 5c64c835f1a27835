package main

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
)

func (c *cli) hostCommand() *cobra.Command {
	return group("host", "Look at hosts and label them",
		c.hostListCommand(),
		c.hostLabelCommand(),
		&cobra.Command{
			Use:   "show HOST",
			Short: "Show what is known of a host",
			Args:  cobra.ExactArgs(1),
			RunE:  c.asks(c.showHost),

			ValidArgsFunction: c.completeOnly(c.asksWords(hostWords)),
		},
		&cobra.Command{
			Use:   "refresh",
			Short: "Make the dispatcher read its hosts registry now",
			Args:  cobra.NoArgs,
			RunE:  c.asks(c.refreshHosts),
		})
}

func (c *cli) hostListCommand() *cobra.Command {
	var problems, watch bool
	cmd := &cobra.Command{
		Use:   "ls [TARGET]",
		Short: "List hosts: all, or those that a target selects",
		Long: `List hosts: all, or those that a target selects, by name, label, fact and what is known
of them. harp help targets explains targets.`,
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
				find := func(ctx context.Context) ([]harp.HostStatus, error) { return findHosts(ctx, caller, text, problems) }
				if watch {
					return watchList(ctx, c, c.hostListing(), func(ctx context.Context) ([]harp.HostStatus, error) {
						hosts, err := find(ctx)
						if harp.FailureOf(err).Type == "target" {
							err = nil // none is selected now; one may be later
						}
						return hosts, err
					})
				}
				hosts, err := find(ctx)
				if err != nil {
					return err
				}
				return printList(c, c.hostListing(), hosts)
			})
		}),

		ValidArgsFunction: c.completeOnly(listed(c.asksWords(targetWords))),
	}
	cmd.Flags().BoolVar(&problems, "problems", false, "only those that something is wrong with")
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
		if h.Error != "" || !problems {
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
			return []string{h.Name, yesText(h.Online), strconv.Itoa(len(h.Procedures)), labelText(h.Labels), c.clock(h.LastHeard), h.Error}
		},
		wider: []string{"address", "software"},
		widen: func(h harp.HostStatus) []string { return []string{h.Address, h.Software} },
		id:    func(h harp.HostStatus) string { return h.Name },
		changes: func(h harp.HostStatus) string {
			return strings.Join([]string{h.Name, yesText(h.Online), strings.Join(h.Procedures, " "), labelText(h.Labels), h.Error}, "\n")
		},
	}
}

func (c *cli) showHost(ctx context.Context, caller *harp.Caller, args []string) error {
	h, err := caller.Hosts().Get(ctx, args[0])
	if err != nil {
		return noHost(ctx, caller, err, args[0])
	}
	if c.format == formatJSON {
		return c.printNoun(h)
	}
	c.pairs([][2]string{
		{"name", h.Name},
		{"online", yesText(h.Online)},
		{"address", h.Address},
		{"problem", h.Error},
		{"labels", sourcedLabels(h)},
		{"procedures", strings.Join(h.Procedures, ", ")},
		{"last heard", c.clock(h.LastHeard)},
		{"software", h.Software},
		{"facts", valueText(h.Facts)},
	})
	return nil
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
