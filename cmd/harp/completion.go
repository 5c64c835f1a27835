package main

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func (c *cli) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print the script that makes a shell complete harp commands",
		Long: `Print the script that makes a shell complete harp commands: words and flags, and what
the dispatcher knows: hosts, procedures, their parameters and values, queues and the
newest jobs. Each Tab asks the dispatcher, for a second at most.

  bash   source <(harp completion bash)
         or once: harp completion bash > /etc/bash_completion.d/harp
  zsh    harp completion zsh > "${fpath[1]}/_harp"
  fish   harp completion fish > ~/.config/fish/completions/harp.fish`,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.does(func(context.Context, []string) error { return c.script(cmd.Root(), args[0]) })(cmd, args)
		},
	}
}

// script prints a shell's script.
func (c *cli) script(root *cobra.Command, shell string) error {
	switch shell {
	case "zsh":
		return root.GenZshCompletion(c.stdout)
	case "fish":
		return root.GenFishCompletion(c.stdout, true)
	}
	if err := root.GenBashCompletionV2(c.stdout, true); err != nil {
		return err
	}
	_, err := io.WriteString(c.stdout, bashEquals)
	return err
}

// bashEquals makes up for what bash does otherwise: it takes name=value apart at the
// equals sign and would put the whole word behind it again; and the package
// bash-completion, whose functions the script uses, is not everywhere.
const bashEquals = `
if ! declare -F _get_comp_words_by_ref >/dev/null 2>&1; then
    __harp_init_completion()
    {
        local line="${COMP_LINE:0:COMP_POINT}"
        COMPREPLY=()
        read -r -a words <<< "$line"
        if [[ -z $line || $line == *[[:space:]] ]]; then
            words+=("")
        fi
        cword=$((${#words[@]} - 1))
        cur="${words[cword]}"
        prev="${words[cword-1]}"
    }
fi

__harp_complete_word()
{
    __start_harp "$@"
    local word="${COMP_LINE:0:COMP_POINT}"
    word="${word##*[[:space:]]}"
    if [[ $word == *=* && $word != -* && $COMP_WORDBREAKS == *=* ]]; then
        local begun="${word%"${word##*=}"}"
        COMPREPLY=("${COMPREPLY[@]#"$begun"}")
    fi
}

if [[ $(type -t compopt) = "builtin" ]]; then
    complete -o default -F __harp_complete_word harp
else
    complete -o default -o nospace -F __harp_complete_word harp
fi
`

// completeAll sets, for every command and flag that does not say itself what can stand
// there, that no file is offered, unless it is one that is wanted.
func completeAll(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 && !strings.Contains(cmd.Use, "FILE") {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) { completeFlagValue(cmd, f) })
	cmd.PersistentFlags().VisitAll(func(f *pflag.Flag) { completeFlagValue(cmd, f) })
	for _, sub := range cmd.Commands() {
		completeAll(sub)
	}
}

// unquoteUsage takes the marks out of what flags mean, which only the help needs.
func unquoteUsage(cmd *cobra.Command) {
	unquote := func(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "`", "") }
	cmd.LocalFlags().VisitAll(unquote)
	for _, sub := range cmd.Commands() {
		unquoteUsage(sub)
	}
}

func completeFlagValue(cmd *cobra.Command, f *pflag.Flag) {
	if _, set := cmd.GetFlagCompletionFunc(f.Name); set {
		return
	}
	what, _ := pflag.UnquoteUsage(f)
	switch what {
	case "file":
	case "folder":
		_ = cmd.MarkFlagDirname(f.Name) // it is there
	default:
		_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.NoFileCompletions) // it is there
	}
}
