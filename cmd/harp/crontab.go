package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/manifest"
	"github.com/harpcaller/harp/schedule"
)

func (c *cli) scheduleImportCommand() *cobra.Command {
	f := crontabFlags{}
	crontab := &cobra.Command{
		Use:   "crontab FILE --target TARGET --dir DIR",
		Short: "Turn a crontab into schedule documents and procedures",
		Long: `Turn each line of a crontab, such as /etc/crontab, into a schedule document and a procedure.
The procedure runs the line's command with its shell, as its user, with the variables set
above it, and with what follows % as its stdin. Nothing is sent to the dispatcher:

  DIR/TABLE.yaml             schedules, for harp schedule apply -f DIR
  DIR/procedures/TABLE.yaml  procedures, for the folder of the agents of the target

Lines that cannot become schedules, such as @reboot, are listed, and the exit code is 1.
Unlike with cron, a time is skipped while the last run goes on: see overlap in harp help
schedules.`,
		Example: `  harp schedule import crontab /etc/crontab --target role=db --dir schedules
  harp schedule import crontab ada.txt --user --target web01 --tz Europe/Madrid --dir schedules`,
		Args: cobra.ExactArgs(1),
		RunE: c.does(func(_ context.Context, args []string) error { return c.importCrontab(&f, args[0]) }),
	}
	flags := crontab.Flags()
	flags.StringVar(&f.target, "target", "", "the hosts that have the procedures, as a `target`")
	flags.BoolVar(&f.ofUser, "user", false, "the crontab is a user's own, as crontab -l prints it, without a user before each command")
	flags.StringVar(&f.zone, "tz", "", "the time `zone` of lines without CRON_TZ above them (default: the dispatcher's time_zone)")
	flags.StringVarP(&f.dir, "dir", "d", "", "the `folder` to write to, created if missing")
	for _, name := range []string{"target", "dir"} {
		if err := crontab.MarkFlagRequired(name); err != nil {
			panic(err) // it was just made
		}
	}
	return group("import", "Make schedule documents of what runs elsewhere", crontab)
}

type crontabFlags struct {
	target, zone, dir string
	ofUser            bool
}

// exitOneError ends a command with exit code 1: it has done what it could.
type exitOneError struct{ text string }

func (e *exitOneError) Error() string { return e.text }

func (c *cli) importCrontab(f *crontabFlags, path string) error {
	if err := checkTarget(f.target); err != nil {
		return err
	}
	if _, err := schedule.LoadZone(cmp.Or(f.zone, "UTC")); err != nil {
		return invalid("tz", "%s", err)
	}
	table, err := readCrontab(path, f.ofUser)
	if err != nil {
		return err
	}
	base := strings.TrimLeft(filepath.Base(path), ".") // hidden files are not read
	name := fileName(cmp.Or(strings.TrimSuffix(base, filepath.Ext(base)), "crontab"), map[string]bool{})
	documents, procedures, err := crontabFiles(f, name, path, table)
	if err != nil {
		return err
	}
	below := filepath.Join(f.dir, "procedures")
	if err := os.MkdirAll(below, 0o755); err != nil {
		return invalid("dir", "%s", err)
	}
	if len(table.Jobs) > 0 {
		if err := writeFile(f.dir, name+".yaml", documents); err != nil {
			return err
		}
		if err := writeFile(below, name+".yaml", procedures); err != nil {
			return err
		}
	}
	if n := len(table.Jobs); n == 1 {
		c.notice("wrote 1 schedule and its procedure to %s", f.dir)
	} else {
		c.notice("wrote %d schedules and their procedures to %s", n, f.dir)
	}
	for _, left := range table.Left {
		c.complain("%s:%d: %s: %s", path, left.Line, left.Text, strings.TrimPrefix(left.Err.Error(), "schedule: "))
	}
	switch n := len(table.Left); n {
	case 0:
		return nil
	case 1:
		return &exitOneError{"1 line was left out"}
	default:
		return &exitOneError{fmt.Sprintf("%d lines were left out", n)}
	}
}

// readCrontab reads a table of cron. Errors: harp.ErrInvalid.
func readCrontab(path string, ofUser bool) (*schedule.Crontab, error) {
	r, err := os.Open(path)
	if err != nil {
		return nil, invalid("file", "%s", err)
	}
	defer r.Close()
	kind := schedule.SystemCrontab
	if ofUser {
		kind = schedule.UserCrontab
	}
	table, err := schedule.ReadCrontab(r, kind)
	if err != nil {
		return nil, invalid("file", "%s: %s", path, strings.TrimPrefix(err.Error(), "schedule: "))
	}
	return table, nil
}

// crontabProcedure is a procedure as agents read it.
type crontabProcedure struct {
	Summary string            `yaml:"summary"`
	Command []string          `yaml:"command"`
	User    string            `yaml:"user,omitempty"`
	Env     map[string]string `yaml:"env,omitempty"`
	Stdin   string            `yaml:"stdin,omitempty"`
}

// crontabFiles are the documents and the procedures of a table.
func crontabFiles(f *crontabFlags, name, path string, table *schedule.Crontab) (documents, procedures []byte, err error) {
	file := map[string]crontabProcedure{}
	for _, job := range table.Jobs {
		of := fmt.Sprintf("%s.%d", name, job.Line)
		request, err := harp.NewBatchRequest(f.target, of, nil)
		if err != nil {
			return nil, nil, err
		}
		request.ID = "" // each run has its own
		from := fmt.Sprintf("line %d of %s", job.Line, path)
		text, err := manifest.Write(harp.Document{Schedule: &harp.Schedule{
			Name: of, Doc: from, Cron: job.Cron, TZ: cmp.Or(job.Zone, f.zone), Request: request,
		}}, "")
		if err != nil {
			return nil, nil, err
		}
		if documents != nil {
			documents = append(documents, "---\n"...)
		}
		documents = append(documents, text...)
		file[of] = procedureOf(job, from)
	}
	procedures, err = yaml.Dump(file)
	return documents, procedures, err
}

// procedureOf runs what a line of a table says as cron would.
func procedureOf(job schedule.CrontabJob, from string) crontabProcedure {
	p := crontabProcedure{Summary: from, User: job.User, Stdin: withoutPlaceholders(job.Input), Env: map[string]string{}}
	shell := "/bin/sh"
	for _, set := range job.Env {
		name, value, _ := strings.Cut(set, "=")
		if name == "SHELL" {
			shell = value
		}
		p.Env[name] = withoutPlaceholders(value)
	}
	p.Command = []string{shell, "-c", withoutPlaceholders(job.Command)}
	return p
}

// withoutPlaceholders is a text of which nothing is taken for a placeholder of a procedure.
func withoutPlaceholders(text string) string {
	return strings.ReplaceAll(text, "{{", `{{"{{"}}`)
}
