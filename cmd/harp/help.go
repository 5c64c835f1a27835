package main

import (
	"cmp"
	"embed"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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
			return fmt.Errorf("no help on %s%s", strings.Join(args, " "), cmp.Or(hintOfHelp(root, args), "; harp help lists all topics"))
		}
		show(cmd, args)
		return nil
	}
}

// hintOfHelp says which page may have been meant.
func hintOfHelp(root *cobra.Command, args []string) string {
	at, unknown, err := root.Find(args)
	if err != nil || len(unknown) == 0 {
		return ""
	}
	var known []string
	for _, sub := range at.Commands() {
		known = append(known, sub.Name())
	}
	return didYouMean(unknown[0], known)
}

// explainArguments makes a command that is given too few or too many arguments say which.
func explainArguments(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		explainArguments(sub)
	}
	check := cmd.Args
	if check == nil || cmd.HasSubCommands() || len(cmd.ValidArgs) > 0 || cmd.Name() == "exec" {
		return
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if check(cmd, args) == nil {
			return cmp.Or(missingFlag(cmd), clashingFlags(cmd))
		}
		required, most := positions(cmd.Use)
		if len(args) < len(required) {
			return fmt.Errorf("missing %s", strings.Join(required[len(args):], " "))
		}
		return fmt.Errorf("unexpected argument %s", args[min(most, len(args)-1)])
	}
}

// missingFlag is the error of a command that lacks a flag that it needs.
func missingFlag(cmd *cobra.Command) (err error) {
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if _, needed := flag.Annotations[cobra.BashCompOneRequiredFlag]; needed && !flag.Changed && err == nil {
			err = fmt.Errorf("missing --%s", flag.Name)
		}
	})
	return err
}

// positions are the arguments that a command must be given, by what its usage says, and how many it
// may be.
func positions(use string) (required []string, most int) {
	words := strings.Fields(use)[1:]
	for i := 0; i < len(words); i++ {
		word := words[i]
		for closing := map[byte]string{'[': "]", '{': "}"}[word[0]]; closing != "" && !strings.Contains(word, closing) && i+1 < len(words); {
			i++
			word += " " + words[i]
		}
		switch {
		case strings.HasPrefix(word, "--"):
			i++ // and its value
			continue
		case word[0] != '[':
			required = append(required, strings.TrimSuffix(word, "..."))
		}
		most++
	}
	return required, most
}

// addAliases lets commands be typed as many others have them.
func addAliases(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		addAliases(sub)
		switch sub.Name() {
		case "ls":
			sub.Aliases = append(sub.Aliases, "list")
		case "rm":
			sub.Aliases = append(sub.Aliases, "remove", "delete")
		}
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
	for _, name := range []string{"exit-codes", "arguments", "delivery", "contexts", "targets", "batches", "schedules", "maintenance", "notifications", "output", "configuration"} {
		text, err := helpTexts.ReadFile("help/" + name + ".txt")
		if err != nil {
			panic(err) // it is part of the program
		}
		short, long, _ := strings.Cut(string(text), "\n\n")
		topics = append(topics, &cobra.Command{Use: name, Short: short, Long: keys.Replace(strings.TrimSuffix(long, "\n"))})
	}
	return topics
}
