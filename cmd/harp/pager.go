package main

import (
	"cmp"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"

	"github.com/spf13/cobra"
)

// pages reports whether what a command prints goes through a pager where it is longer than the
// terminal: lists and what show commands print, for people.
func (c *cli) pages(cmd *cobra.Command) bool {
	if !c.terminal || c.format != formatText && c.format != formatWide {
		return false
	}
	if watch := cmd.Flags().Lookup("watch"); watch != nil && watch.Changed {
		return false
	}
	return cmd.Annotations[knows] == lists()[knows] || cmd.Name() == "show"
}

// showPaged runs fn and prints what it printed, through a pager if there is one and the terminal
// has too few lines for it.
func (c *cli) showPaged(fn func() error) error {
	printed, failed := c.captured(fn)
	_, lines := c.size()
	if pager := c.pager(); len(pager) > 0 && lines > 0 && strings.Count(printed, "\n") >= lines {
		if c.runPager(pager, printed) {
			return failed
		}
	}
	_, _ = io.WriteString(c.stdout, printed) // stdout keeps its error
	return failed
}

// pager is the pager's command: that of the environment, or else less if it is there; none if the
// environment says so.
func (c *cli) pager() []string {
	words := strings.Fields(cmp.Or(c.env("HARP_PAGER"), c.env("PAGER"), "less"))
	if len(words) == 0 || words[0] == "cat" || c.env("TERM") == "dumb" {
		return nil
	}
	if path, err := exec.LookPath(words[0]); err == nil {
		words[0] = path
		return words
	}
	return nil
}

// runPager shows a text in the pager until the user leaves it. It returns false if there was none.
func (c *cli) runPager(words []string, printed string) bool {
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt) // the pager's
	defer signal.Stop(interrupts)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(printed), direct(c.stdout.w), direct(c.stderr)
	cmd.Env = os.Environ()
	if c.env("LESS") == "" {
		cmd.Env = append(cmd.Env, "LESS=FRX") // colours as they are, and what was printed stays
	}
	if cmd.Start() != nil {
		return false
	}
	_ = cmd.Wait() // the user has seen what there was to see
	return true
}
