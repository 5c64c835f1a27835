package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
)

func (c *cli) hostPauseCommand() *cobra.Command {
	var (
		reason string
		until  moment
	)
	cmd := c.hostPauseChange("pause TARGET", "Keep everything from starting on hosts",
		func(hosts *harp.Hosts, ctx context.Context, text string) (int, error) {
			return hosts.Pause(ctx, text, reason, until.t)
		}, pauseTexts{"Pause", "nothing was paused", "would pause %s", "paused %s"})
	cmd.Long = `Keep everything from starting on the hosts that a target selects now, until they are
unpaused or a time has come: jobs wait, those of procedures that only read too. What runs
goes on. A pause takes the place of one before it. On a terminal it asks first if there is
more than one host, unless -y is given; hosts that are new by the answer are left as they are.`
	cmd.Example = `  harp host pause web07 --reason 'new disk' --until 2h
  harp host pause -y 'rack=7'`
	bindPause(cmd, &reason, &until)
	return cmd
}

func (c *cli) hostUnpauseCommand() *cobra.Command {
	return c.hostPauseChange("unpause TARGET", "Let jobs start again on paused hosts",
		(*harp.Hosts).Unpause, pauseTexts{"Unpause", "nothing was unpaused", "would unpause %s", "unpaused %s"})
}

// pauseTexts are what is said of a change of pauses: the verb of the question, what is said after a no, what would be
// done, and what was.
type pauseTexts struct{ verb, nothing, would, done string }

// hostPauseChange is a command that changes the pauses of the hosts that a target selects, when somebody who can be
// asked agrees.
func (c *cli) hostPauseChange(use, short string, change func(h *harp.Hosts, ctx context.Context, text string) (int, error), texts pauseTexts) *cobra.Command {
	var sure, dry bool
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: c.does(func(ctx context.Context, args []string) error {
			if err := checkTarget(args[0]); err != nil {
				return err
			}
			return c.withCaller(ctx, func(caller *harp.Caller) error {
				if dry {
					n, err := countSelected(ctx, caller, args[0])
					if err != nil {
						return noHost(ctx, caller, err, args[0])
					}
					return c.would(object{{"hosts", n}}, texts.would, hostCount(n))
				}
				n, err := c.changeHosts(ctx, caller, args[0], sure, texts.verb, texts.nothing, func(text string) (int, error) {
					return change(caller.Hosts(), ctx, text)
				})
				switch {
				case err != nil:
					return err
				case c.format == formatJSON:
					return c.printObject(object{{"hosts", n}})
				}
				c.notice(texts.done, hostCount(n))
				return nil
			})
		}),

		ValidArgsFunction: c.completeOnly(listed(c.asksWords(targetWords))),
	}
	cmd.Flags().BoolVarP(&sure, "yes", "y", false, "do not ask")
	bindDryRun(cmd, &dry)
	return cmd
}

// hostPauseText is who paused a host and why, and until when.
func (c *cli) hostPauseText(p *harp.HostPause) string {
	return c.pausedText(p.By, p.Since, p.Reason, p.Until)
}
