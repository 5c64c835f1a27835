package main

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
)

// fitHelp wraps what help prints of a command and of those below it to a terminal.
func fitHelp(cmd *cobra.Command, columns int) {
	cmd.SetUsageTemplate(strings.ReplaceAll(cmd.UsageTemplate(), ".FlagUsages ", fmt.Sprintf(".FlagUsagesWrapped %d ", columns)))
	fitLong(cmd, columns)
}

func fitLong(cmd *cobra.Command, columns int) {
	cmd.Long = fitProse(cmd.Long, columns)
	for _, sub := range cmd.Commands() {
		fitLong(sub, columns)
	}
}

// fitProse wraps paragraphs that are too wide anew. Tables and examples, which are indented, stay as they are.
func fitProse(long string, columns int) string {
	var fitted, paragraph []string
	end := func() {
		whole := strings.Join(paragraph, " ")
		for _, line := range paragraph {
			if text.StringWidth(line) > columns {
				paragraph = strings.Split(text.WrapSoft(whole, columns), "\n")
				break
			}
		}
		for _, line := range paragraph {
			fitted = append(fitted, strings.TrimRight(line, " "))
		}
		paragraph = nil
	}
	for line := range strings.SplitSeq(long, "\n") {
		if line != "" && line[0] != ' ' {
			paragraph = append(paragraph, line)
			continue
		}
		end()
		fitted = append(fitted, line)
	}
	end()
	return strings.Join(fitted, "\n")
}
