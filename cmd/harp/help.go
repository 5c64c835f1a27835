package main

import (
	"embed"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp/cmd/harp/internal/config"
)

// refuseTopics makes harp help say so when there is no such page.
func refuseTopics(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	help, _, err := root.Find([]string{"help"})
	if err != nil {
		return
	}
	show := help.Run
	help.Run, help.Short = nil, "Explain a command or a topic"
	help.RunE = func(cmd *cobra.Command, args []string) error {
		if _, unknown, err := root.Find(args); err != nil || len(unknown) > 0 {
			return fmt.Errorf("there is no help on %s; harp help lists what there is", strings.Join(args, " "))
		}
		show(cmd, args)
		return nil
	}
}

// explainArguments makes a command that is given too few or too many arguments say
// which it takes.
func explainArguments(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		explainArguments(sub)
	}
	check := cmd.Args
	if check == nil || cmd.HasSubCommands() || len(cmd.ValidArgs) > 0 {
		return
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if check(cmd, args) != nil {
			return fmt.Errorf("too few or too many arguments: %s", cmd.UseLine())
		}
		return nil
	}
}

// helpTexts are the pages of `harp help` that are no commands: what a page is about in
// its first line, and then the page.
//
//go:embed help/*.txt
var helpTexts embed.FS

// helpTopics are the pages in the order in which they are listed.
func helpTopics() (topics []*cobra.Command) {
	keys := strings.NewReplacer("{dispatcher}\n", config.Help(config.DispatcherKeys()), "{agent}", config.Help(config.AgentKeys()))
	for _, name := range []string{"exit-codes", "arguments", "delivery", "contexts", "targets", "output", "configuration"} {
		text, err := helpTexts.ReadFile("help/" + name + ".txt")
		if err != nil {
			panic(err) // it is part of the program
		}
		short, long, _ := strings.Cut(string(text), "\n\n")
		topics = append(topics, &cobra.Command{Use: name, Short: short, Long: keys.Replace(strings.TrimSuffix(long, "\n"))})
	}
	return topics
}
