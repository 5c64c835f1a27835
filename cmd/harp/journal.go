package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/cmd/harp/internal/config"
)

func (c *cli) journalCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "journal",
		Short: "Check an agent's journal, or repair a damaged one",
	}
	cmd.AddCommand(c.journalCheckCommand(), c.journalRepairCommand())
	return cmd
}

// journalFlags name the directory of an agent.
type journalFlags struct{ file, dir string }

func (f *journalFlags) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.file, "config", "/etc/harp/agent.yaml", "the agent's configuration `file`, which names its dir")
	cmd.Flags().StringVar(&f.dir, "dir", "", "the agent's `folder`, instead of reading a configuration")
	cmd.MarkFlagsMutuallyExclusive("config", "dir")
}

// agentDir is the directory that the flags name.
func (f *journalFlags) agentDir(c *cli) (string, error) {
	if f.dir != "" {
		return f.dir, nil
	}
	cfg, err := config.ReadAgent(f.file)
	if err != nil {
		return "", c.unreadableConfig(err)
	}
	if cfg.Dir == "" {
		return "", plainInvalid("dir", "%s sets no dir: the journal of its agent is in memory", f.file)
	}
	return cfg.Dir, nil
}

func (c *cli) journalCheckCommand() *cobra.Command {
	var f journalFlags
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Show what is in an agent's journal, and what is damaged",
		Long: `Read the journal of a stopped agent, and say what is in it and where it is damaged;
nothing is changed. Bytes at the end that a crash or a power cut left unfinished are not
damage: the agent cuts them off when it starts. Run it as the agent's user or root.

The exit code is 1 if the journal is damaged and the agent would not start.`,
		Example: "  harp agent journal check --dir /var/lib/harp-agent",
		Args:    cobra.NoArgs,
		RunE: c.does(func(context.Context, []string) error {
			dir, err := f.agentDir(c)
			if err != nil {
				return err
			}
			found, err := agent.CheckJournal(dir)
			if err != nil {
				return err
			}
			return c.printJournal(dir, &found)
		}),
	}
	f.bind(cmd)
	return cmd
}

func (c *cli) journalRepairCommand() *cobra.Command {
	var (
		f   journalFlags
		dry bool
	)
	cmd := &cobra.Command{
		Use:   "repair",
		Short: "Replace a damaged journal with what can be read of it",
		Long: `Replace the damaged journal of a stopped agent with one that holds what can be read of
it. The damaged one is kept beside it. A journal without damage is left alone. Run it as
the agent's user.

The damage may have hit the start of a command. So the new journal has a new id, which
tells the dispatcher: jobs that it had sent to the host, and that neither the new journal
nor a running command accounts for, are lost (journal_gone). They may have run, and are
not sent again unless they are declared idempotent or the call allowed it. What could be
read goes on when the agent starts: results and records arrive.`,
		Example: "  harp agent journal repair --dir /var/lib/harp-agent",
		Args:    cobra.NoArgs,
		RunE: c.does(func(context.Context, []string) error {
			dir, err := f.agentDir(c)
			if err != nil {
				return err
			}
			if dry {
				return c.wouldRepair(dir)
			}
			did, err := agent.RepairJournal(dir)
			if err != nil {
				return err
			}
			return c.printRepair(dir, &did)
		}),
	}
	f.bind(cmd)
	bindDryRun(cmd, &dry)
	return cmd
}

// damagedJournalError says that a journal is damaged.
type damagedJournalError struct{ places int }

func (e *damagedJournalError) Error() string {
	return fmt.Sprintf("the journal is damaged (places: %d); harp agent journal repair keeps what can be read", e.places)
}

// Unwrap makes it exit as any check that fails.
func (e *damagedJournalError) Unwrap() error { return failedChecksError(e.places) }

// printJournal prints what is in a journal. Errors: *damagedJournalError.
func (c *cli) printJournal(dir string, r *journal.Report) error {
	if c.format == formatJSON {
		if err := c.printObject(journalObject(dir, r)); err != nil {
			return err
		}
	} else {
		c.pairs(journalRows(dir, r))
	}
	if n := len(r.Damage); n > 0 {
		return &damagedJournalError{n}
	}
	return nil
}

// journalObject is a journal as JSON.
func journalObject(dir string, r *journal.Report) object {
	damage := make([]object, len(r.Damage))
	for i, d := range r.Damage {
		damage[i] = object{{"file", d.File}, {"offset", d.Offset}, {"reason", d.Reason}}
	}
	return object{
		{"dir", dir},
		{"journal", r.ID},
		{"segments", r.Segments},
		{"bytes", r.Bytes},
		{"running", countRunning(r)},
		{"ended", len(r.Held) - countRunning(r)},
		{"partial", len(r.Partial)},
		{"tombstones", r.Tombs},
		{"torn", r.Torn},
		{"damage", damage},
	}
}

// countRunning returns how many attempts have not ended, so far as the journal says.
func countRunning(r *journal.Report) (n int) {
	for _, h := range r.Held {
		if h.State != journal.Ended {
			n++
		}
	}
	return n
}

// journalRows are a journal as text.
func journalRows(dir string, r *journal.Report) [][2]string {
	id := r.ID
	if id == "" {
		id = "(unknown)"
	}
	rows := [][2]string{
		{"journal", id + " in " + filepath.Join(dir, "journal")},
		{"size", fmt.Sprintf("%d bytes, segments: %d", r.Bytes, r.Segments)},
		{"attempts", fmt.Sprintf("%d not ended, %d ended and not acknowledged", countRunning(r), len(r.Held)-countRunning(r))},
		{"tombstones", fmt.Sprint(r.Tombs)},
	}
	if n := len(r.Partial); n > 0 {
		rows = append(rows, [2]string{"in part", fmt.Sprintf("%d attempts, which will not be started", n)})
	}
	if r.Torn > 0 {
		rows = append(rows, [2]string{"unfinished", fmt.Sprintf("%d bytes at the end, left by a crash", r.Torn)})
	}
	for _, d := range r.Damage {
		rows = append(rows, [2]string{"damaged", fmt.Sprintf("%s at offset %d: %s", d.File, d.Offset, d.Reason)})
	}
	if len(r.Damage) == 0 {
		rows = append(rows, [2]string{"damaged", "nothing"})
	}
	return rows
}

// wouldRepair says what a repair would do.
func (c *cli) wouldRepair(dir string) error {
	found, err := agent.CheckJournal(dir)
	if err != nil {
		return err
	}
	text := "the journal is not damaged and would be left as it is"
	if len(found.Damage) > 0 {
		text = fmt.Sprintf("a journal of %d attempts and %d tombstones would replace the damaged one",
			len(found.Held), found.Tombs+len(found.Partial))
	}
	return c.would(journalObject(dir, &found), "%s", text)
}

// printRepair says what a repair did.
func (c *cli) printRepair(dir string, did *agent.JournalRepair) error {
	if c.format == formatJSON {
		return c.printObject(append(journalObject(dir, &did.Report), object{{"new", did.NewID}, {"aside", did.Aside}}...))
	}
	if did.NewID == "" {
		c.say("the journal in %s is not damaged and was left as it is", dir)
		return nil
	}
	rows := journalRows(dir, &did.Report)
	rows[0] = [2]string{"journal", did.NewID + " in " + filepath.Join(dir, "journal")}
	c.pairs(append(rows, [2]string{"kept aside", did.Aside}))
	c.say("What could be read goes on when the agent starts. What the dispatcher had sent here and can no longer")
	c.say("be read is lost (journal_gone): it may have run.")
	return nil
}
