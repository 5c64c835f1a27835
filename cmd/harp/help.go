package main

import (
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

// helpTopics are pages of `harp help` that are no commands.
func helpTopics() []*cobra.Command {
	return []*cobra.Command{
		{
			Use:   "exit-codes",
			Short: "What the exit codes mean",
			Long: `The exit code says how the job, or the command, ended. call, job get, job follow
and job wait agree, also when the job has ended before.

  0    succeeded
  1    the procedure failed
  2    usage, bad arguments, an id or key that names another call, or a job in the
       wrong state for what was asked; nothing ran
  3    cancelled
  4    not authenticated or not allowed
  5    no such host, job, procedure or queue; or the job was pruned
  6    refused by the dispatcher, or by the agent for another reason than 2, 4, 5
  7    host unreachable, or not started in time; did not run
  8    outcome unknown: lost, or a call that may have arrived
  124  a time limit of the job was exceeded
  125  harp itself failed, as when the dispatcher cannot be reached
  130  interrupted; the job goes on

A job that ran a command hands on the command's own exit code from 1 to 119;
--exit mapped makes it 1. harp doctor exits with 1 when a check failed, --dry-run with
6 when the call would be refused, and harp bench as its first job that did not succeed.`,
		},
		{
			Use:   "arguments",
			Short: "How arguments of calls are written",
			Long: `  name=value   typed by the procedure's schema: a number where it wants one, a
               duration as 1m30s, a list or map as JSON, else a text
  name:=json   JSON, as it is
  @file.json   a JSON object with several, or an array of positional ones
  -            the same from stdin

What a procedure takes is shown by harp proc show. Arguments that do not fit are
refused with exit code 2 before anything is sent.`,
		},
		{
			Use:   "delivery",
			Short: "What harp promises about a call, and what the states mean",
			Long: `A call is acknowledged, with its job's id, when it is on the dispatcher's disk. It
starts at most once, unless the procedure is declared idempotent or --retry says that
it may run again. What was proven not to have started is sent again in any case.

  queued      waits: for its queue, a paused queue, the host, its time, another
              attempt (harp job show says for what)
  sent        on its way to the agent
  running     the procedure has begun
  cancelling  it was asked to stop, and something of it still runs
  unknown     nothing is heard of its host; it may run
  succeeded   ended with a value
  failed      ended with an error of its own
  timed_out   stopped by its --timeout or --max-exec-time
  cancelled   stopped because somebody asked
  expired     not started in time; did not run
  rejected    refused by its agent; did not run
  lost        nobody can know what became of it:
                agent_restarted  the agent was restarted while it ran
                journal_gone     the agent lost what it knew
                too_long         the host was silent for longer than lost_after
                forced           an operator gave it up (harp job force-lost)
                restored         it had not ended in the backup that was restored

A job that is unknown becomes what it is when its host comes back. What an agent says
of a job that had ended as lost is kept beside it ("late"), and the job stays lost.

When harp call or harp job retry ends with exit code 8 and an id, the call may have
been accepted: harp job show tells, and calling again with --id is the same job.`,
		},
		{
			Use:   "contexts",
			Short: "How harp knows which dispatcher to ask",
			Long: `A context is a file contexts/NAME.yaml in $HARP_CONFIG_DIR, or else in harp/ of the
user's configuration folder:

  addr: harp.example:7440
  cert: /home/ada/harp/ada.crt
  key:  /home/ada/harp/ada.key
  ca:   /home/ada/harp/ca.crt

The file "current" beside the folder contexts holds the name of the current one.
harp ctx adds, lists, chooses and deletes them; harp dev writes the context dev and
makes it current. HARP_CONTEXT and --context name another one, and HARP_ADDR, HARP_CERT,
HARP_KEY and HARP_CA or --addr, --cert, --key and --ca replace what it says: flags
before environment before file. harp doctor says which is asked, and whether it answers.`,
		},
		{
			Use:   "targets",
			Short: "How hosts are named",
			Long: `A call is of one host, by the name in its certificate or in the dispatcher's registry,
as harp host ls shows it: harp call web01 uptime. A name that is not known is exit code
5, before anything is sent.

Patterns, lists and labels (web*, a,b,c, role=web and env!=dev) are not there yet; for
several hosts, call in a loop:

  harp host ls -o id | while read -r host; do harp call -d "$host" uptime; done`,
		},
		{
			Use:   "output",
			Short: "What is printed where, and in which formats",
			Long: `stdout has what was asked for: results, records, lists. stderr has all else: ids,
progress, warnings, errors; --quiet leaves only the errors. So harp call web01 facts | jq
works, and harp call -d prints exactly one id.

Results and records of kind data are JSON, one value a line. What a command printed is
copied as it was: its stdout to stdout, its stderr and what was logged to stderr.

On a terminal all records are shown there, each line with time, number and kind (out,
err, log). What was printed remotely cannot move the cursor or change colours: control
characters are written as escapes, and a line that ends with a carriage return is
overwritten by the next. --raw prints the bytes as they are.

  -o text    for people; may change
  -o wide    of lists: the same, with more columns where there are any
  -o json    one object, with "v":1. Within a version fields are added, none is taken
             away or changed. An error is an object, too: {"v":1,"error":{...}}
  -o jsonl   of lists, job follow and event follow: an object a line, as they come
  -o yaml    the object of json, as YAML; of what follows, a document for each object
  -o id      of lists: one name or id a line
  -o template=TEXT   a template of Go's text/template, over the fields of the JSON; of
             lists and of what follows, for each object:
             harp job ls -o template='{{.id}} {{.state}} {{json .args}}'

  --time local|relative|iso|unix    times for people; JSON has RFC 3339 in UTC
  --color auto|always|never         auto: on a terminal, unless NO_COLOR is set;
                                    CLICOLOR_FORCE=1: always`,
		},
		{
			Use:   "configuration",
			Short: "The fields of the files of dispatcher and agent",
			Long: `harp dispatcher and harp agent are configured by a YAML file each. Relative paths are
relative to the file. A duration is written as 90s, 1h30m or 30d, and none is no limit; a
number of bytes as 512MiB. --check-config says what is wrong, --print-config fills in the
defaults. SIGHUP reads the file again.

dispatcher (/etc/harp/dispatcher.yaml)

` + config.Help(config.DispatcherKeys()) + `
agent (/etc/harp/agent.yaml)

` + config.Help(config.AgentKeys()),
		},
	}
}
