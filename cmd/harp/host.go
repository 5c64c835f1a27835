package main

import (
	"context"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
)

func (c *cli) hostCommand() *cobra.Command {
	return group("host", "Look at hosts",
		c.hostListCommand(),
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
	var (
		f     hostFilter
		watch bool
	)
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List hosts",
		Example: `  harp host ls --away
  harp host ls --label role=web --proc service.restart -o id
  harp host ls --watch`,
		Args:        cobra.NoArgs,
		Annotations: lists(),
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			find := func(ctx context.Context) ([]harp.HostStatus, error) { return f.find(ctx, caller) }
			if watch {
				return watchList(ctx, c, c.hostListing(), find)
			}
			hosts, err := find(ctx)
			if err != nil {
				return err
			}
			return printList(c, c.hostListing(), hosts)
		}),
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.online, "online", false, "only those that are connected")
	flags.BoolVar(&f.away, "away", false, "only those that are not")
	flags.BoolVar(&f.problems, "problems", false, "only those that something is wrong with")
	flags.StringArrayVar(&f.labeled, "label", nil, "only with this label: `key=value` (repeatable)")
	flags.StringVar(&f.procedure, "proc", "", "only those that offer this `procedure`")
	flags.StringVar(&f.match, "match", "", "only of a name like this `pattern`, as 'web*'")
	cmd.MarkFlagsMutuallyExclusive("online", "away")
	c.completeFlag(cmd, "proc", c.asksWords(func(ctx context.Context, caller *harp.Caller, _ []string, begun string) []word {
		return procedureWords(ctx, caller, nil, begun)
	}))
	bindWatch(cmd, &watch)
	return cmd
}

// hostFilter selects hosts.
type hostFilter struct {
	online, away, problems bool
	labeled                []string
	procedure, match       string

	labels map[string]string // of labeled
}

// check reads what the flags say.
func (f *hostFilter) check() (err error) {
	if _, err := path.Match(f.match, ""); err != nil {
		return invalid("match", "is not a pattern: %s", f.match)
	}
	if err := checkPlainName("proc", f.procedure); err != nil {
		return err
	}
	f.labels, err = labels(f.labeled)
	return err
}

// find asks for the hosts that are selected.
func (f *hostFilter) find(ctx context.Context, caller *harp.Caller) ([]harp.HostStatus, error) {
	hosts := []harp.HostStatus{}
	for h, err := range caller.Hosts().List(ctx, "") {
		if err != nil {
			return nil, err
		}
		if f.selects(h) {
			hosts = append(hosts, h)
		}
	}
	return hosts, nil
}

func (f *hostFilter) selects(h harp.HostStatus) bool {
	for k, v := range f.labels {
		if got, ok := h.Labels[k]; !ok || got != v {
			return false
		}
	}
	like, _ := path.Match(f.match, h.Name) // checked before
	switch {
	case f.online && !h.Online, f.away && h.Online, f.problems && h.Error == "", f.match != "" && !like:
		return false
	default:
		return f.procedure == "" || slices.Contains(h.Procedures, f.procedure)
	}
}

// hostListing is a list of hosts as it is printed.
func (c *cli) hostListing() listing[harp.HostStatus] {
	return listing[harp.HostStatus]{
		name:   "hosts",
		header: []string{"name", "online", "procedures", "labels", "last heard", "problem"},
		row: func(h harp.HostStatus) []string {
			return []string{h.Name, onlineText(h), strconv.Itoa(len(h.Procedures)), labelText(h.Labels), c.clock(h.LastHeard), h.Error}
		},
		wider: []string{"address", "software"},
		widen: func(h harp.HostStatus) []string { return []string{h.Address, h.Software} },
		id:    func(h harp.HostStatus) string { return h.Name },
		changes: func(h harp.HostStatus) string {
			return strings.Join([]string{h.Name, onlineText(h), strings.Join(h.Procedures, " "), labelText(h.Labels), h.Error}, "\n")
		},
	}
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
