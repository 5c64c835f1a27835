package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/manifest"
)

func (c *cli) scheduleApplyCommand() *cobra.Command {
	var f applyFlags
	cmd := &cobra.Command{
		Use:   "apply -f DIR|FILE",
		Short: "Make schedules, groups, windows and notifications match documents",
		Long: `Make schedules, groups, maintenance windows, notifications and retention rules match the
documents in a file, or in all files *.yaml and *.yml of a folder: all of them in one step,
or none if something is wrong. Each changed field is printed. What already matches its
document is left alone.

What comes from a document cannot be changed or deleted by hand, but it can be paused,
unpaused, skipped and run. It is managed by a name, --managed-by: only documents applied
under this name change it. --prune deletes what the name manages and no document has any
more.

See harp help schedules for the keys of documents.`,
		Example: `  harp schedule apply -f schedules --dry-run
  harp schedule apply -f schedules --prune
  harp schedule apply -f schedules --dry-run --exit-code --quiet`,
		Args: cobra.NoArgs,
		RunE: c.does(func(ctx context.Context, _ []string) error {
			set, err := manifest.Read(f.path)
			if err != nil {
				return unreadableDocuments(err)
			}
			return c.withCaller(ctx, func(caller *harp.Caller) error { return c.applyDocuments(ctx, caller, &f, set) })
		}),
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.path, "file", "f", "", "the `file` or folder of the documents")
	flags.StringVar(&f.managedBy, "managed-by", "", "the `name` that manages them (default: the folder's name)")
	flags.BoolVar(&f.options.Prune, "prune", false, "also delete what this name manages and is no longer in any document")
	flags.BoolVar(&f.exitCode, "exit-code", false, "exit with 1 if something differs")
	bindDryRun(cmd, &f.options.DryRun)
	if err := cmd.MarkFlagRequired("file"); err != nil {
		panic(err) // it was just made
	}
	return cmd
}

// applyFlags say what is applied.
type applyFlags struct {
	path, managedBy string
	options         harp.ApplyOptions
	exitCode        bool
}

// unreadableDocuments is an error of documents that were read: a file that cannot be is wrong usage.
func unreadableDocuments(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) && !errors.Is(err, harp.ErrInvalid) {
		return invalid("file", "%s", err)
	}
	return err
}

// folderName is the name of the folder that has the documents.
func folderName(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		path = filepath.Dir(path)
	}
	return filepath.Base(path), nil
}

func (c *cli) applyDocuments(ctx context.Context, caller *harp.Caller, f *applyFlags, set *manifest.Set) (err error) {
	managedBy := f.managedBy
	if managedBy == "" {
		if managedBy, err = folderName(f.path); err != nil {
			return err
		}
	}
	done, err := caller.Schedules().Apply(ctx, managedBy, set.Documents, f.options)
	if err != nil {
		return set.Wrap(err)
	}
	if err := c.printApplied(f, managedBy, done); err != nil {
		return err
	}
	if f.exitCode && done.Count > 0 {
		return &exitOneError{"something differs"}
	}
	return nil
}

// printApplied says what was changed, or would be.
func (c *cli) printApplied(f *applyFlags, managedBy string, done harp.Applied) error {
	if c.format != formatText {
		changes := done.Changes
		if changes == nil {
			changes = []harp.DocumentChange{}
		}
		fields := object{{"managed_by", managedBy}, {"count", done.Count}, {"changes", changes}}
		if f.options.DryRun {
			return c.would(fields, "")
		}
		return c.printObject(fields)
	}
	would := ""
	if f.options.DryRun {
		would = "would be "
	}
	for _, change := range done.Changes {
		c.say("%s %s %s%s", change.Kind, change.Name, would, change.Action)
		for _, field := range change.Fields {
			c.say("  %s: %s", manifest.FieldOf(change.Kind, field.Field), changeText(field))
		}
	}
	switch left := done.Count - len(done.Changes); {
	case done.Count == 0:
		c.notice("nothing to change for %s", managedBy)
	case len(done.Changes) == 0:
		c.notice("applied for %s: %d documents changed something", managedBy, done.Count)
	case left > 0:
		c.say("and %d more", left)
	}
	return nil
}

// changeText is what a field was and will be.
func changeText(f harp.FieldChange) string {
	switch {
	case f.Old == "":
		return "is " + f.New
	case f.New == "":
		return "was " + f.Old
	}
	return f.Old + " -> " + f.New
}

func (c *cli) scheduleExportCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "export [NAME...]",
		Short: "Write schedules, groups and windows as documents",
		Long: `Write the schedules, groups and maintenance windows of these names, or all of them, as
documents for harp schedule apply: to stdout, or into a folder, one file each, with the
calendars of windows beside them. Existing files are replaced.

Secret arguments are written as ***, which apply refuses: fill them in.`,
		Example: `  harp schedule export nightly
  harp schedule export -d schedules`,
		Args: cobra.ArbitraryArgs,
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, args []string) error {
			documents, err := exported(ctx, caller, args)
			if err != nil {
				return err
			}
			if dir == "" {
				return c.printDocuments(documents)
			}
			return c.writeDocuments(dir, documents)
		}),
		ValidArgsFunction: c.completeOnly(c.asksWords(scheduleWords)),
	}
	cmd.Flags().StringVarP(&dir, "dir", "d", "", "the `folder` to write to, created if missing")
	return cmd
}

// exported returns the documents of what has one of these names, all if there are none. Errors: harp.ErrNotFound for a name that nothing has.
func exported(ctx context.Context, caller *harp.Caller, names []string) (documents []harp.Document, err error) {
	for s, err := range caller.Schedules().List(ctx) {
		if err != nil {
			return nil, err
		}
		documents = append(documents, harp.Document{Schedule: &s.Schedule})
	}
	for g, err := range caller.Groups().List(ctx) {
		if err != nil {
			return nil, err
		}
		documents = append(documents, harp.Document{Group: &g})
	}
	for w, err := range caller.Maintenance().List(ctx) {
		if err != nil {
			return nil, err
		}
		documents = append(documents, harp.Document{Window: &w.Window})
	}
	for n, err := range caller.Notifications().List(ctx) {
		if err != nil {
			return nil, err
		}
		documents = append(documents, harp.Document{Notification: &n.Notification})
	}
	rules, err := caller.Retention().List(ctx)
	if err != nil && !errors.Is(err, harp.ErrRefused) { // an older dispatcher knows none
		return nil, err
	}
	for _, r := range rules {
		documents = append(documents, harp.Document{Retention: &r.RetentionRule})
	}
	if len(names) > 0 {
		all := documents
		documents = slices.DeleteFunc(slices.Clone(all), func(d harp.Document) bool { return !slices.Contains(names, d.Name()) })
		for _, name := range names {
			if !slices.ContainsFunc(documents, func(d harp.Document) bool { return d.Name() == name }) {
				return nil, failures.NotFound("schedule", name)
			}
		}
	}
	for i, d := range documents {
		if d.Window != nil && d.Window.Calendar != nil { // a listing leaves its content out
			w, err := caller.Maintenance().Get(ctx, d.Name())
			if err != nil {
				return nil, err
			}
			documents[i].Window = &w.Window
		}
	}
	return documents, nil
}

func (c *cli) printDocuments(documents []harp.Document) error {
	for i, d := range documents {
		if hasFile(d) {
			return invalid("dir", "window %s has a calendar, which is a file beside its document: name a folder with --dir", d.Name())
		}
		text, err := manifest.Write(d, "")
		if err != nil {
			return err
		}
		if i > 0 {
			text = append([]byte("---\n"), text...)
		}
		if _, err := c.stdout.Write(text); err != nil {
			return err
		}
	}
	return nil
}

// writeDocuments writes documents into a folder.
func (c *cli) writeDocuments(dir string, documents []harp.Document) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return invalid("dir", "%s", err)
	}
	taken := map[string]bool{}
	for _, d := range documents {
		base := fileName(string(d.Kind())+"-"+d.Name(), taken)
		text, err := manifest.Write(d, base+".ics")
		if err != nil {
			return err
		}
		if err := writeFile(dir, base+".yaml", text); err != nil {
			return err
		}
		if hasFile(d) {
			if err := writeFile(dir, base+".ics", d.Window.Calendar.Content); err != nil {
				return err
			}
		}
	}
	c.notice("wrote %d documents to %s", len(documents), dir)
	return nil
}

// hasFile reports whether a document needs a file beside it, for a calendar that has no URL.
func hasFile(d harp.Document) bool {
	return d.Window != nil && d.Window.Calendar != nil && d.Window.Calendar.URL == ""
}

func writeFile(dir, name string, content []byte) error {
	if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil { //nolint:gosec // as documents in git are
		return invalid("dir", "%s", err)
	}
	return nil
}

// fileName makes of a name one of a file, that none which is taken is like: file systems may not tell letters apart.
func fileName(name string, taken map[string]bool) string {
	base := strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, name)
	unique := base
	for n := 2; taken[strings.ToLower(unique)]; n++ {
		unique = fmt.Sprintf("%s-%d", base, n)
	}
	taken[strings.ToLower(unique)] = true
	return unique
}
