package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
)

func (c *cli) batchCommand() *cobra.Command {
	cmd := group("batch", "Look at batches, wait for them, pause, cancel and repeat them",
		c.batchListCommand(), c.batchShowCommand(), c.batchHostsCommand(), c.batchFollowCommand(), c.batchResultsCommand(),
		c.batchPauseCommand(), c.batchResumeCommand(), c.batchCancelCommand(), c.batchRetryCommand())
	for _, sub := range cmd.Commands() {
		if strings.Contains(sub.Use, " ID") {
			find := c.asksWords(batchWords(usableBatches[sub.Name()]...))
			if sub.ValidArgsFunction = c.completeOnly(find); strings.Contains(sub.Use, "ID...") {
				sub.ValidArgsFunction = c.completeRest(find)
			}
		}
	}
	cmd.Long = `Look at batches, wait for them, pause, cancel and repeat them. harp run makes them.

A batch is named by its id, the beginning or the last 8 characters of it, or "last", the
newest there is; pause, resume and cancel take several, and "-" for those on stdin. Its
members are jobs: harp job ls --batch ID lists them, and harp job show and the others take
their ids. See harp help batches.`
	return cmd
}

// usableBatches are the states of batches that a command can do something with; of others all are.
var usableBatches = map[string][]harp.BatchState{
	"pause":  {harp.BatchRunning},
	"resume": {harp.BatchPaused},
	"cancel": {harp.BatchRunning, harp.BatchPaused},
	"retry":  {harp.BatchPaused, harp.BatchSucceeded, harp.BatchFailed, harp.BatchCancelled},
}

// batchStates are the words that --state takes.
var batchStates = []harp.BatchState{
	harp.BatchRunning, harp.BatchPaused, harp.BatchCancelling, harp.BatchSucceeded, harp.BatchFailed, harp.BatchCancelled,
}

// asksBatch is asks for the batch that the first argument names.
func (c *cli) asksBatch(fn func(ctx context.Context, caller *harp.Caller, batch *harp.Batch) error) func(*cobra.Command, []string) error {
	return c.asks(func(ctx context.Context, caller *harp.Caller, args []string) error {
		id, err := c.findID(ctx, batchNames(caller), args[0])
		if err != nil {
			return err
		}
		return fn(ctx, caller, caller.Batch(id))
	})
}

// asksBatches is asks for each of the batches that the arguments name, one after the other. Nothing is
// done unless all of them are names.
func (c *cli) asksBatches(fn func(ctx context.Context, caller *harp.Caller, batch *harp.Batch) error) func(*cobra.Command, []string) error {
	return c.asks(func(ctx context.Context, caller *harp.Caller, args []string) error {
		ids, err := c.findIDs(ctx, batchNames(caller), args)
		if err != nil {
			return err
		}
		return c.eachName(ctx, ids, func(id string) error { return fn(ctx, caller, caller.Batch(id)) })
	})
}

func (c *cli) batchListCommand() *cobra.Command {
	var (
		f      harp.BatchFilter
		states []string
		most   int
		watch  bool
	)
	cmd := &cobra.Command{
		Use:         "ls",
		Short:       "List batches, newest first",
		Example:     "  harp batch ls --state running,paused\n  harp batch ls --proc service.restart -o jsonl",
		Args:        cobra.NoArgs,
		Annotations: lists(),
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, _ []string) error {
			for _, word := range states {
				if !slices.Contains(batchStates, harp.BatchState(word)) {
					return invalid("state", "%s is not one of %s%s", word, batchStateWords(), didYouMean(word, strings.Split(batchStateWords(), ", ")))
				}
				f.States = append(f.States, harp.BatchState(word))
			}
			return showList(ctx, c, watch, c.batchListing(), func(ctx context.Context) ([]harp.BatchStatus, bool, error) {
				return firstOf(caller.Batches(ctx, f), most)
			})
		}),
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&states, "state", nil, "only in these `states`: "+batchStateWords())
	flags.StringVar(&f.Procedure, "proc", "", "only of this `procedure`")
	bindLimit(cmd, &most)
	bindWatch(cmd, &watch)
	c.completeFlag(cmd, "state", listed(fixed(strings.Split(batchStateWords(), ", ")...)))
	c.completeFlag(cmd, "proc", c.asksWords(everyProcedureWords))
	return cmd
}

func batchStateWords() string {
	words := make([]string, len(batchStates))
	for i, s := range batchStates {
		words[i] = string(s)
	}
	return strings.Join(words, ", ")
}

// targetOf is the target of a batch, or says that it has a long list of names in its place.
func targetOf(s harp.BatchStatus) string { return cmp.Or(s.Target, "(a list of names)") }

// batchListing is a list of batches as it is printed.
func (c *cli) batchListing() listing[harp.BatchStatus] {
	return listing[harp.BatchStatus]{
		name:   "batches",
		header: []string{"id", stateColumn, "procedure", "target", "hosts", "members", "submitted"},
		row: func(s harp.BatchStatus) []string {
			return []string{s.ID, batchStateText(s), s.Procedure, targetOf(s), strconv.Itoa(s.Hosts), memberText(s), c.clock(s.SubmitTime)}
		},
		wider: []string{"ended", "by", "retry of"},
		widen: func(s harp.BatchStatus) []string { return []string{c.clock(s.EndTime), s.Caller.Name, s.RetryOf} },
		id:    func(s harp.BatchStatus) string { return s.ID },
		changes: func(s harp.BatchStatus) string {
			return s.ID + " " + batchStateText(s) + " " + memberText(s)
		},
		newestFirst: true,
	}
}

// batchStateText is a batch's state in the words of people.
func batchStateText(s harp.BatchStatus) string {
	if s.Reason == "" {
		return string(s.State)
	}
	return fmt.Sprintf("%s (%s)", s.State, s.Reason)
}

func (c *cli) batchShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show how far a batch is",
		Args:  cobra.ExactArgs(1),
		RunE: c.asksBatch(func(ctx context.Context, caller *harp.Caller, batch *harp.Batch) error {
			s, err := batch.Status(ctx)
			if err == nil {
				err = c.showBatch(s)
			}
			if err != nil || len(s.Steps) == 0 || c.format == formatJSON {
				return err
			}
			return c.printSteps(ctx, caller, s)
		}),
	}
}

func (c *cli) showBatch(s harp.BatchStatus) error {
	if c.format == formatJSON {
		return c.printNoun(s)
	}
	c.pairs([][2]string{
		{"id", s.ID},
		{"target", targetOf(s)},
		{"procedure", cmp.Or(strings.Join(s.Steps, ", "), s.Procedure)},
		{stateColumn, batchStateText(s)},
		{"since", c.clock(s.Since)},
		{"paused by", c.pauseText(s.Pause)},
		{"cancelled at", c.endText(s)},
		{"hosts", strconv.Itoa(s.Hosts)},
		{"reached", strconv.Itoa(s.Reached)},
		{"members", memberText(s)},
		{"skipped", countsText(s.Skipped)},
		{"not known", numberText(s.Gone)},
		{"wave", waveText(s)},
		{"parallel", numberText(s.Parallel)},
		{"stop after", numberText(s.StopAfter)},
		{"failures", numberText(s.Failures)},
		{"submitted", c.clock(s.SubmitTime)},
		{"ended", c.clock(s.EndTime)},
		{"retry of", s.RetryOf},
		{"schedule", s.Schedule},
		{"dry run", yes(s.DryRun)},
		{"labels", labelText(s.Labels)},
		{"by", strings.TrimSpace(s.Caller.Kind + " " + s.Caller.Name)},
	})
	return nil
}

func waveText(s harp.BatchStatus) string {
	if s.Waves < 2 {
		return ""
	}
	return fmt.Sprintf("%d of %d", s.Wave, s.Waves)
}

// countsText is how many there are of each kind.
func countsText[K ~string](counts map[K]int) string {
	var words []string
	for _, word := range slices.Sorted(maps.Keys(counts)) {
		words = append(words, fmt.Sprint(word, " ", counts[word]))
	}
	return strings.Join(words, ", ")
}

// pauseText is who paused a batch and why, and until when it may be.
func (c *cli) pauseText(p *harp.BatchPause) string {
	if p == nil {
		return ""
	}
	text := c.causeText(p.By, p.Time, p.Reason)
	if !p.Until.IsZero() {
		text += "; cancelled " + c.clock(p.Until) + " unless it is resumed"
	}
	return text
}

// causeText is by whom something was done, when, and why.
func (c *cli) causeText(who harp.Principal, at time.Time, reason string) string {
	by := strings.TrimSpace(who.Kind + " " + who.Name)
	if by == "" {
		by = "harp"
	}
	text := by + " " + c.atText(at)
	if reason != "" {
		text += ": " + reason
	}
	return text
}

// endText is who asked for the end of a batch.
func (c *cli) endText(s harp.BatchStatus) string {
	if s.Cancel == nil {
		return ""
	}
	return strings.TrimSpace(c.clock(s.Cancel.Time) + " by " + s.Cancel.By.Kind + " " + s.Cancel.By.Name)
}

func (c *cli) batchHostsCommand() *cobra.Command {
	var (
		hosts  string
		states []string
		watch  bool
	)
	cmd := &cobra.Command{
		Use:         "hosts ID",
		Short:       "List the hosts of a batch, in its order, each with its job",
		Example:     "  harp batch hosts last --state failed -o id\n  harp batch hosts last --host 'role=web'\n  harp batch hosts last --watch",
		Args:        cobra.ExactArgs(1),
		Annotations: lists(),
		RunE: c.asksBatch(func(ctx context.Context, caller *harp.Caller, batch *harp.Batch) error {
			f := harp.JobFilter{Batch: batch.ID()}
			var err error
			if f.States, err = parseStates(states, stateWords()); err != nil {
				return err
			}
			status, _ := batch.Status(ctx) // of one that is damaged the members are listed all the same
			return showList(ctx, c, watch, c.memberListing(len(status.Steps) > 0), func(ctx context.Context) ([]harp.JobStatus, bool, error) {
				members, err := membersOn(ctx, caller, f, hosts)
				return members, false, err
			})
		}),
	}
	c.bindHosts(cmd, &hosts)
	bindWatch(cmd, &watch)
	cmd.Flags().StringSliceVar(&states, "state", nil, "only those whose jobs are in these `states`: "+stateWords())
	c.completeFlag(cmd, "state", listed(fixed(strings.Split(stateWords(), ", ")...)))
	return cmd
}

// membersOn are the members of a batch that a filter finds, on the hosts that a target selects now; "": on all.
func membersOn(ctx context.Context, caller *harp.Caller, f harp.JobFilter, hosts string) ([]harp.JobStatus, error) {
	wanted, err := chosenHosts(ctx, caller, hosts)
	if err != nil {
		return nil, err
	}
	members := []harp.JobStatus{}
	for job, err := range caller.Jobs(ctx, f) {
		if err != nil {
			return nil, err
		}
		if wanted == nil || wanted[job.Host] {
			members = append(members, job)
		}
	}
	return members, nil
}

// memberListing is a list of the members of a batch as it is printed.
func (c *cli) memberListing(isChain bool) listing[harp.JobStatus] {
	l := listing[harp.JobStatus]{
		name:   "hosts",
		header: []string{"host", stateColumn, "job", "duration", "error"},
		row: func(j harp.JobStatus) []string {
			return []string{j.Host, stateText(j), j.ID, took(j, time.Now()), errorText(j)}
		},
		id:      func(j harp.JobStatus) string { return j.Host },
		changes: func(j harp.JobStatus) string { return j.ID + " " + stateText(j) },
	}
	if isChain {
		whole := l.row
		l.header = slices.Insert(l.header, 1, "step")
		l.row = func(j harp.JobStatus) []string { return slices.Insert(whole(j), 1, stepText(j)) }
	}
	return l
}

// bindHosts adds the flag that chooses among the hosts of a batch.
func (c *cli) bindHosts(cmd *cobra.Command, text *string) {
	cmd.Flags().StringVar(text, "host", "", "only the hosts that this `target` selects now")
	c.completeFlag(cmd, "host", listed(c.asksWords(targetWords)))
}

// chosenHosts are the hosts that a target selects; nil of none: all.
func chosenHosts(ctx context.Context, caller *harp.Caller, text string) (map[string]bool, error) {
	if text == "" {
		return nil, nil
	}
	if err := checkTarget(text); err != nil {
		return nil, ofFlag("host", err)
	}
	names, err := caller.Target(text).Hosts(ctx)
	if err != nil {
		return nil, noHost(ctx, caller, err, text)
	}
	chosen := make(map[string]bool, len(names))
	for _, name := range names {
		chosen[name] = true
	}
	return chosen, nil
}

func (c *cli) batchFollowCommand() *cobra.Command {
	var (
		since uint64
		hosts string
	)
	cmd := &cobra.Command{
		Use:   "follow ID",
		Short: "Print the records and outcomes of a batch's members as they come, until it ends",
		Long: `Print the records and outcomes of a batch's members as they come, each with its host, until
the batch has ended, or is paused with nothing running. The exit code is that of harp run.

Output starts now; --since 0 includes everything before. Ctrl-C prints a number, with which
--since resumes, also in another process.`,
		Example: `  harp batch follow last --since 0
  harp batch follow last --host web01 -o jsonl`,
		Args:        cobra.ExactArgs(1),
		Annotations: runs(),
	}
	flags := cmd.Flags()
	flags.Uint64Var(&since, "since", 0, "from this `number` of the batch's log on, 0: all")
	c.bindHosts(cmd, &hosts)
	c.bindExit(cmd, exitMapped)
	cmd.RunE = c.asksBatch(func(ctx context.Context, caller *harp.Caller, batch *harp.Batch) error {
		chosen, err := chosenHosts(ctx, caller, hosts)
		if err != nil {
			return err
		}
		w := &batchWatch{cli: c, batch: batch, since: since, tail: !flags.Changed("since"), records: true, hosts: chosen}
		return w.run(ctx)
	})
	return cmd
}

func (c *cli) batchResultsCommand() *cobra.Command {
	var hosts string
	w := batchWatch{cli: c}
	cmd := &cobra.Command{
		Use:   "results ID",
		Short: "Print what a batch's hosts returned, until it ends",
		Long: `Print what a batch's hosts returned, from the first result on, as harp run does: until the
batch has ended, or is paused with nothing running, and with the same exit code. --no-wait
prints the results so far.`,
		Example: `  harp batch results last
  harp batch results last --no-wait -o jsonl`,
		Args:        cobra.ExactArgs(1),
		Annotations: runs(),
		RunE: c.asksBatch(func(ctx context.Context, caller *harp.Caller, batch *harp.Batch) (err error) {
			if w.hosts, err = chosenHosts(ctx, caller, hosts); err != nil {
				return err
			}
			w.batch = batch
			return w.run(ctx)
		}),
	}
	c.bindHosts(cmd, &hosts)
	flags := cmd.Flags()
	flags.Uint64Var(&w.since, "since", 0, "from this `number` of the batch's log on")
	flags.BoolVar(&w.noWait, "no-wait", false, "do not wait for more results")
	flags.BoolVar(&w.unfolded, "no-fold", false, "print the result of each host, equal ones too")
	flags.BoolVar(&w.output, "printed", false, "print what commands printed as their result")
	c.bindExit(cmd, exitMapped)
	return cmd
}
