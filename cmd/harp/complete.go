package main

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/cmd/harp/internal/contexts"
)

// completesWithin is how long a shell waits for words: whoever presses a key wants to
// type on.
const completesWithin = time.Second

// recentJobs is how many jobs are offered.
const recentJobs = 20

// word is one that a shell offers, with what it means.
type word struct{ text, meaning string }

// words finds what can stand at a place of the command line. What goes wrong is not
// said: the shell then offers nothing.
type words func(ctx context.Context, args []string, begun string) []word

// asksWords is for words that the dispatcher knows.
func (c *cli) asksWords(find func(ctx context.Context, caller *harp.Caller, args []string, begun string) []word) words {
	return func(ctx context.Context, args []string, begun string) (found []word) {
		_ = c.withCaller(ctx, func(caller *harp.Caller) error {
			found = find(ctx, caller, args, begun)
			return nil
		})
		return found
	}
}

// completion makes of words what cobra takes.
type completion = func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective)

// complete offers for the argument after n others what the n-th of find finds, and
// nothing after those.
func (c *cli) complete(find ...words) completion {
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) >= len(find) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return c.offerWords(cmd, find[len(args)], args, begun)
	}
}

// completeOnly offers words for the first argument.
func (c *cli) completeOnly(find words) completion { return c.complete(find) }

// completeNames offers names that exist for the argument of a command or, if it takes several, for
// each, without those that stand before.
func (c *cli) completeNames(cmd *cobra.Command, find func(ctx context.Context, caller *harp.Caller, args []string, begun string) []word) completion {
	if !strings.Contains(cmd.Use, "NAME...") {
		return c.completeOnly(c.asksWords(find))
	}
	return c.completeRest(c.asksWords(func(ctx context.Context, caller *harp.Caller, args []string, begun string) []word {
		return slices.DeleteFunc(find(ctx, caller, args, begun), func(w word) bool { return slices.Contains(args, w.text) })
	}))
}

// completeRest offers words for the first arguments, and those of rest for all others.
func (c *cli) completeRest(rest words, first ...words) completion {
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) < len(first) {
			return c.offerWords(cmd, first[len(args)], args, begun)
		}
		return c.offerWords(cmd, rest, args, begun)
	}
}

// completeFlag offers words for a flag's value.
func (c *cli) completeFlag(cmd *cobra.Command, flag string, find words) {
	// It fails only for a flag that is not there.
	_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return c.offerWords(cmd, find, args, begun)
	})
}

// fixed are words that are always the same.
func fixed(texts ...string) words {
	return func(context.Context, []string, string) []word {
		found := make([]word, len(texts))
		for i, t := range texts {
			found[i] = word{text: t}
		}
		return found
	}
}

// listed offers words after commas, too: those that do not stand before.
func listed(find words) words {
	return func(ctx context.Context, args []string, begun string) []word {
		at := strings.LastIndexByte(begun, ',') + 1
		before := begun[:at]
		var found []word
		for _, w := range find(ctx, args, begun[at:]) {
			if !slices.Contains(strings.Split(before, ","), w.text) {
				found = append(found, word{before + w.text, w.meaning})
			}
		}
		return found
	}
}

// offerWords finds words within the time and leaves out those that do not fit, or that a
// shell might take for something else.
func (c *cli) offerWords(cmd *cobra.Command, find words, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completesWithin)
	defer cancel()
	directive := cobra.ShellCompDirectiveNoFileComp
	var offered []cobra.Completion
	for _, w := range find(ctx, args, begun) {
		if !strings.HasPrefix(w.text, begun) || !isPlainWord(w.text) {
			continue
		}
		if strings.HasSuffix(w.text, "=") {
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		offered = append(offered, cobra.CompletionWithDesc(w.text, safeLine(w.meaning)))
	}
	return offered, directive
}

// isPlainWord reports whether no shell sees anything but text in it.
func isPlainWord(text string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:=/@%+,"
	return text != "" && strings.Trim(text, allowed) == ""
}

// contextWords are the names of contexts.
func (c *cli) contextWords(context.Context, []string, string) []word {
	dir, err := contexts.Find(c.env)
	if err != nil {
		return nil
	}
	names, err := dir.Names()
	if err != nil {
		return nil
	}
	found := make([]word, len(names))
	for i, name := range names {
		found[i].text = name
		if at, err := dir.Get(name); err == nil {
			found[i].meaning = at.Addr
		}
	}
	return found
}

// hostWords are the names of hosts.
func hostWords(ctx context.Context, caller *harp.Caller, _ []string, _ string) []word {
	return findHostWords(ctx, caller, "")
}

// targetWords are the names of hosts, and behind @ those of groups.
func targetWords(ctx context.Context, caller *harp.Caller, args []string, begun string) []word {
	if strings.HasPrefix(begun, "@") {
		found := groupWords(ctx, caller, args, begun)
		for i := range found {
			found[i].text = "@" + found[i].text
		}
		return found
	}
	return append(hostWords(ctx, caller, args, begun), labelWords(ctx, caller, args, begun)...)
}

// labelWords are the keys of labels that hosts have, and behind key= the values.
func labelWords(ctx context.Context, caller *harp.Caller, _ []string, begun string) (found []word) {
	key, _, behind := strings.Cut(begun, "=")
	seen := map[string]bool{}
	for h, err := range caller.Hosts().List(ctx, "") {
		if err != nil {
			break
		}
		for k, v := range h.Labels {
			text := k + "="
			if behind {
				text += v
			}
			if (!behind || k == key) && !seen[text] {
				seen[text] = true
				found = append(found, word{text: text})
			}
		}
	}
	slices.SortFunc(found, func(a, b word) int { return strings.Compare(a.text, b.text) })
	return found
}

// groupWords are the names of groups.
func groupWords(ctx context.Context, caller *harp.Caller, _ []string, _ string) (found []word) {
	for g, err := range caller.Groups().List(ctx) {
		if err != nil {
			break
		}
		found = append(found, word{g.Name, g.Target})
	}
	return found
}

// execHostWords are the names of hosts on which any command may be run.
func execHostWords(ctx context.Context, caller *harp.Caller, _ []string, _ string) []word {
	return findHostWords(ctx, caller, execProcedure)
}

// findHostWords are the names of hosts that offer a procedure, of all if it is empty.
func findHostWords(ctx context.Context, caller *harp.Caller, procedure string) []word {
	var found []word
	for h, err := range caller.Hosts().List(ctx, "") {
		if err != nil {
			return found
		}
		if procedure != "" && !slices.Contains(h.Procedures, procedure) {
			continue
		}
		meaning := labelText(h.Labels)
		if !h.Online {
			meaning = strings.TrimSpace("away " + meaning)
		}
		found = append(found, word{h.Name, meaning})
	}
	return found
}

// awayHostWords are the names of hosts that are away.
func awayHostWords(ctx context.Context, caller *harp.Caller, args []string, begun string) []word {
	return slices.DeleteFunc(hostWords(ctx, caller, args, begun), func(w word) bool { return !strings.HasPrefix(w.meaning, "away") })
}

// procedureWords are the procedures of the host that stands before, or of all.
func procedureWords(ctx context.Context, caller *harp.Caller, args []string, _ string) []word {
	host := ""
	if len(args) > 0 {
		host = args[0]
	}
	offers, err := findOffered(ctx, caller, host, "")
	if err != nil {
		return nil
	}
	found := make([]word, len(offers))
	for i, o := range offers {
		found[i] = word{o.doc.Name, o.doc.Summary}
	}
	return found
}

// everyProcedureWords are the procedures of all hosts.
func everyProcedureWords(ctx context.Context, caller *harp.Caller, _ []string, begun string) []word {
	return procedureWords(ctx, caller, nil, begun)
}

// targetArgumentWords are argumentWords for a target in the place of a host.
func targetArgumentWords(ctx context.Context, caller *harp.Caller, args []string, begun string) []word {
	for h, err := range caller.Hosts().List(ctx, args[0]) {
		if err != nil {
			break
		}
		if slices.Contains(h.Procedures, args[1]) {
			return argumentWords(ctx, caller, append([]string{h.Name}, args[1:]...), begun)
		}
	}
	return nil
}

// hostOrProcedureWords are both, where either can stand.
func hostOrProcedureWords(ctx context.Context, caller *harp.Caller, args []string, begun string) []word {
	return append(procedureWords(ctx, caller, args, begun), hostWords(ctx, caller, args, begun)...)
}

// argumentWords are the parameters of the procedure that stands before, as name=, or
// the values of the one that is begun.
func argumentWords(ctx context.Context, caller *harp.Caller, args []string, begun string) []word {
	docs, err := caller.Hosts().Procedures(ctx, args[0])
	if err != nil {
		return nil
	}
	i := slices.IndexFunc(docs, func(d harp.ProcedureDoc) bool { return d.Name == args[1] })
	if i < 0 {
		return nil
	}
	doc := docs[i]
	takes := parseSchema(doc.Args)
	if name, _, ok := strings.Cut(begun, "="); ok {
		return valueWords(takes.Properties[name], name)
	}
	var found []word
	for _, name := range parameterNames(doc) {
		given := func(arg string) bool { return strings.HasPrefix(arg, name+"=") || strings.HasPrefix(arg, name+":=") }
		if slices.ContainsFunc(args[2:], given) {
			continue
		}
		p := takes.Properties[name]
		meaning := typeText(p)
		if slices.Contains(takes.Required, name) {
			meaning += ", required"
		}
		if p.Description != "" {
			meaning += ": " + p.Description
		}
		found = append(found, word{name + "=", meaning})
	}
	return found
}

// valueWords are the values a parameter can have, if those are few.
func valueWords(p schemaText, name string) []word {
	values := p.Enum
	if slices.Contains(p.kinds(), "boolean") {
		values = []any{true, false}
	}
	var found []word
	for _, v := range values {
		text, err := compactJSON(v)
		if err == nil {
			found = append(found, word{text: name + "=" + strings.Trim(string(text), `"`)})
		}
	}
	return found
}

// jobWords are "last" and the ids of the newest jobs, in some states if any are given, without
// those that stand before.
func jobWords(states ...harp.State) func(context.Context, *harp.Caller, []string, string) []word {
	return func(ctx context.Context, caller *harp.Caller, args []string, begun string) []word {
		var found []word
		now := time.Now()
		if names := jobNames(caller); strings.HasPrefix("last", begun) && !slices.Contains(args, "last") {
			if id, err := names.last(ctx); err == nil {
				job, err := caller.Job(id).Status(ctx)
				if err == nil && (len(states) == 0 || slices.Contains(states, job.State)) {
					found = append(found, word{"last", jobMeaning(job, now)})
				}
			}
		}
		for job, err := range caller.Jobs(ctx, harp.JobFilter{States: states}) {
			if err != nil || len(found) > recentJobs {
				break
			}
			if !slices.Contains(args, job.ID) {
				found = append(found, word{job.ID, jobMeaning(job, now)})
			}
		}
		return found
	}
}

// batchWords are "last" and the ids of the newest batches, in some states if any are given.
func batchWords(states ...harp.BatchState) func(context.Context, *harp.Caller, []string, string) []word {
	return func(ctx context.Context, caller *harp.Caller, _ []string, begun string) []word {
		var found []word
		now := time.Now()
		for s, err := range caller.Batches(ctx, harp.BatchFilter{States: states}) {
			if err != nil || len(found) > recentJobs {
				break
			}
			meaning := s.Procedure + " on " + s.Target + ", " + relative(now.Sub(s.SubmitTime)) + ", " + batchStateText(s)
			if len(found) == 0 && len(states) == 0 && strings.HasPrefix("last", begun) {
				found = append(found, word{"last", meaning})
			}
			found = append(found, word{s.ID, meaning})
		}
		return found
	}
}

func jobMeaning(job harp.JobStatus, now time.Time) string {
	return job.Procedure + " on " + job.Host + ", " + relative(now.Sub(job.SubmitTime)) + ", " + stateText(job)
}

// queueWords are the names of queues that can be written as name=value.
func queueWords(ctx context.Context, caller *harp.Caller, args []string, begun string) []word {
	return queueWordsWhere(func(harp.QueueStatus) bool { return true })(ctx, caller, args, begun)
}

// queueWordsWhere are those of queues for which something holds.
func queueWordsWhere(holds func(harp.QueueStatus) bool) func(context.Context, *harp.Caller, []string, string) []word {
	return func(ctx context.Context, caller *harp.Caller, _ []string, _ string) []word {
		return findQueueWords(ctx, caller, holds)
	}
}

func findQueueWords(ctx context.Context, caller *harp.Caller, holds func(harp.QueueStatus) bool) []word {
	var found []word
	for q, err := range caller.Queues().List(ctx) {
		if err != nil {
			break
		}
		if !holds(q) {
			continue
		}
		name, err := q.Name.Any()
		keys, ok := name.(map[string]any)
		if err != nil || !ok || len(keys) != 1 {
			continue // of several words, or none
		}
		for key, value := range keys {
			if text, ok := value.(string); ok {
				found = append(found, word{key + "=" + text, strconv.Itoa(q.Running) + " running, " + strconv.Itoa(q.Waiting) + " waiting"})
			}
		}
	}
	return found
}
