package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
)

func (c *cli) idCommand() *cobra.Command {
	n := 1
	cmd := &cobra.Command{
		Use:   "id",
		Short: "Print a new job id",
		Long: `Print a new job id. A call with a chosen id can be repeated safely, whatever became of
the first: it gives the same job.`,
		Example: `  id=$(harp id)
  until harp call -d --id "$id" web01 backup.full; do sleep 5; done`,
		Args:        cobra.NoArgs,
		Annotations: lists(),
		RunE: c.does(func(context.Context, []string) error {
			if n < 1 || n > mostIDs {
				return invalid("number", "must be from 1 to %d", mostIDs)
			}
			ids := make([]string, n)
			for i := range ids {
				ids[i] = harp.NewID()
			}
			if c.format == formatJSON {
				return c.printObject(object{{"ids", ids}})
			}
			for _, id := range ids {
				if c.format == formatLines {
					if err := c.printLine(object{{"id", id}}); err != nil {
						return err
					}
					continue
				}
				c.say("%s", id)
			}
			return nil
		}),
	}
	cmd.Flags().IntVarP(&n, "number", "n", 1, "`count` of ids to print")
	return cmd
}

// mostIDs is how many ids are made at once, at most.
const mostIDs = 10000
