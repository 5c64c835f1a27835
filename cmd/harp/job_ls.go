package main

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
)

// jobStates are the words that --state takes.
var jobStates = []harp.State{
	harp.StateQueued, harp.StateSent, harp.StateRunning, harp.StateCancelling, harp.StateUnknown,
	harp.StateSucceeded, harp.StateFailed, harp.StateTimedOut, harp.StateCancelled,
	harp.StateExpired, harp.StateRejected, harp.StateLost,
}

// psCommand is job ls of the jobs that have not ended, under the name that many type.
func (c *cli) psCommand() *cobra.Command {
	var words []string
	for _, state := range unended {
		words = append(words, string(state))
	}
	cmd := c.jobListCommand(words...)
	cmd.Use, cmd.Short, cmd.Hidden = "ps", "List jobs that have not ended, newest first: harp job ls", true
	return cmd
}

// jobListCommand lists jobs, unless it is told otherwise in these states.
func (c *cli) jobListCommand(byDefault ...string) *cobra.Command {
	var (
		f              harp.JobFilter
		states         []string
		queue, labeled []string
		args           []string
		since          = moment{past: true}
		until          = moment{past: true}
		most           int
		watch          bool
	)
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List jobs, newest first",
		Long: `List jobs, newest first.

Times are written as harp prints them, or as 2026-01-31, 06:00 (the last one), yesterday,
1769860800 or 2h, which counts back from now; without a zone they are local. --by and --args
read every job that the other flags select, so add --since.`,
		Example: `  harp job ls --state failed,timed_out --since 1w
  harp job ls --since yesterday --until today --by ada --args service=nginx`,
		Args: cobra.NoArgs,

		Annotations: lists(),
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, _ []string) (err error) {
			if f.States, err = parseStates(states, stateWords()); err != nil {
				return err
			}
			if err := errors.Join(checkPlainName("host", f.Host), checkPlainName("proc", f.Procedure)); err != nil {
				return err
			}
			if f.Labels, err = labels(labeled); err != nil {
				return err
			}
			if f.Args, err = argumentTexts(args); err != nil {
				return err
			}
			if queue != nil {
				if f.Queue, err = dictionary(queue); err != nil {
					return err
				}
			}
			if f.Batch != "" {
				if f.Batch, err = c.findID(ctx, batchNames(caller), f.Batch); err != nil {
					return ofFlag("batch", err)
				}
			}
			f.Since, f.Until = since.t, until.t
			return showList(ctx, c, watch, c.jobListing(), func(ctx context.Context) ([]harp.JobStatus, bool, error) {
				return firstOf(caller.Jobs(ctx, f), most)
			})
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.Host, "host", "", "only on this `host`")
	flags.StringVar(&f.Procedure, "proc", "", "only calls of this `procedure`")
	flags.StringSliceVar(&states, "state", byDefault, "only in these `states`: "+stateWords())
	flags.StringVar(&f.Batch, "batch", "", "only the members of this batch, by its `id`; in the order of its hosts")
	flags.StringArrayVar(&queue, "queue", nil, "only in the queue with this `name`: a JSON object, or name=value (repeatable)")
	flags.StringArrayVar(&labeled, "label", nil, "only with this label: `key=value` (repeatable)")
	flags.StringVar(&f.By, "by", "", "only submitted by this `principal`")
	flags.StringArrayVar(&args, "args", nil, "only with this argument: `name=value`, or name:=json (repeatable)")
	flags.Var(&since, "since", "only submitted since this time; a duration counts back from now")
	flags.Var(&until, "until", "only submitted before this time; a duration counts back from now")
	c.completeFlag(cmd, "host", c.asksWords(hostWords))
	c.completeFlag(cmd, "proc", c.asksWords(everyProcedureWords))
	c.completeFlag(cmd, "batch", c.asksWords(batchWords()))
	c.completeFlag(cmd, "state", listed(fixed(strings.Split(stateWords(), ", ")...)))
	c.completeFlag(cmd, "queue", c.asksWords(queueWords))
	bindWatch(cmd, &watch)
	bindLimit(cmd, &most)
	return cmd
}

// argumentTexts reads the arguments that jobs are to have. A secret is *** of every job.
func argumentTexts(words []string) (map[string]string, error) {
	if len(words) == 0 {
		return nil, nil
	}
	texts := map[string]string{}
	for _, word := range words {
		name, v, err := parseWord(word, func(_, text string) (any, error) { return text, nil })
		if err != nil {
			return nil, invalid("args", "%q is neither name=value nor name:=json", word)
		}
		if _, twice := texts[name]; twice {
			return nil, invalid("args."+name, "is given twice")
		}
		text, ok := v.(string)
		if !ok {
			encoded, err := harp.NewValue(v)
			if err != nil {
				return nil, err
			}
			text = encoded.String()
		}
		texts[name] = text
	}
	return texts, nil
}

func stateWords() string {
	words := make([]string, len(jobStates))
	for i, s := range jobStates {
		words[i] = string(s)
	}
	return strings.Join(words, ", ")
}

func parseStates(words []string, known string) ([]harp.State, error) {
	var states []harp.State
	for _, w := range words {
		if !slices.Contains(strings.Split(known, ", "), w) {
			if w == unreachable {
				return nil, invalid("state", "%s jobs are those that expired while their host was away: ask for expired", w)
			}
			return nil, invalid("state", "%s is not one of %s", w, known+didYouMean(w, strings.Split(known, ", ")))
		}
		states = append(states, harp.State(w))
	}
	return states, nil
}

// bindLimit adds the flag that says how long a list is.
func bindLimit(cmd *cobra.Command, most *int) {
	cmd.Flags().IntVarP(most, "limit", "n", 50, "print at most this `count`; 0: all")
}

// firstOf returns up to most items, 0: all; more says that there are others.
func firstOf[T any](all iter.Seq2[T, error], most int) (items []T, more bool, err error) {
	if most < 0 {
		return nil, false, invalid("limit", "must not be negative")
	}
	items = []T{}
	for item, err := range all {
		if err != nil {
			return nil, false, err
		}
		if most > 0 && len(items) == most {
			return items, true, nil
		}
		items = append(items, item)
	}
	return items, false, nil
}

// printFirst prints a list, and whether there are more.
func printFirst[T any](c *cli, l listing[T], items []T, more bool) error {
	if more {
		l.more = []field{{"more", true}}
	}
	err := printList(c, l, items)
	if err == nil && more {
		c.notice("there are more; see --limit")
	}
	return err
}

// jobListing is a list of jobs as it is printed.
func (c *cli) jobListing() listing[harp.JobStatus] {
	return listing[harp.JobStatus]{
		name:   "jobs",
		header: []string{"id", stateColumn, "host", "procedure", "submitted", "duration"},
		row: func(j harp.JobStatus) []string {
			return []string{j.ID, stateText(j), j.Host, j.Procedure, c.clock(j.SubmitTime), took(j, time.Now())}
		},
		wider: []string{"attempt", "queue", "by", "args", "error"},
		widen: func(j harp.JobStatus) []string {
			return []string{numberText(j.Attempt), queueText(j), j.Principal.Name, valueText(j.Args), errorText(j)}
		},
		id:      func(j harp.JobStatus) string { return j.ID },
		changes: func(j harp.JobStatus) string { return j.ID + " " + stateText(j) },

		newestFirst: true,
	}
}
