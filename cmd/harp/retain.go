package main

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/duration"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/yamlfile"
)

func (c *cli) retainCommand() *cobra.Command {
	cmd := group("retain", "Show and change the rules that say how long jobs are kept",
		c.retainListCommand(), c.retainSetCommand(), c.retainShowCommand(), c.retainRemoveCommand())
	cmd.Long = `Show and change the rules that say how long jobs and batches are kept after they end. When a
job ends, the first rule that matches applies, and keeps applying even if it is changed or
removed later. Where none matches, the dispatcher's retain applies.`
	cmd.Example = `  harp retain set audit --proc 'user.*' --keep 400d
  harp retain set pings --order 1 --proc ping --state succeeded --keep 1h --max-bytes 1GiB
  harp retain show last`
	return cmd
}

// ruleWords are the names of retention rules.
func ruleWords(ctx context.Context, caller *harp.Caller, _ []string, _ string) (found []word) {
	rules, _ := caller.Retention().List(ctx)
	for _, r := range rules {
		found = append(found, word{r.Name, keepText(r.RetentionRule)})
	}
	return found
}

// keepText is how long a rule keeps what it fits, and how much of that.
func keepText(r harp.RetentionRule) string {
	var words []string
	switch r.Keep {
	case 0:
	case harp.NoLimit:
		words = append(words, "for ever")
	default:
		words = append(words, daysText(r.Keep))
	}
	if r.MaxBytes > 0 {
		words = append(words, "at most "+quantity(r.MaxBytes, "bytes"))
	}
	return strings.Join(words, ", ")
}

// daysText writes a duration of whole days as such.
func daysText(d time.Duration) string {
	const day = 24 * time.Hour
	if d%day == 0 {
		return strconv.Itoa(int(d/day)) + "d"
	}
	return duration.Format(d)
}

// fitsText is what a rule fits.
func fitsText(r harp.RetentionRule) string {
	var words []string
	if r.Procedure != "" {
		words = append(words, r.Procedure)
	}
	if r.Schedule != "" {
		words = append(words, "schedule "+r.Schedule)
	}
	if len(r.States) > 0 {
		words = append(words, statesText(r.States))
	}
	if len(r.Labels) > 0 {
		words = append(words, labelText(r.Labels))
	}
	if len(words) == 0 {
		return "everything"
	}
	return strings.Join(words, ", ")
}

func statesText(states []harp.State) string {
	words := make([]string, len(states))
	for i, s := range states {
		words[i] = string(s)
	}
	return strings.Join(words, " or ")
}

func (c *cli) retainListCommand() *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:         "ls",
		Short:       "List rules, in the order in which they are tried",
		Args:        cobra.NoArgs,
		Annotations: lists(),
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, _ []string) error {
			return showList(ctx, c, watch, ruleListing(), func(ctx context.Context) ([]harp.RetentionStatus, bool, error) {
				rules, err := caller.Retention().List(ctx)
				return append([]harp.RetentionStatus{}, rules...), false, err
			})
		}),
	}
	bindWatch(cmd, &watch)
	return cmd
}

// ruleListing is a list of retention rules as it is printed.
func ruleListing() listing[harp.RetentionStatus] {
	return listing[harp.RetentionStatus]{
		name:   "rules",
		header: []string{"name", "fits", "keep"},
		row: func(s harp.RetentionStatus) []string {
			return []string{s.Name, fitsText(s.RetentionRule), keepText(s.RetentionRule)}
		},
		wider: []string{"order", "stores", "by", "managed by"},
		widen: func(s harp.RetentionStatus) []string {
			return []string{strconv.Itoa(s.Order), storesText(s), s.By.Name, s.ManagedBy}
		},
		id: func(s harp.RetentionStatus) string { return s.Name },
	}
}

// storesText is how much what a rule keeps stores, where that is counted.
func storesText(s harp.RetentionStatus) string {
	if s.MaxBytes == 0 {
		return ""
	}
	return quantity(s.Bytes, "bytes")
}

// size is a flag for a number of bytes.
type size int64

// String returns the flag's value.
func (s *size) String() string {
	if *s == 0 {
		return ""
	}
	return strconv.FormatInt(int64(*s), 10)
}

// Set reads the flag.
func (s *size) Set(text string) error {
	b, err := yamlfile.ParseBytes(text)
	if err != nil {
		return errors.New("must be a number of bytes such as 1048576, 512MiB or 10GiB")
	}
	*s = size(b)
	return nil
}

// Type names the flag's type in the help.
func (s *size) Type() string { return "bytes" }

func (c *cli) retainSetCommand() *cobra.Command {
	var (
		r              harp.RetentionRule
		keep           limit
		most           size
		states, labels []string
		dry            bool
	)
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Make a rule, or overwrite it",
		Long: `Make a rule, or overwrite the one of this name. It applies to what ends from then on. A rule
matches if everything it names does; one that names nothing matches everything. Rules are
tried by --order and then by name; the first that matches applies.

A batch is kept whole, with all its jobs: what counts is the rule that matches the batch,
which ends as succeeded, failed or cancelled.

At least one of --keep and --max-bytes is required. Without --keep, jobs are kept as long as
the dispatcher's retain says. When they take more than --max-bytes, those that ended first
are deleted. The dispatcher's retain_bytes applies to all jobs, whatever the rules say.`,
		Example: `  harp retain set audit --proc 'user.*' --keep 400d
  harp retain set failures --state failed,timed_out,lost --keep 90d
  harp retain set nightly --schedule nightly --label env=test --keep 7d --max-bytes 10GiB`,
		Args: cobra.ExactArgs(1),
		RunE: c.does(func(ctx context.Context, args []string) (err error) {
			r.Name, r.Keep, r.MaxBytes = args[0], time.Duration(keep), int64(most)
			if r.States, err = parseStates(states, endedWords()); err != nil {
				return err
			}
			if r.Labels, err = labelsOf(labels); err != nil {
				return err
			}
			if err := r.Check(); err != nil {
				return err
			}
			return c.withCaller(ctx, func(caller *harp.Caller) error { return c.setRule(ctx, caller, r, dry) })
		}),

		ValidArgsFunction: c.completeOnly(c.asksWords(ruleWords)),
	}
	flags := cmd.Flags()
	flags.StringVar(&r.Procedure, "proc", "", "only calls of procedures that match this `pattern`: * is any text, ? one character")
	flags.StringVar(&r.Schedule, "schedule", "", "only runs of schedules that match this `pattern`")
	flags.StringSliceVar(&states, "state", nil, "only what ended in these `states`: "+endedWords())
	flags.StringArrayVar(&labels, "label", nil, "only with this label: `key=value` (repeatable)")
	flags.Var(&keep, "keep", "keep this long after the end, such as 90d; none: for ever")
	flags.Var(&most, "max-bytes", "keep at most this much, such as 10GiB; what ended first is deleted first")
	flags.IntVar(&r.Order, "order", 0, "rules with a lower `number` are tried first")
	flags.StringVar(&r.Doc, "doc", "", "a `text` that describes it")
	bindDryRun(cmd, &dry)
	c.completeFlag(cmd, "proc", c.asksWords(everyProcedureWords))
	c.completeFlag(cmd, "schedule", c.asksWords(scheduleWords))
	c.completeFlag(cmd, "state", listed(fixed(strings.Split(endedWords(), ", ")...)))
	return cmd
}

// labelsOf reads k=v words; nil of none.
func labelsOf(words []string) (map[string]string, error) {
	if len(words) == 0 {
		return nil, nil
	}
	return labels(words)
}

// endedWords are the states in which a job has ended.
func endedWords() string {
	words := strings.Split(stateWords(), ", ")
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return !harp.State(w).Ended() }), ", ")
}

func (c *cli) setRule(ctx context.Context, caller *harp.Caller, r harp.RetentionRule, dry bool) error {
	if dry {
		return c.would(object{{"rule", r}}, "would keep what fits %s %s", fitsText(r), keepText(r))
	}
	if err := caller.Retention().Put(ctx, r); err != nil {
		return err
	}
	if c.format == formatJSON {
		return c.printNoun(r)
	}
	c.notice("rule %s applies to what ends from now on: %s, %s", r.Name, fitsText(r), keepText(r))
	return nil
}

func (c *cli) retainRemoveCommand() *cobra.Command {
	return c.removeCommand(removal{
		short: "Delete rules; what they already keep is kept as before",
		words: ruleWords,
		look: func(ctx context.Context, caller *harp.Caller, name string) error {
			rule, err := findRule(ctx, caller, name)
			if err != nil {
				return err
			}
			return byHand(harp.RetentionDocument, name, rule.ManagedBy)
		},
		remove: func(ctx context.Context, caller *harp.Caller, name string) error {
			return caller.Retention().Delete(ctx, name)
		},
		would: "would delete rule %s", done: "deleted rule %s; what it already keeps is kept as before",
	})
}

// findRule returns the rule of a name. Errors: harp.ErrNotFound.
func findRule(ctx context.Context, caller *harp.Caller, name string) (harp.RetentionStatus, error) {
	rules, err := caller.Retention().List(ctx)
	if err != nil {
		return harp.RetentionStatus{}, err
	}
	for _, r := range rules {
		if r.Name == name {
			return r, nil
		}
	}
	return harp.RetentionStatus{}, failures.NotFound("retention rule", name)
}

func (c *cli) retainShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME|ID",
		Short: "Show a rule, or how long a job or a batch is kept",
		Long: `Show a rule or, for the id of a job or a batch, which rule applies to it and when it will be
deleted. No rule applies to a job before it ends.`,
		Example: "  harp retain show audit\n  harp retain show last",
		Args:    cobra.ExactArgs(1),
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, args []string) error {
			r, err := findRule(ctx, caller, args[0])
			switch {
			case err == nil:
				return c.showRule(r)
			case !errors.Is(err, harp.ErrNotFound):
				return err
			}
			id, err := c.findID(ctx, jobNames(caller), args[0])
			if errors.Is(err, harp.ErrNotFound) {
				id, err = c.findID(ctx, batchNames(caller), args[0])
			}
			var wrong *harp.FieldError
			if errors.As(err, &wrong) && harp.CheckID(args[0]) != nil && strings.Trim(args[0], "0123456789abcdef-") != "" { // it can be a rule only
				return failures.NotFound("retention rule", args[0])
			}
			if err != nil {
				return err
			}
			k, err := caller.Retention().Explain(ctx, id)
			if err != nil {
				return err
			}
			return c.showKept(k)
		}),

		ValidArgsFunction: c.completeOnly(c.asksWords(ruleWords)),
	}
}

func (c *cli) showRule(s harp.RetentionStatus) error {
	if c.format == formatJSON {
		return c.printNoun(s)
	}
	c.pairs([][2]string{
		{"name", s.Name},
		{"doc", s.Doc},
		{"order", strconv.Itoa(s.Order)},
		{"procedure", s.Procedure},
		{"schedule", s.Schedule},
		{"states", statesText(s.States)},
		{"labels", labelText(s.Labels)},
		{"keep", keepText(s.RetentionRule)},
		{"stores", storesText(s)},
		{"changed", c.clock(s.Changed)},
		{"by", strings.TrimSpace(s.By.Kind + " " + s.By.Name)},
		{"managed by", s.ManagedBy},
	})
	return nil
}

func (c *cli) showKept(k harp.Kept) error {
	if c.format == formatJSON {
		return c.printNoun(k)
	}
	if k.Ended.IsZero() {
		c.pairs([][2]string{{"id", k.ID}, {"batch", k.Batch}, {"kept", "it has not ended: rules are tried when it does"}})
		return nil
	}
	rule := k.Rule
	if rule == "" {
		rule = "none: the dispatcher's retain applies"
	}
	until := c.clock(k.Until)
	if k.Until.IsZero() {
		until = "for ever"
	}
	if k.MaxBytes > 0 {
		until += ", or earlier when there is more than " + quantity(k.MaxBytes, "bytes")
	}
	c.pairs([][2]string{{"id", k.ID}, {"batch", k.Batch}, {"ended", c.clock(k.Ended)}, {"rule", rule}, {"kept until", until}})
	return nil
}
