package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
)

// watchEvery is how often a list that is watched is asked for.
const watchEvery = 2 * time.Second

// bindWatch adds the flag with which a list is printed again and again.
func bindWatch(cmd *cobra.Command, watch *bool) {
	cmd.Flags().BoolVarP(watch, "watch", "w", false, "repaint the list every 2 s until Ctrl-C; off a terminal, and with jsonl and id, print only changes")
}

// listCommand is the command that lists all of a kind.
func listCommand[T any](c *cli, short string, l func() listing[T], all func(context.Context, *harp.Caller) iter.Seq2[T, error]) *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:         "ls",
		Short:       short,
		Args:        cobra.NoArgs,
		Annotations: lists(),
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, _ []string) error {
			return showList(ctx, c, watch, l(), func(ctx context.Context) ([]T, bool, error) {
				return firstOf(all(ctx, caller), 0)
			})
		}),
	}
	bindWatch(cmd, &watch)
	return cmd
}

// showList prints the list that find returns, which also says whether there are more: once or, if it is
// watched, again and again.
func showList[T any](ctx context.Context, c *cli, watch bool, l listing[T], find func(context.Context) (items []T, more bool, err error)) error {
	if watch {
		return watchList(ctx, c, l, func(ctx context.Context) ([]T, error) {
			items, _, err := find(ctx)
			return items, err
		})
	}
	items, more, err := find(ctx)
	if err != nil {
		return err
	}
	return printFirst(c, l, items, more)
}

// watchList prints a list again and again: on a terminal over itself, elsewhere what has changed,
// in the order of time if the list begins with the newest. It goes on when the dispatcher is away for a time.
func watchList[T any](ctx context.Context, c *cli, l listing[T], find func(context.Context) ([]T, error)) error {
	if c.format == formatJSON {
		return invalid("watch", "never ends; it takes text, wide, jsonl, id and template=")
	}
	w := &listWatch[T]{cli: c, listing: l}
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		items, err := find(ctx)
		if ctx.Err() != nil {
			return &saidError{exitDetached}
		}
		if err != nil && !errors.Is(err, harp.ErrUnavailable) {
			return err
		}
		if err := w.show(items, err); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return &saidError{exitDetached}
		}
	}
}

// listWatch is a list that is watched.
type listWatch[T any] struct {
	cli     *cli
	listing listing[T]
	seen    map[string]bool // what the items were the last time
	headed  bool            // the header is printed
	drawn   int             // lines on the terminal
	last    string          // the table there
	away    bool            // the dispatcher does not answer
}

// show prints what came of asking.
func (w *listWatch[T]) show(items []T, failed error) error {
	c := w.cli
	if c.terminal && (c.format == formatText || c.format == formatWide) {
		return w.redraw(items, failed)
	}
	if away := failed != nil; away != w.away {
		if w.away = away; away {
			c.notice("the dispatcher does not answer, retrying: %s", message(failed))
		} else {
			c.notice("the dispatcher answers again")
		}
	}
	if failed != nil {
		return nil
	}
	var changed []T
	seen := map[string]bool{}
	for _, item := range items {
		now, err := w.listing.watched(item)
		if err != nil {
			return err
		}
		if seen[now] = true; !w.seen[now] {
			changed = append(changed, item)
		}
	}
	w.seen = seen
	if len(changed) == 0 {
		return nil
	}
	if w.listing.newestFirst {
		slices.Reverse(changed)
	}
	if c.format != formatText && c.format != formatWide {
		return printList(c, w.listing, changed)
	}
	printRows(c, w.listing, changed, !w.headed)
	w.headed = true
	return c.stdout.err
}

// redraw prints the list over what was there, as much of it as the terminal has lines for.
func (w *listWatch[T]) redraw(items []T, failed error) error {
	c := w.cli
	if failed == nil {
		shown, err := c.captured(func() error { return printList(c, w.listing, items) })
		if err != nil {
			return err
		}
		w.last = shown
	}
	lines := strings.Split(strings.TrimSuffix(w.last, "\n"), "\n")
	columns, height := c.size()
	if most := height - 3; height > 0 && len(lines) > max(most, 1) {
		left := len(lines) - max(most, 1)
		lines = append(lines[:max(most, 1)], fmt.Sprintf("... and %d more", left))
	}
	status := c.times.stamp(time.Now(), time.Now()) + ", every 2 s until Ctrl-C"
	if failed != nil {
		status = "the dispatcher does not answer; asking again: " + safeLine(message(failed))
	}
	lines = append(lines, status)
	var b strings.Builder
	if w.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r\x1b[J", w.drawn)
	}
	for _, line := range lines {
		if columns > 0 {
			line = text.Trim(line, columns)
		}
		b.WriteString(line + "\n")
	}
	w.drawn = len(lines)
	_, err := io.WriteString(c.stdout, b.String())
	return err
}

// captured is what fn prints on stdout, which does not go there.
func (c *cli) captured(fn func() error) (string, error) {
	var b bytes.Buffer
	was := c.stdout.w
	c.stdout.w = &b
	defer func() { c.stdout.w = was }()
	err := fn()
	return b.String(), err
}
