package main

import (
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/harpcaller/harp"
)

var manDir = flag.String("man", "", "the `folder` to which TestManPages writes man pages")

// TestManPages makes a man page of each command, for packages in the folder that -man names. A
// test does it, so that the program does not carry what only makes pages.
func TestManPages(t *testing.T) {
	dir := *manDir
	if dir == "" {
		dir = t.TempDir()
	}
	date := time.Unix(0, 0).UTC()
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" { // reproducible-builds.org/specs/source-date-epoch
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		date = time.Unix(seconds, 0).UTC()
	}
	root := newCLI(strings.NewReader(""), new(strings.Builder), new(strings.Builder), func(string) string { return "" }).rootCommand()
	root.DisableAutoGenTag = true
	writeAsMarkdown(root)
	header := &doc.GenManHeader{Section: "1", Source: "harp " + harp.Version(), Manual: "harp", Date: &date}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := doc.GenManTree(root, header, dir); err != nil {
		t.Fatal(err)
	}
	var look func(*cobra.Command)
	look = func(cmd *cobra.Command) {
		if !cmd.IsAvailableCommand() && cmd != root {
			return
		}
		page, err := os.ReadFile(filepath.Join(dir, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1"))
		if err != nil || !strings.Contains(string(page), ".SH SYNOPSIS") || !strings.Contains(string(page), "\nharp") && !strings.Contains(string(page), "fBharp") {
			t.Errorf("%s: the page is %d bytes: %v", cmd.CommandPath(), len(page), err)
		}
		for _, sub := range cmd.Commands() {
			look(sub)
		}
	}
	look(root)
}

// writeAsMarkdown makes of the help of a command and of those below it what the pages are made
// of: indented lines are examples, and nothing else means anything but itself.
func writeAsMarkdown(cmd *cobra.Command) {
	escape := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `_`, `\_`, "`", "\\`", `<`, `\<`, `[`, `\[`)
	lines := strings.Split(cmd.Long, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "  ") {
			lines[i] = "  " + line
			if i > 0 && lines[i-1] != "" && !strings.HasPrefix(lines[i-1], "  ") {
				lines[i] = "\n" + lines[i]
			}
			continue
		}
		lines[i] = escape.Replace(line)
	}
	cmd.Long = strings.Join(lines, "\n")
	for _, sub := range cmd.Commands() {
		writeAsMarkdown(sub)
	}
}
