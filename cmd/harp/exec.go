package main

import (
	"context"
	"errors"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/schema"
)

// execProcedure is the procedure that runs any command. A host offers it only if the
// agent's configuration says so.
const execProcedure = "exec"

func (c *cli) execCommand() *cobra.Command {
	var (
		f    callFlags
		how  execFlags
		argv []string
	)
	cmd := &cobra.Command{
		Use:   "exec [flags] HOST [flags] [--] COMMAND [ARG]...",
		Short: "Run a command on a host that allows it",
		Long: `Run a command on a host and print its output. There is no shell: each word is one
argument of the command. Flags before the command are harp's; everything from the command
on belongs to the command. The host's agent must offer the procedure exec.

The exit code is the command's own; with --exit mapped a failure is 1, which cannot be
mistaken for one of harp's (harp help exit-codes). Ctrl-C stops waiting, not the command.

With -o json the object has the output as text, in "stdout" and "stderr"; -o jsonl prints
it as it comes, record by record, and then the job.`,
		Example: `  harp exec web01 uptime -p
  harp exec web01 --timeout 1h tar -czf /var/tmp/etc.tgz /etc
  harp exec web01 --stdin -- tee /etc/motd < motd`,
		Args: func(cmd *cobra.Command, args []string) (err error) {
			argv, err = commandWords(cmd, args)
			return err
		},
		Annotations: calls(),
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, args []string) error {
			f.onlyOutput = true
			f.sure = true // whoever types the command means it
			return c.exec(ctx, caller, &f, &how, args[0], argv)
		}),
		ValidArgsFunction: c.completeOnly(c.asksWords(execHostWords)),
	}
	cmd.Flags().SetInterspersed(false)
	c.bindCall(cmd, &f)
	c.bindExit(cmd, exitRemote)
	flags := cmd.Flags()
	flags.BoolVar(&how.stdin, "stdin", false, "send stdin, which must be text, to the command; at most 1 MiB, arguments included")
	flags.StringVar(&how.cwd, "cwd", "", "the `folder` on the host to run it in")
	flags.StringArrayVar(&how.env, "env", nil, "an environment variable that the host allows: `name=value` (repeatable)")
	_ = flags.MarkHidden("yes") // there is nothing to ask
	return cmd
}

// commandWords reads the flags behind the host; what follows them is the command.
func commandWords(cmd *cobra.Command, args []string) ([]string, error) {
	if len(args) == 0 {
		return nil, errors.New("missing HOST")
	}
	if err := cmd.ParseFlags(args[1:]); err != nil {
		return nil, cmd.FlagErrorFunc()(cmd, err)
	}
	if help, err := cmd.Flags().GetBool("help"); err == nil && help {
		return nil, pflag.ErrHelp
	}
	argv := cmd.Flags().Args()
	if len(argv) == 0 {
		return nil, errors.New("missing COMMAND")
	}
	return argv, nil
}

// execFlags are how a command is run.
type execFlags struct {
	stdin bool
	cwd   string
	env   []string
}

// arguments are those of the procedure exec.
func (how *execFlags) arguments(c *cli, argv []string) (map[string]any, error) {
	args := map[string]any{"argv": argv}
	if how.cwd != "" {
		args["cwd"] = how.cwd
	}
	if how.env != nil {
		env, err := labels(how.env)
		if err != nil {
			return nil, invalid("env", "%s", message(err))
		}
		args["env"] = env
	}
	if how.stdin {
		text, err := c.readInput("-")
		if err != nil {
			return nil, invalid("stdin", "%s", err)
		}
		if !utf8.Valid(text) {
			return nil, invalid("stdin", "must be UTF-8 text")
		}
		args["stdin"] = string(text)
	}
	return args, nil
}

// exec runs a command on a host.
func (c *cli) exec(ctx context.Context, caller *harp.Caller, f *callFlags, how *execFlags, host string, argv []string) error {
	doc, err := f.findCalled(ctx, caller, host, execProcedure)
	if errors.Is(err, harp.ErrNotFound) {
		if _, hostErr := caller.Hosts().Get(ctx, host); hostErr == nil {
			return failures.NotFound("procedure", execProcedure+" on "+host+": its agent's configuration does not allow it")
		}
	}
	if err != nil {
		return err
	}
	args, err := how.arguments(c, argv)
	if err != nil {
		return err
	}
	v, err := commandArguments(doc, args)
	if err != nil {
		return err
	}
	return c.makeCall(ctx, caller, f, doc, host, v)
}

// commandArguments are arguments of the procedure exec, as it takes them.
func commandArguments(doc harp.ProcedureDoc, args map[string]any) (harp.Value, error) {
	known, err := schema.Compile(doc)
	if err != nil {
		return nil, err
	}
	v, err := harp.NewValue(args)
	if err != nil {
		return nil, err
	}
	return v, inWords(known.Check(v))
}
