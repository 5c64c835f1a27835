package main

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
)

// labelChange is what is changed of labels.
type labelChange struct {
	set   map[string]string
	unset []string
}

func (c *cli) hostLabelCommand() *cobra.Command {
	var sure bool
	cmd := &cobra.Command{
		Use:   "label TARGET KEY=VALUE... KEY-...",
		Short: "Set and remove labels of hosts",
		Long: `Set labels of the hosts that a target selects, or remove labels that were set this way:
KEY-. They override those of the hosts registry, which override those of the host's
agent; harp host show says where each comes from. On a terminal it asks first if there is
more than one host, unless -y is given; hosts that are new by the answer are left as they are.`,
		Example: `  harp host label web01 role=web env=prod
  harp host label -y 'db*' rack-`,
		Args: cobra.MinimumNArgs(2),
		RunE: c.does(func(ctx context.Context, args []string) error {
			if err := checkTarget(args[0]); err != nil {
				return err
			}
			change, err := parseLabels(args[1:])
			if err != nil {
				return err
			}
			return c.withCaller(ctx, func(caller *harp.Caller) error { return c.labelHosts(ctx, caller, args[0], change, sure) })
		}),

		ValidArgsFunction: c.completeRest(c.asksWords(labelWords), listed(c.asksWords(targetWords))),
	}
	cmd.Flags().BoolVarP(&sure, "yes", "y", false, "do not ask")
	return cmd
}

// parseLabels reads KEY=VALUE and KEY-.
func parseLabels(words []string) (labelChange, error) {
	change := labelChange{set: map[string]string{}}
	for _, word := range words {
		key, value, isSet := strings.Cut(word, "=")
		switch name, isUnset := strings.CutSuffix(word, "-"); {
		case isSet:
			change.set[key] = value
		case isUnset:
			change.unset = append(change.unset, name)
		default:
			return labelChange{}, invalid("labels", "%q is neither KEY=VALUE nor KEY-", word)
		}
	}
	return change, harp.CheckLabelChange(change.set, change.unset)
}

// labelHosts labels hosts, when somebody who can be asked agrees.
func (c *cli) labelHosts(ctx context.Context, caller *harp.Caller, text string, change labelChange, sure bool) error {
	n, err := c.changeHosts(ctx, caller, text, sure, "Label", "nothing was labelled", func(text string) (int, error) {
		return caller.Hosts().Label(ctx, text, change.set, change.unset...)
	})
	if err != nil {
		return err
	}
	if c.format == formatJSON {
		return c.printObject(object{{"hosts", n}})
	}
	c.notice("labelled %s", hostCount(n))
	return nil
}

// sourcedLabels are the labels of a host, each with where it is from.
func sourcedLabels(h harp.HostStatus) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(h.Labels)) {
		label := key + "=" + h.Labels[key]
		if from := h.LabelSources[key]; from != "" {
			label += " (" + string(from) + ")"
		}
		all = append(all, label)
	}
	return strings.Join(all, ", ")
}
