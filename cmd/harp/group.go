package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/target"
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
	return listCommand(c, "List groups", c.groupListing, func(ctx context.Context, caller *harp.Caller) iter.Seq2[harp.Group, error] {
		return caller.Groups().List(ctx)
	})
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
	deleted := map[string]bool{} // as far as a dry run goes
	return c.removeCommand(removal{
		short: "Delete groups that no other group, window or notification uses",
		words: groupWords,
		look: func(ctx context.Context, caller *harp.Caller, name string) error {
			g, err := caller.Groups().Get(ctx, name)
			if err == nil {
				err = byHand(harp.GroupDocument, name, g.ManagedBy)
			}
			if err == nil {
				err = checkUnused(ctx, caller, name, deleted)
			}
			if err == nil {
				err = c.warnSchedules(ctx, caller, name, "used by schedules, whose runs would fail: %s")
			}
			deleted[name] = err == nil
			return err
		},
		remove: func(ctx context.Context, caller *harp.Caller, name string) error {
			if err := caller.Groups().Delete(ctx, name); err != nil {
				return err
			}
			return c.warnSchedules(ctx, caller, name, "used by schedules, whose runs fail from now on: %s")
		},
		would: "would delete group %s", done: "deleted group %s",
	})
}

// checkUnused says of a group that something uses which it is, as the dispatcher would, but for groups that are
// deleted before it. Errors: *wouldNotError.
func checkUnused(ctx context.Context, caller *harp.Caller, name string, deleted map[string]bool) error {
	groups, err := groupUsers(caller.Groups().List(ctx), name, func(g harp.Group) (string, string) { return g.Name, g.Target })
	windows, err2 := groupUsers(caller.Maintenance().List(ctx), name, func(w harp.WindowStatus) (string, string) { return w.Name, w.Target })
	notifications, err3 := groupUsers(caller.Notifications().List(ctx), name, func(n harp.NotificationStatus) (string, string) { return n.Name, n.Target })
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	groups = slices.DeleteFunc(groups, func(user string) bool { return deleted[user] })
	for _, by := range []struct {
		kind  harp.DocumentKind
		users []string
	}{{harp.GroupDocument, groups}, {harp.WindowDocument, windows}, {harp.NotificationDocument, notifications}} {
		if len(by.users) > 0 {
			return &wouldNotError{fmt.Sprintf("group %s is used by %s %s", name, by.kind, by.users[0])}
		}
	}
	return nil
}

// warnSchedules says which schedules use a group: they do not keep it from being deleted.
func (c *cli) warnSchedules(ctx context.Context, caller *harp.Caller, name, format string) error {
	users, err := groupUsers(caller.Schedules().List(ctx), name, func(s harp.ScheduleStatus) (string, string) { return s.Name, s.Request.Target })
	if len(users) > 0 {
		c.notice(format, strings.Join(users, ", "))
	}
	return err
}

// groupUsers are the names of those in a list whose target asks for a group.
func groupUsers[T any](list iter.Seq2[T, error], group string, of func(T) (name, text string)) (users []string, err error) {
	for item, err := range list {
		if err != nil {
			return nil, err
		}
		name, text := of(item)
		if e, err := target.Parse(text); err == nil && slices.Contains(e.Groups(), group) {
			users = append(users, name)
		}
	}
	return users, nil
}
