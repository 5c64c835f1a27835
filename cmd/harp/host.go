package main

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
)

func (c *cli) hostCommand() *cobra.Command {
	return group("host", "Look at hosts",
		&cobra.Command{
			Use:         "ls",
			Short:       "List hosts",
			Args:        cobra.NoArgs,
			Annotations: lists(),
			RunE:        c.asks(c.listHosts),
		},
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

func (c *cli) listHosts(ctx context.Context, caller *harp.Caller, _ []string) error {
	hosts := []harp.HostStatus{}
	for h, err := range caller.Hosts().List(ctx, "") {
		if err != nil {
			return err
		}
		hosts = append(hosts, h)
	}
	return printList(c, listing[harp.HostStatus]{
		name:   "hosts",
		header: []string{"name", "online", "procedures", "labels", "last heard", "problem"},
		row: func(h harp.HostStatus) []string {
			return []string{h.Name, onlineText(h), strconv.Itoa(len(h.Procedures)), labelText(h.Labels), c.clock(h.LastHeard), h.Error}
		},
		wider: []string{"address", "software"},
		widen: func(h harp.HostStatus) []string { return []string{h.Address, h.Software} },
		id:    func(h harp.HostStatus) string { return h.Name },
	}, hosts)
}

func (c *cli) showHost(ctx context.Context, caller *harp.Caller, args []string) error {
	h, err := caller.Hosts().Get(ctx, args[0])
	if err != nil {
		return err
	}
	if c.format == formatJSON {
		return c.printNoun(h)
	}
	c.pairs([][2]string{
		{"name", h.Name},
		{"online", onlineText(h)},
		{"address", h.Address},
		{"problem", h.Error},
		{"labels", labelText(h.Labels)},
		{"procedures", strings.Join(h.Procedures, ", ")},
		{"last heard", c.clock(h.LastHeard)},
		{"software", h.Software},
		{"facts", valueText(h.Facts)},
	})
	return nil
}

func onlineText(h harp.HostStatus) string {
	if h.Online {
		return "yes"
	}
	return "no"
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
