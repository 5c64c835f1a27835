package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
)

func (c *cli) queueCommand() *cobra.Command {
	const name = "{JSON | NAME=VALUE...}"
	var concurrency int
	set := &cobra.Command{
		Use:   "set --concurrency N " + name,
		Short: "Say how many jobs of a queue may run at a time",
		Args:  cobra.MinimumNArgs(1),
		RunE: c.changesQueue(func(ctx context.Context, queues *harp.Queues, name any) (field, error) {
			return field{"concurrency", concurrency}, queues.SetConcurrency(ctx, name, concurrency)
		}),
	}
	set.Flags().IntVar(&concurrency, "concurrency", 0, "`how many`, at least 1")
	_ = set.MarkFlagRequired("concurrency") // fails only for a flag that is not there
	cmd := group("queue", "Look at queues, cancel what is in them, pause them",
		&cobra.Command{
			Use:   "ls",
			Short: "List the queues there are",
			Args:  cobra.NoArgs,
			RunE:  c.asks(c.listQueues),
		},
		&cobra.Command{
			Use:   "show " + name,
			Short: "Show a queue",
			Args:  cobra.MinimumNArgs(1),
			RunE:  c.asks(c.showQueue),
		},
		&cobra.Command{
			Use:   "cancel " + name,
			Short: "Cancel all that is in a queue at this moment",
			Args:  cobra.MinimumNArgs(1),
			RunE:  c.asks(c.cancelQueue),
		},
		&cobra.Command{
			Use:   "pause " + name,
			Short: "Let no job of a queue start; what runs goes on",
			Args:  cobra.MinimumNArgs(1),
			RunE: c.changesQueue(func(ctx context.Context, queues *harp.Queues, name any) (field, error) {
				return field{"paused", true}, queues.Pause(ctx, name)
			}),
		},
		&cobra.Command{
			Use:   "unpause " + name,
			Short: "Let the jobs of a paused queue start",
			Args:  cobra.MinimumNArgs(1),
			RunE: c.changesQueue(func(ctx context.Context, queues *harp.Queues, name any) (field, error) {
				return field{"paused", false}, queues.Unpause(ctx, name)
			}),
		},
		set)
	cmd.Long = `Look at queues, cancel what is in them, pause them.

A queue is named by a dictionary: a JSON object, or words name=text and name:=json.
The order of the keys does not matter.`
	cmd.Example = `  harp queue show host=web01
  harp queue set --concurrency 4 host=web01
  harp queue cancel '{"host":"web01"}'`
	return cmd
}

func (c *cli) listQueues(ctx context.Context, caller *harp.Caller, _ []string) error {
	queues := []harp.QueueStatus{}
	for q, err := range caller.Queues().List(ctx) {
		if err != nil {
			return err
		}
		queues = append(queues, q)
	}
	if c.format == formatJSON {
		return c.print(object{{"queues", queues}})
	}
	rows := make([][]string, len(queues))
	for i, q := range queues {
		rows[i] = []string{q.Name.String(), strconv.Itoa(q.Concurrency), strconv.Itoa(q.Running), strconv.Itoa(q.Waiting), yes(q.Paused)}
	}
	c.table([]string{"name", "concurrency", "running", "waiting", "paused"}, rows)
	return nil
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
		{"paused", yes(q.Paused)},
	})
	return nil
}

func (c *cli) cancelQueue(ctx context.Context, caller *harp.Caller, args []string) error {
	name, err := dictionary(args)
	if err != nil {
		return err
	}
	n, err := caller.Queues().Cancel(ctx, name)
	if err != nil {
		return err
	}
	if c.format == formatJSON {
		return c.print(object{{"cancelled", n}})
	}
	c.say("%d jobs cancelled or asked to stop", n)
	return nil
}

// changesQueue is asks for a change of the queue that the arguments name; the field
// is what was changed.
func (c *cli) changesQueue(fn func(ctx context.Context, queues *harp.Queues, name any) (field, error)) func(*cobra.Command, []string) error {
	return c.asks(func(ctx context.Context, caller *harp.Caller, args []string) error {
		name, err := dictionary(args)
		if err != nil {
			return err
		}
		changed, err := fn(ctx, caller.Queues(), name)
		if err != nil {
			return err
		}
		canonical, err := harp.QueueName(name)
		if err != nil {
			return err
		}
		if c.format == formatJSON {
			return c.print(object{{"name", canonical}, changed})
		}
		c.notice("queue %s: %s is now %v", canonical, changed.name, changed.value)
		return nil
	})
}
