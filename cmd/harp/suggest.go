package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/text"
)

// didYouMean are the known words that somebody may have meant with another, as the end of a
// message: the nearest ones, and those that begin with it; "" if there are none.
func didYouMean(typed string, known []string) string {
	const most = 3
	if len(typed) > harp.MaxHostName { // than which no name is longer
		return ""
	}
	type near struct {
		word string
		far  int
	}
	var found []near
	nearest := len(typed)
	for _, word := range known {
		far := distance(strings.ToLower(typed), strings.ToLower(word))
		if far > 0 && far <= max(1, min(len(typed), len(word))/3) {
			nearest = min(nearest, far)
			found = append(found, near{word, far})
		} else if len(typed) > 1 && strings.HasPrefix(strings.ToLower(word), strings.ToLower(typed)) {
			found = append(found, near{word, len(word) - len(typed)})
		}
	}
	if len(found) == 0 {
		return ""
	}
	slices.SortStableFunc(found, func(a, b near) int { return cmp.Compare(a.far, b.far) })
	words := make([]string, 0, most)
	for _, n := range found {
		if len(words) < most && (n.far <= nearest || strings.HasPrefix(strings.ToLower(n.word), strings.ToLower(typed))) && !slices.Contains(words, n.word) {
			words = append(words, n.word)
		}
	}
	return "; did you mean " + oneOf(words) + "?"
}

// oneOf is words as a choice: a, b or c.
func oneOf(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// distance is how many characters have to be put in, left out, replaced or exchanged with their
// neighbour to make b of a.
func distance(a, b string) int {
	from, to := []rune(a), []rune(b)
	before, above, row := make([]int, len(to)+1), make([]int, len(to)+1), make([]int, len(to)+1)
	for j := range above {
		above[j] = j
	}
	for i := range from {
		row[0] = i + 1
		for j := range to {
			cost := 1
			if from[i] == to[j] {
				cost = 0
			}
			row[j+1] = min(above[j+1]+1, row[j]+1, above[j]+cost)
			if i > 0 && j > 0 && from[i] == to[j-1] && from[i-1] == to[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, above, row = above, row, before
	}
	return above[len(to)]
}

// meant are commands that people who know other tools type, and what they are here.
var meant = map[string]string{
	"invoke": "call", "submit": "call", "ssh": "exec", "hosts": "host", "node": "host", "nodes": "host", "minions": "host",
	"procedure": "proc", "procedures": "proc", "jobs": "job", "queues": "queue", "events": "event", "context": "ctx", "contexts": "ctx", "config": "ctx",
	"stop": "job cancel", "kill": "job cancel --now", "status": "job show", "result": "job get", "wait": "job wait", "cancel": "job cancel",
	"schedules": "schedule", "cron": "schedule", "crontab": "schedule",
	"retry": "job retry", "follow": "job follow", "show": "job show", "get": "job get", "ls": "job ls", "tail": "job follow --tail 10",
	"check": "doctor", "ping": "doctor", "server": "dispatcher", "list": "job ls", "describe": "job show", "apply": "schedule apply", "history": "schedule history",
}

// meantBelow are such words behind the name of a command that holds others; "*" is any of them.
var meantBelow = map[string]map[string]string{
	"*":        {"get": "show", "describe": "show", "info": "show", "create": "add", "new": "add", "put": "add", "update": "add --replace", "edit": "add --replace", "change": "add --replace", "set": "add --replace", "stop": "pause", "disable": "pause", "suspend": "pause", "start": "unpause", "enable": "unpause", "resume": "unpause"},
	"schedule": {"trigger": "run", "now": "run", "logs": "history", "log": "history", "ledger": "history", "runs": "history", "preview": "next", "times": "next"},
	"maint":    {"next": "spans", "times": "spans", "start": "on", "stop": "off", "enable": "on", "disable": "off", "pause": "on", "unpause": "off", "resume": "off"},
	"retain":   {"add": "set", "create": "set", "new": "set", "put": "set", "update": "set", "edit": "set", "change": "set", "explain": "show", "why": "show"},
	"group":    {"add": "set", "create": "set", "new": "set", "put": "set", "update": "set", "edit": "set", "change": "set"},
	"drift":    {"show": "ls", "get": "ls", "forget": "rm"},
	"batch":    {"wait": "results", "get": "results", "result": "results", "jobs": "hosts", "members": "hosts", "logs": "follow", "log": "follow", "tail": "follow", "stop": "cancel", "kill": "cancel", "abort": "cancel", "unpause": "resume", "rerun": "retry", "repeat": "retry"},
	"job":      {"logs": "follow", "log": "follow", "tail": "follow", "stop": "cancel", "kill": "cancel --now", "abort": "cancel", "result": "get", "status": "show", "rerun": "retry", "repeat": "retry"},
	"notify":   {"logs": "pending", "queue": "pending", "messages": "pending", "send": "test"},
}

// meantCommand is what a word that is no command is called here; "" if that is not known.
func meantCommand(cmd *cobra.Command, word string) string {
	if !cmd.HasParent() {
		return meant[word]
	}
	for _, words := range []map[string]string{meantBelow[cmd.Name()], meantBelow["*"]} {
		name, _, _ := strings.Cut(words[word], " ")
		for _, sub := range cmd.Commands() {
			if name == sub.Name() {
				return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ") + " " + words[word]
			}
		}
	}
	return ""
}

// noSuchCommand is the error of a command line whose flags are not known because its command is not.
func noSuchCommand(root *cobra.Command, args []string, err error) error {
	var unknown *pflag.NotExistError
	cmd, rest, findErr := root.Find(args)
	if findErr != nil || !errors.As(err, &unknown) || !cmd.HasSubCommands() || len(rest) == 0 || strings.HasPrefix(rest[0], "-") {
		return err
	}
	return unknownCommand(cmd, rest)
}

// unknownCommand says that there is no such command, and which may have been meant.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if other := meantCommand(cmd, args[0]); other != "" {
		return fmt.Errorf("unknown command %q; did you mean %s?", args[0], other)
	}
	var known []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			known = append(known, sub.Name())
		}
	}
	hint := didYouMean(args[0], known)
	if hint == "" && cmd.HasParent() {
		hint = "; available: " + strings.Join(known, ", ")
	}
	return fmt.Errorf("unknown command %q%s", args[0], hint)
}

// unknownFlag adds to the error of a flag that is not known which may have been meant.
func unknownFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, "--"+f.Name)
		}
	})
	return fmt.Errorf("%w%s", err, didYouMean("--"+unknown.GetSpecifiedName(), known))
}

// hinted adds to the error of a name that is not known which may have been meant.
func hinted(err error, typed string, known []string) error {
	hint := didYouMean(typed, known)
	if hint == "" {
		return err
	}
	return fmt.Errorf("%w%s", err, hint)
}

// noHost is the error of a host that is not known.
func noHost(ctx context.Context, caller *harp.Caller, err error, name string) error {
	if !errors.Is(err, harp.ErrNotFound) || len(name) > harp.MaxHostName {
		return err
	}
	var known []string
	for h, err := range caller.Hosts().List(ctx, "") {
		if err != nil {
			break
		}
		known = append(known, h.Name)
	}
	return hinted(err, name, known)
}

// noProcedure is the error of a procedure that is not among those that are offered.
func noProcedure(name, host string, known []string) error {
	what := name
	if host != "" {
		what += " on " + shortTarget(host)
	}
	return hinted(failures.NotFound("procedure", what), name, known)
}

// shortTarget is a target as errors show it: one of a list of hosts can be long.
func shortTarget(target string) string { return text.Shorten(target, harp.MaxHostName, "…") }
