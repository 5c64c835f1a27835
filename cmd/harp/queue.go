package main

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
)

// queueName is what names a queue in the usage of a command.
const queueName = "{JSON | NAME=VALUE...}"

func (c *cli) queueCommand() *cobra.Command {
	var dry bool
	cmd := group("queue", "Show queues, pause them, cancel their jobs",
		c.queueListCommand(),
		&cobra.Command{
			Use:   "show " + queueName,
			Short: "Show a queue",
			Args:  cobra.MinimumNArgs(1),
			RunE:  c.asks(c.showQueue),
		},
		&cobra.Command{
			Use:   "cancel " + queueName,
			Short: "Cancel all jobs that are in a queue now",
			Args:  cobra.MinimumNArgs(1),
			RunE: c.asks(func(ctx context.Context, caller *harp.Caller, args []string) error {
				return c.cancelQueue(ctx, caller, args, dry)
			}),
		},
		c.queuePauseCommand(&dry),
		c.queueUnpauseCommand(&dry),
		c.queueSetCommand(&dry))
	for _, sub := range cmd.Commands() {
		if strings.Contains(sub.Use, queueName) {
			find := queueWords
			switch sub.Name() {
			case "pause":
				find = queueWordsWhere(func(q harp.QueueStatus) bool { return !q.Paused })
			case "unpause":
				find = queueWordsWhere(func(q harp.QueueStatus) bool { return q.Paused })
			}
			sub.ValidArgsFunction = c.completeOnly(c.asksWords(find))
			if sub.Name() != "show" {
				bindDryRun(sub, &dry)
			}
		}
	}
	cmd.Long = `Look at queues, cancel what is in them, pause them.

A queue is named by a dictionary: a JSON object, or words name=text and name:=json.
The order of the keys does not matter.`
	cmd.Example = `  harp queue show host=web01
  harp queue set --concurrency 4 host=web01
  harp queue cancel '{"host":"web01"}'`
	return cmd
}

// queuePauseCommand pauses a queue.
func (c *cli) queuePauseCommand(dry *bool) *cobra.Command {
	var (
		reason string
		until  moment
	)
	cmd := &cobra.Command{
		Use:   "pause " + queueName,
		Short: "Start no more jobs of a queue; running ones go on",
		Long: `Start no more jobs of a queue until it is unpaused, or until a time. Jobs in it wait, and so
do new ones; running jobs go on. A pause replaces an earlier one.`,
		Example: `  harp queue pause db=main --reason 'moving the database' --until 2h`,
		Args:    cobra.MinimumNArgs(1),
		RunE: c.changesQueue(dry, func() (field, error) { return field{"paused", true}, nil },
			func(ctx context.Context, queues *harp.Queues, name any) error {
				return queues.Pause(ctx, name, reason, until.t)
			}),
	}
	bindPause(cmd, &reason, &until)
	return cmd
}

// bindPause adds the flags of a pause that keeps jobs waiting.
func bindPause(cmd *cobra.Command, reason *string, until *moment) {
	cmd.Flags().StringVar(reason, "reason", "", "a `text` for those whose jobs wait")
	cmd.Flags().Var(until, "until", "end the pause at this time; a duration counts from now")
}

// queueUnpauseCommand lets a paused queue go on.
func (c *cli) queueUnpauseCommand(dry *bool) *cobra.Command {
	return &cobra.Command{
		Use:   "unpause " + queueName,
		Short: "Start jobs of a paused queue again",
		Args:  cobra.MinimumNArgs(1),
		RunE: c.changesQueue(dry, func() (field, error) { return field{"paused", false}, nil },
			func(ctx context.Context, queues *harp.Queues, name any) error { return queues.Unpause(ctx, name) }),
	}
}

// queueSetCommand gives a queue another concurrency.
func (c *cli) queueSetCommand(dry *bool) *cobra.Command {
	var concurrency int
	cmd := &cobra.Command{
		Use:   "set --concurrency N " + queueName,
		Short: "Set how many jobs of a queue may run at a time",
		Long: `Set how many jobs of a queue may run at a time. The setting outlives an empty queue, until
0 removes it: then the next call that creates the queue sets its concurrency again.`,
		Args: cobra.MinimumNArgs(1),
		RunE: c.changesQueue(dry, func() (field, error) {
			if concurrency < 0 {
				return field{}, invalid("concurrency", "must not be negative; 0 removes the setting")
			}
			return field{"concurrency", concurrency}, nil
		}, func(ctx context.Context, queues *harp.Queues, name any) error {
			return queues.SetConcurrency(ctx, name, concurrency)
		}),
	}
	cmd.Flags().IntVar(&concurrency, "concurrency", 0, "`count` of jobs that may run at a time; 0 removes the setting, and the next call that creates the queue decides")
	_ = cmd.MarkFlagRequired("concurrency") // fails only for a flag that is not there
	return cmd
}

func (c *cli) queueListCommand() *cobra.Command {
	return listCommand(c, "List queues", c.queueListing, func(ctx context.Context, caller *harp.Caller) iter.Seq2[harp.QueueStatus, error] {
		return caller.Queues().List(ctx)
	})
}

// queueListing is a list of queues as it is printed.
func (c *cli) queueListing() listing[harp.QueueStatus] {
	return listing[harp.QueueStatus]{
		name:   "queues",
		header: []string{"name", "concurrency", "running", "waiting", "paused"},
		row: func(q harp.QueueStatus) []string {
			return []string{q.Name.String(), strconv.Itoa(q.Concurrency), strconv.Itoa(q.Running), strconv.Itoa(q.Waiting), c.queuePauseText(q)}
		},
		id: func(q harp.QueueStatus) string { return q.Name.String() },
	}
}

func (c *cli) showQueue(ctx context.Context, caller *harp.Caller, args []string) error {
	name, err := dictionary(args)
	if err != nil {
		return err
	}
	q, err := caller.Queues().Get(ctx, name)
	if err != nil {
		return err
	}
	if c.format == formatJSON {
		return c.printNoun(q)
	}
	c.pairs([][2]string{
		{"name", q.Name.String()},
		{"concurrency", strconv.Itoa(q.Concurrency)},
		{"running", strconv.Itoa(q.Running)},
		{"waiting", strconv.Itoa(q.Waiting)},
		{"paused", c.queuePauseText(q)},
	})
	return nil
}

// queuePauseText is that a queue is paused: by whom, since when, why and until when, as far as that is known.
func (c *cli) queuePauseText(q harp.QueueStatus) string {
	if p := q.Pause; p != nil && !p.Since.IsZero() {
		return "by " + c.pausedText(p.By, p.Since, p.Reason, p.Until)
	}
	return yes(q.Paused)
}

func (c *cli) cancelQueue(ctx context.Context, caller *harp.Caller, args []string, dry bool) error {
	name, err := dictionary(args)
	if err != nil {
		return err
	}
	if dry {
		q, err := caller.Queues().Get(ctx, name)
		if err != nil {
			return err
		}
		return c.would(object{{"cancelled", q.Running + q.Waiting}},
			"would cancel %d waiting and %d running", q.Waiting, q.Running)
	}
	n, err := caller.Queues().Cancel(ctx, name)
	if err != nil {
		return err
	}
	if c.format == formatJSON {
		return c.printObject(object{{"cancelled", n}})
	}
	c.say("cancellation requested for %s", jobsText(n))
	return nil
}

// changesQueue is asks for a change of the queue that the arguments name; the field
// is what is changed.
func (c *cli) changesQueue(dry *bool, what func() (field, error), change func(ctx context.Context, queues *harp.Queues, name any) error) func(*cobra.Command, []string) error {
	return c.asks(func(ctx context.Context, caller *harp.Caller, args []string) error {
		name, err := dictionary(args)
		if err != nil {
			return err
		}
		changed, err := what()
		if err != nil {
			return err
		}
		canonical, err := harp.QueueName(name)
		if err != nil {
			return err
		}
		if *dry {
			if _, err := caller.Queues().Get(ctx, name); err != nil {
				return err
			}
			return c.would(object{{"name", canonical}, changed}, "queue %s would %s", canonical, queueChange(changed))
		}
		if err := change(ctx, caller.Queues(), name); err != nil {
			return err
		}
		if c.format == formatJSON {
			return c.printObject(object{{"name", canonical}, changed})
		}
		c.notice("queue %s will %s", canonical, queueChange(changed))
		return nil
	})
}

// queueChange is a change of a queue in words, behind "would" and "will".
func queueChange(changed field) string {
	switch changed.value {
	case true:
		return "start no more jobs"
	case false:
		return "start jobs again"
	case 0:
		return "take its concurrency from the next call that creates it"
	}
	return fmt.Sprintf("run %v jobs at a time", changed.value)
}

// jobsText is a number of jobs.
func jobsText(n int) string {
	if n == 1 {
		return "1 job"
	}
	return strconv.Itoa(n) + " jobs"
}
