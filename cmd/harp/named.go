package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
)

// namesOf finds the names of all nouns of a kind, by what an error calls them.
var namesOf = map[string]func(ctx context.Context, caller *harp.Caller, args []string, begun string) []word{
	"schedule": scheduleWords, "window": windowWords, "group": groupWords, "notification": notificationWords,
	"retention rule": ruleWords, "drift": driftWords,
}

// suggestName adds to the error of a name that is not known which may have been meant: that name is
// the first of those typed that does not exist.
func suggestName(ctx context.Context, caller *harp.Caller, err error, typed []string) error {
	find := namesOf[harp.FailureOf(err).Type]
	if find == nil || !errors.Is(err, harp.ErrNotFound) {
		return err
	}
	var known []string
	for _, w := range find(ctx, caller, nil, "") {
		known = append(known, w.text)
	}
	for _, name := range typed {
		if !slices.Contains(known, name) {
			return hinted(err, name, known)
		}
	}
	return err
}

// change is what is done to one noun, by its name.
type change = func(ctx context.Context, caller *harp.Caller, name string) error

// changesNamed is the body of a command that changes the nouns its arguments name, one after the
// other; "-" stands for the names on stdin. For a dry run it only looks whether they exist and whether
// the dispatcher would refuse it. The texts say of a name what would be done, and what was.
func (c *cli) changesNamed(dry *bool, look, change change, would, done string) func(*cobra.Command, []string) error {
	return c.asks(func(ctx context.Context, caller *harp.Caller, args []string) error {
		names, err := c.namesIn(args)
		if err != nil {
			return err
		}
		return c.eachName(ctx, names, func(name string) error {
			do := change
			if *dry {
				do = look
			}
			switch err := do(ctx, caller, name); {
			case err != nil:
				return suggestName(ctx, caller, err, []string{name})
			case *dry:
				return c.would(object{{"name", name}}, would, name)
			case c.format == formatJSON:
				return c.printObject(object{{"name", name}})
			}
			c.notice(done, name)
			return nil
		})
	})
}

// byHand says that what documents say of a noun is not changed by hand, as the dispatcher would. Errors: *wouldNotError.
func byHand(kind harp.DocumentKind, name, managedBy string) error {
	if managedBy == "" {
		return nil
	}
	return &wouldNotError{fmt.Sprintf("%s %s is managed by %s: change its document, and apply that", kind, name, managedBy)}
}

// removal is how nouns of a kind are deleted by their names. words completes these; the rest is as changesNamed has it.
type removal struct {
	short        string
	words        func(ctx context.Context, caller *harp.Caller, args []string, begun string) []word
	look, remove change
	would, done  string
}

// removeCommand is the command rm of a kind of nouns.
func (c *cli) removeCommand(r removal) *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use:   "rm NAME...",
		Short: r.short,
		Args:  cobra.MinimumNArgs(1),
		RunE:  c.changesNamed(&dry, r.look, r.remove, r.would, r.done),
	}
	cmd.ValidArgsFunction = c.completeNames(cmd, r.words)
	bindDryRun(cmd, &dry)
	return cmd
}

// namesIn are the names that the arguments are, each once; "-" stands for those on stdin.
func (c *cli) namesIn(args []string) (names []string, err error) {
	for _, arg := range args {
		some := []string{arg}
		if arg == "-" {
			if some, err = c.wordsOfStdin("name"); err != nil {
				return nil, err
			}
		}
		for _, name := range some {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names, nil
}

// eachName does something for one name after the other. Of several, what fails is said at once and
// the others follow. Errors: fn's of one name; *saidError.
func (c *cli) eachName(ctx context.Context, names []string, fn func(name string) error) error {
	if len(names) == 1 {
		return fn(names[0])
	}
	code := exitOK
	for _, name := range names {
		c.stdout.written = false // an error is an object of its own
		err := fn(name)
		if err != nil && ctx.Err() != nil {
			return err
		}
		code = worseCode(code, c.reportError(err))
	}
	if code == exitOK {
		return nil
	}
	return &saidError{code}
}
