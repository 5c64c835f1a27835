package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
)

func (c *cli) groupCommand() *cobra.Command {
	cmd := group("group", "Show and change groups, which are named targets",
		c.groupListCommand(),
		&cobra.Command{
			Use:   "show NAME",
			Short: "Show a group",
			Args:  cobra.ExactArgs(1),
			RunE:  c.asks(c.showGroup),

			ValidArgsFunction: c.completeOnly(c.asksWords(groupWords)),
		},
		&cobra.Command{
			Use:   "set NAME TARGET",
			Short: "Create a group, or change its target",
			Long: `Create a group, or change its target, which may use other groups. A target with a syntax
error, with an unknown group, or that uses the group itself, is refused.`,
			Args: cobra.ExactArgs(2),
			RunE: c.does(func(ctx context.Context, args []string) error {
				if err := checkTarget(args[1]); err != nil {
					return err
				}
				return c.withCaller(ctx, func(caller *harp.Caller) error { return c.setGroup(ctx, caller, args[0], args[1]) })
			}),

			ValidArgsFunction: c.complete(c.asksWords(groupWords), listed(c.asksWords(targetWords))),
		},
		c.groupRemoveCommand())
	cmd.Long = `Show and change groups. A group is a named target, which other targets use as @NAME. Its
hosts are looked up each time it is used. See harp help targets.`
	cmd.Example = `  harp group set frontend 'role=web and env=prod'
  harp host ls '@frontend and not host.online=true'`
	return cmd
}

func (c *cli) groupListCommand() *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:         "ls",
		Short:       "List groups",
		Args:        cobra.NoArgs,
		Annotations: lists(),
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, _ []string) error {
			return showList(ctx, c, watch, c.groupListing(), func(ctx context.Context) ([]harp.Group, bool, error) {
				return firstOf(caller.Groups().List(ctx), 0)
			})
		}),
	}
	bindWatch(cmd, &watch)
	return cmd
}

// groupListing is a list of groups as it is printed.
func (c *cli) groupListing() listing[harp.Group] {
	return listing[harp.Group]{
		name:   "groups",
		header: []string{"name", "target", "changed", "by"},
		row:    func(g harp.Group) []string { return []string{g.Name, g.Target, c.clock(g.Changed), g.By.Name} },
		wider:  []string{"managed by"},
		widen:  func(g harp.Group) []string { return []string{g.ManagedBy} },
		id:     func(g harp.Group) string { return g.Name },
	}
}

func (c *cli) showGroup(ctx context.Context, caller *harp.Caller, args []string) error {
	g, err := caller.Groups().Get(ctx, args[0])
	if err != nil {
		return err
	}
	if c.format == formatJSON {
		return c.printNoun(g)
	}
	c.pairs([][2]string{{"name", g.Name}, {"target", g.Target}, {"changed", c.clock(g.Changed)}, {"by", g.By.Name}, {"managed by", g.ManagedBy}})
	return nil
}

func (c *cli) setGroup(ctx context.Context, caller *harp.Caller, name, text string) error {
	if err := caller.Groups().Put(ctx, name, text); err != nil {
		return err
	}
	if c.format == formatJSON {
		return c.printObject(object{{"name", name}, {"target", text}})
	}
	c.notice("@%s is now %s", name, text)
	return nil
}

func (c *cli) groupRemoveCommand() *cobra.Command {
	return c.removeCommand(removal{
		short: "Delete groups that no other group uses",
		words: groupWords,
		look: func(ctx context.Context, caller *harp.Caller, name string) error {
			g, err := caller.Groups().Get(ctx, name)
			if err != nil {
				return err
			}
			return byHand(harp.GroupDocument, name, g.ManagedBy)
		},
		remove: func(ctx context.Context, caller *harp.Caller, name string) error {
			return caller.Groups().Delete(ctx, name)
		},
		would: "would delete group %s", done: "deleted group %s",
	})
}
