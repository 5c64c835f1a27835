// Command harp is all of harp in one binary: it runs a dispatcher, an agent or a
// whole system for development, and it calls procedures and reads what they
// returned.
//
// It is thin: a command turns its flags into one call of the library and prints
// the answer. Results and records go to stdout, everything else to stderr; the
// exit code says how it ended (exit.go).
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	_ "time/tzdata" // for machines without a time zone database

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/supervise"
	"github.com/harpcaller/harp/cmd/harp/internal/contexts"
)

func main() {
	supervise.Main()
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv))
}

// run is the program: arguments in, exit code out. The first interrupt ends what
// it waits for, the second ends the program at once.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer, env func(string) string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return newCLI(stdin, stdout, stderr, env).runCommand(ctx, args)
}

// cli is one run of the program: where it reads and writes, and what its global
// flags say.
type cli struct {
	stdin  io.Reader
	stdout *output
	stderr io.Writer
	line   *waitLine // before which both erase it
	env    func(string) string
	dial   func(context.Context, contexts.Context) (*harp.Caller, error)

	terminal    bool                        // stdout is one
	size        func() (columns, lines int) // of it; 0: not known
	errTerminal bool                        // stderr is one
	inTerminal  bool                        // stdin is one: somebody can be asked

	connection connection     // to which dispatcher
	format     format         // -o
	shape      shape          // what it makes of JSON; nil: nothing
	times      times          // --time
	colours    colours        // --color
	quiet      bool           // -q: only what was asked for, and errors
	raw        bool           // --raw: what was printed remotely goes to a terminal as it is
	remote     bool           // --exit remote: a command's own exit code is handed on
	wordless   bool           // stdout has what a template says, and no errors
	started    bool           // a command is running: what fails now is no usage error
	command    *cobra.Command // which one
}

func newCLI(stdin io.Reader, stdout, stderr io.Writer, env func(string) string) *cli {
	line := &waitLine{w: stderr}
	return &cli{
		stdin: stdin, stdout: &output{w: &erasing{line, stdout}}, stderr: &erasing{line, stderr}, line: line, env: env,
		dial: dialContext,
		size: func() (int, int) { return terminalSize(stdout) },

		terminal: isTerminal(stdout), errTerminal: isTerminal(stderr), inTerminal: isTerminalReader(stdin),
	}
}

// runCommand runs one command and returns the exit code.
func (c *cli) runCommand(ctx context.Context, args []string) int {
	root := c.rootCommand()
	if columns, _ := c.size(); c.terminal && columns > 0 {
		fitHelp(root, columns)
	}
	root.SetArgs(args)
	root.SetIn(c.stdin)
	root.SetOut(c.stdout)
	root.SetErr(c.stderr)
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		unquoteUsage(root)
	}
	cmd, err := root.ExecuteContextC(ctx)
	c.command = cmd
	if err != nil && !c.started {
		err = noSuchCommand(root, args, err)
		err = &usageError{command: cmd.CommandPath(), err: err}
	}
	if err == nil {
		err = c.stdout.err
	}
	return c.reportError(err)
}

func (c *cli) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "harp",
		Short: "Call procedures on remote machines and keep what they return",
		Long: `harp calls procedures on remote machines and keeps what they return.

A call returns a job id at once. With that id anyone can read the job's status, its
records and its result at any later time.

  harp dev                          a dispatcher and a host to try things on
  harp call demo1 hello name=Ada    a first call, in another terminal`,
		Args:              unknownCommand,
		Version:           harp.Version(),
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate(versionText() + "\n")
	root.SetFlagErrorFunc(flagError)
	c.connection.bind(root.PersistentFlags())
	flags := root.PersistentFlags()
	flags.VarP(&c.format, "output", "o", "`format`: text, wide (lists: more columns), json (one object), jsonl (lists and follow: one object per line), yaml, id (lists: one name per line) or template=TEXT; see harp help output")
	flags.Var(&c.times, "time", "how to print times: local, relative, iso or unix; JSON always has RFC 3339")
	flags.Var(&c.colours, "color", "`when` to use colours: auto, always or never (NO_COLOR, CLICOLOR_FORCE)")
	flags.BoolVarP(&c.quiet, "quiet", "q", false, "print only results and errors")
	root.AddCommand(
		c.devCommand(), c.dispatcherCommand(), c.agentCommand(),
		c.callCommand(), c.execCommand(), c.runOnTargetCommand(), c.jobCommand(), c.batchCommand(), c.hostCommand(), c.targetCommand(), c.groupCommand(), c.driftCommand(), c.scheduleCommand(), c.maintCommand(), c.notifyCommand(), c.procCommand(), c.queueCommand(), c.eventCommand(),
		c.backupCommand(), c.restoreCommand(), c.pruneCommand(), c.retainCommand(),
		c.contextCommand(), c.doctorCommand(), c.benchCommand(), c.idCommand(), c.completionCommand(), c.versionCommand(),
		c.psCommand(), c.logsCommand(),
	)
	root.AddCommand(helpTopics()...)
	refuseTopics(root)
	explainArguments(root)
	addAliases(root)
	c.completeFlag(root, "output", fixed("text", "wide", "json", "jsonl", "yaml", "id"))
	c.completeFlag(root, "time", fixed("local", "relative", "iso", "unix"))
	c.completeFlag(root, "color", fixed("auto", "always", "never"))
	c.completeFlag(root, "context", c.contextWords)
	completeAll(root)
	return root
}

// group is a command that only holds others.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short,
		Args: unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(commands...)
	return cmd
}

// does makes the body of a command out of a function of a context and the
// arguments.
func (c *cli) does(fn func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := c.chooseShape(cmd.Annotations[knows]); err != nil {
			return err
		}
		c.started, c.command = true, cmd
		if c.pages(cmd) {
			return c.showPaged(func() error { return fn(cmd.Context(), args) })
		}
		return fn(cmd.Context(), args)
	}
}

// asks is does for what needs a dispatcher.
func (c *cli) asks(fn func(ctx context.Context, caller *harp.Caller, args []string) error) func(*cobra.Command, []string) error {
	return c.does(func(ctx context.Context, args []string) error {
		return c.withCaller(ctx, func(caller *harp.Caller) error { return suggestName(ctx, caller, fn(ctx, caller, args), args) })
	})
}
