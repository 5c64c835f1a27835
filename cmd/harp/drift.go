package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
)

func (c *cli) driftCommand() *cobra.Command {
	cmd := group("drift", "Show what checks found on hosts", c.driftListCommand(), c.driftForgetCommand())
	cmd.Long = `Show what checks found on hosts. A check is a dry run on many hosts that marks each of them,
under a name, as clean or dirty, or as unknown if it failed. Targets can select by these
marks. See harp help batches.`
	cmd.Example = `  harp run 'role=web' base --dry-run --drift base
  harp drift ls --name base
  harp run host.drift.base=dirty base`
	return cmd
}

func (c *cli) driftListCommand() *cobra.Command {
	var (
		name  string
		watch bool
	)
	cmd := &cobra.Command{
		Use:   "ls [TARGET]",
		Short: "List the marks of hosts: of all, or of those that a target selects",
		Long: `List the marks of hosts: of all, or of those that a target selects. A host that was never
checked has none; host.drift.NAME=unknown selects it.`,
		Args:        cobra.MaximumNArgs(1),
		Annotations: lists(),
		RunE: c.does(func(ctx context.Context, args []string) error {
			text := strings.Join(args, "")
			if err := checkTarget(text); err != nil {
				return err
			}
			return c.withCaller(ctx, func(caller *harp.Caller) error {
				return showList(ctx, c, watch, c.driftListing(), func(ctx context.Context) ([]harp.DriftStatus, bool, error) {
					marks, err := findDrift(ctx, caller, text, name)
					return marks, false, err
				})
			})
		}),

		ValidArgsFunction: c.completeOnly(listed(c.asksWords(targetWords))),
	}
	cmd.Flags().StringVar(&name, "name", "", "only marks with this `name`")
	bindWatch(cmd, &watch)
	c.completeFlag(cmd, "name", c.asksWords(driftWords))
	return cmd
}

// driftWords are the names under which hosts are marked.
func driftWords(ctx context.Context, caller *harp.Caller, _ []string, _ string) (found []word) {
	for s, err := range caller.Hosts().Drift(ctx, "", "") {
		if err != nil {
			break
		}
		if !slices.Contains(found, word{s.Name, ""}) {
			found = append(found, word{s.Name, ""})
		}
	}
	return found
}

// checkDriftName returns why there are no marks under a name, if no host at all is marked under it.
func checkDriftName(ctx context.Context, caller *harp.Caller, name string) error {
	if slices.Contains(driftWords(ctx, caller, nil, ""), word{name, ""}) {
		return nil
	}
	return suggestName(ctx, caller, failures.NotFound("drift", name), []string{name})
}

// findDrift returns the marks of the hosts that a target selects, under one name or, if that is empty, all.
func findDrift(ctx context.Context, caller *harp.Caller, text, name string) ([]harp.DriftStatus, error) {
	marks := []harp.DriftStatus{}
	for s, err := range caller.Hosts().Drift(ctx, text, name) {
		if err != nil {
			return nil, noHost(ctx, caller, err, text)
		}
		marks = append(marks, s)
	}
	if len(marks) == 0 && name != "" {
		return marks, checkDriftName(ctx, caller, name)
	}
	return marks, nil
}

// driftListing is a list of marks as it is printed.
func (c *cli) driftListing() listing[harp.DriftStatus] {
	return listing[harp.DriftStatus]{
		name:   "drift",
		header: []string{"host", "name", "mark", "checked", "since"},
		row: func(s harp.DriftStatus) []string {
			return []string{s.Host, s.Name, string(s.Mark), c.clock(s.Checked), c.clock(s.Since)}
		},
		wider: []string{"job"},
		widen: func(s harp.DriftStatus) []string { return []string{s.Job} },
		id:    func(s harp.DriftStatus) string { return s.Host },
	}
}

func (c *cli) driftForgetCommand() *cobra.Command {
	var sure, dry bool
	cmd := &cobra.Command{
		Use:   "rm NAME",
		Short: "Forget all marks under a name",
		Long: `Forget all marks under a name. That makes room among the 100 names there may be. Checks under
way leave no marks.`,
		Args: cobra.ExactArgs(1),
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, args []string) error {
			return c.forgetDrift(ctx, caller, args[0], sure, dry)
		}),

		ValidArgsFunction: c.completeOnly(c.asksWords(driftWords)),
	}
	cmd.Flags().BoolVarP(&sure, "yes", "y", false, "do not ask")
	bindDryRun(cmd, &dry)
	return cmd
}

// forgetDrift forgets a name, having said how many hosts are marked under it.
func (c *cli) forgetDrift(ctx context.Context, caller *harp.Caller, name string, sure, dry bool) error {
	marked := 0
	if dry || !sure {
		for _, err := range caller.Hosts().Drift(ctx, "", name) {
			if err != nil {
				return err
			}
			marked++
		}
	}
	if dry && marked == 0 {
		if err := checkDriftName(ctx, caller, name); err != nil {
			return err
		}
	}
	if dry {
		return c.would(object{{"name", name}, {"count", marked}}, "would forget the marks of %s under %s", hostCount(marked), name)
	}
	if marked > 1 {
		if err := c.askSure(ctx, "this forgets the marks of "+hostCount(marked)+" under "+name, "Forget them?", "nothing was forgotten"); err != nil {
			return err
		}
	}
	n, err := caller.Hosts().ForgetDrift(ctx, name)
	if err != nil {
		return err
	}
	if c.format == formatJSON {
		return c.printObject(object{{"name", name}, {"count", n}})
	}
	c.notice("forgot the marks of %s under %s", hostCount(n), name)
	return nil
}
