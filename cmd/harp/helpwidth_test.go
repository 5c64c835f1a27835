package main

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Help is read on terminals: its prose is wrapped by hand, all of it to the same width.
func TestHelpIsWrapped(t *testing.T) {
	const widest = 96
	var look func(*cobra.Command)
	look = func(cmd *cobra.Command) {
		for line := range strings.SplitSeq(cmd.Long, "\n") {
			if len(line) > widest && !strings.HasPrefix(line, "  ") { // not a table, nor an example
				t.Errorf("harp help %s: %d columns: %s", cmd.CommandPath(), len(line), line)
			}
		}
		for _, sub := range cmd.Commands() {
			look(sub)
		}
	}
	look(newCLI(strings.NewReader(""), io.Discard, io.Discard, func(string) string { return "" }).rootCommand())
}

// Help fits a terminal: its paragraphs and flags are wrapped between words. Off a terminal it is as it is.
func TestHelpFitsTheTerminal(t *testing.T) {
	f := several(t)
	piped := runFake(t, t.Context(), f, nil, "run", "--help")
	for _, columns := range []int{60, 80, 200} {
		got := runFake(t, t.Context(), f, ofSize(columns, 0), "run", "--help")
		if got.code != 0 || strings.Join(strings.Fields(got.stdout), " ") != strings.Join(strings.Fields(piped.stdout), " ") {
			t.Errorf("at %d columns it says something else:\n%s", columns, got.stdout)
		}
		for line := range strings.SplitSeq(got.stdout, "\n") {
			if len(line) > columns && !strings.HasPrefix(line, "  harp ") && !strings.Contains(line, "NAME:=JSON") { // commands stay in one line
				t.Errorf("at %d columns: %s", columns, line)
			}
		}
	}
	if got := runFake(t, t.Context(), f, ofSize(60, 0), "help", "exit-codes"); widest(got.stdout) > 90 || !strings.Contains(got.stdout, "\n  9    job wait --timeout: the job had not ended") {
		t.Errorf("tables stay as they are; got\n%s", got.stdout)
	}
}
